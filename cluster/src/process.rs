//! Whole processes of a cluster: what the commands `thetis coordinator` and `thetis worker` run.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thetis_executor::clock::{Clock, SystemClock};
use thetis_executor::table::Tables;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tracing::info;

use crate::embedded::STACK;
use crate::host::Host;
use crate::metrics;
use crate::net::framing::{Parcel, framed};
use crate::net::identity::{Authority, Identity, IdentityError, Pems, Request, Token, private_folder};
use crate::net::peers::Peers;
use crate::net::quic::{Guests, Quic, knock};
use crate::net::transport::{NetError, Peer, Role, Transport};
use crate::node::{CoordinatorNode, NodeError, NodeOptions};
use crate::protocol::{Greeting, JoinReply, JoinRequest};
use crate::store::{FileStore, StoreError};
use crate::worker::{Worker, WorkerError, WorkerOptions};

/// How a coordinator's process runs.
#[derive(Debug, Clone)]
pub struct CoordinatorSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Its data folder: authority, identities, catalogue.
    pub data: PathBuf,
    /// A worker that is not heard of for so long is lost.
    pub worker_timeout: Duration,
    /// Where Prometheus finds its metrics.
    pub metrics: Option<SocketAddr>,
}

/// How a worker's process runs.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// Where its coordinator is.
    pub coordinator: String,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where others reach it, if that is not where it listens.
    pub advertise: Option<String>,
    /// The folder of its identity.
    pub identity: PathBuf,
    /// Share of the tasks that it wants.
    pub slots: u32,
    /// How long it waits for its queries when it is to end.
    pub drain: Duration,
}

/// Why a process ends that should not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// Its files.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Its catalogue.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its network.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Its start.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// Its coordinator.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The identity is of another role.
    #[error("{folder} is the identity of {peer}, not of a {role}", folder = folder.display(), role = role.name())]
    Role {
        /// Where the identity is.
        folder: PathBuf,
        /// Whose it is.
        peer: Peer,
        /// What it should be.
        role: Role,
    },
    /// It has no identity and no way to get one.
    #[error(
        "there is no identity: give the worker a token that `thetis cert token` has made on the coordinator's machine, \
         or the folder of an identity (there is no {0})"
    )]
    NoIdentity(PathBuf),
    /// The coordinator does not take it in.
    #[error("the coordinator does not let this worker join: {0}")]
    Join(String),
    /// The metrics' address.
    #[error("{address}: metrics cannot be served there")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// Threads.
    #[error("threads cannot be started")]
    Threads(#[from] std::io::Error),
}

/// The threads of a process: one per core, with deep stacks.
///
/// # Errors
/// They cannot be started.
pub fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().thread_name("thetis").thread_stack_size(STACK).enable_all().build()
}

fn draw() -> Result<u64, ProcessError> {
    let mut bytes = [0; 8];
    let filled = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes);
    filled.map_err(|_| IdentityError::Random)?;
    Ok(u64::from_le_bytes(bytes))
}

/// A name for a worker that was given none.
pub fn new_name() -> String {
    let number = draw().unwrap_or_else(|_| u64::from(std::process::id()));
    format!("w-{number:016x}")
}

/// Runs a coordinator until `end` is ready. `ready` is told where it listens.
///
/// # Errors
/// It cannot start.
pub async fn coordinate(
    settings: &CoordinatorSettings,
    end: impl Future<Output = ()>,
    ready: impl FnOnce(&str),
) -> Result<(), ProcessError> {
    private_folder(&settings.data)?;
    let authority = Arc::new(Authority::open(&settings.data)?);
    let (identity, _) = authority.identity(&Peer::coordinator())?;
    // For the clients of this machine.
    authority.identity(&Peer::new(Role::Client, "local"))?;
    let store = Arc::new(FileStore::open(&settings.data.join("catalog.redb"))?);
    let quic = Arc::new(Quic::open(identity, settings.listen, Guests::Strangers)?);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let options = NodeOptions { worker_timeout: settings.worker_timeout, boot: draw()? };
    let transport: Arc<dyn Transport> = Arc::<Quic>::clone(&quic);
    let node = CoordinatorNode::start(&Handle::current(), transport, clock, store, Some(authority), &options)?;
    if let Some(address) = settings.metrics {
        let failure = |source| ProcessError::Metrics { address, source };
        let listener = tokio::net::TcpListener::bind(address).await.map_err(failure)?;
        tokio::spawn(metrics::serve(listener, Arc::clone(&node)));
    }
    ready(&quic.address());
    end.await;
    info!("ending");
    quic.close().await;
    Ok(())
}

/// Runs a worker until `leave` says so and its queries have ended. `ready` is told where it listens.
///
/// # Errors
/// It cannot start, or the coordinator refuses it.
pub async fn work(
    settings: &WorkerSettings,
    leave: watch::Receiver<bool>,
    ready: impl FnOnce(&str, &str),
) -> Result<(), ProcessError> {
    let identity = Identity::load(&settings.identity)?;
    if identity.peer.role != Role::Worker {
        let (folder, peer) = (settings.identity.clone(), identity.peer);
        return Err(ProcessError::Role { folder, peer, role: Role::Worker });
    }
    let name = identity.peer.name.clone();
    let quic = Arc::new(Quic::open(identity, settings.listen, Guests::Members)?);
    let address = settings.advertise.clone().unwrap_or_else(|| quic.address());
    let transport: Arc<dyn Transport> = Arc::<Quic>::clone(&quic);
    let peers = Peers::new(transport);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let host = Host::new(Handle::current(), clock, Arc::new(Tables::new()), Some(Arc::clone(&peers)));
    let options = WorkerOptions {
        slots: settings.slots,
        address: address.clone(),
        coordinator: settings.coordinator.clone(),
        boot: draw()?,
    };
    ready(&name, &address);
    let worker = Worker::new(options, Arc::new(host), peers);
    let ended = worker.run(leave, settings.drain).await;
    quic.close().await;
    Ok(ended?)
}

/// Gets an identity for a new worker with a join token, and keeps it in `folder`.
///
/// # Errors
/// The coordinator cannot be reached, or refuses the token or the name.
pub async fn join(address: &str, token: &Token, name: &str, folder: &Path) -> Result<(), ProcessError> {
    let request = Request::new()?;
    let connection = knock(address, token).await?;
    let (mut sender, mut receiver) = framed(connection.open().await?);
    let wish = JoinRequest { secret: token.secret.clone(), name: name.to_owned(), request: request.pem()? };
    sender.greet(Parcel::new(&Greeting::Join(wish))?).await?;
    let reply = receiver.receive().await?.ok_or(NetError::Stopped)?.head()?;
    connection.close("joined");
    match reply {
        JoinReply::Refused(reason) => Err(ProcessError::Join(reason)),
        JoinReply::Granted { certificate, authority } => {
            let pems: Pems = request.granted(certificate, authority);
            let identity = Identity::of(&pems, folder)?;
            if identity.peer != Peer::new(Role::Worker, name) {
                return Err(ProcessError::Join("its certificate is for somebody else".to_owned()));
            }
            Ok(pems.save(folder)?)
        }
    }
}
