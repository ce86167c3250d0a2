//! Constant rows.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::concat;
use arrow::datatypes::{Schema, SchemaRef};
use thetis_planner::expr::ScalarExpr;

use super::{Fetched, Reader};
use crate::error::ExecError;
use crate::frame::FRAME_ROWS;
use crate::steps::{batch_of, compile_all, evaluate};

/// Evaluates rows of constant expressions.
#[derive(Debug)]
pub(super) struct ValuesReader {
    batch: RecordBatch,
    next: usize,
}

impl ValuesReader {
    pub(super) fn new(rows: &[Vec<ScalarExpr>], schema: &SchemaRef) -> Result<Self, ExecError> {
        let empty: SchemaRef = Arc::new(Schema::empty());
        let one = batch_of(&empty, Vec::new(), 1)?;
        let mut columns = Vec::with_capacity(schema.fields().len());
        for column in 0..schema.fields().len() {
            let exprs: Vec<ScalarExpr> = rows.iter().map(|row| row[column].clone()).collect();
            let values =
                compile_all(&exprs, &empty)?.iter().map(|expr| evaluate(expr, &one)).collect::<Result<Vec<_>, _>>()?;
            let values: Vec<_> = values.iter().map(AsRef::as_ref).collect();
            columns.push(if values.is_empty() {
                arrow::array::new_empty_array(schema.field(column).data_type())
            } else {
                concat(&values)?
            });
        }
        Ok(Self { batch: batch_of(schema, columns, rows.len())?, next: 0 })
    }
}

impl Reader for ValuesReader {
    fn next(&mut self, _: Duration) -> Result<Fetched, ExecError> {
        let length = FRAME_ROWS.min(self.batch.num_rows() - self.next);
        if length == 0 {
            return Ok(Fetched::End);
        }
        let batch = self.batch.slice(self.next, length);
        self.next += length;
        Ok(Fetched::Rows(batch))
    }
}
