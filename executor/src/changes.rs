//! Changes as plain rows: the columns `epoch` and `op`, then those of the result.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::error::ExecError;
use crate::frame::Frame;
use crate::steps::batch_of;

/// `epoch` (BIGINT), `op` (`+` or `-`), then the columns of the result.
pub fn changes_schema(result: &SchemaRef) -> SchemaRef {
    let mut fields = vec![Field::new("epoch", DataType::Int64, false), Field::new("op", DataType::Utf8, false)];
    fields.extend(result.fields().iter().map(|field| field.as_ref().clone()));
    Arc::new(Schema::new(fields))
}

/// One row per unit of weight, with its epoch and sign. `schema` is that of [`changes_schema`].
///
/// # Errors
/// More text than one array holds.
pub fn changes_batch(frame: &Frame, schema: &SchemaRef) -> Result<RecordBatch, ExecError> {
    let rows: Vec<u32> = (0..frame.rows())
        .flat_map(|row| std::iter::repeat_n(row as u32, usize::try_from(frame.weight(row).unsigned_abs()).unwrap_or(0)))
        .collect();
    let epoch = i64::try_from(frame.epoch.0).unwrap_or(i64::MAX);
    let ops = rows.iter().map(|row| if frame.weight(*row as usize) > 0 { "+" } else { "-" });
    let mut columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(vec![epoch; rows.len()])), Arc::new(StringArray::from_iter_values(ops))];
    let count = rows.len();
    let rows = UInt32Array::from(rows);
    for column in frame.batch.columns() {
        columns.push(take(column, &rows, None)?);
    }
    batch_of(schema, columns, count)
}
