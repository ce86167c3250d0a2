//! What a cell computes of its pairs in place of emitting them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use thetis_planner::physical::{Join, PairAggregate, Side};

use crate::aggregate::Partial;
use crate::error::ExecError;
use crate::frame::{Epoch, Frame};
use crate::join::fold::{Fold, Judge};

/// The aggregate of the pairs. Where it is folded, frames of one epoch after the other are taken
/// in, so that a pair belongs to the epoch of the row that is counted.
#[derive(Debug)]
pub(super) struct Aggregated {
    pub(super) partial: Partial,
    /// Until a row comes that must be looked at pair by pair.
    pub(super) fold: Option<Fold>,
    /// Frames of epochs after the first open one.
    pub(super) later: BTreeMap<Epoch, Vec<(Side, Frame)>>,
    pub(super) closed: Epoch,
    pub(super) to_close: Epoch,
    /// Nobody asks before the end: what is folded need not be told epoch by epoch.
    at_end: bool,
    pub(super) waiting: Vec<Frame>,
    /// Pairs that folds counted.
    pub(super) folded: u64,
}

impl Aggregated {
    pub(super) fn new(
        join: &Join,
        aggregate: &PairAggregate,
        pairs: &SchemaRef,
        emitted: SchemaRef,
    ) -> Result<Self, ExecError> {
        Ok(Self {
            partial: Partial::new(&Arc::new(aggregate.partial.clone()), pairs, emitted)?,
            fold: aggregate.fold.as_ref().map(|fold| Fold::new(join, aggregate, fold)).transpose()?,
            later: BTreeMap::new(),
            closed: Epoch::NONE,
            to_close: Epoch::NONE,
            at_end: aggregate.partial.at_end,
            waiting: Vec::new(),
            folded: 0,
        })
    }

    /// Puts a frame off if it belongs to an epoch after the first open one.
    pub(super) fn put_off(&mut self, side: Side, frame: Frame) -> Option<Frame> {
        if self.fold.is_none() || self.at_end || frame.epoch.0 <= self.closed.0 + 1 {
            return Some(frame);
        }
        self.later.entry(frame.epoch).or_default().push((side, frame));
        None
    }

    /// The pairs that were counted become part of the aggregate of an epoch.
    fn collect(&mut self, epoch: Epoch, judge: &dyn Judge) -> Result<(), ExecError> {
        let Some(fold) = &mut self.fold else { return Ok(()) };
        let (columns, rows) = fold.take_states(judge)?;
        self.folded = u64::try_from(fold.pairs).unwrap_or(u64::MAX);
        if rows > 0 { self.partial.add_states(epoch, &columns, rows) } else { Ok(()) }
    }

    pub(super) fn stop_folding(&mut self, epoch: Epoch, judge: &dyn Judge) -> Result<(), ExecError> {
        self.collect(epoch, judge)?;
        self.fold = None;
        Ok(())
    }

    /// The next frame that was put off and need not wait longer; closes the epochs before.
    pub(super) fn next(&mut self, judge: &dyn Judge) -> Result<Option<(Side, Frame)>, ExecError> {
        loop {
            let open = Epoch(self.closed.0.saturating_add(1));
            let first = self.later.first_entry().filter(|entry| self.fold.is_none() || *entry.key() <= open);
            if let Some(mut entry) = first {
                let next = entry.get_mut().pop();
                if entry.get().is_empty() {
                    entry.remove();
                }
                return Ok(next);
            }
            if self.closed >= self.to_close {
                return Ok(None);
            }
            if !self.at_end || self.to_close == Epoch::END {
                self.collect(open, judge)?;
            }
            let next = self.later.keys().next().map_or(self.to_close, |epoch| Epoch(epoch.0 - 1).min(self.to_close));
            self.partial.close(next, &mut self.waiting)?;
            self.closed = next;
        }
    }
}
