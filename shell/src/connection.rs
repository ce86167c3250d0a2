//! Data sources, connections, and how a statement's execution is stopped.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thetis_cluster::{Engine, Session};
use tokio::sync::watch;

use crate::error::Error;
use crate::metadata::DatabaseMetaData;
use crate::prepared::PreparedStatement;
use crate::statement::Statement;

/// Opens connections by address.
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
        Ok(DataSource::embedded()?.connect())
    }
}

/// An engine that several connections share: one catalogue, one set of tables. It ends when the data
/// source and all that was made from it are dropped.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let engine = thetis::DataSource::embedded()?;
/// engine.connect().statement().execute("CREATE TABLE t (x BIGINT)").await?;
/// engine.connect().statement().execute("INSERT INTO t VALUES (1), (2)").await?;
/// let mut statement = engine.connect().statement();
/// let mut rows = statement.query("SELECT SUM(x) AS s FROM t").await?;
/// assert_eq!(rows.next_row().await?.unwrap().get::<i64>("s")?, 3);
/// # Ok::<(), thetis::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct DataSource {
    engine: Arc<Engine>,
}

impl DataSource {
    /// Starts an engine in this process, with as many threads as there are cores.
    ///
    /// # Errors
    /// Threads that cannot be started.
    pub fn embedded() -> Result<Self, Error> {
        let engine = Engine::start().map_err(|error| Error::internal(format!("threads cannot be started: {error}")))?;
        Ok(Self { engine: Arc::new(engine) })
    }

    /// A connection with settings of its own.
    pub fn connect(&self) -> Connection {
        let session = Arc::new(self.engine.session());
        Connection { engine: Arc::clone(&self.engine), session }
    }

    /// Tasks of the engine that are alive: of queries, and those that look after them.
    pub fn tasks(&self) -> usize {
        self.engine.handle().metrics().num_alive_tasks()
    }
}

/// Settings, and the engine whose catalogue they are for. Clones share the settings.
#[derive(Debug, Clone)]
pub struct Connection {
    pub(crate) engine: Arc<Engine>,
    pub(crate) session: Arc<Session>,
}

impl Connection {
    /// A statement, which runs one query at a time. Several run side by side.
    pub fn statement(&self) -> Statement {
        Statement::new(self.clone())
    }

    /// A statement with parameters, `?` or `$1`, `$2`, ...: it is parsed now, and its names are
    /// resolved once for all executions with parameters of the same types.
    ///
    /// # Errors
    /// Whatever is wrong with its text.
    pub fn prepare(&self, sql: &str) -> Result<PreparedStatement, Error> {
        PreparedStatement::new(self.clone(), sql)
    }

    /// What there is: streams, tables, views and their columns, functions, settings.
    pub fn metadata(&self) -> DatabaseMetaData {
        DatabaseMetaData::of(&self.session)
    }

    /// Runs `work` on the engine's threads: planning takes a deep stack and may look at files.
    pub(crate) async fn plan<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Session) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let session = Arc::clone(&self.session);
        let planned = self.engine.handle().spawn_blocking(move || work(&session));
        planned.await.map_err(|error| Error::internal(format!("planning failed: {error}")))?
    }
}

/// Why an execution is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Cancelled,
    TimedOut,
}

/// Stops an execution.
type Stopper = Arc<watch::Sender<Option<Stop>>>;

/// One execution of a statement, which can be stopped from elsewhere until it is dropped.
#[derive(Debug)]
pub(crate) struct Execution {
    stop: watch::Receiver<Option<Stop>>,
}

impl Execution {
    /// Waits until the execution is stopped; the error that says why.
    pub(crate) async fn stopped(&mut self) -> Error {
        let reason = self.stop.wait_for(Option::is_some).await.map(|reason| *reason);
        match reason {
            Ok(Some(Stop::Cancelled)) => Error::cancelled(),
            Ok(Some(Stop::TimedOut)) => Error::timeout(),
            // Nobody is left who could stop it.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// The result of `work`, or the error of being stopped before.
    pub(crate) async fn run<T>(&mut self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::select! {
            biased;
            stopped = self.stopped() => Err(stopped),
            done = work => done,
        }
    }
}

/// Cancels a statement from any thread.
#[derive(Debug, Clone, Default)]
pub struct CancelHandle {
    stop: Arc<Mutex<Option<Stopper>>>,
}

impl CancelHandle {
    /// Cancels what the statement runs now, if anything: planning, a query, a change of rows. It ends
    /// with an error of kind [`crate::ErrorKind::Cancelled`].
    pub fn cancel(&self) {
        if let Some(stop) = self.stop.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            stop.send_replace(Some(Stop::Cancelled));
        }
    }

    /// Begins an execution, which ends by itself after `timeout`.
    pub(crate) fn begin(&self, engine: &Engine, timeout: Option<Duration>) -> Execution {
        let (sender, stop) = watch::channel(None);
        let sender = Arc::new(sender);
        if let Some(timeout) = timeout {
            let sender = Arc::clone(&sender);
            engine.handle().spawn(async move {
                tokio::select! {
                    () = sender.closed() => {}
                    () = tokio::time::sleep(timeout) => drop(sender.send_replace(Some(Stop::TimedOut))),
                }
            });
        }
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        Execution { stop }
    }
}
