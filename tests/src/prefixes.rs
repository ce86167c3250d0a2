//! A query's changes, epoch by epoch, against the oracle.

use std::collections::HashMap;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use thetis::{Connection, Driver};
use thetis_cluster::{Engine, Reply, Session};
use thetis_parser::{ExplainFormat, parse_statement};
use thetis_planner::catalog::Relation;
use thetis_planner::{Output, Plan};

use crate::oracle::Oracle;
use crate::{Accumulated, changes, difference, rows, run_all};

/// Which of a query's plans the oracle evaluates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evaluated {
    /// As it was written: any condition is a filter over a product.
    Written,
    /// As it is run, for more rows than a product can hold.
    Optimized,
}

/// Definitions and settings of queries.
#[derive(Debug)]
pub struct Setup {
    definitions: Vec<String>,
    settings: Vec<String>,
    epoch_rows: u64,
    session: Session,
    _engine: Engine,
    connection: Connection,
    streams: HashMap<String, RecordBatch>,
}

/// Every row of a stream, in order, as the engine reads it.
async fn stream_rows(connection: &Connection, name: &str) -> RecordBatch {
    let mut statement = connection.statement();
    let mut result = statement.query(&format!("SELECT * FROM {name}")).await.expect("a stream can be read");
    let schema = result.schema().clone();
    let mut batches = Vec::new();
    while let Some(batch) = result.next_batch().await.expect("a stream can be read") {
        batches.push(batch);
    }
    concat_batches(&schema, &batches).expect("batches of one stream")
}

impl Setup {
    /// Runs the definitions with these settings, and epochs of so many rows.
    pub async fn new(definitions: &[String], settings: &[&str], epoch_rows: u64) -> Self {
        let mut settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        settings.push(format!("SET epoch_rows = {epoch_rows}"));
        let connection = Driver::open("thetis:").expect("an engine");
        let engine = Engine::start().expect("an engine");
        let session = engine.session();
        run_all(&connection, &settings).await;
        run_all(&connection, definitions).await;
        for statement in settings.iter().chain(definitions) {
            let parsed = parse_statement(statement).expect("a statement");
            session.handle(&parsed, Output::Changes).expect("a statement that works");
        }
        let mut streams = HashMap::new();
        let catalog = session.database().catalog().clone();
        for (name, _) in catalog.relations().filter(|(_, relation)| matches!(relation, Relation::Stream(_))) {
            streams.insert(name.to_owned(), stream_rows(&connection, name).await);
        }
        Self { definitions: definitions.to_vec(), settings, epoch_rows, session, _engine: engine, connection, streams }
    }

    /// The connection that has all of it.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The plan of a query.
    pub fn plan(&self, sql: &str, output: Output) -> Box<Plan> {
        let statement = parse_statement(sql).expect("a statement");
        match self.session.handle(&statement, output) {
            Ok(Reply::Query(plan)) => plan,
            other => panic!("{sql}: {other:?}"),
        }
    }

    /// Compares the query's changes with the oracle after every epoch.
    ///
    /// # Panics
    /// They differ.
    pub async fn check(&self, sql: &str, evaluated: Evaluated) {
        let plan = self.plan(sql, Output::Changes);
        let logical = match evaluated {
            Evaluated::Written => &plan.logical.written,
            Evaluated::Optimized => &plan.logical.optimized,
        };
        let mut oracle = Oracle::new(logical, self.streams.clone(), self.epoch_rows);
        let mut changes = changes(&self.connection, sql).await;
        let mut accumulated = Accumulated::default();
        for epoch in 1..=oracle.last_epoch() {
            accumulated.add(changes.remove(&epoch).unwrap_or_default());
            let wrong = difference(accumulated.rows(), rows(&oracle.answer(epoch), 0));
            assert_eq!(
                wrong,
                None,
                "epoch {epoch} of {sql}\nwith {:?}\nover {:?}\n{}",
                self.settings,
                self.definitions,
                plan.explain(true, ExplainFormat::Text, None)
            );
        }
        assert!(changes.is_empty(), "changes of {sql} after the last epoch: {:?}", changes.keys());
    }
}
