//! The block scan: a condition without a usable key is evaluated over whole columns of one side
//! against one row of the other, which stands in the expression as constants. No cross product is
//! ever built.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DataFusionError, ScalarValue};
use datafusion_expr::ColumnarValue;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{Column, Literal};
use thetis_planner::physical::Side;

use super::index::{Candidates, Probe};
use super::store::Store;
use crate::error::ExecError;

/// Evaluations of the condition between two looks at the task's other duties.
const EVALUATIONS_PER_STEP: usize = 64;

/// A condition over pairs, evaluated by scans.
#[derive(Debug)]
pub(crate) struct BlockScan {
    condition: Vec<Arc<dyn PhysicalExpr>>,
    left_columns: usize,
}

/// Where a scan goes on: the stored chunk, and the row that is a constant.
#[derive(Debug, Default)]
pub(crate) struct ScanCursor {
    chunk: usize,
    row: usize,
    /// Pairs that were looked at; whoever counts them takes them away.
    pub(crate) examined: u64,
}

impl BlockScan {
    /// `condition` is over the columns of a pair, of which the first `left_columns` are left.
    pub(crate) fn new(condition: Vec<Arc<dyn PhysicalExpr>>, left_columns: usize) -> Self {
        Self { condition, left_columns }
    }

    /// Adds the matches of `probe` (rows of `side`) with the first `rows` rows of `store`.
    pub(crate) fn probe(
        &self,
        probe: &RecordBatch,
        side: Side,
        store: &Store,
        cursor: &mut ScanCursor,
        limit: usize,
        out: &mut Candidates,
    ) -> Result<Probe, ExecError> {
        let mut evaluations = 0;
        while let Some(chunk) = store.chunks().get(cursor.chunk) {
            let first = store.chunk_start(cursor.chunk);
            // The longer side is scanned, the rows of the shorter one are the constants.
            let probe_is_constant = probe.num_rows() <= chunk.num_rows();
            let (constants, columns, constant_side) =
                if probe_is_constant { (probe, chunk, side) } else { (chunk, probe, side.other()) };
            while cursor.row < constants.num_rows() {
                if out.len() >= limit || evaluations >= EVALUATIONS_PER_STEP {
                    return Ok(Probe::Full);
                }
                let row = cursor.row as u32;
                self.matches(constants, cursor.row, columns, constant_side, &mut |i| {
                    let (probe, stored) = if probe_is_constant { (row, first + i) } else { (i, first + row) };
                    out.probes.push(probe);
                    out.stored.push(stored);
                })?;
                cursor.row += 1;
                cursor.examined += columns.num_rows() as u64;
                evaluations += 1;
            }
            (cursor.chunk, cursor.row) = (cursor.chunk + 1, 0);
        }
        Ok(Probe::Done)
    }

    /// Calls `found` with each row of `columns` that matches row `row` of `constants`.
    fn matches(
        &self,
        constants: &RecordBatch,
        row: usize,
        columns: &RecordBatch,
        constant_side: Side,
        found: &mut dyn FnMut(u32),
    ) -> Result<(), ExecError> {
        let mut kept: Option<Vec<bool>> = None;
        for conjunct in &self.condition {
            let bound = self.bind(conjunct, constants, row, constant_side)?;
            match bound.evaluate(columns)? {
                ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))) => {}
                ColumnarValue::Scalar(_) => return Ok(()),
                ColumnarValue::Array(array) => {
                    let mask = datafusion_common::cast::as_boolean_array(&array)?;
                    let kept = kept.get_or_insert_with(|| vec![true; columns.num_rows()]);
                    for (i, kept) in kept.iter_mut().enumerate() {
                        *kept &= mask.value(i) && arrow::array::Array::is_valid(mask, i);
                    }
                    if !kept.contains(&true) {
                        return Ok(());
                    }
                }
            }
        }
        match kept {
            Some(kept) => (0..).zip(kept).filter(|(_, kept)| *kept).for_each(|(i, _)| found(i)),
            None => (0..columns.num_rows() as u32).for_each(found),
        }
        Ok(())
    }

    /// `conjunct` with the columns of the constant side replaced by the values of `row`, and the
    /// others counted from 0.
    fn bind(
        &self,
        conjunct: &Arc<dyn PhysicalExpr>,
        constants: &RecordBatch,
        row: usize,
        constant_side: Side,
    ) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
        let bound = Arc::clone(conjunct).transform_up(|node| {
            let Some(column) = node.downcast_ref::<Column>() else {
                return Ok(Transformed::no(node));
            };
            let of_left = column.index() < self.left_columns;
            let index = if of_left { column.index() } else { column.index() - self.left_columns };
            let bound: Arc<dyn PhysicalExpr> = if of_left == (constant_side == Side::Left) {
                Arc::new(Literal::new(ScalarValue::try_from_array(constants.column(index), row)?))
            } else {
                Arc::new(Column::new(column.name(), index))
            };
            Ok(Transformed::yes(bound))
        })?;
        Ok(bound.data)
    }
}
