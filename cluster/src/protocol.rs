//! What processes say to each other. Everything is bincode in a message's head (see [`crate::wire`]); only
//! rows travel in its body.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thetis_executor::ExecError;
use thetis_executor::counters::Snapshot;
use thetis_executor::query::{Placement, Process};

use crate::epochs::Announcement;
use crate::front::protocol::Request;
use crate::net::transport::Peer;

/// A query, for the life of a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueryId(pub u64);

impl std::fmt::Display for QueryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Counts the registrations of workers: what a fenced worker still sends carries an older one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Generation(pub u64);

/// What a process that opens a stream wants.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Greeting {
    /// A worker, to its coordinator: orders and reports.
    Control(Hello),
    /// Rows of one edge of a query.
    Edge(EdgeHead),
    /// A client's statement.
    Request(Box<Request>),
    /// A new worker has a token.
    Join(JoinRequest),
}

/// The edge of a query whose rows follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeHead {
    /// The query.
    pub query: QueryId,
    /// Position of the edge in the DAG.
    pub edge: u32,
    /// The sender.
    pub from: Process,
    /// The sender's registration.
    pub generation: Generation,
}

/// The receiver of a channel has so many messages of it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Resume {
    /// The messages.
    pub received: u64,
}

/// A worker registers, or goes on after a lost connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    /// Drawn when the process starts.
    pub boot: u64,
    /// Share of the tasks that it wants.
    pub slots: u32,
    /// Where other workers reach it.
    pub address: String,
    /// What it goes on with, if it was registered before.
    pub resumes: Option<Resumed>,
}

/// What a worker knows of its coordinator.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Resumed {
    /// Drawn when the coordinator's process started.
    pub coordinator: u64,
    /// The worker's registration.
    pub generation: Generation,
    /// Messages received from the coordinator.
    pub received: u64,
}

/// The answer to a [`Hello`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Welcome {
    /// It is registered.
    Registered {
        /// Drawn when the coordinator's process started.
        coordinator: u64,
        /// The registration.
        generation: Generation,
        /// Messages received from this worker under this registration.
        received: u64,
        /// How often it reports.
        heartbeat: Duration,
    },
    /// It is not.
    Refused(String),
}

/// A line of a conversation between worker and coordinator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Line<M> {
    /// To be received once, in order.
    Message(M),
    /// So many messages were received.
    Ack(u64),
    /// A sign of life, which may be lost.
    Beat(M),
}

/// What the coordinator tells a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ToWorker {
    /// Make your tasks of a query.
    Prepare(Box<Order>),
    /// All have made them: run.
    Start(QueryId),
    /// How far its epochs are.
    Announce(QueryId, Announcement),
    /// End it, and forget it.
    Stop(QueryId),
    /// Nothing.
    Alive,
}

/// What a worker tells the coordinator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum FromWorker {
    /// The tasks of a query are made, or cannot be.
    Prepared(QueryId, Result<(), ExecError>),
    /// They have ended; what they have counted.
    Ended(QueryId, Result<(), ExecError>, Snapshot),
    /// Give me no more queries: I want to leave.
    Leaving,
    /// What the tasks have counted so far.
    Counted(BTreeMap<QueryId, Snapshot>),
}

/// A process's part of a query.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// The query.
    pub query: QueryId,
    /// Its DAG, encoded: see [`crate::wire`].
    pub plan: Vec<u8>,
    /// Who runs what.
    pub placement: Placement,
    /// Who the receiver is.
    pub here: Process,
    /// Who the others are.
    pub members: BTreeMap<Process, Member>,
    /// How far its epochs are.
    pub announcement: Announcement,
}

/// A process that has tasks of a query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Who it is.
    pub peer: Peer,
    /// Where it is.
    pub address: String,
    /// Its registration.
    pub generation: Generation,
}

/// A new worker wants an identity.
#[derive(Clone, Serialize, Deserialize)]
pub struct JoinRequest {
    /// Of its token.
    pub secret: String,
    /// The name it wants.
    pub name: String,
    /// Its key's certificate request.
    pub request: String,
}

impl std::fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The answer to a [`JoinRequest`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum JoinReply {
    /// Its certificate and the authority's.
    Granted {
        /// Of the worker.
        certificate: String,
        /// Of the authority.
        authority: String,
    },
    /// No.
    Refused(String),
}
