//! SQL text to a statement.

use std::hint::black_box;

use criterion::Criterion;
use thetis_parser::parse_statement;

const BAND_JOIN: &str = "SELECT r.id, COUNT(*), SUM(s.price) FROM r JOIN s \
    ON r.ts BETWEEN s.ts - INTERVAL '5 minutes' AND s.ts + INTERVAL '5 minutes' AND r.k <> s.k \
    WHERE r.price > 10 GROUP BY r.id HAVING COUNT(*) > 1";

const CREATE_STREAM: &str = "CREATE STREAM r (id BIGINT, k BIGINT, price DECIMAL(10, 2), ts TIMESTAMP) \
    WITH (connector = 'file', path = 'data/*.csv', format = 'csv')";

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for (name, text) in [("parse a band join", BAND_JOIN), ("parse CREATE STREAM", CREATE_STREAM)] {
        criterion.bench_function(name, |b| {
            b.iter(|| parse_statement(black_box(text)).expect("the statement is valid"));
        });
    }
    criterion.final_summary();
}
