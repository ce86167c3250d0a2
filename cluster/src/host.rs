//! Runs a process's share of queries: makes the tasks, joins them to those of other processes, and says
//! how they end. The embedded engine has one for everything, a cluster has one in each process.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use thetis_executor::ExecError;
use thetis_executor::clock::Clock;
use thetis_executor::counters::{QueryCounters, Snapshot};
use thetis_executor::frame::Epoch;
use thetis_executor::query::{Instance, Outgoing, Process, Share, TaskFuture, channels, instantiate};
use thetis_executor::table::Tables;
use thetis_executor::task::{Control, Delivery};
use thetis_planner::physical::{Dag, OperatorId};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{Instrument, info_span, warn};

use crate::data::{Encoder, InletSlot, LinkCounters, Outlet};
use crate::epochs::Announcement;
use crate::error::StartError;
use crate::net::framing::{Receiver, Sender};
use crate::net::peers::{Dial, Peers};
use crate::net::transport::{NetError, Peer, Role};
use crate::protocol::{EdgeHead, Generation, Member, Order, QueryId};
use crate::sync::locked;
use crate::wire;

/// Runs shares of queries.
#[derive(Debug)]
pub struct Host {
    runtime: Handle,
    clock: Arc<dyn Clock>,
    /// What table springs read; a worker has none.
    tables: Arc<Tables>,
    /// The way to other processes, if there are any.
    peers: Option<Arc<Peers>>,
    queries: Mutex<BTreeMap<QueryId, Arc<Hosted>>>,
}

/// A share that is made.
#[derive(Debug)]
struct Hosted {
    announce: watch::Sender<Announcement>,
    stop: watch::Sender<bool>,
    /// What went wrong outside of its tasks.
    fail: watch::Sender<Option<ExecError>>,
    counters: Arc<QueryCounters>,
    inlets: BTreeMap<(u32, Process), InletSlot>,
    members: BTreeMap<Process, Member>,
    /// What goes to other processes, by edge.
    links: Vec<(u32, Arc<LinkCounters>)>,
    /// Ready to run, until it does.
    work: Mutex<Option<Work>>,
    /// Connections that are kept for it.
    _dials: Vec<Arc<Dial>>,
}

/// What is to be run.
struct Work {
    tasks: Vec<TaskFuture>,
    outlets: Vec<Outlet>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("tasks", &self.tasks.len()).field("outlets", &self.outlets.len()).finish()
    }
}

/// What a share has for the one who made it.
#[derive(Debug)]
pub struct Prepared {
    /// What the sink delivers, if it is here.
    pub results: mpsc::Receiver<Delivery>,
    /// Progress of the sink, if it is here.
    pub finished: watch::Receiver<Epoch>,
    /// What the tasks count.
    pub counters: Arc<QueryCounters>,
}

impl Host {
    /// A host whose tasks run on `runtime` and read `tables`.
    pub fn new(runtime: Handle, clock: Arc<dyn Clock>, tables: Arc<Tables>, peers: Option<Arc<Peers>>) -> Self {
        Self { runtime, clock, tables, peers, queries: Mutex::default() }
    }

    /// Makes the tasks of a share. Looks at files.
    ///
    /// # Errors
    /// The plan cannot be decoded or run, a source cannot be opened.
    pub fn prepare(&self, order: &Order) -> Result<Prepared, StartError> {
        let dag: Dag = wire::decode(&order.plan)?;
        if !order.placement.fits(&dag) {
            return Err(ExecError::Internal("the placement is not of this plan".to_owned()).into());
        }
        let (announce, announced) = watch::channel(order.announcement);
        let (granted, granted_receiver) = watch::channel(order.announcement.granted);
        let (committed, committed_receiver) = watch::channel(order.announcement.committed);
        let (finished, finished_receiver) = watch::channel(Epoch::NONE);
        let control = Control {
            granted: granted_receiver,
            committed: committed_receiver,
            finished: Arc::new(finished),
            clock: Arc::clone(&self.clock),
        };
        let share = Share { dag: &dag, placement: &order.placement, here: order.here };
        let Instance { tasks, results, counters, outgoing, inboxes } = instantiate(&share, &control, &self.tables)?;
        let inlets = inlets(&share, &inboxes);
        let mut links = Vec::new();
        let outlets = outgoing.into_iter().map(|outgoing| self.outlet(order, &dag, outgoing, &mut links));
        let outlets = outlets.collect::<Result<_, _>>()?;
        let hosted = Hosted {
            announce,
            stop: watch::channel(false).0,
            fail: watch::channel(None).0,
            counters: Arc::clone(&counters),
            inlets,
            members: order.members.clone(),
            links,
            work: Mutex::new(Some(Work { tasks, outlets })),
            _dials: self.dials(order),
        };
        self.runtime.spawn(follow(announced, granted, committed));
        locked(&self.queries).insert(order.query, Arc::new(hosted));
        Ok(Prepared { results, finished: finished_receiver, counters })
    }

    fn outlet(
        &self,
        order: &Order,
        dag: &Dag,
        outgoing: Outgoing,
        links: &mut Vec<(u32, Arc<LinkCounters>)>,
    ) -> Result<Outlet, ExecError> {
        let Outgoing { edge, to, queue } = outgoing;
        let internal = |message: &str| ExecError::Internal(message.to_owned());
        let peers = self.peers.as_ref().ok_or_else(|| internal("there are no other processes"))?;
        let member = order.members.get(&to).ok_or_else(|| internal("a process without an address"))?;
        let own = order.members.get(&order.here).ok_or_else(|| internal("a process without a registration"))?;
        let head = EdgeHead { query: order.query, edge, from: order.here, generation: own.generation };
        let schema = dag.taken_schema(&dag.edges[edge as usize]);
        let encoder = Encoder::new(schema, !is_near(&member.address));
        let encoder = encoder.map_err(|error| ExecError::Internal(crate::error::chain(&error)))?;
        let counters = Arc::new(LinkCounters::default());
        links.push((edge, Arc::clone(&counters)));
        let name = member.peer.name.clone();
        Ok(Outlet::new(head, name, peers.connection(&member.peer), queue, encoder, counters))
    }

    /// Of two workers that have something to send each other, the first one connects. Workers connect to
    /// the coordinator anyway.
    fn dials(&self, order: &Order) -> Vec<Arc<Dial>> {
        let Some(peers) = &self.peers else { return Vec::new() };
        let others = order.members.iter().filter(|(process, member)| {
            **process > order.here
                && member.peer.role == Role::Worker
                && order.members[&order.here].peer.role == Role::Worker
        });
        others.map(|(_, member)| peers.dial(&member.peer, &member.address)).collect()
    }

    /// Runs the tasks of a share that was made; `report` is told how they end.
    pub fn start(&self, query: QueryId, report: impl FnOnce(Result<(), ExecError>, Snapshot) + Send + 'static) {
        let Some(hosted) = self.hosted(query) else { return };
        let Some(work) = locked(&hosted.work).take() else { return };
        let span = info_span!("query", id = query.0);
        let run = async move {
            let result = supervise(work, hosted.stop.subscribe(), hosted.fail.subscribe()).await;
            report(result, hosted.snapshot());
        };
        self.runtime.spawn(run.instrument(span));
    }

    /// Tells the tasks of a query how far its epochs are.
    pub fn announce(&self, query: QueryId, announcement: Announcement) {
        if let Some(hosted) = self.hosted(query) {
            hosted.announce.send_replace(announcement);
        }
    }

    /// Ends a query and forgets it; true if its tasks were made and never ran.
    pub fn stop(&self, query: QueryId) -> bool {
        let Some(hosted) = locked(&self.queries).remove(&query) else { return false };
        hosted.stop.send_replace(true);
        locked(&hosted.work).take().is_some()
    }

    /// Ends all queries.
    pub fn stop_all(&self) {
        let queries: Vec<QueryId> = locked(&self.queries).keys().copied().collect();
        for query in queries {
            self.stop(query);
        }
    }

    /// Number of queries that have tasks here.
    pub fn queries(&self) -> usize {
        locked(&self.queries).len()
    }

    /// What the tasks of all queries have counted.
    pub fn snapshots(&self) -> BTreeMap<QueryId, Snapshot> {
        locked(&self.queries).iter().map(|(query, hosted)| (*query, hosted.snapshot())).collect()
    }

    fn hosted(&self, query: QueryId) -> Option<Arc<Hosted>> {
        locked(&self.queries).get(&query).cloned()
    }

    /// Delivers what comes on a stream of an edge.
    pub async fn receive(&self, peer: &Peer, head: EdgeHead, sender: Sender, receiver: Receiver) {
        // A query that is over, or a process that is not of it: the stream is closed, and the sender stops.
        let Some(hosted) = self.hosted(head.query) else { return };
        let known = hosted.members.get(&head.from);
        let slot = hosted.inlets.get(&(head.edge, head.from));
        let (Some(member), Some(slot)) = (known, slot) else {
            warn!(%peer, query = head.query.0, edge = head.edge, "an edge that is not of this query: refused");
            return;
        };
        if member.peer != *peer || member.generation != head.generation {
            warn!(%peer, query = head.query.0, "rows of a process that was replaced: refused");
            return;
        }
        let mut stopped = hosted.stop.subscribe();
        let received = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            received = slot.receive(sender, receiver) => received,
        };
        if let Err(NetError::Protocol(reason)) = received {
            warn!(%peer, query = head.query.0, edge = head.edge, reason, "a stream was dropped");
            // Its rows will never come.
            let error = ExecError::Internal(format!("rows of {peer} cannot be read: {reason}"));
            hosted.fail.send_replace(Some(error));
        }
    }
}

impl Hosted {
    fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.counters.snapshot();
        for (edge, link) in &self.links {
            let (bytes, payload) = (link.bytes.load(Ordering::Relaxed), link.payload.load(Ordering::Relaxed));
            snapshot.add_sent(*edge as usize, bytes, payload);
        }
        snapshot
    }
}

/// Where the rows of other processes go.
fn inlets(
    share: &Share<'_>,
    inboxes: &BTreeMap<(OperatorId, u32), mpsc::Sender<thetis_executor::task::Envelope>>,
) -> BTreeMap<(u32, Process), InletSlot> {
    let mut inlets = BTreeMap::new();
    for (number, edge) in (0..).zip(&share.dag.edges) {
        let own: BTreeMap<u32, _> =
            inboxes.iter().filter(|((id, _), _)| *id == edge.to).map(|((_, task), to)| (*task, to.clone())).collect();
        if own.is_empty() {
            continue;
        }
        let own_channels = channels(share.dag, edge.to).find(|(other, _)| std::ptr::eq(*other, edge));
        let Some((_, channels)) = own_channels else { continue };
        for process in share.placement.of(edge.from) {
            if *process != share.here {
                let schema = Arc::clone(share.dag.taken_schema(edge));
                let slot = || InletSlot::new(schema, own.clone(), channels.clone());
                inlets.entry((number, *process)).or_insert_with(slot);
            }
        }
    }
    inlets
}

/// Whether a process is on this machine: then cycles are dearer than bytes.
fn is_near(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// Passes what the coordinator announces to the tasks.
async fn follow(
    mut announced: watch::Receiver<Announcement>,
    granted: watch::Sender<Epoch>,
    committed: watch::Sender<Epoch>,
) {
    while announced.changed().await.is_ok() {
        let now = *announced.borrow_and_update();
        granted.send_replace(now.granted);
        committed.send_replace(now.committed);
    }
    // The senders live as long as anybody waits for a grant.
    granted.closed().await;
}

/// What went wrong outside of the tasks, once it does.
async fn failure(failed: &mut watch::Receiver<Option<ExecError>>) -> ExecError {
    match failed.wait_for(Option::is_some).await.map(|failed| failed.clone()) {
        Ok(Some(error)) => error,
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

/// Runs the tasks to their end, to the first error, or until the query is stopped.
async fn supervise(
    work: Work,
    mut stopped: watch::Receiver<bool>,
    mut failed: watch::Receiver<Option<ExecError>>,
) -> Result<(), ExecError> {
    let mut running: JoinSet<Result<(), ExecError>> = JoinSet::new();
    for task in work.tasks {
        running.spawn(task.in_current_span());
    }
    for outlet in work.outlets {
        running.spawn(outlet.run().in_current_span());
    }
    // A task whose receiver is gone says Cancelled; the receiver's own error is the reason.
    let mut cancelled = false;
    let result = loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => break Err(ExecError::Cancelled),
            failed = failure(&mut failed) => break Err(failed),
            joined = running.join_next() => match joined {
                None => break if cancelled { Err(ExecError::Cancelled) } else { Ok(()) },
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(ExecError::Cancelled))) => cancelled = true,
                Some(Ok(Err(error))) => break Err(error),
                Some(Err(error)) if error.is_panic() => {
                    break Err(ExecError::Internal(format!("a task panicked: {error}")));
                }
                Some(Err(_)) => cancelled = true,
            },
        }
    };
    running.abort_all();
    result
}

/// The registration of a process that never registers: the coordinator, or the embedded engine.
pub(crate) const UNREGISTERED: Generation = Generation(0);
