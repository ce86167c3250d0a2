//! Driver, connections and statements.

use std::sync::{Arc, Mutex, PoisonError};

use thetis_cluster::{Engine, Reply, Session};
use thetis_parser::parse_statement;
use thetis_planner::Output;
use tokio::sync::watch;

use crate::error::Error;
use crate::result::ResultSet;

/// Opens connections.
#[derive(Debug, Clone, Copy)]
pub struct Driver;

impl Driver {
    /// Opens the database at `url`. `thetis:` is an embedded engine of its own, with an empty
    /// catalogue and as many threads as there are cores.
    ///
    /// # Errors
    /// Another URL, or threads that cannot be started.
    pub fn open(url: &str) -> Result<Connection, Error> {
        if url != "thetis:" {
            return Err(Error::usage(format!("'{url}' is no address of a database; the embedded engine is 'thetis:'")));
        }
        let engine = Engine::start().map_err(|error| Error::internal(format!("threads cannot be started: {error}")))?;
        Ok(Connection { engine: Arc::new(engine), session: Arc::new(Mutex::new(Session::new())) })
    }
}

/// A catalogue and settings, and the engine that runs their queries.
#[derive(Debug, Clone)]
pub struct Connection {
    engine: Arc<Engine>,
    session: Arc<Mutex<Session>>,
}

impl Connection {
    /// A statement, which runs one query at a time. Several run side by side.
    pub fn statement(&self) -> Statement {
        Statement { connection: self.clone(), cancel: CancelHandle::new() }
    }
}

/// What a statement comes to.
#[derive(Debug)]
pub enum Response {
    /// It is done; the tag is the SQL command.
    Done(&'static str),
    /// Rows.
    Rows(ResultSet),
}

/// Runs SQL.
#[derive(Debug)]
pub struct Statement {
    connection: Connection,
    cancel: CancelHandle,
}

impl Statement {
    /// Runs one statement of any kind.
    ///
    /// # Errors
    /// Whatever is wrong with it.
    pub async fn execute(&mut self, sql: &str) -> Result<Response, Error> {
        self.run(sql, Output::Result).await
    }

    /// Like [`Self::execute`], but a query gives the changes of its result, epoch by epoch: the first
    /// columns are `epoch` (BIGINT) and `op` (`+` or `-`).
    ///
    /// # Errors
    /// Whatever is wrong with it.
    pub async fn execute_changes(&mut self, sql: &str) -> Result<Response, Error> {
        self.run(sql, Output::Changes).await
    }

    /// Runs a statement that gives rows: a query, `EXPLAIN`, `SHOW` or `DESCRIBE`. The rows of
    /// `EXPLAIN ANALYZE` come when its query has ended.
    ///
    /// # Errors
    /// Whatever is wrong with it, or it gives no rows.
    pub async fn query(&mut self, sql: &str) -> Result<ResultSet, Error> {
        rows(self.execute(sql).await?)
    }

    /// Runs a query and gives the changes of its result, as [`Self::execute_changes`] does.
    ///
    /// # Errors
    /// Whatever is wrong with it, or it gives no rows.
    pub async fn changes(&mut self, sql: &str) -> Result<ResultSet, Error> {
        rows(self.execute_changes(sql).await?)
    }

    /// Cancels what this statement runs, from any thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    async fn run(&mut self, sql: &str, output: Output) -> Result<Response, Error> {
        let engine = Arc::clone(&self.connection.engine);
        let session = Arc::clone(&self.connection.session);
        let (sql, cancel) = (sql.to_owned(), self.cancel.clone());
        // Planning takes a deep stack and may look at files: it runs on the engine's threads.
        let planned = self.connection.engine.handle().spawn_blocking(move || {
            let statement = parse_statement(&sql)?;
            let reply = session.lock().unwrap_or_else(PoisonError::into_inner).handle(&statement, output)?;
            Ok(match reply {
                Reply::Done(tag) => Response::Done(tag),
                Reply::Table(batch) => Response::Rows(ResultSet::table(batch)),
                Reply::Query(plan) => {
                    let running = engine.coordinator().start(&plan.dag)?;
                    Response::Rows(ResultSet::of(*plan, running, output, engine, &cancel))
                }
                Reply::Analyze(explained) => {
                    let analysis = engine.coordinator().analyze(&explained.plan.dag)?;
                    Response::Rows(ResultSet::analysis(explained, analysis, engine, &cancel))
                }
            })
        });
        planned.await.map_err(|error| Error::internal(format!("planning failed: {error}")))?
    }
}

fn rows(response: Response) -> Result<ResultSet, Error> {
    match response {
        Response::Rows(rows) => Ok(rows),
        Response::Done(tag) => Err(Error::usage(format!("{tag} gives no rows"))),
    }
}

/// Cancels a statement from any thread.
#[derive(Debug, Clone)]
pub struct CancelHandle {
    stop: Arc<Mutex<Option<watch::Sender<bool>>>>,
}

impl CancelHandle {
    fn new() -> Self {
        Self { stop: Arc::default() }
    }

    /// Cancels the query that runs now, if one does. Its result set ends with an error of kind
    /// [`crate::ErrorKind::Cancelled`].
    pub fn cancel(&self) {
        if let Some(stop) = self.stop.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            stop.send_replace(true);
        }
    }

    pub(crate) fn watch(&self, stop: watch::Sender<bool>) {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
    }
}
