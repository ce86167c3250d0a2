//! Rows as text for programs: CSV, and one JSON object per line.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::csv::WriterBuilder;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::LineDelimitedWriter;
use arrow::util::display::array_value_to_string;

/// How timestamps are written.
pub const TIMESTAMP: &str = "%Y-%m-%d %H:%M:%S%.f";

/// Writes CSV (RFC 4180). Lists and the like are written as text.
#[derive(Debug)]
pub struct CsvRows<W: Write> {
    writer: arrow::csv::Writer<W>,
    schema: SchemaRef,
}

impl<W: Write> CsvRows<W> {
    /// Rows of `schema`, after a line with the columns' names if `header`.
    pub fn new(schema: &SchemaRef, header: bool, out: W) -> Self {
        let builder = WriterBuilder::new()
            .with_header(header)
            .with_timestamp_format(TIMESTAMP.to_owned())
            .with_datetime_format(TIMESTAMP.to_owned());
        Self { writer: builder.build(out), schema: flat_schema(schema) }
    }

    /// Writes rows, and hands them on.
    ///
    /// # Errors
    /// The output's.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<(), ArrowError> {
        self.writer.write(&flat(rows, &self.schema)?)
    }

    /// Writes the header if there were no rows.
    ///
    /// # Errors
    /// The output's.
    pub fn finish(&mut self) -> Result<(), ArrowError> {
        self.writer.write(&RecordBatch::new_empty(Arc::clone(&self.schema)))
    }
}

/// Writes JSON objects, one per line. Columns of one name get a number: `id`, `id_1`, `id_2`.
#[derive(Debug)]
pub struct NdjsonRows<W: Write> {
    writer: LineDelimitedWriter<W>,
    schema: SchemaRef,
}

impl<W: Write> NdjsonRows<W> {
    /// Rows of `schema`.
    pub fn new(schema: &SchemaRef, out: W) -> Self {
        let builder = arrow::json::WriterBuilder::new().with_explicit_nulls(true);
        Self { writer: builder.build(out), schema: unique_names(schema) }
    }

    /// Writes rows.
    ///
    /// # Errors
    /// The output's, and values that JSON has no form for.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<(), ArrowError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let columns = rows.columns().to_vec();
        self.writer.write(&RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    /// Hands on what is buffered.
    ///
    /// # Errors
    /// The output's.
    pub fn flush(&mut self) -> Result<(), ArrowError> {
        Ok(self.writer.get_mut().flush()?)
    }

    /// Writes what comes after the last row.
    ///
    /// # Errors
    /// The output's.
    pub fn finish(&mut self) -> Result<(), ArrowError> {
        self.writer.finish()?;
        self.flush()
    }
}

/// The schema of a CSV file: lists and the like are texts.
fn flat_schema(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| match field.data_type().is_nested() {
        true => Field::new(field.name(), DataType::Utf8, true),
        false => field.as_ref().clone(),
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn flat(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = rows.columns().iter().map(|column| {
        if !column.data_type().is_nested() {
            return Ok(Arc::clone(column));
        }
        let texts = (0..column.len()).map(|row| match column.is_null(row) {
            true => Ok(None),
            false => array_value_to_string(column, row).map(Some),
        });
        Ok(Arc::new(texts.collect::<Result<StringArray, ArrowError>>()?) as ArrayRef)
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// Names that are unique, as the keys of an object must be.
pub(super) fn unique_names(schema: &SchemaRef) -> SchemaRef {
    let mut names: Vec<String> = Vec::new();
    for field in schema.fields() {
        let candidates = std::iter::once(field.name().clone()).chain((1..).map(|i| format!("{}_{i}", field.name())));
        let unique = candidates.into_iter().find(|name| !names.contains(name));
        names.extend(unique);
    }
    let fields = schema.fields().iter().zip(names).map(|(field, name)| field.as_ref().clone().with_name(name));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
