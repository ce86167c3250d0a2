//! A coordinator's process: the database, the workers' registry, and the streams of workers, clients and
//! those who want to join.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thetis_executor::clock::Clock;
use thetis_executor::table::Tables;
use tokio::runtime::Handle;
use tracing::{Instrument, info, info_span, warn};

use crate::coordinator::{Coordinator, Registry};
use crate::database::Database;
use crate::error::StatementError;
use crate::front::protocol::{Answer, Status};
use crate::front::server;
use crate::host::Host;
use crate::net::framing::{MAX_GREETING, MAX_HEAD, Parcel, Receiver, Sender, framed};
use crate::net::identity::{Authority, check_name};
use crate::net::peers::{Peers, Service};
use crate::net::transport::{Connection, NetError, Peer, Pending, Role, Stream, Transport};
use crate::protocol::{Greeting, JoinReply, JoinRequest};
use crate::session::Session;
use crate::status::status_of;
use crate::store::Store;

/// A new client says what it wants within this time.
const GREETING: Duration = Duration::from_secs(5);
/// Statements of one client that may run side by side.
const MAX_STATEMENTS: usize = 256;

/// How a coordinator's process runs.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// A worker that is not heard of for so long is lost.
    pub worker_timeout: Duration,
    /// Drawn anew for each process.
    pub boot: u64,
}

/// Why a coordinator's process does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The catalogue cannot be brought back.
    #[error(transparent)]
    Catalogue(#[from] StatementError),
}

/// A coordinator's process.
#[derive(Debug)]
pub struct CoordinatorNode {
    database: Arc<Database>,
    registry: Arc<Registry>,
    host: Arc<Host>,
    peers: Arc<Peers>,
    /// Issues certificates to those who join.
    authority: Option<Arc<Authority>>,
    clock: Arc<dyn Clock>,
    started: Duration,
}

impl CoordinatorNode {
    /// Starts to serve on `transport`. Definitions are those that `store` has kept.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn start(
        runtime: &Handle,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
        store: Arc<dyn Store>,
        authority: Option<Arc<Authority>>,
        options: &NodeOptions,
    ) -> Result<Arc<Self>, NodeError> {
        let peers = Peers::new(transport);
        let tables = Arc::new(Tables::new());
        let host =
            Arc::new(Host::new(runtime.clone(), Arc::clone(&clock), Arc::clone(&tables), Some(Arc::clone(&peers))));
        let timeout = options.worker_timeout;
        let registry = Arc::new(Registry::new(Arc::clone(&clock), options.boot, peers.address(), timeout));
        let coordinator = Coordinator::new(runtime.clone(), Arc::clone(&host), Some(Arc::clone(&registry)));
        registry.start(coordinator.clone());
        let database = Arc::new(Database::new(runtime.clone(), coordinator, tables, store));
        database.restore()?;
        let started = clock.now();
        let node = Arc::new(Self { database, registry, host, peers, authority, clock, started });
        let service: Arc<dyn Service> = Arc::<Self>::clone(&node);
        node.peers.start(&service);
        Ok(node)
    }

    /// What its sessions share.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// How the cluster is.
    pub fn status(&self) -> Status {
        Status {
            address: self.peers.address(),
            uptime: self.clock.now().saturating_sub(self.started),
            ..status_of(self.database.coordinator())
        }
    }

    async fn serve_client(self: Arc<Self>, connection: Arc<dyn Connection>) {
        let session = Arc::new(Session::new(Arc::clone(&self.database)));
        let statements = Arc::new(tokio::sync::Semaphore::new(MAX_STATEMENTS));
        while let Ok(stream) = connection.accept().await {
            let Ok(place) = Arc::clone(&statements).try_acquire_owned() else {
                warn!("a client has too many statements: a stream was dropped");
                continue;
            };
            let (node, session) = (Arc::clone(&self), Arc::clone(&session));
            let serve = async move {
                if let Err(error) = node.serve_statement(session, framed(stream)).await {
                    warn!(%error, "a stream was dropped");
                }
                drop(place);
            };
            tokio::spawn(serve.in_current_span());
        }
    }

    async fn serve_statement(
        self: Arc<Self>,
        session: Arc<Session>,
        (sender, mut receiver): (Sender, Receiver),
    ) -> Result<(), NetError> {
        let greeting = tokio::time::timeout(GREETING, receiver.greeting(MAX_HEAD)).await;
        let late = |_| NetError::Protocol("it says nothing".to_owned());
        let request = match greeting.map_err(late)??.head()? {
            Greeting::Request(request) => *request,
            _ => return Err(NetError::Protocol("a client can only submit statements".to_owned())),
        };
        let values = receiver.receive().await?.ok_or(NetError::Stopped)?;
        let status = || Answer::Status(self.status());
        server::serve(session, request, values.body, status, sender, receiver).await;
        Ok(())
    }

    /// Gives a new worker its certificate, if its token is good.
    async fn join(&self, connection: &dyn Connection) -> Result<(), NetError> {
        let (mut sender, mut receiver) = framed(connection.accept().await?);
        let Greeting::Join(request) = receiver.greeting(MAX_GREETING).await?.head()? else {
            return Err(NetError::Protocol("without a certificate it can only join".to_owned()));
        };
        let name = request.name.clone();
        let reply = match self.admit_new(&request) {
            Ok(reply) => {
                info!(worker = name, "joined");
                reply
            }
            Err(reason) => {
                warn!(worker = name, remote = connection.remote(), reason, "may not join");
                JoinReply::Refused(reason)
            }
        };
        sender.send(Parcel::new(&reply)?).await?;
        sender.finish();
        sender.stopped().await;
        Ok(())
    }

    fn admit_new(&self, request: &JoinRequest) -> Result<JoinReply, String> {
        let authority = self.authority.as_ref().ok_or("this coordinator issues no certificates")?;
        let peer = Peer::new(Role::Worker, &request.name);
        // What can be wrong without the token is looked at first: it can be used once.
        if self.registry.status().iter().any(|worker| worker.name == request.name) {
            return Err(format!("there is a worker {} already; give this one another name", request.name));
        }
        check_name(&request.name).map_err(|error| error.to_string())?;
        if !authority.use_token(&request.secret) {
            return Err("the token was used before, is too old, or was never made".to_owned());
        }
        let certificate = authority.sign(&peer, &request.request).map_err(|error| crate::error::chain(&error))?;
        Ok(JoinReply::Granted { certificate, authority: authority.certificate().to_owned() })
    }
}

/// Where a worker is that listens on all of its addresses: where its connection comes from.
fn reachable(address: String, remote: Option<&str>) -> String {
    let listens: Option<SocketAddr> = address.parse().ok();
    let remote: Option<SocketAddr> = remote.and_then(|remote| remote.parse().ok());
    match (listens, remote) {
        (Some(listens), Some(remote)) if listens.ip().is_unspecified() => {
            SocketAddr::new(remote.ip().to_canonical(), listens.port()).to_string()
        }
        _ => address,
    }
}

impl Service for CoordinatorNode {
    fn admit(&self, peer: &Peer) -> Result<(), String> {
        match peer.role {
            Role::Worker | Role::Client => Ok(()),
            Role::Coordinator => Err("there is a coordinator: this one".to_owned()),
        }
    }

    fn serve(self: Arc<Self>, peer: Peer, stream: Stream) -> Pending<'static, ()> {
        Box::pin(async move {
            let (sender, mut receiver) = framed(stream);
            let served = match receiver.greeting(MAX_GREETING).await.and_then(|greeting| greeting.head()) {
                Ok(Greeting::Control(mut hello)) => {
                    let remote = self.peers.connection(&peer).borrow().as_ref().map(|connection| connection.remote());
                    hello.address = reachable(hello.address, remote.as_deref());
                    self.registry.converse(&peer.name, &hello, (sender, receiver)).await
                }
                Ok(Greeting::Edge(head)) => {
                    self.host.receive(&peer, head, sender, receiver).await;
                    Ok(())
                }
                Ok(_) => Err(NetError::Protocol("a worker cannot submit statements".to_owned())),
                Err(error) => Err(error),
            };
            match served {
                Err(error @ NetError::Protocol(_)) => warn!(%peer, %error, "a stream was dropped"),
                Err(error) => info!(%peer, %error, "a stream has ended"),
                Ok(()) => {}
            }
        })
    }

    fn serve_guest(self: Arc<Self>, connection: Arc<dyn Connection>) -> Pending<'static, ()> {
        let Some(peer) = connection.peer().cloned() else {
            return Box::pin(async move {
                if let Err(error) = self.join(&*connection).await {
                    warn!(remote = connection.remote(), %error, "a process without a certificate was dropped");
                }
                connection.close("without a certificate there is nothing more here");
            });
        };
        let span = info_span!("client", name = peer.name, remote = connection.remote());
        Box::pin(self.serve_client(connection).instrument(span))
    }
}

#[cfg(test)]
mod tests {
    use super::reachable;

    #[test]
    fn a_worker_that_listens_everywhere_is_where_it_comes_from() {
        let at = |address: &str, remote| reachable(address.to_owned(), remote);
        assert_eq!(at("0.0.0.0:7172", Some("10.0.0.2:5000")), "10.0.0.2:7172");
        assert_eq!(at("[::]:7172", Some("[::ffff:10.0.0.2]:5000")), "10.0.0.2:7172");
        assert_eq!(at("10.0.0.9:7172", Some("10.0.0.2:5000")), "10.0.0.9:7172");
        assert_eq!(at("host:7172", Some("10.0.0.2:5000")), "host:7172");
        assert_eq!(at("0.0.0.0:7172", None), "0.0.0.0:7172");
    }
}
