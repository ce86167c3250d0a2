//! Filter, project, unnest and negate on frames: the row-wise work that is fused into a sender.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use arrow::compute::{filter_record_batch, take};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::DataFusionError;
use datafusion_physical_expr::PhysicalExpr;
use thetis_planner::compile;
use thetis_planner::expr::ScalarExpr;
use thetis_planner::physical::Step;

use crate::error::ExecError;
use crate::frame::{FRAME_ROWS, Frame};

/// Compiled steps.
#[derive(Debug)]
pub(crate) struct Steps {
    steps: Vec<Compiled>,
}

#[derive(Debug)]
enum Compiled {
    Filter(Vec<Arc<dyn PhysicalExpr>>),
    Project { exprs: Vec<Arc<dyn PhysicalExpr>>, schema: SchemaRef },
    Unnest { lists: Vec<usize>, schema: SchemaRef, keep_empty: bool },
    Negate,
}

/// Compiles expressions over one schema.
pub(crate) fn compile_all(exprs: &[ScalarExpr], schema: &SchemaRef) -> Result<Vec<Arc<dyn PhysicalExpr>>, ExecError> {
    exprs.iter().map(|expr| compile(expr, schema).map_err(|e| ExecError::Plan(Arc::new(e)))).collect()
}

/// The value of `expr` for every row.
pub(crate) fn evaluate(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ArrayRef, DataFusionError> {
    expr.evaluate(batch)?.into_array(batch.num_rows())
}

/// Which rows a condition is true for; NULL is not true.
pub(crate) fn mask(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<BooleanArray, DataFusionError> {
    let array = evaluate(expr, batch)?;
    match array.data_type() {
        DataType::Null => Ok(BooleanArray::from(vec![false; batch.num_rows()])),
        _ => {
            let mask = array.as_boolean();
            Ok(match mask.nulls() {
                None => mask.clone(),
                Some(nulls) => BooleanArray::new(mask.values() & nulls.inner(), None),
            })
        }
    }
}

/// A batch that may have no columns at all.
pub(crate) fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ExecError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

impl Steps {
    /// Compiles `steps` over rows of `schema`.
    pub(crate) fn new(steps: &[Step], schema: &SchemaRef) -> Result<Self, ExecError> {
        let mut schema = Arc::clone(schema);
        let mut compiled = Vec::with_capacity(steps.len());
        for step in steps {
            compiled.push(match step {
                Step::Filter(exprs) => Compiled::Filter(compile_all(exprs, &schema)?),
                Step::Project { exprs, schema: output } => {
                    let exprs = compile_all(exprs, &schema)?;
                    schema = Arc::clone(output);
                    Compiled::Project { exprs, schema: Arc::clone(output) }
                }
                Step::Unnest { lists, schema: output, keep_empty } => {
                    schema = Arc::clone(output);
                    Compiled::Unnest {
                        lists: lists.iter().map(|column| *column as usize).collect(),
                        schema: Arc::clone(output),
                        keep_empty: *keep_empty,
                    }
                }
                Step::Negate => Compiled::Negate,
            });
        }
        Ok(Self { steps: compiled })
    }

    /// Runs the steps; empty frames are left out. There is one frame unless lists are unnested.
    pub(crate) fn run(&self, frame: Frame) -> Result<Vec<Frame>, ExecError> {
        let mut frames = vec![frame];
        for step in &self.steps {
            frames = match step {
                Compiled::Filter(exprs) => {
                    frames.into_iter().map(|frame| filter(frame, exprs)).collect::<Result<_, _>>()?
                }
                Compiled::Project { exprs, schema } => {
                    frames.into_iter().map(|frame| project(&frame, exprs, schema)).collect::<Result<_, _>>()?
                }
                Compiled::Unnest { lists, schema, keep_empty } => {
                    let mut unnested = Vec::new();
                    for frame in &frames {
                        unnest(frame, lists, schema, *keep_empty, &mut unnested)?;
                    }
                    unnested
                }
                Compiled::Negate => frames.into_iter().map(negate).collect(),
            };
            frames.retain(|frame| frame.rows() > 0);
        }
        Ok(frames)
    }
}

/// Keeps rows for which all conditions hold; a later one sees only what the earlier ones kept.
fn filter(mut frame: Frame, exprs: &[Arc<dyn PhysicalExpr>]) -> Result<Frame, ExecError> {
    for expr in exprs {
        if frame.rows() == 0 {
            break;
        }
        let mask = mask(expr, &frame.batch)?;
        if mask.true_count() == frame.rows() {
            continue;
        }
        let weights = frame
            .weights
            .as_ref()
            .map(|weights| mask.values().set_indices().map(|row| weights[row]).collect::<Arc<[i64]>>());
        frame = frame.with_rows(filter_record_batch(&frame.batch, &mask)?, weights);
    }
    Ok(frame)
}

/// Inserts become deletes, deletes inserts.
fn negate(frame: Frame) -> Frame {
    let weights = match &frame.weights {
        Some(weights) => weights.iter().map(|weight| -weight).collect(),
        None => std::iter::repeat_n(-1, frame.rows()).collect(),
    };
    Frame { weights: Some(weights), ..frame }
}

fn project(frame: &Frame, exprs: &[Arc<dyn PhysicalExpr>], schema: &SchemaRef) -> Result<Frame, ExecError> {
    let columns = exprs.iter().map(|expr| evaluate(expr, &frame.batch)).collect::<Result<Vec<_>, _>>()?;
    let batch = batch_of(schema, columns, frame.rows())?;
    Ok(frame.with_rows(batch, frame.weights.clone()))
}

/// One row per element; the lists of a row are as long as its longest one.
fn unnest(
    frame: &Frame,
    lists: &[usize],
    schema: &SchemaRef,
    keep_empty: bool,
    out: &mut Vec<Frame>,
) -> Result<(), ExecError> {
    let elements =
        lists.iter().map(|column| Elements::of(frame.batch.column(*column))).collect::<Result<Vec<_>, _>>()?;
    if let [list] = elements.as_slice()
        && frame.batch.num_columns() == 1
        && frame.weights.is_none()
        && let Some(values) = list.in_a_row(keep_empty)
    {
        for start in (0..values.len()).step_by(FRAME_ROWS) {
            let values = values.slice(start, FRAME_ROWS.min(values.len() - start));
            let rows = values.len();
            out.push(frame.with_rows(batch_of(schema, vec![values], rows)?, None));
        }
        return Ok(());
    }
    let mut rows: Vec<u32> = Vec::new();
    let mut positions: Vec<Vec<Option<u32>>> = vec![Vec::new(); lists.len()];
    for row in 0..frame.rows() {
        let longest = elements.iter().map(|list| list.range(row).len()).max().unwrap_or(0);
        let count = if longest == 0 && keep_empty { 1 } else { longest };
        for i in 0..count {
            rows.push(row as u32);
            for (list, positions) in elements.iter().zip(&mut positions) {
                let range = list.range(row);
                positions.push((i < range.len()).then(|| range.start + i as u32));
            }
            if rows.len() == FRAME_ROWS {
                out.push(unnested(frame, lists, &elements, &rows, &positions, schema)?);
                rows.clear();
                positions.iter_mut().for_each(Vec::clear);
            }
        }
    }
    if !rows.is_empty() {
        out.push(unnested(frame, lists, &elements, &rows, &positions, schema)?);
    }
    Ok(())
}

fn unnested(
    frame: &Frame,
    lists: &[usize],
    elements: &[Elements],
    rows: &[u32],
    positions: &[Vec<Option<u32>>],
    schema: &SchemaRef,
) -> Result<Frame, ExecError> {
    let row_indices = UInt32Array::from(rows.to_vec());
    let columns = (0..frame.batch.num_columns()).map(|column| match lists.iter().position(|list| *list == column) {
        Some(list) => take(&elements[list].values, &UInt32Array::from(positions[list].clone()), None),
        None => take(frame.batch.column(column), &row_indices, None),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let weights = frame.weights.as_ref().map(|weights| rows.iter().map(|row| weights[*row as usize]).collect());
    Ok(frame.with_rows(batch_of(schema, columns, rows.len())?, weights))
}

/// The elements of a list column and which belong to which row.
struct Elements {
    values: ArrayRef,
    ranges: Vec<std::ops::Range<u32>>,
}

impl Elements {
    fn of(array: &ArrayRef) -> Result<Self, ExecError> {
        let empty = 0..0_u32;
        let valid = |row: usize| array.is_valid(row);
        let rows = 0..array.len();
        let (values, ranges) = match array.data_type() {
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let range = |row: usize| list.value_offsets()[row] as u32..list.value_offsets()[row + 1] as u32;
                (
                    Arc::clone(list.values()),
                    rows.map(|row| if valid(row) { range(row) } else { empty.clone() }).collect(),
                )
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                let range = |row: usize| list.value_offsets()[row] as u32..list.value_offsets()[row + 1] as u32;
                (
                    Arc::clone(list.values()),
                    rows.map(|row| if valid(row) { range(row) } else { empty.clone() }).collect(),
                )
            }
            DataType::FixedSizeList(_, size) => {
                let list = array.as_fixed_size_list();
                let size = *size as u32;
                let range = |row: usize| row as u32 * size..(row as u32 + 1) * size;
                (
                    Arc::clone(list.values()),
                    rows.map(|row| if valid(row) { range(row) } else { empty.clone() }).collect(),
                )
            }
            DataType::Null => (new_null_array(&DataType::Null, 0), vec![empty; array.len()]),
            other => return Err(ExecError::Internal(format!("UNNEST of {other}"))),
        };
        Ok(Self { values, ranges })
    }

    fn range(&self, row: usize) -> std::ops::Range<u32> {
        self.ranges[row].clone()
    }

    /// All elements, if they stand in the order of the rows and no row needs one of its own.
    fn in_a_row(&self, keep_empty: bool) -> Option<ArrayRef> {
        let first = self.ranges.first()?.start;
        let end = self.ranges.iter().try_fold(first, |end, range| {
            (range.start == end && !(keep_empty && range.is_empty())).then_some(range.end)
        })?;
        Some(self.values.slice(first as usize, (end - first) as usize))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;

    use super::*;
    use crate::frame::Epoch;

    #[test]
    fn negated_frames_take_away_what_they_brought() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
        let steps = Steps::new(&[Step::Negate], &batch.schema()).unwrap();
        let inserts = Frame::inserts(batch.clone(), Epoch::FIRST);
        let mixed = Frame { weights: Some(vec![2, -1, 1].into()), ..inserts.clone() };
        for (frame, expected) in [(inserts, [-1, -1, -1]), (mixed, [-2, 1, -1])] {
            let [negated] = steps.run(frame).unwrap().try_into().unwrap();
            assert_eq!((negated.weights.as_deref(), &negated.batch), (Some(&expected[..]), &batch));
        }
    }
}
