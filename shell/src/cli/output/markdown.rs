//! Tables as GitHub's markdown has them.

use std::io::{self, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::cells::{for_each_row, names, numeric};

/// Writes rows as they come: no widths are needed.
pub(crate) struct Markdown<W> {
    pub(super) out: W,
    names: Vec<String>,
    right: Vec<bool>,
    started: bool,
}

impl<W: Write> Markdown<W> {
    pub(super) fn new(schema: &SchemaRef, out: W) -> Self {
        Self { out, names: names(schema), right: numeric(schema), started: false }
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        self.start()?;
        for_each_row(batch, |cells| row(&mut self.out, &cells))
    }

    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.start()
    }

    fn start(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.started, true) {
            return Ok(());
        }
        row(&mut self.out, &self.names)?;
        let rules = self.right.iter().map(|right| if *right { " ---: |" } else { " --- |" });
        writeln!(self.out, "|{}", rules.collect::<String>())
    }
}

fn row(out: &mut impl Write, cells: &[String]) -> io::Result<()> {
    let cells = cells.iter().map(|cell| format!(" {} |", cell.replace('|', "\\|")));
    writeln!(out, "|{}", cells.collect::<String>())
}
