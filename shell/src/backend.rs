//! What a connection stands for: an engine in this process, or a session with a cluster's coordinator.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use thetis_cluster::front::client::{Client, ClientError, Response};
use thetis_cluster::front::protocol::{Description, RowsHead, Status};
use thetis_cluster::net::identity::Identity;
use thetis_cluster::net::quic::Quic;
use thetis_cluster::net::transport::{Peer, Role};
use thetis_cluster::{Analysis, Completion, Engine, Explained, Reply, Running, Session, describe, is_changelog};
use thetis_planner::Output;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::ScalarValue;
use crate::connection::Execution;
use crate::error::Error;

/// An engine in this process, or a session with a coordinator.
#[derive(Debug, Clone)]
pub(crate) enum Backend {
    Embedded { engine: Arc<Engine>, session: Arc<Session> },
    Remote(Arc<Remote>),
}

/// A session with a coordinator, and the thread that its connection lives on.
#[derive(Debug)]
pub(crate) struct Remote {
    client: Client,
    runtime: Option<Runtime>,
    handle: Handle,
}

/// A statement, to be run wherever the connection leads.
pub(crate) enum Call {
    /// Text without parameters.
    Sql(String, Output),
    /// A statement with values for its parameters; how the embedded engine plans it.
    Bound { sql: String, values: Vec<ScalarValue>, output: Output, plan: PlanCall },
}

/// Plans a statement in the embedded engine.
pub(crate) type PlanCall = Box<dyn FnOnce(&Session) -> Result<Reply, Error> + Send>;

/// What a statement has come to.
pub(crate) enum Outcome {
    Done(Completion, Vec<String>),
    Table(arrow::array::RecordBatch),
    Rows(RowsHead, Running),
    Analysis(Box<Explained>, Analysis),
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Where the identity of a client on this machine is.
fn identity_folder(folder: Option<&Path>) -> PathBuf {
    match (folder, std::env::var_os("THETIS_IDENTITY")) {
        (Some(folder), _) => folder.to_owned(),
        (None, Some(folder)) => folder.into(),
        (None, None) => data_folder().join("identities").join("client-local"),
    }
}

/// The data folder of a coordinator on this machine, unless it was told another one: `$THETIS_DATA`, or
/// `thetis` in the user's data folder.
pub fn data_folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("THETIS_DATA") {
        return folder.into();
    }
    dirs::data_dir().unwrap_or_else(|| PathBuf::from(".")).join("thetis")
}

impl Backend {
    pub(crate) fn embedded(engine: &Arc<Engine>) -> Self {
        Self::Embedded { engine: Arc::clone(engine), session: Arc::new(engine.session()) }
    }

    pub(crate) fn remote(address: &str, folder: Option<&Path>) -> Result<Self, Error> {
        let folder = identity_folder(folder);
        let identity = Identity::load(&folder).map_err(|error| {
            Error::connection(format!("there is no identity to connect with: {error}")).with_hint(
                "`thetis cert client NAME` makes one where the coordinator runs; --identity says where it is",
            )
        })?;
        if identity.peer.role != Role::Client {
            let who: &Peer = &identity.peer;
            return Err(Error::connection(format!("{} is the identity of {who}, not of a client", folder.display())));
        }
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("thetis-client").enable_all().build();
        let runtime = runtime.map_err(|error| Error::internal(format!("threads cannot be started: {error}")))?;
        let handle = runtime.handle().clone();
        let address = address.to_owned();
        let client = wait(&handle, async move {
            let transport = Arc::new(Quic::client(identity)?);
            Client::connect(transport, &address).await
        })?;
        let client = client.map_err(|error| Error::from(ClientError::from(error)))?;
        Ok(Self::Remote(Arc::new(Remote { client, runtime: Some(runtime), handle })))
    }

    /// The threads on which the work is done.
    pub(crate) fn runtime(&self) -> &Handle {
        match self {
            Self::Embedded { engine, .. } => engine.handle(),
            Self::Remote(remote) => &remote.handle,
        }
    }

    pub(crate) fn describe(&self) -> Result<Description, Error> {
        match self {
            Self::Embedded { session, .. } => Ok(describe(session)),
            Self::Remote(remote) => {
                let of = Arc::clone(remote);
                Ok(wait(&remote.handle, async move { of.client.describe().await })??)
            }
        }
    }

    pub(crate) fn status(&self) -> Result<Status, Error> {
        match self {
            Self::Embedded { .. } => Err(Error::usage("the embedded engine is no cluster")),
            Self::Remote(remote) => {
                let of = Arc::clone(remote);
                Ok(wait(&remote.handle, async move { of.client.status().await })??)
            }
        }
    }

    /// Runs `work` on the engine's threads: planning takes a deep stack and may look at files.
    async fn plan<T: Send + 'static>(
        engine: &Engine,
        session: &Arc<Session>,
        work: impl FnOnce(&Session) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let session = Arc::clone(session);
        let planned = engine.handle().spawn_blocking(move || work(&session));
        planned.await.map_err(|error| Error::internal(format!("planning failed: {error}")))?
    }

    /// Plans a statement, and defines what it defines.
    pub(crate) async fn check(&self, sql: String, output: Output) -> Result<(), Error> {
        match self {
            Self::Embedded { engine, session } => {
                let plan = move |session: &Session| {
                    if let Reply::Work(work) = session.handle(&thetis_parser::parse_statement(&sql)?, output)? {
                        work.define(session.database())?;
                    }
                    Ok(())
                };
                Self::plan(engine, session, plan).await
            }
            Self::Remote(remote) => {
                let of = Arc::clone(remote);
                on(&remote.handle, async move { of.client.check(sql, output).await }).await
            }
        }
    }

    /// Runs a statement.
    pub(crate) async fn run(&self, call: Call, execution: &mut Execution) -> Result<Outcome, Error> {
        match self {
            Self::Embedded { engine, session } => {
                let plan: PlanCall = match call {
                    Call::Sql(sql, output) => {
                        Box::new(move |session| Ok(session.handle(&thetis_parser::parse_statement(&sql)?, output)?))
                    }
                    Call::Bound { plan, .. } => plan,
                };
                let reply = execution.run(Self::plan(engine, session, plan)).await?;
                finish(engine, reply, execution).await
            }
            Self::Remote(remote) => {
                let (sql, values, output) = match call {
                    Call::Sql(sql, output) => (sql, Vec::new(), output),
                    Call::Bound { sql, values, output, plan: _ } => (sql, values, output),
                };
                let of = Arc::clone(remote);
                let asked = on(&remote.handle, async move { of.client.execute(sql, values, output).await });
                Ok(match execution.run(asked).await? {
                    Response::Done(done, notices) => Outcome::Done(done, notices),
                    Response::Rows(head, running) => Outcome::Rows(head, running),
                })
            }
        }
    }

    /// Runs an INSERT of constant rows for several sets of values at once; `None` if it is none.
    pub(crate) async fn insert_rows(
        &self,
        sql: String,
        sets: Vec<Vec<ScalarValue>>,
        plan: impl FnOnce(&Session) -> Result<Option<Reply>, Error> + Send + 'static,
        execution: &mut Execution,
    ) -> Result<Option<Completion>, Error> {
        match self {
            Self::Embedded { engine, session } => {
                let Some(reply) = execution.run(Self::plan(engine, session, plan)).await? else { return Ok(None) };
                match finish(engine, reply, execution).await? {
                    Outcome::Done(done, _) => Ok(Some(done)),
                    _ => Ok(None),
                }
            }
            Self::Remote(remote) => {
                let of = Arc::clone(remote);
                execution.run(on(&remote.handle, async move { of.client.insert_rows(sql, &sets).await })).await
            }
        }
    }
}

/// Does what an embedded engine's session has planned.
async fn finish(engine: &Arc<Engine>, reply: Reply, execution: &mut Execution) -> Result<Outcome, Error> {
    use thetis_cluster::StatementError;
    use thetis_executor::ExecError;
    let database = engine.database();
    match reply {
        Reply::Done(done) => Ok(Outcome::Done(done, Vec::new())),
        Reply::Table(batch) => Ok(Outcome::Table(batch)),
        Reply::Work(work) => {
            let notices = work.notices().to_vec();
            let mut reason = None;
            let stopped = async { reason = Some(execution.stopped().await) };
            let done = database.perform(*work, stopped).await;
            match (done, reason) {
                (Err(StatementError::Run(ExecError::Cancelled)), Some(reason)) => Err(reason),
                (done, _) => Ok(Outcome::Done(done?, notices)),
            }
        }
        Reply::Analyze(explained) => {
            let started = async { Ok(database.analyze(&explained.plan).await?) };
            let analysis = execution.run(started).await?;
            Ok(Outcome::Analysis(explained, analysis))
        }
        Reply::Query(plan) => {
            let started = async { Ok(database.start(&plan).await?) };
            let running = execution.run(started).await?;
            let head = RowsHead {
                schema: Arc::clone(&plan.dag.sink().schema),
                changes: is_changelog(&plan),
                bounded: plan.dag.bounded(),
                notices: plan.notices,
            };
            Ok(Outcome::Rows(head, running))
        }
    }
}

/// Runs `work` on `runtime` and waits for it, from whatever thread.
fn wait<T: Send + 'static>(runtime: &Handle, work: impl Future<Output = T> + Send + 'static) -> Result<T, Error> {
    let (done, result) = mpsc::sync_channel(1);
    runtime.spawn(async move {
        let _ = done.send(work.await);
    });
    result.recv().map_err(|_| Error::internal("the client's thread is gone"))
}

/// Runs `work` on `runtime`; when nobody waits any more, it ends.
async fn on<T: Send + 'static>(
    runtime: &Handle,
    work: impl Future<Output = Result<T, ClientError>> + Send + 'static,
) -> Result<T, Error> {
    struct AbortOnDrop(tokio::task::AbortHandle);
    impl Drop for AbortOnDrop {
        fn drop(&mut self) {
            self.0.abort();
        }
    }
    let task = runtime.spawn(work);
    let _abort = AbortOnDrop(task.abort_handle());
    Ok(task.await.map_err(|error| Error::internal(format!("the client has failed: {error}")))??)
}
