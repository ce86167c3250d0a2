//! Continuous results against the [oracle](crate::oracle), epoch by epoch.

use std::collections::HashMap;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use thetis::{Connection, Driver};
use thetis_cluster::{Engine, Reply};
use thetis_parser::{Statement, parse_statement};
use thetis_planner::Output;
use thetis_planner::catalog::Relation;

use crate::oracle::Oracle;
use crate::{Accumulated, changes, difference, rows, run_all};

/// Every row of a stream, in order, as the engine reads it.
async fn stream_rows(connection: &Connection, name: &str) -> RecordBatch {
    let mut statement = connection.statement();
    let mut result = statement.query(&format!("SELECT * FROM {name}")).await.unwrap();
    let schema = result.schema().clone();
    let mut batches = Vec::new();
    while let Some(batch) = result.next_batch().await.unwrap() {
        batches.push(batch);
    }
    concat_batches(&schema, &batches).unwrap()
}

/// Runs a query with its changes, cut every `epoch_rows` rows, and compares the accumulated result at
/// every epoch with the oracle's.
///
/// # Panics
/// If it differs.
pub async fn prefixes_are_right(definitions: &[String], sql: &str, setting: &str, epoch_rows: u64) {
    let connection = Driver::open("thetis:").unwrap();
    let engine = Engine::start().unwrap();
    let session = engine.session();
    let settings = [format!("SET epoch_rows = {epoch_rows}"), setting.to_owned()];
    run_all(&connection, &settings).await;
    run_all(&connection, definitions).await;
    for definition in definitions {
        session.handle(&parse_statement(definition).unwrap(), Output::Result).unwrap();
    }
    let statement = parse_statement(sql).unwrap();
    assert!(matches!(statement, Statement::Query(_)));
    let Reply::Query(plan) = session.handle(&statement, Output::Changes).unwrap() else { panic!("not a query") };
    let mut streams = HashMap::new();
    let catalog = session.database().catalog().clone();
    for (name, relation) in catalog.relations() {
        if matches!(relation, Relation::Stream(_)) {
            streams.insert(name.to_owned(), stream_rows(&connection, name).await);
        }
    }
    let mut oracle = Oracle::new(&plan.logical.optimized, streams, epoch_rows);
    let mut changes = changes(&connection, sql).await;
    let mut accumulated = Accumulated::default();
    for epoch in 1..=oracle.last_epoch() {
        accumulated.add(changes.remove(&epoch).unwrap_or_default());
        let wrong = difference(accumulated.rows(), rows(&oracle.answer(epoch), 0));
        assert_eq!(wrong, None, "{sql} at epoch {epoch} with {setting}");
    }
    assert!(changes.is_empty(), "changes after the last epoch: {:?}", changes.keys());
}
