//! Rows in the formats that they can have: aligned tables, records, CSV, newline-delimited JSON,
//! markdown.

mod cells;
mod markdown;
mod out;
mod table;

use std::io::{self, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::array_value_to_string;

use self::markdown::Markdown;
use self::table::Table;
use super::args::Format;

pub(super) use self::cells::{for_each_row, names, numeric};
pub(super) use self::out::Out;
pub(super) use self::table::{cut, grow, line, rule};

const TIMESTAMP: &str = "%Y-%m-%d %H:%M:%S%.f";

/// How results are printed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Display {
    pub(super) format: Format,
    pub(super) expanded: Expanded,
    /// Tells how long each statement took.
    pub(super) timing: bool,
}

/// Whether a table is printed as one record per row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expanded {
    Off,
    On,
    /// If it is wider than the terminal.
    Auto,
}

impl Display {
    pub(super) fn new(format: Format) -> Self {
        Self { format, expanded: Expanded::Off, timing: false }
    }
}

/// Writes one result.
pub(super) enum Writer<W: Write> {
    Table(Table<W>),
    Markdown(Markdown<W>),
    Csv(Box<arrow::csv::Writer<W>>, SchemaRef, bool, W),
    Ndjson(Box<arrow::json::LineDelimitedWriter<W>>, SchemaRef, W),
}

impl<W: Write + Clone> Writer<W> {
    pub(super) fn new(display: &Display, schema: &SchemaRef, out: W) -> Self {
        match display.format {
            Format::Table => Self::Table(Table::new(schema, display.expanded, out)),
            Format::Markdown => Self::Markdown(Markdown::new(schema, out)),
            Format::Csv => {
                let builder = arrow::csv::WriterBuilder::new()
                    .with_header(true)
                    .with_timestamp_format(TIMESTAMP.to_owned())
                    .with_datetime_format(TIMESTAMP.to_owned());
                Self::Csv(Box::new(builder.build(out.clone())), flat_schema(schema), false, out)
            }
            Format::Ndjson => {
                let builder = arrow::json::WriterBuilder::new().with_explicit_nulls(true);
                Self::Ndjson(Box::new(builder.build(out.clone())), unique_names(schema), out)
            }
        }
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        match self {
            Self::Table(table) => table.write(batch),
            Self::Markdown(markdown) => markdown.write(batch),
            Self::Csv(writer, schema, started, _) => {
                *started = true;
                writer.write(&flat(batch, schema)?).map_err(to_io)
            }
            Self::Ndjson(writer, schema, _) => {
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let columns = batch.columns().to_vec();
                let named = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(to_io)?;
                writer.write(&named).map_err(to_io)
            }
        }
    }

    /// Lets everything be seen that has been written; what a table still measures only if `all`.
    pub(super) fn show(&mut self, all: bool) -> io::Result<()> {
        match self {
            Self::Table(table) => table.show(all),
            Self::Markdown(markdown) => markdown.out.flush(),
            Self::Csv(.., out) | Self::Ndjson(.., out) => out.flush(),
        }
    }

    /// What is still to be written when the last row has come.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Table(table) => table.finish(),
            Self::Markdown(markdown) => markdown.finish(),
            Self::Csv(writer, schema, false, _) => writer.write(&RecordBatch::new_empty(schema.clone())).map_err(to_io),
            Self::Csv(..) => Ok(()),
            Self::Ndjson(writer, ..) => writer.finish().map_err(to_io),
        }
    }
}

fn to_io(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        // The csv writer hides a closed pipe in its text.
        ArrowError::CsvError(text) if text.contains("Broken pipe") => io::Error::from(io::ErrorKind::BrokenPipe),
        other => io::Error::other(other),
    }
}

/// The schema of a CSV file: lists and the like are written as text.
fn flat_schema(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| match field.data_type().is_nested() {
        true => Field::new(field.name(), DataType::Utf8, true),
        false => field.as_ref().clone(),
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn flat(batch: &RecordBatch, schema: &SchemaRef) -> io::Result<RecordBatch> {
    let columns = batch.columns().iter().map(|column| {
        if !column.data_type().is_nested() {
            return Ok(Arc::clone(column));
        }
        let texts = (0..column.len()).map(|row| match column.is_null(row) {
            true => Ok(None),
            false => array_value_to_string(column, row).map(Some),
        });
        Ok(Arc::new(texts.collect::<Result<StringArray, ArrowError>>().map_err(to_io)?) as ArrayRef)
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = columns.collect::<io::Result<Vec<_>>>()?;
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(to_io)
}

/// Names that are unique, as the keys of an object must be: `id`, `id_1`, `id_2`.
fn unique_names(schema: &SchemaRef) -> SchemaRef {
    let mut names: Vec<String> = Vec::new();
    for field in schema.fields() {
        let candidates = std::iter::once(field.name().clone()).chain((1..).map(|i| format!("{}_{i}", field.name())));
        let unique = candidates.into_iter().find(|name| !names.contains(name));
        names.extend(unique);
    }
    let fields = schema.fields().iter().zip(names).map(|(field, name)| field.as_ref().clone().with_name(name));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
