//! A join cell: it stores its share of both sides and joins them.
//!
//! A frame is stored and indexed first, then its rows probe the other side: each pair is found
//! when the second of its rows arrives, whichever that is. A pair's weight is the product of the
//! weights, its epoch the later of the epochs.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array, UInt64Array, make_array};
use arrow::compute::{and, filter, filter_record_batch, take};
use arrow::datatypes::{Schema, SchemaRef, UInt32Type, UInt64Type};
use datafusion_physical_expr::PhysicalExpr;
use thetis_planner::expr::ScalarExpr;
use thetis_planner::physical::{Join, PairAggregate, Side};
use thetis_planner::theta::Said;

use super::fold::{Fold, Judge};
use super::index::{Candidates, Cursor, LocalIndex, Probe, index_for, proves_ranges};
use super::keys::{KeyMaker, Keys, carried_columns};
use super::scan::{BlockScan, ScanCursor};
use super::store::Store;
use crate::aggregate::Partial;
use crate::error::ExecError;
use crate::frame::{Epoch, FRAME_ROWS, Frame};
use crate::operator::{Counted, Operator, Step};
use crate::steps::{batch_of, compile_all, mask};

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

/// The aggregate of the pairs. Where it is folded, frames of one epoch after the other are taken
/// in, so that a pair belongs to the epoch of the row that is counted.
#[derive(Debug)]
struct Aggregated {
    partial: Partial,
    /// Until a row comes that must be looked at pair by pair.
    fold: Option<Fold>,
    /// Frames of epochs after the first open one.
    later: BTreeMap<Epoch, Vec<(Side, Frame)>>,
    closed: Epoch,
    to_close: Epoch,
    /// Nobody asks before the end: what is folded need not be told epoch by epoch.
    at_end: bool,
    waiting: Vec<Frame>,
    /// Pairs that folds counted.
    folded: u64,
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

/// Conditions over some columns of a pair.
#[derive(Debug)]
struct Conjuncts {
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    /// The columns that they read.
    columns: Vec<u32>,
    schema: SchemaRef,
}

impl Conjuncts {
    fn new<'a>(exprs: impl Iterator<Item = &'a ScalarExpr> + Clone, pair: &SchemaRef) -> Result<Self, ExecError> {
        let mut columns: Vec<u32> = Vec::new();
        exprs.clone().for_each(|e| e.for_each_column(&mut |column| columns.push(column)));
        columns.sort_unstable();
        columns.dedup();
        let schema = Arc::new(pair.project(&columns.iter().map(|c| *c as usize).collect::<Vec<_>>())?);
        let narrow = |column: u32| columns.partition_point(|c| *c < column) as u32;
        let narrowed: Vec<ScalarExpr> = exprs.map(|e| e.map_columns(&narrow)).collect();
        Ok(Self { exprs: compile_all(&narrowed, &schema)?, columns, schema })
    }
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
        self.work = Some(Work { side, frame, keys, cursor: Cursor::default(), scan: ScanCursor::default() });
        Ok(())
    }
}

impl Aggregated {
    fn new(join: &Join, aggregate: &PairAggregate, pairs: &SchemaRef, emitted: SchemaRef) -> Result<Self, ExecError> {
        Ok(Self {
            partial: Partial::new(&Arc::new(aggregate.partial.clone()), pairs, emitted)?,
            fold: aggregate.fold.as_ref().map(|fold| Fold::new(join, fold)).transpose()?,
            later: BTreeMap::new(),
            closed: Epoch::NONE,
            to_close: Epoch::NONE,
            at_end: aggregate.partial.at_end,
            waiting: Vec::new(),
            folded: 0,
        })
    }

    /// Puts a frame off if it belongs to an epoch after the first open one.
    fn put_off(&mut self, side: Side, frame: Frame) -> Option<Frame> {
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

    fn stop_folding(&mut self, epoch: Epoch, judge: &dyn Judge) -> Result<(), ExecError> {
        self.collect(epoch, judge)?;
        self.fold = None;
        Ok(())
    }

    /// The next frame that was put off and need not wait longer; closes the epochs before.
    fn next(&mut self, judge: &dyn Judge) -> Result<Option<(Side, Frame)>, ExecError> {
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

/// Judges pairs of stored rows.
struct PairJudge<'a> {
    left_columns: u32,
    sides: &'a [CellSide; 2],
    condition: &'a Condition,
}

impl<'a> PairJudge<'a> {
    fn new(join: &Join, sides: &'a [CellSide; 2], condition: &'a Condition) -> Self {
        Self { left_columns: join.inputs[0].fields().len() as u32, sides, condition }
    }
}

impl Judge for PairJudge<'_> {
    fn judge(&self, side: Side, rows: &[u32], others: &[u32]) -> Result<BooleanArray, ExecError> {
        let Condition::Candidates { whole: Conjuncts { exprs, columns, schema }, .. } = self.condition else {
            return Err(ExecError::Internal("a scan has nothing to fold".to_owned()));
        };
        let [left, right] = if side == Side::Left { [rows, others] } else { [others, rows] };
        let column = |column: &u32| match column.checked_sub(self.left_columns) {
            None => self.sides[0].store.gather(*column as usize, left),
            Some(column) => self.sides[1].store.gather(column as usize, right),
        };
        let columns = columns.iter().map(column).collect::<Result<Vec<_>, _>>()?;
        let batch = batch_of(schema, columns, rows.len())?;
        let all = BooleanArray::from(vec![true; rows.len()]);
        exprs.iter().try_fold(all, |kept, expr| Ok(and(&kept, &mask(expr, &batch)?)?))
    }
}

/// Pairs of the probing frame and the other side's store.
struct Pairs<'a> {
    work: &'a Work,
    stored: &'a CellSide,
    left_columns: usize,
}

impl Pairs<'_> {
    /// Keeps the candidates for which all conjuncts hold. `count_only` says that no column of them
    /// goes out.
    fn keep(&self, found: &mut Found, conjuncts: &Conjuncts, count_only: bool) -> Result<(), ExecError> {
        let Conjuncts { exprs, columns, schema } = conjuncts;
        if found.is_empty() || exprs.is_empty() {
            return Ok(());
        }
        let mut batch = batch_of(schema, self.gather(columns, found)?, found.len())?;
        let all_alike = count_only && !self.is_weighted() && self.is_of_one_epoch();
        for (number, conjunct) in exprs.iter().enumerate() {
            let mask = mask(conjunct, &batch)?;
            let kept = mask.true_count();
            if kept == batch.num_rows() {
                continue;
            }
            if all_alike {
                // Which ones they are makes no difference.
                found.truncate(kept);
            } else {
                found.retain(&mask)?;
            }
            if kept == 0 || number + 1 == exprs.len() {
                break;
            }
            batch = filter_record_batch(&batch, &mask)?;
        }
        Ok(())
    }

    fn is_weighted(&self) -> bool {
        self.work.frame.weights.is_some() || self.stored.store.is_weighted()
    }

    fn is_of_one_epoch(&self) -> bool {
        self.stored.store.latest_epoch() <= self.work.frame.epoch
    }

    /// Some columns of some pairs.
    fn gather(&self, columns: &[u32], found: &Found) -> Result<Vec<ArrayRef>, ExecError> {
        columns
            .iter()
            .map(|column| {
                let column = *column as usize;
                let of_left = column < self.left_columns;
                let index = if of_left { column } else { column - self.left_columns };
                if of_left == (self.work.side == Side::Left) {
                    return Ok(take(self.work.frame.batch.column(index), &found.probes, None)?);
                }
                let carried = self.stored.carried.iter().position(|carried| *carried as usize == index);
                match carried.and_then(|carried| found.carried.get(carried)?.as_ref()) {
                    Some(values) => {
                        let data_type = self.stored.store.schema().field(index).data_type().clone();
                        Ok(make_array(values.to_data().into_builder().data_type(data_type).build()?))
                    }
                    None => self.stored.store.gather(index, found.stored.values()),
                }
            })
            .collect()
    }

    fn emit(&self, found: &Found, columns: &[u32], schema: &SchemaRef, out: &mut Vec<Frame>) -> Result<(), ExecError> {
        if found.is_empty() {
            return Ok(());
        }
        let (frame, store) = (&self.work.frame, &self.stored.store);
        let batch = batch_of(schema, self.gather(columns, found)?, found.len())?;
        let weights: Option<Vec<i64>> = self.is_weighted().then(|| {
            let pairs = found.probes.values().iter().zip(found.stored.values());
            pairs.map(|(probe, stored)| frame.weight(*probe as usize) * store.weight(*stored)).collect()
        });
        let mut whole = Vec::new();
        if self.is_of_one_epoch() {
            whole.push(frame.with_rows(batch, weights.map(Into::into)));
        } else {
            self.emit_by_epoch(&batch, weights.as_deref(), found.stored.values(), &mut whole)?;
        }
        for frame in whole {
            for start in (0..frame.rows()).step_by(FRAME_ROWS) {
                let rows = FRAME_ROWS.min(frame.rows() - start);
                let weights = frame.weights.as_ref().map(|weights| weights[start..start + rows].into());
                out.push(frame.with_rows(frame.batch.slice(start, rows), weights));
            }
        }
        Ok(())
    }

    /// Stored rows of later epochs are there already: the pairs are split by their epochs.
    fn emit_by_epoch(
        &self,
        batch: &RecordBatch,
        weights: Option<&[i64]>,
        stored: &[u32],
        out: &mut Vec<Frame>,
    ) -> Result<(), ExecError> {
        let frame = &self.work.frame;
        let epochs: Vec<Epoch> = stored.iter().map(|row| self.stored.store.epoch(*row).max(frame.epoch)).collect();
        let mut distinct = epochs.clone();
        distinct.sort_unstable();
        distinct.dedup();
        for epoch in distinct {
            let mask: BooleanArray = epochs.iter().map(|e| Some(*e == epoch)).collect();
            let rows = filter_record_batch(batch, &mask)?;
            let weights = weights.map(|weights| {
                weights.iter().zip(&epochs).filter(|(_, e)| **e == epoch).map(|(weight, _)| *weight).collect()
            });
            out.push(Frame { epoch, ..frame.with_rows(rows, weights) });
        }
        Ok(())
    }
}

/// Candidates as arrays, which can be handed on without a copy.
struct Found {
    probes: UInt32Array,
    stored: UInt32Array,
    /// Columns of the stored rows, of those that the index has for all of them.
    carried: Vec<Option<UInt64Array>>,
}

impl From<Candidates> for Found {
    fn from(found: Candidates) -> Self {
        let pairs = found.len();
        let carried = found.carried.into_iter();
        let carried = carried.map(|values| (values.len() == pairs).then(|| values.into())).collect();
        Self { probes: found.probes.into(), stored: found.stored.into(), carried }
    }
}

impl Found {
    fn len(&self) -> usize {
        self.probes.len()
    }

    fn is_empty(&self) -> bool {
        self.probes.is_empty()
    }

    fn truncate(&mut self, rows: usize) {
        self.carried.clear();
        self.probes = self.probes.slice(0, rows);
        self.stored = self.stored.slice(0, rows);
    }

    fn retain(&mut self, mask: &BooleanArray) -> Result<(), ExecError> {
        self.probes = filter(&self.probes, mask)?.as_primitive::<UInt32Type>().clone();
        self.stored = filter(&self.stored, mask)?.as_primitive::<UInt32Type>().clone();
        for values in self.carried.iter_mut().flatten() {
            *values = filter(&*values, mask)?.as_primitive::<UInt64Type>().clone();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
