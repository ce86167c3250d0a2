//! Rows on standard output: aligned tables, CSV, newline-delimited JSON.

use std::io::{self, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions, array_value_to_string};
use unicode_width::UnicodeWidthStr;

use super::args::Format;

const TIMESTAMP: &str = "%Y-%m-%d %H:%M:%S%.f";

/// Rows from which a table takes its column widths; later rows may stick out.
const MEASURED_ROWS: usize = 1_000;

/// Writes one result.
pub(super) enum Writer<W: Write> {
    Table(Table<W>),
    Csv(Box<arrow::csv::Writer<W>>, SchemaRef, bool),
    Ndjson(Box<arrow::json::LineDelimitedWriter<W>>, SchemaRef),
}

impl<W: Write> Writer<W> {
    pub(super) fn new(format: Format, schema: &SchemaRef, out: W) -> Self {
        match format {
            Format::Table => Self::Table(Table::new(schema, out)),
            Format::Csv => {
                let builder = arrow::csv::WriterBuilder::new()
                    .with_header(true)
                    .with_timestamp_format(TIMESTAMP.to_owned())
                    .with_datetime_format(TIMESTAMP.to_owned());
                Self::Csv(Box::new(builder.build(out)), flat_schema(schema), false)
            }
            Format::Ndjson => {
                let builder = arrow::json::WriterBuilder::new().with_explicit_nulls(true);
                Self::Ndjson(Box::new(builder.build(out)), unique_names(schema))
            }
        }
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        match self {
            Self::Table(table) => table.write(batch),
            Self::Csv(writer, schema, started) => {
                *started = true;
                writer.write(&flat(batch, schema)?).map_err(to_io)
            }
            Self::Ndjson(writer, schema) => {
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let columns = batch.columns().to_vec();
                let named = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(to_io)?;
                writer.write(&named).map_err(to_io)
            }
        }
    }

    /// Hands on what is buffered; a full disk is told here at the latest.
    pub(super) fn into_inner(self) -> W {
        match self {
            Self::Table(table) => table.out,
            Self::Csv(writer, ..) => writer.into_inner(),
            Self::Ndjson(writer, _) => writer.into_inner(),
        }
    }

    /// What is still to be written when the last row has come.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Table(table) => table.finish(),
            Self::Csv(writer, schema, false) => writer.write(&RecordBatch::new_empty(schema.clone())).map_err(to_io),
            Self::Csv(..) => Ok(()),
            Self::Ndjson(writer, _) => writer.finish().map_err(to_io),
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

/// An aligned table with a header and the number of rows.
pub(super) struct Table<W> {
    out: W,
    names: Vec<String>,
    right: Vec<bool>,
    widths: Option<Vec<usize>>,
    measured: Vec<Vec<String>>,
    rows: u64,
}

impl<W: Write> Table<W> {
    fn new(schema: &SchemaRef, out: W) -> Self {
        Self {
            out,
            names: schema.fields().iter().map(|field| field.name().clone()).collect(),
            right: schema.fields().iter().map(|field| field.data_type().is_numeric()).collect(),
            widths: None,
            measured: Vec::new(),
            rows: 0,
        }
    }

    fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let options = FormatOptions::default()
            .with_null("NULL")
            .with_timestamp_format(Some(TIMESTAMP))
            .with_datetime_format(Some(TIMESTAMP));
        let columns = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).map_err(to_io))
            .collect::<io::Result<Vec<_>>>()?;
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = columns
                .iter()
                .map(|column| column.value(row).to_string().replace('\n', "\\n").replace('\r', "\\r"))
                .collect();
            self.rows += 1;
            if self.widths.is_some() {
                self.line(&cells)?;
                continue;
            }
            self.measured.push(cells);
            if self.measured.len() == MEASURED_ROWS {
                self.start()?;
            }
        }
        Ok(())
    }

    fn start(&mut self) -> io::Result<()> {
        let mut widths: Vec<usize> = self.names.iter().map(|name| name.width()).collect();
        for row in &self.measured {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
        self.widths = Some(widths);
        self.line(&self.names.clone())?;
        writeln!(self.out, "{}", rule.join("+"))?;
        for row in std::mem::take(&mut self.measured) {
            self.line(&row)?;
        }
        Ok(())
    }

    fn line(&mut self, cells: &[String]) -> io::Result<()> {
        let widths = self.widths.as_deref().unwrap_or_default();
        let mut line = String::new();
        for (i, cell) in cells.iter().enumerate() {
            let fill = " ".repeat(widths.get(i).copied().unwrap_or(0).saturating_sub(cell.width()));
            line += if i > 0 { "| " } else { " " };
            line += &if self.right[i] { format!("{fill}{cell} ") } else { format!("{cell}{fill} ") };
        }
        writeln!(self.out, "{}", line.trim_end())
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.widths.is_none() {
            self.start()?;
        }
        let rows = self.rows;
        writeln!(self.out, "({rows} {})", if rows == 1 { "row" } else { "rows" })
    }
}
