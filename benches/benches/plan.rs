//! A parsed query to a physical plan.

use std::hint::black_box;

use criterion::Criterion;
use thetis_benches::{catalog, query};
use thetis_planner::{Output, Settings, plan};

const BAND_JOIN: &str =
    "SELECT r.k, COUNT(*) FROM r JOIN s ON r.k BETWEEN s.k - 5 AND s.k + 5 AND r.v < s.v GROUP BY r.k";

fn main() {
    let catalog = catalog();
    let settings = Settings::new(6);
    let query = query(BAND_JOIN);
    let mut criterion = Criterion::default().configure_from_args();
    criterion.bench_function("plan a band join", |b| {
        b.iter(|| plan(black_box(&query), &catalog, &settings, Output::Result).expect("the query is valid"));
    });
    criterion.final_summary();
}
