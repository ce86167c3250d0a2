//! What distribution costs: the same query in one process and on clusters of real processes, and the data plane
//! alone beside a bare QUIC stream. Every figure is a ratio within one run.

mod link;
mod query;

use std::path::PathBuf;

use clap::Parser;

/// Measures what distribution costs.
#[derive(Debug, Parser)]
struct Args {
    /// The thetis binary
    #[arg(long, default_value = "target/release/thetis")]
    thetis: PathBuf,
    /// A file that defines streams `r` and `s` of at least a million rows each
    #[arg(long)]
    definitions: PathBuf,
    /// The query
    #[arg(long)]
    query: String,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// The median of some figures.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let definitions = std::fs::read_to_string(&args.definitions)?;
    query::compare(&args.thetis, &definitions, &args.query, args.rounds)?;
    link::compare(args.rounds)
}
