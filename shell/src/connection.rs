//! Data sources, connections, and how a statement's execution is stopped.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thetis_cluster::Engine;
use thetis_cluster::front::protocol::Status;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::backend::Backend;
use crate::error::Error;
use crate::metadata::DatabaseMetaData;
use crate::prepared::PreparedStatement;
use crate::statement::Statement;

/// Opens connections by address.
#[derive(Debug, Clone, Copy)]
pub struct Driver;

impl Driver {
    /// Opens the database at `url`. `thetis:` is an embedded engine of its own, with an empty
    /// catalogue and as many threads as there are cores. `thetis://host:port` is a cluster's coordinator; the
    /// client's identity is looked for as [`Self::connect`] says.
    ///
    /// # Errors
    /// Another URL, threads that cannot be started, a coordinator that cannot be reached.
    pub fn open(url: &str) -> Result<Connection, Error> {
        match url.strip_prefix("thetis:") {
            Some("") => Ok(DataSource::embedded()?.connect()),
            Some(rest) if rest.starts_with("//") => Self::connect(rest.trim_start_matches('/'), None),
            _ => Err(Error::usage(format!("'{url}' is no address of a database"))
                .with_hint("the embedded engine is 'thetis:', a cluster is 'thetis://host:port'")),
        }
    }

    /// Connects to the coordinator at `address` (`host:port`) with the identity in `folder`: `cert.pem`,
    /// `key.pem` and `ca.pem`, as `thetis cert client NAME` makes them. Without a folder it is
    /// `$THETIS_IDENTITY`, or the one that a coordinator on this machine has made in its data folder.
    ///
    /// # Errors
    /// No identity, or a coordinator that cannot be reached or does not accept it.
    pub fn connect(address: &str, folder: Option<&Path>) -> Result<Connection, Error> {
        Ok(Connection { backend: Backend::remote(address, folder)? })
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
        Connection { backend: Backend::embedded(&self.engine) }
    }

    /// Tasks of the engine that are alive: of queries, and those that look after them.
    pub fn tasks(&self) -> usize {
        self.engine.handle().metrics().num_alive_tasks()
    }
}

/// Settings, and the engine or the cluster whose catalogue they are for. Clones share the settings.
#[derive(Debug, Clone)]
pub struct Connection {
    pub(crate) backend: Backend,
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

    /// What there is: streams, tables, views and their columns, functions, settings. Waits for the
    /// coordinator, if it is of a cluster.
    ///
    /// # Errors
    /// The coordinator cannot be asked.
    pub fn metadata(&self) -> Result<DatabaseMetaData, Error> {
        self.backend.describe().map(DatabaseMetaData::of)
    }

    /// How the cluster is: workers, queries, tasks. Waits for the coordinator.
    ///
    /// # Errors
    /// The coordinator cannot be asked, or this is the embedded engine.
    pub fn status(&self) -> Result<Status, Error> {
        self.backend.status()
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
    pub(crate) fn begin(&self, runtime: &Handle, timeout: Option<Duration>) -> Execution {
        let (sender, stop) = watch::channel(None);
        let sender = Arc::new(sender);
        if let Some(timeout) = timeout {
            let sender = Arc::clone(&sender);
            runtime.spawn(async move {
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
