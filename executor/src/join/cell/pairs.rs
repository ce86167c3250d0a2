//! Pairs of a cell: those that were found, those that the condition keeps, and their rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array, UInt64Array, make_array};
use arrow::compute::{and, filter, filter_record_batch, take};
use arrow::datatypes::{SchemaRef, UInt32Type, UInt64Type};
use datafusion_physical_expr::PhysicalExpr;
use thetis_planner::expr::ScalarExpr;
use thetis_planner::physical::{Join, Side};

use super::{CellSide, Condition, Work};
use crate::error::ExecError;
use crate::frame::{Epoch, FRAME_ROWS, Frame};
use crate::join::fold::Judge;
use crate::join::index::Candidates;
use crate::steps::{batch_of, compile_all, mask};

/// Conditions over some columns of a pair.
#[derive(Debug)]
pub(super) struct Conjuncts {
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    /// The columns that they read.
    columns: Vec<u32>,
    schema: SchemaRef,
}

impl Conjuncts {
    pub(super) fn new<'a>(
        exprs: impl Iterator<Item = &'a ScalarExpr> + Clone,
        pair: &SchemaRef,
    ) -> Result<Self, ExecError> {
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

/// Judges pairs of stored rows.
pub(super) struct PairJudge<'a> {
    left_columns: u32,
    sides: &'a [CellSide; 2],
    condition: &'a Condition,
}

impl<'a> PairJudge<'a> {
    pub(super) fn new(join: &Join, sides: &'a [CellSide; 2], condition: &'a Condition) -> Self {
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
pub(super) struct Pairs<'a> {
    pub(super) work: &'a Work,
    pub(super) stored: &'a CellSide,
    pub(super) left_columns: usize,
}

impl Pairs<'_> {
    /// Keeps the candidates for which all conjuncts hold. `count_only` says that no column of them
    /// goes out.
    pub(super) fn keep(&self, found: &mut Found, conjuncts: &Conjuncts, count_only: bool) -> Result<(), ExecError> {
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

    pub(super) fn emit(
        &self,
        found: &Found,
        columns: &[u32],
        schema: &SchemaRef,
        out: &mut Vec<Frame>,
    ) -> Result<(), ExecError> {
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
pub(super) struct Found {
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
    pub(super) fn len(&self) -> usize {
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
