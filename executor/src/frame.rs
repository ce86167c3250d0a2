//! What travels between tasks.

use std::sync::Arc;

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

/// Most rows of a frame.
pub const FRAME_ROWS: usize = 8192;

/// A numbered slice of the input, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Before the first epoch.
    pub const NONE: Self = Self(0);
    /// The first epoch.
    pub const FIRST: Self = Self(1);
    /// Progress of an input that has ended: every epoch is complete.
    pub const END: Self = Self(u64::MAX);
}

impl std::fmt::Display for Epoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Self::END { f.write_str("end") } else { write!(f, "{}", self.0) }
    }
}

/// Rows of one epoch with their weights.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The rows, at most [`FRAME_ROWS`].
    pub batch: RecordBatch,
    /// One per row: +n for n inserts, -n for n deletes; absent means all +1.
    pub weights: Option<Arc<[i64]>>,
    /// Where a join places the rows; stamped by the exchange into it.
    pub units: Option<Units>,
    /// The epoch of all rows.
    pub epoch: Epoch,
    /// Version of the layout that routed the rows; 0 outside of joins.
    pub layout: u32,
    /// The query's count of recoveries when the frame was made.
    pub incarnation: u32,
}

/// The unit of each row: a content-sensitive bucket and a content-insensitive slice.
#[derive(Debug, Clone)]
pub struct Units {
    /// Buckets.
    pub buckets: Arc<[u32]>,
    /// Slices, below [`thetis_planner::layout::SLICES`].
    pub slices: Arc<[u16]>,
}

impl Frame {
    /// Inserts of one epoch.
    pub fn inserts(batch: RecordBatch, epoch: Epoch) -> Self {
        Self { batch, weights: None, units: None, epoch, layout: 0, incarnation: 0 }
    }

    /// The same frame with other rows and their weights.
    pub fn with_rows(&self, batch: RecordBatch, weights: Option<Arc<[i64]>>) -> Self {
        Self { batch, weights, units: None, ..*self }
    }

    /// Number of rows, whatever their weights.
    pub fn rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// Number of rows, each as often as its weight says, deletes too.
    pub fn changes(&self) -> u64 {
        let weighted = |weights: &Arc<[i64]>| weights.iter().map(|weight| weight.unsigned_abs()).sum();
        self.weights.as_ref().map_or(self.rows() as u64, weighted)
    }

    /// Whether it has the same rows as `other`, sent to another task.
    pub(crate) fn is_copy_of(&self, other: &Self) -> bool {
        let same = |(a, b): (&Units, &Units)| Arc::ptr_eq(&a.buckets, &b.buckets);
        self.units.as_ref().zip(other.units.as_ref()).is_some_and(same)
    }

    /// Weight of a row.
    pub fn weight(&self, row: usize) -> i64 {
        self.weights.as_ref().map_or(1, |weights| weights[row])
    }
}

/// What travels on a channel, in order.
#[derive(Debug, Clone)]
pub enum Message {
    /// Rows.
    Frame(Frame),
    /// All frames of this epoch and the earlier ones have been sent on this channel.
    Progress(Epoch),
}
