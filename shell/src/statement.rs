//! Statements: SQL text that is run.

use std::time::Duration;

use thetis_cluster::Completion;
use thetis_planner::Output;

use crate::backend::{Call, Outcome};
use crate::connection::{CancelHandle, Connection, Execution};
use crate::error::Error;
use crate::result::ResultSet;
use crate::subscription::Subscription;

/// What a statement comes to.
#[derive(Debug)]
pub enum Response {
    /// It is done.
    Done(Completion),
    /// Rows.
    Rows(ResultSet),
}

/// A batch that stopped at an error.
#[derive(Debug, thiserror::Error)]
#[error("statement {} of the batch: {error}", done.len() + 1)]
pub struct BatchError {
    /// What the statements before it have done.
    pub done: Vec<Completion>,
    /// What is wrong with the one that failed.
    #[source]
    pub error: Box<Error>,
}

impl BatchError {
    pub(crate) fn new(done: Vec<Completion>, error: Error) -> Self {
        Self { done, error: Box::new(error) }
    }
}

/// Runs SQL.
#[derive(Debug)]
pub struct Statement {
    pub(crate) runner: Runner,
}

/// What every kind of statement has: options, and how an execution runs.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) connection: Connection,
    pub(crate) cancel: CancelHandle,
    pub(crate) timeout: Option<Duration>,
    pub(crate) fetch_size: Option<usize>,
    pub(crate) warnings: Vec<String>,
}

impl Statement {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { runner: Runner::new(connection) }
    }

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

    /// Runs a statement that gives rows: a query, `EXPLAIN`, `SHOW` or `DESCRIBE`. The rows of
    /// `EXPLAIN ANALYZE` come when its query has ended.
    ///
    /// # Errors
    /// Whatever is wrong with it, it gives no rows, or its rows change for ever.
    pub async fn query(&mut self, sql: &str) -> Result<ResultSet, Error> {
        result(self.execute(sql).await?)
    }

    /// Runs a query and gives the changes of its result, as [`Self::execute_changes`] does.
    ///
    /// # Errors
    /// Whatever is wrong with it, or it gives no rows.
    pub async fn changes(&mut self, sql: &str) -> Result<ResultSet, Error> {
        rows(self.execute_changes(sql).await?)
    }

    /// Follows the result of a query: its rows now, and every change from then on.
    ///
    /// # Errors
    /// Whatever is wrong with the query.
    pub async fn subscribe(&mut self, sql: &str) -> Result<Subscription, Error> {
        self.changes(sql).await?.into_subscription()
    }

    /// Runs a statement that gives no rows; how many rows it has changed.
    ///
    /// # Errors
    /// Whatever is wrong with it, or it gives rows.
    pub async fn update(&mut self, sql: &str) -> Result<u64, Error> {
        match self.execute(sql).await? {
            Response::Done(done) => Ok(done.rows.unwrap_or(0)),
            Response::Rows(_) => Err(Error::usage("the statement gives rows: use query")),
        }
    }

    /// Runs statements that give no rows, one after the other, up to the first that fails.
    ///
    /// # Errors
    /// The error of that one, with what the others have done.
    pub async fn execute_batch(&mut self, statements: &[&str]) -> Result<Vec<Completion>, BatchError> {
        let mut done = Vec::with_capacity(statements.len());
        for sql in statements {
            match self.execute(sql).await {
                Ok(Response::Done(completion)) => done.push(completion),
                Ok(Response::Rows(_)) => {
                    return Err(BatchError::new(done, Error::usage("a batch has no statements that give rows")));
                }
                Err(error) => return Err(BatchError::new(done, error)),
            }
        }
        Ok(done)
    }

    /// Plans a statement and runs no query. What it defines or sets does take effect, so that later
    /// statements can be checked.
    ///
    /// # Errors
    /// Whatever is wrong with it.
    pub async fn check(&mut self, sql: &str) -> Result<(), Error> {
        self.plan(sql, Output::Result).await
    }

    /// Like [`Self::check`], for [`Self::execute_changes`].
    ///
    /// # Errors
    /// Whatever is wrong with it.
    pub async fn check_changes(&mut self, sql: &str) -> Result<(), Error> {
        self.plan(sql, Output::Changes).await
    }

    /// Cancels what this statement runs, from any thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.runner.cancel.clone()
    }

    /// The longest that an execution may take from now on, its result included; `None` for no bound.
    /// A longer one ends with an error of kind [`crate::ErrorKind::Timeout`].
    pub fn set_query_timeout(&mut self, timeout: Option<Duration>) {
        self.runner.timeout = timeout;
    }

    /// The most rows that a result gives out at once from now on; `None` for as they come.
    pub fn set_fetch_size(&mut self, rows: Option<usize>) {
        self.runner.fetch_size = rows.filter(|rows| *rows > 0);
    }

    /// What the user should be told about the last execution.
    pub fn warnings(&self) -> &[String] {
        &self.runner.warnings
    }

    async fn plan(&mut self, sql: &str, output: Output) -> Result<(), Error> {
        let mut execution = self.runner.begin();
        execution.run(self.runner.connection.backend.check(sql.to_owned(), output)).await
    }

    async fn run(&mut self, sql: &str, output: Output) -> Result<Response, Error> {
        self.runner.run(Call::Sql(sql.to_owned(), output)).await
    }
}

impl Runner {
    pub(crate) fn new(connection: Connection) -> Self {
        let cancel = CancelHandle::default();
        Self { connection, cancel, timeout: None, fetch_size: None, warnings: Vec::new() }
    }

    /// Runs a statement.
    pub(crate) async fn run(&mut self, call: Call) -> Result<Response, Error> {
        let mut execution = self.begin();
        let backend = self.connection.backend.clone();
        match backend.run(call, &mut execution).await? {
            Outcome::Done(done, notices) => {
                self.warnings.extend(notices);
                Ok(Response::Done(done))
            }
            Outcome::Table(batch) => Ok(Response::Rows(ResultSet::table(batch))),
            Outcome::Analysis(explained, analysis) => {
                Ok(Response::Rows(ResultSet::analysis(explained, analysis, backend, execution)))
            }
            Outcome::Rows(head, running) => {
                self.warnings.extend_from_slice(&head.notices);
                let rows = ResultSet::of(head, running, backend, execution);
                Ok(Response::Rows(rows.with_fetch_size(self.fetch_size)))
            }
        }
    }

    pub(crate) fn begin(&mut self) -> Execution {
        self.warnings.clear();
        self.cancel.begin(self.connection.backend.runtime(), self.timeout)
    }
}

pub(crate) fn rows(response: Response) -> Result<ResultSet, Error> {
    match response {
        Response::Rows(rows) => Ok(rows),
        Response::Done(done) => Err(Error::usage(format!("{} gives no rows", done.command))),
    }
}

/// The rows of a response that is not a changelog.
pub(crate) fn result(response: Response) -> Result<ResultSet, Error> {
    let rows = rows(response)?;
    if rows.is_changelog() {
        let error = Error::usage("the result of this query changes and never ends");
        return Err(error.with_hint("follow it: subscribe, or changes"));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests;
