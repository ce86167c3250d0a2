//! A parsed query to a physical plan.

use std::hint::black_box;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use criterion::Criterion;
use thetis_parser::{Statement, ast, parse_statement};
use thetis_planner::catalog::{Relation, Stream, Volume};
use thetis_planner::connector::SourceSpec;
use thetis_planner::{Catalog, Output, Settings, plan};

const BAND_JOIN: &str =
    "SELECT r.k, COUNT(*) FROM r JOIN s ON r.k BETWEEN s.k - 5 AND s.k + 5 AND r.x < s.x GROUP BY r.k";

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    let fields = vec![
        Field::new("id", DataType::Int64, true),
        Field::new("k", DataType::Int64, true),
        Field::new("x", DataType::Float64, true),
    ];
    let columns = Arc::new(Schema::new(fields));
    for name in ["r", "s"] {
        let stream = Stream {
            name: name.to_owned(),
            columns: Arc::clone(&columns),
            watermark: None,
            spec: SourceSpec::Values(Vec::new()),
            volume: Volume::default(),
        };
        catalog.add(&ast::Ident::new(name), Relation::Stream(Arc::new(stream)), false).expect("the name is free");
    }
    catalog
}

fn main() {
    let catalog = catalog();
    let settings = Settings::new(6);
    let Statement::Query(query) = parse_statement(BAND_JOIN).expect("the statement is valid") else {
        panic!("the statement is a query");
    };
    let mut criterion = Criterion::default().configure_from_args();
    criterion.bench_function("plan a band join", |b| {
        b.iter(|| plan(black_box(&query), &catalog, &settings, Output::Result).expect("the query is valid"));
    });
    criterion.final_summary();
}
