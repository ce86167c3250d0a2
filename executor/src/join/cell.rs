//! A join cell: it stores its share of both sides and joins them.
//!
//! A frame is stored and indexed first, then its rows probe the other side: each pair is found
//! when the second of its rows arrives, whichever that is. A pair's weight is the product of the
//! weights, its epoch the later of the epochs.

mod aggregated;
mod pairs;

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use thetis_planner::physical::{Join, Side};
use thetis_planner::theta::Said;

use self::aggregated::Aggregated;
use self::pairs::{Conjuncts, Found, PairJudge, Pairs};
use super::fold::Fold;
use super::index::{Candidates, Cursor, LocalIndex, Probe, index_for, proves_ranges};
use super::keys::{KeyMaker, Keys, carried_columns};
use super::scan::{BlockScan, ScanCursor};
use super::store::Store;
use crate::error::ExecError;
use crate::frame::{Epoch, FRAME_ROWS, Frame};
use crate::operator::{Counted, Operator, Step};
use crate::steps::compile_all;

/// One task of a join.
#[derive(Debug)]
pub(crate) struct Cell {
    join: Arc<Join>,
    sides: [CellSide; 2],
    condition: Condition,
    /// The indexes take sorted keys.
    sorted: bool,
    /// Columns of the pairs.
    output: SchemaRef,
    work: Option<Work>,
    /// What is computed of the pairs, if they do not go out.
    aggregate: Option<Aggregated>,
    committed: Epoch,
    /// Pairs that were candidates, and those that matched.
    examined: u64,
    kept: u64,
}

#[derive(Debug)]
struct CellSide {
    store: Store,
    /// Columns that the index carries.
    carried: Vec<u32>,
    /// The keys of all rows are.
    sure: bool,
    index: Option<Box<dyn LocalIndex>>,
    keys: KeyMaker,
}

/// How candidates are judged.
#[derive(Debug)]
enum Condition {
    /// A local index proposes.
    Candidates {
        /// For candidates whose keys are sure: what the index does not prove.
        residual: Conjuncts,
        /// For all others.
        whole: Conjuncts,
    },
    /// Every stored row is looked at.
    Scan(BlockScan),
}

/// A frame whose probing is not finished.
#[derive(Debug)]
struct Work {
    side: Side,
    frame: Frame,
    keys: Keys,
    cursor: Cursor,
    scan: ScanCursor,
}

impl Cell {
    /// A cell of `join` that emits rows of `emitted`: pairs, or a partial aggregate of them.
    pub(crate) fn new(join: Arc<Join>, emitted: SchemaRef) -> Result<Self, ExecError> {
        let pair = pair_schema(&join);
        let left_columns = join.inputs[0].fields().len();
        let bucketed = join.layout.bucket_regions.len() > 1;
        let side = |side: Side| {
            let schema = Arc::clone(&join.inputs[side.index()]);
            Ok::<_, ExecError>(CellSide {
                store: Store::new(schema, join.retracts[side.index()], bucketed),
                sure: true,
                carried: carried_columns(&join, side),
                index: index_for(&join, side),
                keys: KeyMaker::new(&join, side)?,
            })
        };
        let mut sides = [side(Side::Left)?, side(Side::Right)?];
        let condition = if sides[0].index.is_none() {
            Condition::Scan(BlockScan::new(compile_all(&join.condition, &pair)?, left_columns))
        } else {
            let proves = proves_ranges(&join);
            let residual = join.condition.iter().zip(&join.said);
            let residual =
                residual.filter(|(_, said)| !proves || **said != Said::ByRanges).map(|(conjunct, _)| conjunct);
            Condition::Candidates {
                residual: Conjuncts::new(residual, &pair)?,
                whole: Conjuncts::new(join.condition.iter(), &pair)?,
            }
        };
        let output = Arc::new(pair.project(&join.output.iter().map(|c| *c as usize).collect::<Vec<_>>())?);
        let aggregate = match &join.aggregate {
            Some(aggregate) => Some(Aggregated::new(&join, aggregate, &output, emitted)?),
            None => None,
        };
        if aggregate.as_ref().is_some_and(|aggregate| aggregate.fold.is_some()) {
            // Made when pairs must be looked at.
            sides.iter_mut().for_each(|side| side.index = None);
        }
        let sorted = join.local_index().is_sorted();
        let (committed, examined, kept) = (Epoch::NONE, 0, 0);
        Ok(Self { join, sides, condition, sorted, output, work: None, aggregate, committed, examined, kept })
    }

    /// Finds the next candidates of the frame at work and keeps those that match.
    fn matches(&mut self) -> Result<(Found, Probe), ExecError> {
        let mut found = Candidates::with_capacity(FRAME_ROWS);
        let Some(work) = &mut self.work else {
            return Ok((found.into(), Probe::Done));
        };
        let stored = &self.sides[work.side.other().index()];
        let probe = match (&self.condition, &stored.index) {
            (Condition::Candidates { .. }, Some(index)) => {
                let probe = index.probe(&work.keys, &mut work.cursor, FRAME_ROWS, &mut found);
                self.examined += found.len() as u64;
                probe
            }
            (Condition::Scan(scan), _) => {
                let (batch, store) = (&work.frame.batch, &stored.store);
                let probe = scan.probe(batch, work.side, store, &mut work.scan, FRAME_ROWS, &mut found)?;
                self.examined += std::mem::take(&mut work.scan.examined);
                probe
            }
            (Condition::Candidates { .. }, None) => {
                return Err(ExecError::Internal("a cell without an index must scan".to_owned()));
            }
        };
        let mut found = Found::from(found);
        if let Condition::Candidates { residual, whole } = &self.condition {
            let work = self.work.as_ref().ok_or_else(|| ExecError::Internal("no frame at work".to_owned()))?;
            let conjuncts = if stored.sure && work.keys.sure { residual } else { whole };
            let pairs = Pairs { work, stored, left_columns: self.join.inputs[0].fields().len() };
            pairs.keep(&mut found, conjuncts, self.join.output.is_empty())?;
        }
        self.kept += found.len() as u64;
        Ok((found, probe))
    }

    /// Result frames, one per epoch.
    fn emit(&self, found: &Found, out: &mut Vec<Frame>) -> Result<(), ExecError> {
        let Some(work) = &self.work else {
            return Ok(());
        };
        let stored = &self.sides[work.side.other().index()];
        let pairs = Pairs { work, stored, left_columns: self.join.inputs[0].fields().len() };
        pairs.emit(found, &self.join.output, &self.output, out)
    }

    fn reindex(&mut self, side: Side) -> Result<(), ExecError> {
        let cell = &mut self.sides[side.index()];
        cell.sure = true;
        cell.index = index_for(&self.join, side);
        let Some(index) = &mut cell.index else {
            return Ok(());
        };
        for (number, chunk) in cell.store.chunks().iter().enumerate() {
            let mut keys = cell.keys.keys(chunk)?;
            if self.sorted {
                cell.keys.arrange(chunk, &mut keys);
            }
            cell.sure &= keys.sure;
            index.insert(&keys, cell.store.chunk_start(number));
        }
        Ok(())
    }

    /// Takes in a frame and makes ready to probe with it.
    fn take(&mut self, side: Side, frame: Frame) -> Result<(), ExecError> {
        let cell = &mut self.sides[side.index()];
        if cell.store.wants_fold() {
            cell.store.fold(self.committed)?;
            if cell.index.is_some() {
                self.reindex(side)?;
            }
        }
        let cell = &mut self.sides[side.index()];
        let mut keys = cell.keys.keys(&frame.batch)?;
        if let Some(aggregate) = &mut self.aggregate
            && let Some(fold) = &mut aggregate.fold
        {
            let batch = (&frame.batch, cell.store.len() as u32);
            if let Some(rows) = fold.rows(side, batch, frame.weights.as_deref(), keys, &cell.keys)? {
                cell.store.append(&frame)?;
                return fold.add(side, rows, &PairJudge::new(&self.join, &self.sides, &self.condition));
            }
            aggregate.stop_folding(frame.epoch, &PairJudge::new(&self.join, &self.sides, &self.condition))?;
            Side::BOTH.into_iter().try_for_each(|side| self.reindex(side))?;
            keys = self.sides[side.index()].keys.keys(&frame.batch)?;
        }
        let cell = &mut self.sides[side.index()];
        let first = cell.store.append(&frame)?;
        cell.sure &= keys.sure;
        if self.sorted {
            cell.keys.arrange(&frame.batch, &mut keys);
        }
        if let Some(index) = &mut cell.index {
            index.insert(&keys, first);
        }
        if let Some(index) = &mut self.sides[side.other().index()].index {
            index.observe(&keys);
        }
        self.work = Some(Work { side, frame, keys, cursor: Cursor::default(), scan: ScanCursor::default() });
        Ok(())
    }
}

impl Operator for Cell {
    fn on_frame(&mut self, port: u8, frame: Frame) -> Result<(), ExecError> {
        let side = if port == 0 { Side::Left } else { Side::Right };
        let frame = match &mut self.aggregate {
            Some(aggregate) => aggregate.put_off(side, frame),
            None => Some(frame),
        };
        frame.map_or(Ok(()), |frame| self.take(side, frame))
    }

    fn on_progress(&mut self, epoch: Epoch) -> Result<(), ExecError> {
        if let Some(aggregate) = &mut self.aggregate {
            aggregate.to_close = aggregate.to_close.max(epoch);
        }
        Ok(())
    }

    fn resume(&mut self, out: &mut Vec<Frame>) -> Result<Step, ExecError> {
        if self.work.is_none() {
            let Some(aggregate) = &mut self.aggregate else { return Ok(Step::Idle) };
            let next = aggregate.next(&PairJudge::new(&self.join, &self.sides, &self.condition))?;
            out.append(&mut aggregate.waiting);
            let Some((side, frame)) = next else { return Ok(Step::Idle) };
            self.take(side, frame)?;
            return Ok(Step::Full);
        }
        let (found, probe) = self.matches()?;
        match self.aggregate.take() {
            None => self.emit(&found, out)?,
            Some(mut aggregate) => {
                let mut pairs = Vec::new();
                self.emit(&found, &mut pairs)?;
                pairs.into_iter().try_for_each(|pairs| aggregate.partial.add(pairs, out))?;
                self.aggregate = Some(aggregate);
            }
        }
        if probe == Probe::Done {
            self.work = None;
        }
        Ok(if probe == Probe::Done && self.aggregate.is_none() { Step::Idle } else { Step::Full })
    }

    fn on_commit(&mut self, epoch: Epoch) {
        self.committed = self.committed.max(epoch);
    }

    fn counted(&self) -> Counted {
        let stored = self.sides.each_ref().map(|side| side.store.len() as u64);
        let folded = self.aggregate.as_ref().map_or(0, |aggregate| aggregate.folded);
        Counted { examined: self.examined, kept: self.kept + folded, stored }
    }

    fn state_bytes(&self) -> usize {
        let side = |side: &CellSide| side.store.memory() + side.index.as_ref().map_or(0, |index| index.memory());
        let fold = self.aggregate.as_ref().and_then(|aggregate| aggregate.fold.as_ref());
        self.sides.iter().map(side).sum::<usize>() + fold.map_or(0, Fold::memory)
    }

    fn roll_back(&mut self, committed: Epoch) -> Result<(), ExecError> {
        self.work = None;
        if let Some(aggregate) = &mut self.aggregate {
            if aggregate.closed > committed {
                return Err(ExecError::Internal("a closed epoch of a cell's aggregate needs a checkpoint".to_owned()));
            }
            // Sums cannot be rolled back; the rows can, and pairs can be listed.
            aggregate.fold = None;
            aggregate.later.retain(|epoch, _| *epoch <= committed);
            aggregate.partial.roll_back(committed)?;
            aggregate.waiting.clear();
        }
        for side in Side::BOTH {
            self.sides[side.index()].store.roll_back(committed)?;
            self.reindex(side)?;
        }
        Ok(())
    }
}

fn pair_schema(join: &Join) -> SchemaRef {
    let fields = join.inputs.iter().flat_map(|schema| schema.fields().iter().cloned());
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests;
