//! The connections of this process: one to each other process, made again when it is lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{Instrument, debug, info, info_span, warn};

use super::transport::{Connection, NetError, Peer, Pending, Role, Stream, Transport};
use crate::sync::locked;

/// Between two attempts to connect: from, to.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// A connection, while there is one.
pub type Current = watch::Receiver<Option<Arc<dyn Connection>>>;

/// Where the connection to a process is put.
type Slot = watch::Sender<Option<Arc<dyn Connection>>>;

/// What a process does for others.
pub trait Service: Send + Sync {
    /// Whether a process may connect at all; why not.
    ///
    /// # Errors
    /// It may not.
    fn admit(&self, peer: &Peer) -> Result<(), String>;

    /// Serves a stream that `peer` has opened, to its end.
    fn serve(self: Arc<Self>, peer: Peer, stream: Stream) -> Pending<'static, ()>;

    /// Serves a connection of a client, or of a process without a certificate.
    fn serve_guest(self: Arc<Self>, connection: Arc<dyn Connection>) -> Pending<'static, ()>;
}

/// All connections of a process.
pub struct Peers {
    transport: Arc<dyn Transport>,
    service: OnceLock<Weak<dyn Service>>,
    connections: Mutex<BTreeMap<Peer, Slot>>,
    /// By the process and where it is.
    dials: Mutex<BTreeMap<(Peer, String), Weak<Dial>>>,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers").field("transport", &self.transport).finish_non_exhaustive()
    }
}

/// Keeps a connection alive until it is dropped.
#[derive(Debug)]
pub struct Dial {
    task: JoinHandle<()>,
}

impl Drop for Dial {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Peers {
    /// No connections yet.
    pub fn new(transport: Arc<dyn Transport>) -> Arc<Self> {
        Arc::new(Self { transport, service: OnceLock::new(), connections: Mutex::default(), dials: Mutex::default() })
    }

    /// Begins to take connections, whose streams `service` serves.
    pub fn start(self: &Arc<Self>, service: &Arc<dyn Service>) {
        let _ = self.service.set(Arc::downgrade(service));
        let peers = Arc::clone(self);
        tokio::spawn(async move {
            while let Some(connection) = peers.transport.accept().await {
                peers.take(connection);
            }
        });
    }

    /// Where others reach this process.
    pub fn address(&self) -> String {
        self.transport.address()
    }

    /// Follows the connection to `peer`.
    pub fn connection(&self, peer: &Peer) -> Current {
        let mut connections = locked(&self.connections);
        connections.entry(peer.clone()).or_insert_with(|| watch::channel(None).0).subscribe()
    }

    /// Ends the connection to `peer`.
    pub fn disconnect(&self, peer: &Peer, reason: &str) {
        if let Some(connection) = &*self.connection(peer).borrow() {
            connection.close(reason);
        }
    }

    /// Connects to `peer`, and again whenever the connection is lost, as long as the result is kept.
    pub fn dial(self: &Arc<Self>, peer: &Peer, address: &str) -> Arc<Dial> {
        let mut dials = locked(&self.dials);
        dials.retain(|_, dial| dial.strong_count() > 0);
        let key = (peer.clone(), address.to_owned());
        if let Some(dial) = dials.get(&key).and_then(Weak::upgrade) {
            return dial;
        }
        let task = tokio::spawn(dial(Arc::clone(self), peer.clone(), address.to_owned()));
        let dial = Arc::new(Dial { task });
        dials.insert(key, Arc::downgrade(&dial));
        dial
    }

    /// A connection that came from elsewhere.
    fn take(self: &Arc<Self>, connection: Arc<dyn Connection>) {
        let Some(service) = self.service.get().and_then(Weak::upgrade) else { return };
        let Some(peer) = connection.peer().cloned() else {
            tokio::spawn(service.serve_guest(connection));
            return;
        };
        match service.admit(&peer) {
            Ok(()) if peer.role == Role::Client => drop(tokio::spawn(service.serve_guest(connection))),
            Ok(()) => self.adopt(&peer, connection),
            Err(reason) => {
                warn!(%peer, remote = connection.remote(), reason, "connection refused");
                connection.close(&reason);
            }
        }
    }

    /// Uses `connection` from now on, and serves its streams.
    fn adopt(self: &Arc<Self>, peer: &Peer, connection: Arc<dyn Connection>) {
        let sender = {
            let mut connections = locked(&self.connections);
            connections.entry(peer.clone()).or_insert_with(|| watch::channel(None).0).clone()
        };
        if let Some(before) = sender.send_replace(Some(Arc::clone(&connection))) {
            before.close("there is a newer connection");
        }
        let span = info_span!("connection", %peer, remote = connection.remote());
        span.in_scope(|| debug!("connected"));
        let (peers, peer) = (Arc::clone(self), peer.clone());
        let serve = async move {
            let reason = loop {
                match connection.accept().await {
                    Ok(stream) => {
                        if let Some(service) = peers.service.get().and_then(Weak::upgrade) {
                            tokio::spawn(service.serve(peer.clone(), stream).in_current_span());
                        }
                    }
                    Err(error) => break error,
                }
            };
            info!(%reason, "disconnected");
            sender.send_if_modified(|current| {
                let same = current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &connection));
                if same {
                    *current = None;
                }
                same
            });
        };
        tokio::spawn(serve.instrument(span));
    }
}

async fn dial(peers: Arc<Peers>, peer: Peer, address: String) {
    let mut current = peers.connection(&peer);
    let mut backoff = BACKOFF.0;
    let mut complained = false;
    loop {
        if current.wait_for(Option::is_none).await.is_err() {
            return;
        }
        match peers.transport.connect(&peer, &address).await {
            Ok(connection) => {
                (backoff, complained) = (BACKOFF.0, false);
                peers.adopt(&peer, connection);
            }
            Err(error) => {
                if !std::mem::replace(&mut complained, true) {
                    warn!(%peer, %error, "no connection yet; trying again");
                }
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF.1);
            }
        }
    }
}

/// The connection, once there is one.
///
/// # Errors
/// Nobody connects any more.
pub async fn connected(current: &mut Current) -> Result<Arc<dyn Connection>, NetError> {
    let found = current.wait_for(Option::is_some).await.map(|connection| connection.clone());
    found.ok().flatten().ok_or_else(|| NetError::Lost("this process ends".to_owned()))
}
