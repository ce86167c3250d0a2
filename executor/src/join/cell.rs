//! A join cell: it stores its share of both sides and joins them.
//!
//! A frame is stored and indexed first, then its rows probe the other side: each pair is found
//! when the second of its rows arrives, whichever that is. A pair's weight is the product of the
//! weights, its epoch the later of the epochs.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{filter_record_batch, take};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion_physical_expr::PhysicalExpr;
use thetis_planner::expr::ScalarExpr;
use thetis_planner::physical::{Join, Side};

use super::index::{Candidates, Cursor, LocalIndex, Probe, index_for};
use super::keys::{KeyMaker, Keys};
use super::scan::{BlockScan, ScanCursor};
use super::store::Store;
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
    output: SchemaRef,
    work: Option<Work>,
    committed: Epoch,
    /// Pairs that were candidates, and those that matched.
    examined: u64,
    kept: u64,
}

#[derive(Debug)]
struct CellSide {
    store: Store,
    index: Option<Box<dyn LocalIndex>>,
    keys: KeyMaker,
}

/// How candidates are judged.
#[derive(Debug)]
enum Condition {
    /// A local index proposes; the condition is evaluated on the columns that it reads.
    Candidates {
        conjuncts: Vec<Arc<dyn PhysicalExpr>>,
        /// Pair columns that the condition reads.
        columns: Vec<u32>,
        schema: SchemaRef,
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
    pub(crate) fn new(join: Arc<Join>, output: SchemaRef) -> Result<Self, ExecError> {
        let pair = pair_schema(&join);
        let left_columns = join.inputs[0].fields().len();
        let side = |side: Side| {
            Ok::<_, ExecError>(CellSide {
                store: Store::new(Arc::clone(&join.inputs[side.index()]), join.retracts[side.index()]),
                index: index_for(&join, side),
                keys: KeyMaker::new(&join, side)?,
            })
        };
        let sides = [side(Side::Left)?, side(Side::Right)?];
        let condition = if sides[0].index.is_none() {
            Condition::Scan(BlockScan::new(compile_all(&join.condition, &pair)?, left_columns))
        } else {
            let mut columns: Vec<u32> = Vec::new();
            join.condition.iter().for_each(|e| e.for_each_column(&mut |column| columns.push(column)));
            columns.sort_unstable();
            columns.dedup();
            let schema = Arc::new(pair.project(&columns.iter().map(|c| *c as usize).collect::<Vec<_>>())?);
            let narrowed: Vec<ScalarExpr> = join
                .condition
                .iter()
                .map(|e| e.map_columns(&|column| columns.partition_point(|c| *c < column) as u32))
                .collect();
            Condition::Candidates { conjuncts: compile_all(&narrowed, &schema)?, columns, schema }
        };
        Ok(Self { join, sides, condition, output, work: None, committed: Epoch::NONE, examined: 0, kept: 0 })
    }

    /// Finds the next candidates of the frame at work and keeps those that match.
    fn matches(&mut self) -> Result<(Candidates, Probe), ExecError> {
        let mut found = Candidates::default();
        let Some(work) = &mut self.work else {
            return Ok((found, Probe::Done));
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
        if let Condition::Candidates { conjuncts, columns, schema } = &self.condition {
            let work = self.work.as_ref().ok_or_else(|| ExecError::Internal("no frame at work".to_owned()))?;
            let pairs = Pairs { work, store: &stored.store, left_columns: self.join.inputs[0].fields().len() };
            pairs.keep(&mut found, conjuncts, columns, schema)?;
        }
        self.kept += found.len() as u64;
        Ok((found, probe))
    }

    /// Result frames, one per epoch.
    fn emit(&self, found: &Candidates, out: &mut Vec<Frame>) -> Result<(), ExecError> {
        let Some(work) = &self.work else {
            return Ok(());
        };
        let store = &self.sides[work.side.other().index()].store;
        let pairs = Pairs { work, store, left_columns: self.join.inputs[0].fields().len() };
        for start in (0..found.len()).step_by(FRAME_ROWS) {
            let end = found.len().min(start + FRAME_ROWS);
            pairs.emit(&found.probes[start..end], &found.stored[start..end], &self.join.output, &self.output, out)?;
        }
        Ok(())
    }

    fn reindex(&mut self, side: Side) -> Result<(), ExecError> {
        let cell = &mut self.sides[side.index()];
        cell.index = index_for(&self.join, side);
        let Some(index) = &mut cell.index else {
            return Ok(());
        };
        for (number, chunk) in cell.store.chunks().iter().enumerate() {
            let keys = cell.keys.keys(chunk, cell.store.chunk_buckets(number))?;
            index.insert(&keys, cell.store.chunk_start(number));
        }
        Ok(())
    }
}

impl Operator for Cell {
    fn on_frame(&mut self, port: u8, frame: Frame) -> Result<(), ExecError> {
        let side = if port == 0 { Side::Left } else { Side::Right };
        let cell = &mut self.sides[side.index()];
        if cell.store.wants_fold() {
            cell.store.fold(self.committed)?;
            self.reindex(side)?;
        }
        let cell = &mut self.sides[side.index()];
        let units =
            frame.units.as_ref().ok_or_else(|| ExecError::Internal("a frame in a cell has no units".to_owned()))?;
        let keys = cell.keys.keys(&frame.batch, &units.buckets)?;
        let first = cell.store.append(&frame)?;
        if let Some(index) = &mut cell.index {
            index.insert(&keys, first);
        }
        self.work = Some(Work { side, frame, keys, cursor: Cursor::default(), scan: ScanCursor::default() });
        Ok(())
    }

    fn on_progress(&mut self, _epoch: Epoch) -> Result<(), ExecError> {
        Ok(())
    }

    fn resume(&mut self, out: &mut Vec<Frame>) -> Result<Step, ExecError> {
        if self.work.is_none() {
            return Ok(Step::Idle);
        }
        let (found, probe) = self.matches()?;
        self.emit(&found, out)?;
        if probe == Probe::Full {
            return Ok(Step::Full);
        }
        self.work = None;
        Ok(Step::Idle)
    }

    fn on_commit(&mut self, epoch: Epoch) {
        self.committed = self.committed.max(epoch);
    }

    fn counted(&self) -> Counted {
        let stored = self.sides.each_ref().map(|side| side.store.len() as u64);
        Counted { examined: self.examined, kept: self.kept, stored }
    }

    fn roll_back(&mut self, committed: Epoch) -> Result<(), ExecError> {
        self.work = None;
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

/// Pairs of the probing frame and the other side's store.
struct Pairs<'a> {
    work: &'a Work,
    store: &'a Store,
    left_columns: usize,
}

impl Pairs<'_> {
    /// Keeps the candidates for which all conjuncts hold.
    fn keep(
        &self,
        found: &mut Candidates,
        conjuncts: &[Arc<dyn PhysicalExpr>],
        columns: &[u32],
        schema: &SchemaRef,
    ) -> Result<(), ExecError> {
        if found.is_empty() || conjuncts.is_empty() {
            return Ok(());
        }
        let arrays = self.gather(columns, &found.probes, &found.stored)?;
        let mut batch = batch_of(schema, arrays, found.len())?;
        for conjunct in conjuncts {
            let mask = mask(conjunct, &batch)?;
            let kept = mask.true_count();
            if kept == batch.num_rows() {
                continue;
            }
            retain(&mut found.probes, &mask);
            retain(&mut found.stored, &mask);
            if kept == 0 {
                break;
            }
            batch = filter_record_batch(&batch, &mask)?;
        }
        Ok(())
    }

    /// Some columns of some pairs.
    fn gather(&self, columns: &[u32], probes: &[u32], stored: &[u32]) -> Result<Vec<ArrayRef>, ExecError> {
        let probe_rows = UInt32Array::from(probes.to_vec());
        columns
            .iter()
            .map(|column| {
                let column = *column as usize;
                let of_left = column < self.left_columns;
                let index = if of_left { column } else { column - self.left_columns };
                if of_left == (self.work.side == Side::Left) {
                    Ok(take(self.work.frame.batch.column(index), &probe_rows, None)?)
                } else {
                    self.store.gather(index, stored)
                }
            })
            .collect()
    }

    fn emit(
        &self,
        probes: &[u32],
        stored: &[u32],
        columns: &[u32],
        schema: &SchemaRef,
        out: &mut Vec<Frame>,
    ) -> Result<(), ExecError> {
        let frame = &self.work.frame;
        let batch = batch_of(schema, self.gather(columns, probes, stored)?, probes.len())?;
        let weighted = frame.weights.is_some() || self.store.is_weighted();
        let weights: Option<Vec<i64>> = weighted.then(|| {
            let pairs = probes.iter().zip(stored);
            pairs.map(|(probe, stored)| frame.weight(*probe as usize) * self.store.weight(*stored)).collect()
        });
        if self.store.latest_epoch() <= frame.epoch {
            out.push(frame.with_rows(batch, weights.map(Into::into)));
            return Ok(());
        }
        self.emit_by_epoch(&batch, weights.as_deref(), stored, out)
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
        let epochs: Vec<Epoch> = stored.iter().map(|row| self.store.epoch(*row).max(frame.epoch)).collect();
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

fn retain(rows: &mut Vec<u32>, mask: &BooleanArray) {
    let mut i = 0;
    rows.retain(|_| {
        i += 1;
        mask.value(i - 1)
    });
}

#[cfg(test)]
mod tests;
