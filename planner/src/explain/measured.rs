//! What is counted while a query runs: plain data that the executor fills in and EXPLAIN ANALYZE
//! shows.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A run of a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measured {
    /// From the start to the last row.
    pub wall: Duration,
    /// The last epoch that a source has reached.
    pub epochs: u64,
    /// Rows that the client got, each as often as its weight says.
    pub rows_out: u64,
    /// By operator, of each task.
    pub tasks: Vec<Vec<TaskMeasured>>,
    /// By edge of the DAG, all sending tasks together.
    pub edges: Vec<EdgeMeasured>,
}

/// What a task has done. Rows are counted once, whatever their weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskMeasured {
    /// Rows taken from inputs; of a source, rows read.
    pub rows_in: u64,
    /// Frames taken from inputs.
    pub frames_in: u64,
    /// Rows emitted, before the steps of the edges.
    pub rows_out: u64,
    /// Frames emitted.
    pub frames_out: u64,
    /// Time at work: reading, the operator, the steps and routes of its edges.
    pub busy: Duration,
    /// Time in which receivers had no room.
    pub blocked: Duration,
    /// Messages that wait for it now.
    pub queue: u64,
    /// Of a cell.
    pub join: Option<JoinMeasured>,
    /// Of a source.
    pub source: Option<SourceMeasured>,
}

/// What a cell has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinMeasured {
    /// Pairs that a local index proposed, or that a scan looked at.
    pub examined: u64,
    /// Pairs that the condition holds for.
    pub kept: u64,
    /// Rows stored of each side at the end.
    pub stored: [u64; 2],
    /// Bytes of these rows, their indexes and sums.
    pub state_bytes: u64,
}

/// What a source has read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceMeasured {
    /// Bytes read.
    pub bytes: u64,
    /// Records that could not be read and were skipped.
    pub skipped: u64,
    /// Rows that were left out unread, as no filter needs them.
    pub left_out: u64,
}

/// What an edge has carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeMeasured {
    /// Rows that had a target.
    pub routed: u64,
    /// Rows that were delivered: more, where rows are copied.
    pub delivered: u64,
    /// Bytes that went to other processes, with heads and lengths.
    pub sent_bytes: u64,
    /// Bytes of these rows' columns, weights and units in memory.
    pub sent_payload: u64,
}

impl EdgeMeasured {
    /// How often a row was copied; `None` if there was none.
    pub fn replication(&self) -> Option<f64> {
        (self.routed > 0).then(|| self.delivered as f64 / self.routed as f64)
    }
}

impl std::iter::Sum for TaskMeasured {
    fn sum<I: Iterator<Item = Self>>(tasks: I) -> Self {
        tasks.fold(Self::default(), |sum, task| Self {
            rows_in: sum.rows_in + task.rows_in,
            frames_in: sum.frames_in + task.frames_in,
            rows_out: sum.rows_out + task.rows_out,
            frames_out: sum.frames_out + task.frames_out,
            busy: sum.busy + task.busy,
            blocked: sum.blocked + task.blocked,
            queue: sum.queue + task.queue,
            join: task.join.map(|join| sum.join.unwrap_or_default().and(join)).or(sum.join),
            source: task.source.map(|source| sum.source.unwrap_or_default().and(source)).or(sum.source),
        })
    }
}

impl JoinMeasured {
    fn and(self, other: Self) -> Self {
        Self {
            examined: self.examined + other.examined,
            kept: self.kept + other.kept,
            stored: [self.stored[0] + other.stored[0], self.stored[1] + other.stored[1]],
            state_bytes: self.state_bytes + other.state_bytes,
        }
    }
}

impl SourceMeasured {
    fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            skipped: self.skipped + other.skipped,
            left_out: self.left_out + other.left_out,
        }
    }
}
