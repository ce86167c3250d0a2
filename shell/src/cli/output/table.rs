//! Aligned tables, and records of one line per column.

use std::io::{self, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::Expanded;
use super::cells::{for_each_row, names, numeric};
use crate::cli::screen;

/// Rows from which a table takes its column widths; later rows may stick out.
const MEASURED_ROWS: usize = 1_000;

/// A table with a header and the number of rows.
pub(crate) struct Table<W> {
    out: W,
    names: Vec<String>,
    right: Vec<bool>,
    layout: Layout,
    measured: Vec<Vec<String>>,
    rows: u64,
}

enum Layout {
    /// Not yet known.
    Measuring(Expanded),
    /// One line per row, with these widths of columns.
    Lines(Vec<usize>),
    /// One line per value.
    Records,
}

impl<W: Write> Table<W> {
    pub(super) fn new(schema: &SchemaRef, expanded: Expanded, out: W) -> Self {
        Self {
            out,
            names: names(schema),
            right: numeric(schema),
            layout: Layout::Measuring(expanded),
            measured: Vec::new(),
            rows: 0,
        }
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        for_each_row(batch, |cells| {
            if !matches!(self.layout, Layout::Measuring(_)) {
                return self.row(&cells);
            }
            self.measured.push(cells);
            if self.measured.len() == MEASURED_ROWS { self.start() } else { Ok(()) }
        })
    }

    pub(super) fn show(&mut self, all: bool) -> io::Result<()> {
        if all && !self.measured.is_empty() {
            self.start()?;
        }
        self.out.flush()
    }

    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.start()?;
        let rows = self.rows;
        writeln!(self.out, "({rows} {})", if rows == 1 { "row" } else { "rows" })
    }

    /// Settles the layout and writes what was measured.
    fn start(&mut self) -> io::Result<()> {
        let Layout::Measuring(expanded) = self.layout else {
            return Ok(());
        };
        let mut widths = Vec::new();
        grow(&mut widths, &self.names);
        self.measured.iter().for_each(|row| grow(&mut widths, row));
        let too_wide = || {
            let needed = widths.iter().map(|width| width + 3).sum::<usize>().saturating_sub(1);
            screen::size().is_some_and(|size| needed > size.columns)
        };
        if expanded == Expanded::On || (expanded == Expanded::Auto && too_wide()) {
            self.layout = Layout::Records;
        } else {
            writeln!(self.out, "{}", line(&self.names, &widths, &self.right))?;
            writeln!(self.out, "{}", rule(&widths))?;
            self.layout = Layout::Lines(widths);
        }
        for row in std::mem::take(&mut self.measured) {
            self.row(&row)?;
        }
        Ok(())
    }

    fn row(&mut self, cells: &[String]) -> io::Result<()> {
        self.rows += 1;
        if let Layout::Lines(widths) = &self.layout {
            return writeln!(self.out, "{}", line(cells, widths, &self.right));
        }
        let width = self.names.iter().map(|name| name.width()).max().unwrap_or(0);
        writeln!(self.out, "{:-<40}", format!("-[ RECORD {} ]", self.rows))?;
        for (name, cell) in self.names.iter().zip(cells) {
            writeln!(self.out, "{name}{} | {cell}", " ".repeat(width - name.width()))?;
        }
        Ok(())
    }
}

/// Makes the columns wide enough for these cells.
pub(crate) fn grow(widths: &mut Vec<usize>, cells: &[String]) {
    widths.resize(cells.len(), 0);
    for (width, cell) in widths.iter_mut().zip(cells) {
        *width = (*width).max(cell.width());
    }
}

/// The line of a row.
pub(crate) fn line(cells: &[String], widths: &[usize], right: &[bool]) -> String {
    let mut line = String::new();
    for (i, cell) in cells.iter().enumerate() {
        let fill = " ".repeat(widths.get(i).copied().unwrap_or(0).saturating_sub(cell.width()));
        line += if i > 0 { "| " } else { " " };
        line += &if right.get(i) == Some(&true) { format!("{fill}{cell} ") } else { format!("{cell}{fill} ") };
    }
    line.truncate(line.trim_end().len());
    line
}

/// The line between header and rows.
pub(crate) fn rule(widths: &[usize]) -> String {
    widths.iter().map(|width| "-".repeat(width + 2)).collect::<Vec<_>>().join("+")
}

/// The line, cut with an ellipsis if it is wider than `columns`.
pub(crate) fn cut(mut line: String, columns: usize) -> String {
    if line.width() <= columns {
        return line;
    }
    let mut width = 0;
    let end = line.char_indices().find(|(_, c)| {
        width += c.width().unwrap_or(0);
        width + 1 > columns
    });
    line.truncate(end.map_or(line.len(), |(at, _)| at));
    line.push('…');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_by_their_width() {
        assert_eq!(cut("abcdef".to_owned(), 6), "abcdef");
        assert_eq!(cut("abcdef".to_owned(), 4), "abc…");
        assert_eq!(cut("日本語".to_owned(), 4), "日…");
    }
}
