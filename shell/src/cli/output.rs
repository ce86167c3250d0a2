//! Rows in the formats that they can have: aligned tables, records, CSV, newline-delimited JSON,
//! markdown.

mod cells;
mod markdown;
mod out;
mod table;

use std::io::{self, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use thetis::{CsvRows, NdjsonRows};

use self::markdown::Markdown;
use self::table::Table;
use super::args::Format;

pub(super) use self::cells::{for_each_row, names, numeric};
pub(super) use self::out::Out;
pub(super) use self::table::{cut, grow, line, rule};

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
    Csv(Box<CsvRows<W>>, W),
    Ndjson(Box<NdjsonRows<W>>, W),
}

impl<W: Write + Clone> Writer<W> {
    pub(super) fn new(display: &Display, schema: &SchemaRef, out: W) -> Self {
        match display.format {
            Format::Table => Self::Table(Table::new(schema, display.expanded, out)),
            Format::Markdown => Self::Markdown(Markdown::new(schema, out)),
            Format::Csv => Self::Csv(Box::new(CsvRows::new(schema, true, out.clone())), out),
            Format::Ndjson => Self::Ndjson(Box::new(NdjsonRows::new(schema, out.clone())), out),
        }
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        match self {
            Self::Table(table) => table.write(batch),
            Self::Markdown(markdown) => markdown.write(batch),
            Self::Csv(rows, _) => rows.write(batch).map_err(to_io),
            Self::Ndjson(rows, _) => rows.write(batch).map_err(to_io),
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
            Self::Csv(rows, _) => rows.finish().map_err(to_io),
            Self::Ndjson(rows, _) => rows.finish().map_err(to_io),
        }
    }
}

/// Writes a result that is one batch.
pub(super) fn print_whole(out: &mut Out, display: &Display, batch: &RecordBatch) -> io::Result<()> {
    let mut writer = Writer::new(display, batch.schema_ref(), out.clone());
    writer.write(batch).and_then(|()| writer.finish()).and_then(|()| out.flush_all())
}

fn to_io(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        // The csv writer hides a closed pipe in its text.
        ArrowError::CsvError(text) if text.contains("Broken pipe") => io::Error::from(io::ErrorKind::BrokenPipe),
        other => io::Error::other(other),
    }
}
