//! The coordinator's part of the epoch protocol, as a state machine without I/O: it grants epochs
//! a few ahead of the finished one, and says what may be folded.

use serde::{Deserialize, Serialize};
use thetis_executor::frame::Epoch;

/// How many epochs may be open at a time.
pub const OPEN_EPOCHS: u64 = 32;

/// Grants and commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epochs {
    finished: Epoch,
}

/// What the tasks of the query are to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// Highest epoch that springs may use.
    pub granted: Epoch,
    /// Highest epoch that may be folded into the base.
    pub committed: Epoch,
}

impl Epochs {
    /// Nothing is finished.
    pub fn new() -> Self {
        Self { finished: Epoch::NONE }
    }

    /// What holds now.
    pub fn announcement(&self) -> Announcement {
        Announcement { granted: Epoch(self.finished.0.saturating_add(OPEN_EPOCHS)), committed: self.finished }
    }

    /// The sink has all frames up to `epoch`: every spring has closed it, and nothing of it is on
    /// the way. State is in memory only, so a finished epoch is a committed one. Returns what
    /// changes by that.
    pub fn on_sink_progress(&mut self, epoch: Epoch) -> Option<Announcement> {
        if epoch <= self.finished {
            return None;
        }
        self.finished = epoch;
        Some(self.announcement())
    }
}

impl Default for Epochs {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn grants_never_go_back_and_stay_ahead(progress in proptest::collection::vec(0_u64..1000, 0..50)) {
            let mut epochs = Epochs::new();
            let mut last = epochs.announcement();
            for epoch in progress {
                if let Some(next) = epochs.on_sink_progress(Epoch(epoch)) {
                    assert!(next.granted > last.granted && next.committed > last.committed);
                    last = next;
                }
                assert_eq!(last.granted.0, last.committed.0 + OPEN_EPOCHS);
            }
        }
    }

    #[test]
    fn the_end_grants_everything() {
        let end = Epochs::new().on_sink_progress(Epoch::END).unwrap();
        assert_eq!(end, Announcement { granted: Epoch::END, committed: Epoch::END });
    }
}
