//! Changes as plain rows: the columns `epoch` and `op`, then those of the result.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::error::ExecError;
use crate::frame::{FRAME_ROWS, Frame};
use crate::steps::batch_of;

/// `epoch` (BIGINT), `op` (`+` or `-`), then the columns of the result.
pub fn changes_schema(result: &SchemaRef) -> SchemaRef {
    let mut fields = vec![Field::new("epoch", DataType::Int64, false), Field::new("op", DataType::Utf8, false)];
    fields.extend(result.fields().iter().map(|field| field.as_ref().clone()));
    Arc::new(Schema::new(fields))
}

/// The rows of a frame of changes, one per unit of weight, each with its epoch and sign, in batches of a
/// frame: a weight may be any number.
#[derive(Debug)]
pub struct ChangeRows {
    frame: Frame,
    schema: SchemaRef,
    /// The next row, and how often it was given already.
    row: usize,
    given: u64,
}

impl ChangeRows {
    /// The rows of `frame`; `schema` is that of [`changes_schema`].
    pub fn new(frame: Frame, schema: SchemaRef) -> Self {
        Self { frame, schema, row: 0, given: 0 }
    }

    /// The next rows; `None` after the last.
    ///
    /// # Errors
    /// More text than one array holds.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, ExecError> {
        let mut rows: Vec<u32> = Vec::new();
        while self.row < self.frame.rows() && rows.len() < FRAME_ROWS {
            let left = self.frame.weight(self.row).unsigned_abs() - self.given;
            let count = left.min((FRAME_ROWS - rows.len()) as u64);
            rows.extend(std::iter::repeat_n(self.row as u32, count as usize));
            self.given += count;
            if count == left {
                self.row += 1;
                self.given = 0;
            }
        }
        if rows.is_empty() { Ok(None) } else { self.batch(rows).map(Some) }
    }

    fn batch(&self, rows: Vec<u32>) -> Result<RecordBatch, ExecError> {
        let epoch = i64::try_from(self.frame.epoch.0).unwrap_or(i64::MAX);
        let ops = rows.iter().map(|row| if self.frame.weight(*row as usize) > 0 { "+" } else { "-" });
        let mut columns: Vec<ArrayRef> =
            vec![Arc::new(Int64Array::from(vec![epoch; rows.len()])), Arc::new(StringArray::from_iter_values(ops))];
        let count = rows.len();
        let rows = UInt32Array::from(rows);
        for column in self.frame.batch.columns() {
            columns.push(take(column, &rows, None)?);
        }
        batch_of(&self.schema, columns, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Epoch;

    #[test]
    fn weights_of_any_size_become_rows_in_pieces() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![7, 8, 9]));
        let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
        let schema = changes_schema(&batch.schema());
        let weights = vec![3, 0, -(2 * FRAME_ROWS as i64)].into();
        let frame = Frame { weights: Some(weights), ..Frame::inserts(batch, Epoch::FIRST) };
        let mut rows = ChangeRows::new(frame, schema);
        let mut counts = Vec::new();
        while let Some(batch) = rows.next_batch().unwrap() {
            counts.push(batch.num_rows());
        }
        assert_eq!(counts, [FRAME_ROWS, FRAME_ROWS, 3]);
    }
}
