//! Operators: synchronous and resumable. They are driven by a [task](crate::task).

use crate::error::ExecError;
use crate::frame::{Epoch, Frame};

/// Whether an operator has more to do before it takes the next message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Output is waiting: send it, then resume.
    Full,
    /// Nothing is left to do.
    Idle,
    /// The operator wants no more input: its result is complete.
    Finished,
}

/// What a cell has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Pairs that a local index proposed, or that a scan looked at.
    pub examined: u64,
    /// Pairs that the condition holds for.
    pub kept: u64,
    /// Rows that are stored of each side.
    pub stored: [u64; 2],
}

/// One parallel instance of an operator.
///
/// Calls come in this order: `on_frame` or `on_progress`, then `resume` until it is not
/// [`Step::Full`]. Output is bounded per call, so that one frame that meets 10^9 pairs does not
/// fill the memory, and cancelling is looked at in between.
pub trait Operator: Send + std::fmt::Debug {
    /// Takes a frame of an input.
    ///
    /// # Errors
    /// An expression fails for some row.
    fn on_frame(&mut self, port: u8, frame: Frame) -> Result<(), ExecError>;

    /// All frames of `epoch` and the earlier ones have been taken, on all inputs.
    ///
    /// # Errors
    /// A result does not fit its type.
    fn on_progress(&mut self, epoch: Epoch) -> Result<(), ExecError>;

    /// Goes on with the work at hand and adds a bounded number of frames to `out`.
    ///
    /// # Errors
    /// An expression fails for some row, a result does not fit its type.
    fn resume(&mut self, out: &mut Vec<Frame>) -> Result<Step, ExecError>;

    /// Epochs up to this one are committed: they may be folded into the base.
    fn on_commit(&mut self, epoch: Epoch);

    /// What has been counted so far; operators that are no cells have nothing to say.
    fn counted(&self) -> Counted {
        Counted::default()
    }

    /// Bytes of what a cell keeps: columns, indexes and sums. Asked for when an epoch closes.
    fn state_bytes(&self) -> usize {
        0
    }

    /// Returns to the state at the close of `committed`.
    ///
    /// # Errors
    /// State that cannot be rebuilt.
    fn roll_back(&mut self, committed: Epoch) -> Result<(), ExecError>;
}
