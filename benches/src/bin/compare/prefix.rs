//! Checks what Thetis has answered by the end of one epoch, chosen at random, against DuckDB over that
//! prefix of the files.

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Case, Files, Options, duckdb, sql, thetis_command, whole};

/// Rows of an epoch.
const EPOCH_ROWS: u64 = 10_000;

/// A line of the table: the epoch, and what both say.
///
/// # Errors
/// The answers differ.
pub(crate) fn check(case: &Case, files: &Files, options: &Options, seed: u64) -> Result<String, Box<dyn Error>> {
    let rows: u64 = case.input.rsplit('_').next().unwrap_or_default().parse()?;
    let epoch = ChaCha8Rng::seed_from_u64(seed).random_range(1..=rows / EPOCH_ROWS);
    let text = format!("SET epoch_rows = {EPOCH_ROWS}; {}", sql(case, files)?);
    let changes = whole(thetis_command()?.args(["--format", "csv", "--changes", "-c", &text]))?.answer;
    // Lines are: epoch, + or -, the row. The last row that was added by then is the answer.
    let added = changes.lines().filter_map(|line| {
        let (at, change) = line.split_once(',')?;
        Some((at.parse::<u64>().ok()?, change.strip_prefix("+,")?))
    });
    let own = added.take_while(|(at, _)| *at <= epoch).last().map_or("", |(_, row)| row);
    let prefixes = files.iter().map(|(table, path)| {
        let prefix = options.data.join(format!("prefix_{table}.csv"));
        write_prefix(path, &prefix, epoch * EPOCH_ROWS)?;
        Ok((*table, prefix))
    });
    let prefixes: Vec<(&'static str, PathBuf)> = prefixes.collect::<Result<_, std::io::Error>>()?;
    let other = duckdb(case.peer_query(), &prefixes, options)?.answer;
    if own != other {
        return Err(format!("{}, epoch {epoch}: {own} is not {other}", case.input).into());
    }
    Ok(format!("| {} | {epoch} of {} | {own} |", case.name(), rows / EPOCH_ROWS))
}

/// The header and so many lines.
fn write_prefix(from: &Path, to: &Path, rows: u64) -> std::io::Result<()> {
    let mut lines = BufReader::new(File::open(from)?);
    let mut out = BufWriter::new(File::create(to)?);
    let mut line = Vec::new();
    for _ in 0..=rows {
        line.clear();
        lines.read_until(b'\n', &mut line)?;
        out.write_all(&line)?;
    }
    out.flush()
}
