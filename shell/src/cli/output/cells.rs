//! Values as the texts of cells.

use std::io;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use thetis::TIMESTAMP;

use super::to_io;

/// The names of the columns, without what would break a line.
pub(crate) fn names(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| printable(field.name())).collect()
}

/// Which columns are numbers: they are aligned to the right.
pub(crate) fn numeric(schema: &Schema) -> Vec<bool> {
    schema.fields().iter().map(|field| field.data_type().is_numeric()).collect()
}

/// Calls `take` with the cells of each row.
pub(crate) fn for_each_row(batch: &RecordBatch, mut take: impl FnMut(Vec<String>) -> io::Result<()>) -> io::Result<()> {
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
        take(columns.iter().map(|column| printable(&column.value(row).to_string())).collect())?;
    }
    Ok(())
}

/// The text with its control characters written out: a terminal would obey them.
fn printable(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn nothing_that_a_terminal_obeys_is_printed() {
        assert_eq!(printable("a\nb\r\tc\u{1b}[2J"), "a\\nb\\r\\tc\\u{1b}[2J");
        assert_eq!(printable("é 日本"), "é 日本");
    }
}
