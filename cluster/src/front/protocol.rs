//! What clients and the coordinator say to each other. Parameters and rows travel as Arrow IPC in bodies.

use std::time::Duration;

use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};
use thetis_executor::counters::Snapshot;
use thetis_planner::Output;

use crate::data::codec::FrameHead;
use crate::error::Failure;
use crate::work::Completion;

/// What a client asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// Run a statement. Values for its parameters, if it has any, are the one row of the body.
    Execute(String, Output),
    /// Plan a statement, and define what it defines.
    Check(String, Output),
    /// Run an INSERT of constant rows for each row of values in the body, in one step.
    InsertRows(String),
    /// List what there is.
    Describe,
    /// Say how the cluster is.
    Status,
}

/// What the coordinator answers. A statement that gives rows is answered by [`Answer::Rows`], then frames,
/// progress and counts, then [`Answer::End`] or [`Answer::Failed`]; all else by one answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Answer {
    /// It is done; what the user should be told.
    Done(Completion, Vec<String>),
    /// It is planned.
    Checked,
    /// This INSERT cannot be run for several rows at once.
    OneByOne,
    /// Rows follow.
    Rows(RowsHead),
    /// Some of them.
    Frame(FrameHead),
    /// What its tasks have counted.
    Counted(Snapshot),
    /// All rows were sent.
    End,
    /// It fails.
    Failed(Failure),
    /// What there is.
    Description(Description),
    /// How the cluster is.
    Status(Status),
}

/// A result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RowsHead {
    /// Columns of the result.
    pub schema: SchemaRef,
    /// Rows are changes of it.
    pub changes: bool,
    /// It ends by itself.
    pub bounded: bool,
    /// What the user should be told.
    pub notices: Vec<String>,
}

/// What there is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Description {
    /// Relations: name, kind as in `DROP kind name`, columns.
    pub relations: Vec<(String, String, SchemaRef)>,
    /// Settings of the session: name, value.
    pub settings: Vec<(String, String)>,
}

/// How a cluster is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Status {
    /// Where the coordinator listens.
    pub address: String,
    /// Since its process started.
    pub uptime: Duration,
    /// Its workers.
    pub workers: Vec<WorkerRow>,
    /// The queries that run.
    pub queries: Vec<QueryRow>,
    /// The tasks of these.
    pub tasks: Vec<TaskRow>,
}

/// A worker of a cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerRow {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub address: String,
    /// `active` or `leaving`.
    pub state: String,
    /// Its slots.
    pub slots: u32,
    /// Tasks that it runs.
    pub tasks: u32,
    /// Since it was last heard of.
    pub silence: Duration,
}

/// A query that runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QueryRow {
    /// Its number.
    pub id: u64,
    /// Since it started.
    pub runs: Duration,
    /// Its tasks.
    pub tasks: u32,
    /// Rows that its sources have read.
    pub rows_in: u64,
    /// Rows of its result.
    pub rows_out: u64,
    /// The last epoch that a source has reached.
    pub epoch: u64,
}

/// A task of a query that runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskRow {
    /// The query.
    pub query: u64,
    /// As in `join 2#1`.
    pub task: String,
    /// Where it runs.
    pub worker: String,
    /// Rows taken.
    pub rows_in: u64,
    /// Rows given out.
    pub rows_out: u64,
    /// Time at work.
    pub busy: Duration,
    /// Time in which receivers had no room.
    pub blocked: Duration,
    /// Time without input.
    pub idle: Duration,
    /// Messages that wait for it.
    pub queue: u64,
    /// Bytes that it has read from files.
    pub bytes: u64,
}
