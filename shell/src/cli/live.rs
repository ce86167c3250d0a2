//! A result that changes for ever, redrawn in place: one state per finished epoch, at most as many
//! rows as the screen has.

mod rows;

use std::collections::VecDeque;
use std::io::{self, Write};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, Schema};
use thetis::Progress;
use tokio::time::Instant;

use self::rows::Rows;
use super::output::{cut, for_each_row, grow, line, names, numeric, rule};
use super::progress::summary;
use super::screen::{self, Size};

/// Columns of a change in front of the row: `epoch` and `op`.
const MARKS: usize = 2;

/// A table on the screen.
pub(super) struct Live {
    names: Vec<String>,
    right: Vec<bool>,
    rows: Rows,
    /// Changes of epochs that are not complete.
    open: VecDeque<(u64, RecordBatch)>,
    started: Instant,
    /// Lines that are on the screen now, and its size when they were drawn.
    drawn: Option<(usize, Size)>,
}

impl Live {
    /// `schema` is that of the changes.
    pub(super) fn new(schema: &Schema) -> Self {
        let (names, right) = (names(schema).split_off(MARKS), numeric(schema).split_off(MARKS));
        Self {
            rows: Rows::new(right.clone()),
            names,
            right,
            open: VecDeque::new(),
            started: Instant::now(),
            drawn: None,
        }
    }

    /// Takes changes, which are all of one epoch.
    pub(super) fn add(&mut self, batch: &RecordBatch) -> io::Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let epoch = u64::try_from(batch.column(0).as_primitive::<Int64Type>().value(0)).unwrap_or(0);
        // Epochs come in order: the ones before are complete.
        self.complete(epoch.saturating_sub(1))?;
        self.open.push_back((epoch, batch.clone()));
        Ok(())
    }

    /// Shows the last complete epoch.
    pub(super) fn draw(&mut self, progress: &Progress) -> io::Result<()> {
        self.complete(progress.epoch.unwrap_or(0))?;
        let size = screen::size().unwrap_or(Size { columns: 80, rows: 24 });
        let lines = self.lines(size, progress);
        let mut text = match self.drawn {
            None => String::new(),
            Some((lines, at)) if at == size => format!("\r\x1b[{lines}A"),
            // Terminals differ in what they do with lines that no longer fit.
            Some(_) => "\x1b[H\x1b[2J".to_owned(),
        };
        for line in &lines {
            text += line;
            text += "\x1b[K\n";
        }
        text += "\x1b[J";
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        self.drawn = Some((lines.len(), size));
        out.flush()
    }

    /// Shows the result when it has ended.
    pub(super) fn finish(&mut self, progress: &Progress) -> io::Result<()> {
        self.complete(u64::MAX)?;
        self.draw(progress)
    }

    /// Applies the changes up to this epoch.
    fn complete(&mut self, epoch: u64) -> io::Result<()> {
        while let Some((_, batch)) = self.open.pop_front_if(|(open, _)| *open <= epoch) {
            let ops = batch.column(1).as_string::<i32>().clone();
            let columns: Vec<usize> = (MARKS..batch.num_columns()).collect();
            let rows = batch.project(&columns).map_err(io::Error::other)?;
            let mut row = 0;
            for_each_row(&rows, |cells| {
                self.rows.add(cells, if ops.is_valid(row) && ops.value(row) == "-" { -1 } else { 1 });
                row += 1;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// What is to be on the screen.
    fn lines(&self, size: Size, progress: &Progress) -> Vec<String> {
        // Header, rule, the count of what does not fit, footer, and the line of the cursor.
        let fit = size.rows.saturating_sub(5).max(1);
        let shown: Vec<&[String]> = self.rows.iter().take(fit).collect();
        let mut widths = Vec::new();
        grow(&mut widths, &self.names);
        shown.iter().for_each(|row| grow(&mut widths, row));
        let mut lines = vec![line(&self.names, &widths, &self.right), rule(&widths)];
        lines.extend(shown.iter().map(|row| line(row, &widths, &self.right)));
        let more = self.rows.count().saturating_sub(shown.len() as u64);
        if more > 0 {
            lines.push(format!("... {more} more {}", if more == 1 { "row" } else { "rows" }));
        }
        lines.push(summary(progress, self.started.elapsed()));
        lines.into_iter().map(|line| cut(line, size.columns)).collect()
    }
}

#[cfg(test)]
mod tests;
