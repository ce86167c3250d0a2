//! Inputs with a fixed seed, as csv files with a header.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Keys of the equality joins, and different words.
const KEYS: usize = 10_000;
const WORDS: usize = 50_000;

/// Columns of a stream as SQL declares them.
pub(crate) fn columns(input: &str, table: &str) -> &'static str {
    match input.split('_').next().unwrap_or_default() {
        "interval" if table == "r" => "id BIGINT, t BIGINT",
        "interval" => "id BIGINT, a BIGINT, b BIGINT",
        "geo" => "id BIGINT, x DOUBLE, y DOUBLE",
        "ineq" => "id BIGINT, a BIGINT, b BIGINT",
        "words" => "line VARCHAR",
        _ => "id BIGINT, k BIGINT, v BIGINT",
    }
}

/// The files of an input, by the names of their streams; made if they are not there.
///
/// # Errors
/// A file that cannot be written.
pub(crate) fn files(folder: &Path, name: &str) -> io::Result<Vec<(&'static str, PathBuf)>> {
    let kind = name.split('_').next().unwrap_or_default();
    let tables: &[&'static str] = if kind == "words" { &["words"] } else { &["r", "s"] };
    let mut files = Vec::new();
    for (seed, table) in (0..).zip(tables) {
        let path = folder.join(format!("{name}_{table}.csv"));
        if !path.exists() {
            let unfinished = path.with_extension("part");
            write(&unfinished, name, seed)?;
            std::fs::rename(&unfinished, &path)?;
        }
        files.push((*table, path));
    }
    Ok(files)
}

fn write(path: &Path, name: &str, seed: u64) -> io::Result<()> {
    let parts: Vec<&str> = name.split('_').collect();
    let rows: usize = parts.last().and_then(|rows| rows.parse().ok()).unwrap_or(0);
    let random = &mut ChaCha8Rng::seed_from_u64(seed * 1_000_003 + rows as u64);
    let out = &mut BufWriter::new(File::create(path)?);
    match parts[0] {
        "band" => numbers(out, "id,k,v", rows, || [random.random_range(0..10_000_000), random.random_range(0..1000)])?,
        // Nine tenths of the rows are in a hundredth of the domain.
        "bandskew" => numbers(out, "id,k,v", rows, || {
            let domain = if random.random_bool(0.9) { 100_000 } else { 10_000_000 };
            [random.random_range(0..domain), random.random_range(0..1000)]
        })?,
        "ineq" => numbers(out, "id,a,b", rows, || [0, 1].map(|_| random.random_range(0..1_000_000)))?,
        // Points, and intervals of which one in a thousand is long.
        "interval" if seed == 0 => numbers(out, "id,t", rows, || [random.random_range(0..1000 * rows as i64)])?,
        "interval" => numbers(out, "id,a,b", rows, || {
            let length = if random.random_bool(0.999) { 20_000 } else { 100 * rows as i64 };
            let from = random.random_range(0..1000 * rows as i64);
            [from, from + random.random_range(0..length)]
        })?,
        "geo" => {
            writeln!(out, "id,x,y")?;
            for id in 0..rows {
                let [x, y] = [0, 1].map(|_| random.random_range(0.0..1000.0));
                writeln!(out, "{id},{x:.6},{y:.6}")?;
            }
        }
        "zipf" => {
            let zipf = Zipf::new(KEYS, parts[1].parse().unwrap_or(1.0));
            numbers(out, "id,k,v", rows, || [zipf.draw(random) as i64, random.random_range(0..1000)])?;
        }
        _ => {
            let zipf = Zipf::new(WORDS, 1.0);
            writeln!(out, "line")?;
            for _ in 0..rows {
                // Ranks are scattered, so that frequent words are no neighbours.
                let words: Vec<String> = (0..10).map(|_| format!("w{}", zipf.draw(random) * 7919 % WORDS)).collect();
                writeln!(out, "{}", words.join(" "))?;
            }
        }
    }
    out.flush()
}

fn numbers<const N: usize>(
    out: &mut impl Write,
    header: &str,
    rows: usize,
    mut row: impl FnMut() -> [i64; N],
) -> io::Result<()> {
    writeln!(out, "{header}")?;
    for id in 0..rows {
        write!(out, "{id}")?;
        row().iter().try_for_each(|value| write!(out, ",{value}"))?;
        writeln!(out)?;
    }
    Ok(())
}

/// Ranks from 0 whose frequency falls with a power of the rank.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(ranks: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        Self(
            (1..=ranks)
                .map(|rank| {
                    sum += (rank as f64).powf(-exponent);
                    sum
                })
                .collect(),
        )
    }

    fn draw(&self, random: &mut ChaCha8Rng) -> usize {
        let at = random.random_range(0.0..self.0[self.0.len() - 1]);
        self.0.partition_point(|sum| *sum <= at)
    }
}
