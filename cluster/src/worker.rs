//! A worker: registers with its coordinator and runs the tasks that it is told to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thetis_executor::ExecError;
use thetis_executor::counters::Snapshot;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::host::Host;
use crate::net::conversation::{Beat, Conversation};
use crate::net::framing::{MAX_GREETING, Parcel, framed};
use crate::net::peers::{Peers, Service, connected};
use crate::net::transport::{Connection, NetError, Peer, Pending, Role, Stream};
use crate::protocol::{FromWorker, Greeting, Hello, Resumed, ToWorker, Welcome};
use crate::sync::locked;

/// The last words of a worker that leaves.
pub(crate) const LEFT: &str = "the worker has left the cluster";

/// A worker that is refused for so long ends.
const REFUSALS: Duration = Duration::from_secs(15);

/// Between two attempts to register.
const PAUSE: Duration = Duration::from_millis(200);

/// What a worker says of itself.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Share of the tasks that it wants.
    pub slots: u32,
    /// Where others reach it.
    pub address: String,
    /// Where its coordinator is.
    pub coordinator: String,
    /// Drawn anew for each process.
    pub boot: u64,
}

/// A worker.
#[derive(Debug)]
pub struct Worker {
    options: WorkerOptions,
    host: Arc<Host>,
    peers: Arc<Peers>,
    /// The registration, and the conversation under it.
    registered: Mutex<Option<Registered>>,
    /// It wants no more queries.
    leaving: AtomicBool,
}

#[derive(Debug, Clone)]
struct Registered {
    resumed: Resumed,
    conversation: Arc<Conversation<FromWorker>>,
}

/// Why a worker ends.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The coordinator does not want it.
    #[error("the coordinator refuses this worker: {0}")]
    Refused(String),
}

impl Worker {
    /// A worker whose tasks `host` runs.
    pub fn new(options: WorkerOptions, host: Arc<Host>, peers: Arc<Peers>) -> Arc<Self> {
        Arc::new(Self { options, host, peers, registered: Mutex::default(), leaving: AtomicBool::new(false) })
    }

    /// Registers, and follows orders until `leave` says so and the queries that it has tasks of have ended,
    /// or `drain` is over.
    ///
    /// # Errors
    /// The coordinator refuses it.
    pub async fn run(self: &Arc<Self>, leave: watch::Receiver<bool>, drain: Duration) -> Result<(), WorkerError> {
        let service: Arc<dyn Service> = Arc::<Self>::clone(self);
        self.peers.start(&service);
        let _dial = self.peers.dial(&Peer::coordinator(), &self.options.coordinator);
        let mut connection = self.peers.connection(&Peer::coordinator());
        let leaving = self.leave(leave, drain);
        tokio::pin!(leaving);
        let mut refused_since = None;
        loop {
            let talk = async {
                let connection = connected(&mut connection).await?;
                self.talk(&*connection).await
            };
            let talked = tokio::select! {
                biased;
                () = &mut leaving => {
                    self.host.stop_all();
                    self.peers.disconnect(&Peer::coordinator(), LEFT);
                    return Ok(());
                }
                talked = talk => talked,
            };
            match talked {
                Ok(refused) => {
                    // The name may be that of a process before, which is not known to be gone yet.
                    let since = *refused_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > REFUSALS {
                        return Err(WorkerError::Refused(refused));
                    }
                    warn!(reason = refused, "refused; trying again");
                    tokio::time::sleep(PAUSE * 2).await;
                }
                Err(error) => {
                    refused_since = None;
                    info!(%error, "no longer connected to the coordinator");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Ready when the worker may go.
    async fn leave(&self, mut leave: watch::Receiver<bool>, drain: Duration) {
        if leave.wait_for(|leave| *leave).await.is_err() {
            return std::future::pending().await;
        }
        info!(queries = self.host.queries(), "leaving once these have ended");
        self.leaving.store(true, Ordering::Relaxed);
        if let Some(registered) = &*locked(&self.registered) {
            registered.conversation.say(FromWorker::Leaving);
        }
        let drained = async {
            // The coordinator may have sent a query before it hears of it.
            tokio::time::sleep(PAUSE).await;
            while self.host.queries() > 0 {
                tokio::time::sleep(PAUSE / 4).await;
            }
        };
        if tokio::time::timeout(drain, drained).await.is_err() {
            warn!(queries = self.host.queries(), "leaving before these have ended");
        }
    }

    /// Talks with the coordinator over one connection; why it refuses.
    async fn talk(&self, connection: &dyn Connection) -> Result<String, NetError> {
        let (mut sender, mut receiver) = framed(connection.open().await?);
        let before = locked(&self.registered).clone();
        let resumes = match &before {
            Some(Registered { resumed, conversation }) => {
                Some(Resumed { received: conversation.take().await.resume(), ..*resumed })
            }
            None => None,
        };
        let WorkerOptions { boot, slots, ref address, .. } = self.options;
        let hello = Hello { boot, slots, address: address.clone(), resumes };
        sender.greet(Parcel::new(&Greeting::Control(hello))?).await?;
        let welcome = receiver.receive().await?.ok_or(NetError::Stopped)?.head()?;
        let (coordinator, generation, received, heartbeat) = match welcome {
            Welcome::Refused(reason) => return Ok(reason),
            Welcome::Registered { coordinator, generation, received, heartbeat } => {
                (coordinator, generation, received, heartbeat)
            }
        };
        let same = |registered: &Registered| {
            registered.resumed.coordinator == coordinator && registered.resumed.generation == generation
        };
        let registered = before.filter(same).unwrap_or_else(|| {
            info!(generation = generation.0, "registered");
            // Whatever ran under another registration is over.
            self.host.stop_all();
            let resumed = Resumed { coordinator, generation, received: 0 };
            let conversation: Arc<Conversation<FromWorker>> = Arc::default();
            if self.leaving.load(Ordering::Relaxed) {
                conversation.say(FromWorker::Leaving);
            }
            Registered { resumed, conversation }
        });
        *locked(&self.registered) = Some(registered.clone());
        let conversation = registered.conversation;
        let beat = Beat { every: heartbeat, make: || FromWorker::Counted(self.host.snapshots()) };
        let mut state = conversation.take().await;
        let on = |message| self.on_message(&conversation, message);
        match state.hold((sender, receiver), received, beat, on).await {
            Ok(never) => match never {},
            Err(error) => Err(error),
        }
    }

    fn on_message(&self, conversation: &Arc<Conversation<FromWorker>>, message: ToWorker) {
        match message {
            ToWorker::Prepare(order) => {
                let made = thetis_executor::threads::in_place(|| self.host.prepare(&order));
                let result = made.map(|_| ()).map_err(crate::error::StartError::into_exec);
                conversation.say(FromWorker::Prepared(order.query, result));
            }
            ToWorker::Start(query) => {
                let conversation = Arc::clone(conversation);
                self.host.start(query, move |result, counted| {
                    conversation.say(FromWorker::Ended(query, result, counted));
                });
            }
            ToWorker::Announce(query, announcement) => self.host.announce(query, announcement),
            ToWorker::Stop(query) => {
                if self.host.stop(query) {
                    conversation.say(FromWorker::Ended(query, Err(ExecError::Cancelled), Snapshot::default()));
                }
            }
            ToWorker::Alive => {}
        }
    }
}

impl Service for Worker {
    fn admit(&self, peer: &Peer) -> Result<(), String> {
        match peer.role {
            Role::Worker | Role::Coordinator => Ok(()),
            Role::Client => Err("a worker talks with its cluster only; connect to the coordinator".to_owned()),
        }
    }

    fn serve(self: Arc<Self>, peer: Peer, stream: Stream) -> Pending<'static, ()> {
        Box::pin(async move {
            let (sender, mut receiver) = framed(stream);
            match receiver.greeting(MAX_GREETING).await.and_then(|greeting| greeting.head()) {
                Ok(Greeting::Edge(head)) => self.host.receive(&peer, head, sender, receiver).await,
                Ok(_) => warn!(%peer, "asks for what a worker does not do"),
                Err(error) => warn!(%peer, %error, "a stream was dropped"),
            }
        })
    }

    fn serve_guest(self: Arc<Self>, connection: Arc<dyn Connection>) -> Pending<'static, ()> {
        error!(remote = connection.remote(), "a connection without a certificate: dropped");
        connection.close("a certificate is needed");
        Box::pin(std::future::ready(()))
    }
}
