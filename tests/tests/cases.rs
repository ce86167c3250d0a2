//! The shared cases: their answers at any parallelism and shape, and at every prefix.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashMap;
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use thetis::Driver;
use thetis_cluster::{Engine, Reply};
use thetis_parser::{Statement, parse_statement};
use thetis_planner::Output;
use thetis_planner::catalog::Relation;
use thetis_tests::oracle::Oracle;
use thetis_tests::{Accumulated, Value, block_on, cases, changes, difference, query, rows, run_all, statements};

const EPOCH_ROWS: u64 = 100;

/// The answer beside a case.
fn answer(case: &Path) -> Vec<Vec<Value>> {
    let text = std::fs::read_to_string(case.with_extension("csv")).unwrap();
    let file = std::io::Cursor::new(text);
    let format = arrow_csv::reader::Format::default().with_header(true);
    let (schema, _) = format.infer_schema(file.clone(), None).unwrap();
    let reader = arrow_csv::ReaderBuilder::new(schema.into()).with_format(format).build(file).unwrap();
    reader.flat_map(|batch| rows(&batch.unwrap(), 0)).collect()
}

fn answers_with(settings: &[&str]) {
    block_on(async {
        for case in cases() {
            let (definitions, sql) = statements(&case);
            for setting in settings {
                let connection = Driver::open("thetis:").unwrap();
                run_all(&connection, &[(*setting).to_owned()]).await;
                run_all(&connection, &definitions).await;
                let found = query(&connection, &sql).await.unwrap();
                let wrong = difference(found, answer(&case));
                assert_eq!(wrong, None, "{} with {setting}", case.display());
            }
        }
    });
}

#[test]
fn answers_at_any_parallelism() {
    answers_with(&["SET parallelism = 1", "SET parallelism = 2", "SET parallelism = 4", "SET parallelism = 6"]);
}

#[test]
fn answers_in_any_matrix() {
    answers_with(&["SET matrix = '2x3'", "SET matrix = '3x1'", "SET matrix = '4x4'"]);
}

/// Every row of a stream, in order, as the engine reads it.
async fn stream_rows(connection: &thetis::Connection, name: &str) -> RecordBatch {
    let mut statement = connection.statement();
    let mut result = statement.query(&format!("SELECT * FROM {name}")).await.unwrap();
    let schema = result.schema().clone();
    let mut batches = Vec::new();
    while let Some(batch) = result.next_batch().await.unwrap() {
        batches.push(batch);
    }
    concat_batches(&schema, &batches).unwrap()
}

async fn prefixes_are_right(case: &Path, setting: &str) {
    let (definitions, sql) = statements(case);
    let connection = Driver::open("thetis:").unwrap();
    let engine = Engine::start().unwrap();
    let session = engine.session();
    let settings = [format!("SET epoch_rows = {EPOCH_ROWS}"), setting.to_owned()];
    run_all(&connection, &settings).await;
    run_all(&connection, &definitions).await;
    for definition in &definitions {
        session.handle(&parse_statement(definition).unwrap(), Output::Result).unwrap();
    }
    let statement = parse_statement(&sql).unwrap();
    assert!(matches!(statement, Statement::Query(_)));
    let Reply::Query(plan) = session.handle(&statement, Output::Changes).unwrap() else { panic!("not a query") };
    let mut streams = HashMap::new();
    let catalog = session.database().catalog().clone();
    for (name, relation) in catalog.relations() {
        if matches!(relation, Relation::Stream(_)) {
            streams.insert(name.to_owned(), stream_rows(&connection, name).await);
        }
    }
    let mut oracle = Oracle::new(&plan.logical.optimized, streams, EPOCH_ROWS);
    let mut changes = changes(&connection, &sql).await;
    let mut accumulated = Accumulated::default();
    for epoch in 1..=oracle.last_epoch() {
        accumulated.add(changes.remove(&epoch).unwrap_or_default());
        let wrong = difference(accumulated.rows(), rows(&oracle.answer(epoch), 0));
        assert_eq!(wrong, None, "{} at epoch {epoch} with {setting}", case.display());
    }
    assert!(changes.is_empty(), "changes after the last epoch: {:?}", changes.keys());
}

#[test]
fn answers_at_every_prefix_of_every_case() {
    block_on(async {
        let settings = ["SET parallelism = 2", "SET matrix = '2x3'", "SET parallelism = 3", "SET matrix = '1x1'"];
        for (number, case) in cases().iter().enumerate() {
            // Each case in a chosen layout and in a given matrix; all of them are tried.
            for setting in [settings[number % 4], settings[(number + 1) % 4]] {
                prefixes_are_right(case, setting).await;
            }
        }
    });
}
