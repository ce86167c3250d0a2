//! The receiving end of an edge between two processes.

use std::collections::BTreeMap;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use thetis_executor::task::{Addressed, Envelope};
use tokio::sync::{Mutex, mpsc, watch};

use super::codec::Decoder;
use super::outlet::Ack;
use crate::net::framing::{Parcel, Received, Receiver, Sender};
use crate::net::hop::ReceiveLog;
use crate::net::transport::NetError;
use crate::protocol::Resume;

/// When nothing comes for so long, the sender is told what has arrived.
const ACK_DELAY: Duration = Duration::from_millis(2);

/// What is known of the messages of one edge from one process, whatever stream they come on.
#[derive(Debug)]
pub struct Inlet {
    decoder: Decoder,
    log: ReceiveLog,
    /// By task.
    inboxes: BTreeMap<u32, mpsc::Sender<Envelope>>,
    /// Channels of the receivers that are the sender's.
    channels: std::ops::Range<u32>,
}

/// An inlet and the stream that feeds it: a newer stream takes the place of an older one.
#[derive(Debug)]
pub struct InletSlot {
    inlet: Mutex<Inlet>,
    turn: watch::Sender<u64>,
}

impl InletSlot {
    /// An inlet for rows of `schema` that come on `channels` of the tasks with these inboxes.
    pub fn new(
        schema: SchemaRef,
        inboxes: BTreeMap<u32, mpsc::Sender<Envelope>>,
        channels: std::ops::Range<u32>,
    ) -> Self {
        let inlet = Inlet { decoder: Decoder::new(schema), log: ReceiveLog::default(), inboxes, channels };
        Self { inlet: Mutex::new(inlet), turn: watch::channel(0).0 }
    }

    /// Delivers what comes on a stream, to its end or until another one takes its place.
    ///
    /// # Errors
    /// The stream is of no use any more, or the other side sends what it should not.
    pub async fn receive(&self, mut sender: Sender, mut receiver: Receiver) -> Result<(), NetError> {
        let mut turn = 0;
        self.turn.send_modify(|now| {
            *now += 1;
            turn = *now;
        });
        let mut turns = self.turn.subscribe();
        // The stream before stops between two messages.
        let mut inlet = self.inlet.lock().await;
        sender.send(Parcel::new(&Resume { received: inlet.log.resume() })?).await?;
        loop {
            let next = tokio::select! {
                biased;
                _ = turns.wait_for(|now| *now != turn) => return Ok(()),
                next = next(&mut receiver, &mut inlet.log) => next?,
            };
            let idle = match next {
                Next::Message(received) => {
                    inlet.deliver(&received).await?;
                    false
                }
                Next::Idle => true,
                Next::End => return Ok(()),
            };
            if let Some(ack) = inlet.log.ack(idle) {
                sender.send(Parcel::new(&Ack(ack))?).await?;
            }
        }
    }
}

enum Next {
    Message(Received),
    /// Nothing came for a while, and the sender waits to hear what has.
    Idle,
    End,
}

async fn next(receiver: &mut Receiver, log: &mut ReceiveLog) -> Result<Next, NetError> {
    let received = if log.is_told() {
        receiver.receive().await
    } else {
        match tokio::time::timeout(ACK_DELAY, receiver.receive()).await {
            Ok(received) => received,
            Err(_) => return Ok(Next::Idle),
        }
    };
    Ok(received?.map_or(Next::End, Next::Message))
}

impl Inlet {
    async fn deliver(&mut self, received: &Received) -> Result<(), NetError> {
        let decoded = self.decoder.decode(received);
        let Addressed { tasks, envelope } = decoded.map_err(|error| NetError::Protocol(crate::error::chain(&error)))?;
        let Envelope { channel, message } = envelope;
        if !self.channels.contains(&channel) {
            return Err(NetError::Protocol(format!("a message for channel {channel}, which is another's")));
        }
        let (last, others) = tasks.split_last().ok_or_else(|| NetError::Protocol("a message for nobody".to_owned()))?;
        for task in others {
            self.inbox(*task)?.send(Envelope { channel, message: message.clone() }).await.map_err(gone)?;
        }
        self.inbox(*last)?.send(Envelope { channel, message }).await.map_err(gone)?;
        self.log.on_message(received.bytes());
        Ok(())
    }

    fn inbox(&self, task: u32) -> Result<&mpsc::Sender<Envelope>, NetError> {
        self.inboxes
            .get(&task)
            .ok_or_else(|| NetError::Protocol(format!("a message for task {task}, which is elsewhere")))
    }
}

/// The task has failed, or wants no more.
fn gone<T>(_: mpsc::error::SendError<T>) -> NetError {
    NetError::Stopped
}
