//! Messages between worker and coordinator: each arrives once and in order, over however many connections.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, MutexGuard, mpsc};
use tokio::time::{Instant, sleep_until};

use super::framing::{Parcel, Receiver, Sender};
use super::hop::{ReceiveLog, SendLog};
use super::transport::NetError;
use crate::protocol::Line;

/// One side of a conversation that says `O`.
#[derive(Debug)]
pub struct Conversation<O> {
    say: mpsc::UnboundedSender<O>,
    state: Mutex<State<O>>,
}

/// What outlives a connection.
#[derive(Debug)]
pub struct State<O> {
    queue: mpsc::UnboundedReceiver<O>,
    log: SendLog<Parcel>,
    received: ReceiveLog,
}

/// Keeps the other side informed that this one lives.
#[derive(Debug)]
pub struct Beat<F> {
    /// How often.
    pub every: Duration,
    /// What is said then.
    pub make: F,
}

impl<O: Serialize> Conversation<O> {
    /// Nothing was said.
    pub fn new() -> Self {
        let (say, queue) = mpsc::unbounded_channel();
        Self { say, state: Mutex::new(State { queue, log: SendLog::new(), received: ReceiveLog::default() }) }
    }

    /// Says something, now or over the next connection.
    pub fn say(&self, message: O) {
        // The queue lives as long as the conversation.
        let _ = self.say.send(message);
    }

    /// Takes the conversation, once the connection before has let it go.
    pub async fn take(&self) -> MutexGuard<'_, State<O>> {
        self.state.lock().await
    }
}

impl<O: Serialize> Default for Conversation<O> {
    fn default() -> Self {
        Self::new()
    }
}

impl<O: Serialize> State<O> {
    /// How many messages have come; the other side is told so.
    pub fn resume(&mut self) -> u64 {
        self.received.resume()
    }

    /// Goes on over a new stream, whose other side has `heard` of what was said here, until the stream breaks.
    /// `on` is told everything that is said there.
    ///
    /// # Errors
    /// Always: how it broke.
    pub async fn hold<I: DeserializeOwned>(
        &mut self,
        (mut sender, mut receiver): (Sender, Receiver),
        heard: u64,
        beat: Beat<impl Fn() -> O>,
        mut on: impl FnMut(I),
    ) -> Result<std::convert::Infallible, NetError> {
        self.settle(heard)?;
        for parcel in self.log.open() {
            sender.send(parcel.clone()).await?;
        }
        let mut next_beat = Instant::now() + beat.every;
        loop {
            tokio::select! {
                biased;
                line = receiver.receive() => match line?.ok_or(NetError::Stopped)?.head::<Line<I>>()? {
                    Line::Message(message) => {
                        on(message);
                        self.received.on_message(0);
                        if let Some(received) = self.received.ack(true) {
                            sender.send(Parcel::new(&Line::<O>::Ack(received))?).await?;
                        }
                    }
                    Line::Ack(received) => self.settle(received)?,
                    Line::Beat(message) => on(message),
                },
                Some(message) = self.queue.recv(), if self.log.has_room() => {
                    let parcel = Parcel::new(&Line::Message(message))?;
                    self.log.push(parcel.clone(), parcel.bytes());
                    sender.send(parcel).await?;
                }
                () = sleep_until(next_beat) => {
                    next_beat = Instant::now() + beat.every;
                    sender.send(Parcel::new(&Line::Beat((beat.make)()))?).await?;
                }
            }
        }
    }

    fn settle(&mut self, received: u64) -> Result<(), NetError> {
        self.log.on_ack(received).map_err(|error| NetError::Protocol(error.to_string()))
    }
}
