//! Driver, connections and statements.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thetis_cluster::{Engine, Reply, Session};
use thetis_parser::parse_statement;
use thetis_planner::Output;
use tokio::sync::watch;

use crate::error::Error;
use crate::metadata::DatabaseMetaData;
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

    /// What there is: streams, views and their columns, functions, settings.
    pub fn metadata(&self) -> DatabaseMetaData {
        DatabaseMetaData::of(&self.session.lock().unwrap_or_else(PoisonError::into_inner))
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
    /// Runs one statement of any kind. A query whose result changes and never ends gives its changes
    /// (see [`ResultSet::is_changelog`]).
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

    /// Runs a statement that gives rows: a query, `EXPLAIN`, `SHOW` or `DESCRIBE`.
    ///
    /// # Errors
    /// Whatever is wrong with it, it gives no rows, or its rows change for ever.
    pub async fn query(&mut self, sql: &str) -> Result<ResultSet, Error> {
        let rows = rows(self.execute(sql).await?)?;
        if rows.is_changelog() {
            let error = Error::usage("the result of this query changes and never ends");
            return Err(error.with_hint("ask for its changes: Statement::changes"));
        }
        Ok(rows)
    }

    /// Runs a query and gives the changes of its result, as [`Self::execute_changes`] does.
    ///
    /// # Errors
    /// Whatever is wrong with it, or it gives no rows.
    pub async fn changes(&mut self, sql: &str) -> Result<ResultSet, Error> {
        rows(self.execute_changes(sql).await?)
    }

    /// Plans a statement and runs no query. What it defines or sets does take effect, so that later
    /// statements can be checked.
    ///
    /// # Errors
    /// Whatever is wrong with it.
    pub async fn check(&mut self, sql: &str) -> Result<(), Error> {
        self.plan(sql, Output::Result, |_, _| Ok(())).await
    }

    /// Like [`Self::check`], for [`Self::execute_changes`].
    ///
    /// # Errors
    /// Whatever is wrong with it.
    pub async fn check_changes(&mut self, sql: &str) -> Result<(), Error> {
        self.plan(sql, Output::Changes, |_, _| Ok(())).await
    }

    /// Cancels what this statement runs, from any thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    async fn run(&mut self, sql: &str, output: Output) -> Result<Response, Error> {
        let cancel = self.cancel.clone();
        self.plan(sql, output, move |reply, engine| {
            Ok(match reply {
                Reply::Done(tag) => Response::Done(tag),
                Reply::Table(batch) => Response::Rows(ResultSet::table(batch)),
                Reply::Query(plan) => {
                    let running = engine.coordinator().start(&plan.dag)?;
                    Response::Rows(ResultSet::of(*plan, running, engine, &cancel))
                }
            })
        })
        .await
    }

    /// Plans a statement and hands what it comes to to `then`, unless it is cancelled meanwhile.
    async fn plan<T: Send + 'static>(
        &mut self,
        sql: &str,
        output: Output,
        then: impl FnOnce(Reply, Arc<Engine>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let engine = Arc::clone(&self.connection.engine);
        let session = Arc::clone(&self.connection.session);
        let sql = sql.to_owned();
        let cancelled = self.cancel.begin();
        let already = cancelled.clone();
        // Planning takes a deep stack and may look at files: it runs on the engine's threads.
        let planned = self.connection.engine.handle().spawn_blocking(move || {
            let statement = parse_statement(&sql)?;
            let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
            if *already.borrow() {
                return Err(Error::cancelled());
            }
            let reply = session.handle(&statement, output)?;
            drop(session);
            if *already.borrow() { Err(Error::cancelled()) } else { then(reply, engine) }
        });
        tokio::select! {
            planned = planned => planned.map_err(|error| Error::internal(format!("planning failed: {error}")))?,
            () = told(cancelled) => Err(Error::cancelled()),
        }
    }
}

/// Waits for a cancel, for ever if none can come any more.
async fn told(mut cancelled: watch::Receiver<bool>) {
    if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
        std::future::pending().await
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
    running: Arc<Mutex<Running>>,
}

/// What there is to cancel.
#[derive(Debug, Default)]
struct Running {
    /// The statement that is planned, or was planned last.
    planning: watch::Sender<bool>,
    /// The query that runs, or ran last.
    query: Option<watch::Sender<bool>>,
}

impl CancelHandle {
    fn new() -> Self {
        Self { running: Arc::default() }
    }

    /// Cancels what is planned or runs now, if something is. A result set then ends with an error of
    /// kind [`crate::ErrorKind::Cancelled`].
    pub fn cancel(&self) {
        let running = self.lock();
        running.planning.send_replace(true);
        if let Some(query) = &running.query {
            query.send_replace(true);
        }
    }

    /// A statement begins; it is told here when it is cancelled before it runs.
    fn begin(&self) -> watch::Receiver<bool> {
        let (planning, cancelled) = watch::channel(false);
        *self.lock() = Running { planning, query: None };
        cancelled
    }

    /// The statement's query runs.
    pub(crate) fn watch(&self, query: watch::Sender<bool>) {
        let mut running = self.lock();
        if *running.planning.borrow() {
            query.send_replace(true);
        }
        running.query = Some(query);
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    const GENERATOR: &str = "CREATE STREAM g (id BIGINT) WITH (connector = 'generator', rows_per_second = 1000)";

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn a_result_that_changes_for_ever_is_its_changes() {
        block_on(async {
            let mut statement = Driver::open("thetis:").unwrap().statement();
            statement.execute(GENERATOR).await.unwrap();
            let error = statement.query("SELECT COUNT(*) AS n FROM g").await.unwrap_err();
            assert!(error.hint().unwrap().contains("changes"));
            let Response::Rows(mut rows) = statement.execute("SELECT COUNT(*) AS n FROM g").await.unwrap() else {
                panic!("a query gives rows");
            };
            assert!(rows.is_changelog() && !rows.is_bounded());
            assert_eq!(rows.schema().fields().len(), 3);
            assert_eq!(rows.progress().epoch, None);
            let mut last = None;
            for _ in 0..5 {
                let row = rows.next_row().await.unwrap().unwrap();
                // Nothing of an epoch comes after it is complete.
                assert!(rows.progress().epoch.map(|epoch| epoch as i64) < Some(row.get::<i64>("epoch").unwrap()));
                assert!(rows.progress().epoch >= last);
                last = rows.progress().epoch;
            }
            assert!(last.is_some());
            statement.cancel_handle().cancel();
            while let Some(outcome) = rows.next_batch().await.transpose() {
                if let Err(error) = outcome {
                    assert_eq!(error.kind(), ErrorKind::Cancelled);
                    return;
                }
            }
            panic!("a cancelled query ends with an error");
        });
    }

    #[test]
    fn checking_defines_and_runs_nothing() {
        block_on(async {
            let mut statement = Driver::open("thetis:").unwrap().statement();
            statement.check(GENERATOR).await.unwrap();
            statement.check("SELECT id FROM g").await.unwrap();
            statement.check_changes("SELECT COUNT(*) AS n FROM g").await.unwrap();
            assert_eq!(statement.check("SELECT nope FROM g").await.unwrap_err().sqlstate(), "42703");
            assert!(!statement.query("SELECT 1 AS x").await.unwrap().is_changelog());
        });
    }

    #[test]
    fn a_statement_can_be_cancelled_before_it_is_planned() {
        let connection = Driver::open("thetis:").unwrap();
        let mut statement = connection.statement();
        let cancel = statement.cancel_handle();
        let session = Arc::clone(&connection.session);
        let planning = session.lock().unwrap();
        let outcome = block_on(async {
            let mut execute = std::pin::pin!(statement.execute("SELECT 1 AS x"));
            assert!(poll_once(execute.as_mut()).await.is_none());
            cancel.cancel();
            execute.await
        });
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Cancelled);
        drop(planning);
        assert!(block_on(statement.query("SELECT 1 AS x")).is_ok());
    }

    /// Polls once.
    async fn poll_once<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(match future.as_mut().poll(context) {
                std::task::Poll::Ready(value) => Some(value),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
