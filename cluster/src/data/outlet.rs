//! The sending end of an edge between two processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thetis_executor::ExecError;
use thetis_executor::task::Addressed;
use tokio::sync::mpsc;
use tracing::debug;

use super::codec::Encoder;
use crate::net::framing::{Parcel, framed};
use crate::net::hop::SendLog;
use crate::net::peers::{Current, connected};
use crate::net::transport::{Connection, NetError};
use crate::protocol::{EdgeHead, Greeting, Resume};

/// A process to which there is no connection for so long is not to be reached.
const UNREACHABLE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(10);

/// What an outlet has sent.
#[derive(Debug, Default)]
pub struct LinkCounters {
    /// Bytes, as they go to the transport, each once.
    pub bytes: AtomicU64,
    /// Bytes of the columns, weights and units in memory.
    pub payload: AtomicU64,
}

/// What a receiver answers to a frame: how many it has.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Ack(pub(super) u64);

/// Sends what comes by a queue to another process, over whatever connection there is.
#[derive(Debug)]
pub struct Outlet {
    head: EdgeHead,
    /// The name of the other process.
    to: String,
    connection: Current,
    queue: mpsc::Receiver<Addressed>,
    encoder: Encoder,
    log: SendLog<Parcel>,
    /// The queue has ended.
    ended: bool,
    counters: Arc<LinkCounters>,
}

impl Outlet {
    /// An outlet of `queue`.
    pub fn new(
        head: EdgeHead,
        to: String,
        connection: Current,
        queue: mpsc::Receiver<Addressed>,
        encoder: Encoder,
        counters: Arc<LinkCounters>,
    ) -> Self {
        Self { head, to, connection, queue, encoder, log: SendLog::new(), ended: false, counters }
    }

    /// Runs until the queue has ended and the other side has everything.
    ///
    /// # Errors
    /// The other side wants no more, or something cannot be sent.
    pub async fn run(mut self) -> Result<(), ExecError> {
        loop {
            let connection = tokio::time::timeout(UNREACHABLE, connected(&mut self.connection)).await;
            let connection = connection.map_err(|_| ExecError::Lost {
                worker: self.to.clone(),
                reason: "other workers cannot connect to it (its --listen and --advertise say where it is)".to_owned(),
            })?;
            let connection = connection.map_err(|_| ExecError::Cancelled)?;
            match self.send_over(&*connection).await {
                Ok(()) => return Ok(()),
                Err(NetError::Lost(reason)) => {
                    debug!(edge = self.head.edge, reason, "the connection is lost; going on over the next one");
                    // Until the loss is known everywhere.
                    tokio::time::sleep(PAUSE).await;
                }
                Err(NetError::Stopped) => return Err(ExecError::Cancelled),
                Err(error) => return Err(ExecError::Internal(format!("between processes: {error}"))),
            }
        }
    }

    async fn send_over(&mut self, connection: &dyn Connection) -> Result<(), NetError> {
        let (mut send, mut receive) = framed(connection.open().await?);
        send.greet(Parcel::new(&Greeting::Edge(self.head.clone()))?).await?;
        let resume: Resume = receive.receive().await?.ok_or(NetError::Stopped)?.head()?;
        self.settle(resume.received)?;
        for parcel in self.log.open() {
            send.send(parcel.clone()).await?;
        }
        loop {
            if self.ended && self.log.is_settled() {
                send.finish();
                return Ok(());
            }
            tokio::select! {
                biased;
                ack = receive.receive() => {
                    let Ack(received) = ack?.ok_or(NetError::Stopped)?.head()?;
                    self.settle(received)?;
                }
                message = self.queue.recv(), if !self.ended && self.log.has_room() => match message {
                    None => self.ended = true,
                    Some(message) => {
                        for parcel in self.encode(&message)? {
                            send.send(parcel).await?;
                        }
                    }
                },
            }
        }
    }

    fn settle(&mut self, received: u64) -> Result<(), NetError> {
        self.log.on_ack(received).map_err(|error| NetError::Protocol(error.to_string()))
    }

    /// The parcels of a message, which are kept until the other side has them.
    fn encode(&mut self, message: &Addressed) -> Result<Vec<Parcel>, NetError> {
        let parcels = self.encoder.encode(message).map_err(|error| NetError::Protocol(crate::error::chain(&error)))?;
        self.counters.payload.store(self.encoder.payload(), Ordering::Relaxed);
        for parcel in &parcels {
            self.log.push(parcel.clone(), parcel.bytes());
            self.counters.bytes.fetch_add(parcel.bytes() as u64, Ordering::Relaxed);
        }
        Ok(parcels)
    }
}
