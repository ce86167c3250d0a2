//! What the cluster asks of a network. [`super::quic`] is the real one, [`super::memory`] a simulated one.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A connection on which nothing arrives for so long is lost. Channels go on over the next one.
pub const IDLE: Duration = Duration::from_secs(4);

/// A future of a transport.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a process may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Plans queries and places their tasks.
    Coordinator,
    /// Runs tasks.
    Worker,
    /// Submits SQL.
    Client,
}

impl Role {
    const ALL: [Self; 3] = [Self::Coordinator, Self::Worker, Self::Client];

    /// In lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Worker => "worker",
            Self::Client => "client",
        }
    }

    /// The role of this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// Who a process is, as its certificate says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Peer {
    /// What it may do.
    pub role: Role,
    /// Its name, one of its role in a cluster.
    pub name: String,
}

impl Peer {
    /// A process of this role and name.
    pub fn new(role: Role, name: impl Into<String>) -> Self {
        Self { role, name: name.into() }
    }

    /// The coordinator; a cluster has one.
    pub fn coordinator() -> Self {
        Self::new(Role::Coordinator, "main")
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.role.name(), self.name)
    }
}

/// Why a connection or a stream does not work, or no longer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// No connection comes about.
    #[error("{address} cannot be reached: {reason}")]
    Unreachable {
        /// Where to.
        address: String,
        /// What is in the way.
        reason: String,
    },
    /// The other side does not accept who we are, or we do not accept it.
    #[error("{address} refuses the connection: {reason}")]
    Refused {
        /// Where to.
        address: String,
        /// Why.
        reason: String,
    },
    /// The connection is gone.
    #[error("the connection is lost: {0}")]
    Lost(String),
    /// The other side has ended the stream.
    #[error("the other side has ended the stream")]
    Stopped,
    /// The other side sends what it should not.
    #[error("the other side breaks the protocol: {0}")]
    Protocol(String),
}

/// A network endpoint of this process.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Connects to a process that must be `peer`.
    fn connect<'a>(&'a self, peer: &'a Peer, address: &'a str) -> Pending<'a, Result<Arc<dyn Connection>, NetError>>;

    /// The next connection from elsewhere; `None` when the endpoint is closed.
    fn accept(&self) -> Pending<'_, Option<Arc<dyn Connection>>>;

    /// Where others reach this endpoint.
    fn address(&self) -> String;
}

/// A connection to one other process.
pub trait Connection: Send + Sync + fmt::Debug {
    /// Who is at the other side; `None` for a process without a certificate.
    fn peer(&self) -> Option<&Peer>;

    /// Where the other side is.
    fn remote(&self) -> String;

    /// Opens a stream. The other side sees it once something is sent.
    fn open(&self) -> Pending<'_, Result<Stream, NetError>>;

    /// The next stream that the other side opens.
    fn accept(&self) -> Pending<'_, Result<Stream, NetError>>;

    /// Ends the connection at once.
    fn close(&self, reason: &str);

    /// Waits until it is gone.
    fn closed(&self) -> Pending<'_, NetError>;
}

/// A stream, for both directions.
pub struct Stream {
    /// Out.
    pub send: Box<dyn SendHalf>,
    /// In.
    pub receive: Box<dyn ReceiveHalf>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream")
    }
}

/// Sends bytes in order.
pub trait SendHalf: Send {
    /// Sends all of `chunks`; waits while the other side does not take them. After an error or when it is
    /// dropped while it waits, the stream is of no use.
    fn send<'a>(&'a mut self, chunks: &'a mut [Bytes]) -> Pending<'a, Result<(), NetError>>;

    /// Nothing follows.
    fn finish(&mut self);

    /// Waits until the other side wants nothing more, or has received all of a finished stream.
    fn stopped(&self) -> Pending<'static, ()>;
}

/// Receives bytes in order.
pub trait ReceiveHalf: Send {
    /// The next bytes, as many as are there, at most `most`; `None` at the end. May be dropped while it waits.
    fn receive(&mut self, most: usize) -> Pending<'_, Result<Option<Bytes>, NetError>>;
}
