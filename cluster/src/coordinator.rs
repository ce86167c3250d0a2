//! The coordinator: places the tasks of queries, starts them, and runs their epochs.

mod registry;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use thetis_executor::ExecError;
use thetis_executor::counters::Snapshot;
use thetis_executor::frame::Epoch;
use thetis_executor::query::{Placement, Process};
use thetis_planner::physical::Dag;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tracing::{debug, info};

use crate::epochs::Epochs;
use crate::error::StartError;
use crate::host::{Host, UNREGISTERED};
use crate::job::{Effect, Event, Job};
use crate::link::{Counters, Outcome, Running};
use crate::net::transport::Peer;
use crate::placement::{COORDINATOR, is_small, place};
use crate::protocol::{Generation, Member, Order, QueryId, ToWorker};
use crate::sync::locked;
use crate::wire;

pub use registry::{Registry, WorkerStatus};

/// Starts queries and runs their epochs.
#[derive(Debug, Clone)]
pub struct Coordinator(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    runtime: Handle,
    host: Arc<Host>,
    /// The workers; the embedded engine has none, and runs everything itself.
    registry: Option<Arc<Registry>>,
    next: AtomicU64,
    queries: Mutex<BTreeMap<QueryId, Arc<Query>>>,
}

/// A query that was started.
#[derive(Debug)]
struct Query {
    id: QueryId,
    placement: Placement,
    dag: Arc<Dag>,
    members: BTreeMap<Process, Member>,
    job: Mutex<Option<Job>>,
    /// What is known of the job by others.
    stage: watch::Sender<Stage>,
    outcome: watch::Sender<Outcome>,
    counters: Arc<Counters>,
    /// Other processes that will say how their tasks ended.
    reports: Mutex<BTreeSet<Process>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Preparing,
    Running,
    /// After it ran.
    Ended,
    /// Before it ran.
    Failed,
}

/// A query that runs, for people.
#[derive(Debug, Clone)]
pub struct QueryStatus {
    /// The query.
    pub id: QueryId,
    /// Its plan.
    pub dag: Arc<Dag>,
    /// The worker of each task, by operator; `None` for the coordinator.
    pub placement: Vec<Vec<Option<String>>>,
    /// What its tasks have counted.
    pub counted: Snapshot,
}

impl Coordinator {
    /// A coordinator with a share of the work, `host`, and perhaps workers.
    pub fn new(runtime: Handle, host: Arc<Host>, registry: Option<Arc<Registry>>) -> Self {
        Self(Arc::new(Inner { runtime, host, registry, next: AtomicU64::new(1), queries: Mutex::default() }))
    }

    /// The workers, in a cluster.
    pub fn registry(&self) -> Option<&Arc<Registry>> {
        self.0.registry.as_ref()
    }

    /// The tasks that an operator gets if the user does not say: one for each slot.
    pub fn slots(&self) -> Option<u32> {
        self.0.registry.as_ref().map(|registry| registry.slots().max(1))
    }

    /// Starts a query.
    ///
    /// # Errors
    /// The plan cannot be run, a source cannot be opened, there are no workers.
    pub async fn start(&self, dag: &Dag) -> Result<Running, StartError> {
        let inner = &self.0;
        let id = QueryId(inner.next.fetch_add(1, Ordering::Relaxed));
        let members = inner.members(dag)?;
        let workers: Vec<_> = members
            .iter()
            .filter(|(_, (_, slots))| *slots > 0)
            .map(|(process, (_, slots))| (*process, *slots))
            .collect();
        let placement = place(dag, &workers);
        let used: BTreeSet<Process> = placement.processes.iter().flatten().copied().collect();
        let members: BTreeMap<Process, Member> =
            members.into_iter().filter(|(process, _)| used.contains(process)).map(|(p, (m, _))| (p, m)).collect();
        let mut epochs = Epochs::new();
        let order = |here| Order {
            query: id,
            plan: Vec::new(),
            placement: placement.clone(),
            here,
            members: members.clone(),
            announcement: epochs.announcement(),
        };
        let mut fixed = dag.clone();
        thetis_executor::source::fix_listings(&mut fixed)?;
        let plan = wire::encode(&fixed)?;
        let prepared = inner.host.prepare(&Order { plan: plan.clone(), ..order(COORDINATOR) })?;
        let others: BTreeSet<Process> = used.iter().copied().filter(|process| *process != COORDINATOR).collect();
        let counters = Arc::new(Counters::new(prepared.counters, others.len()));
        let (outcome_sender, outcome) = watch::channel(None);
        let query = Arc::new(Query {
            id,
            placement: placement.clone(),
            dag: Arc::new(fixed),
            members: members.clone(),
            job: Mutex::new(Some(Job::new(used.iter().copied()))),
            stage: watch::channel(Stage::Preparing).0,
            outcome: outcome_sender,
            counters: Arc::clone(&counters),
            reports: Mutex::new(others.clone()),
        });
        locked(&inner.queries).insert(id, Arc::clone(&query));
        let (stop, stopped) = watch::channel(false);
        inner.runtime.spawn(watch_stop(Arc::clone(inner), Arc::clone(&query), stopped));
        for process in others {
            let order = Order { plan: plan.clone(), ..order(process) };
            if !inner.prepare(&query, process, order) {
                let worker = members.get(&process).map(|member| member.peer.name.clone()).unwrap_or_default();
                let error = ExecError::Lost { worker, reason: "it has just left, or is just coming".to_owned() };
                inner.on_event(&query, Event::Lost(process, error));
            }
        }
        inner.on_event(&query, Event::Prepared(COORDINATOR, Ok(())));
        let mut finished = prepared.finished;
        let (announcer, of) = (Arc::clone(inner), Arc::clone(&query));
        inner.runtime.spawn(async move {
            while finished.changed().await.is_ok() {
                let epoch: Epoch = *finished.borrow_and_update();
                if let Some(next) = epochs.on_sink_progress(epoch) {
                    announcer.host.announce(of.id, next);
                    for process in of.members.keys().filter(|process| **process != COORDINATOR) {
                        announcer.tell(&of, *process, ToWorker::Announce(of.id, next));
                    }
                }
            }
        });
        let running = Running { results: prepared.results, counters, outcome, stop, complete: false };
        let mut stage = query.stage.subscribe();
        let failed =
            stage.wait_for(|stage| *stage != Stage::Preparing).await.is_ok_and(|stage| *stage == Stage::Failed);
        let result = running.outcome.borrow().clone();
        match result {
            Some(Err(error)) if failed => Err(error.into()),
            _ => Ok(running),
        }
    }

    /// A worker has made its tasks, or cannot.
    pub(crate) fn on_prepared(&self, from: (&str, Generation), query: QueryId, result: Result<(), ExecError>) {
        if let Some((query, process)) = self.0.query_of(from, query) {
            let result = result.map_err(|error| error.on(from.0));
            self.0.on_event(&query, Event::Prepared(process, result));
        }
    }

    /// The tasks of a worker have ended.
    pub(crate) fn on_ended(
        &self,
        from: (&str, Generation),
        query: QueryId,
        result: Result<(), ExecError>,
        counted: Snapshot,
    ) {
        if let Some((query, process)) = self.0.query_of(from, query) {
            query.counters.on_counted(process, counted);
            self.0.on_report(&query, process);
            let result = result.map_err(|error| error.on(from.0));
            self.0.on_event(&query, Event::Done(process, result));
        }
    }

    /// What the tasks of a worker have counted so far.
    pub(crate) fn on_counted(&self, from: (&str, Generation), counted: BTreeMap<QueryId, Snapshot>) {
        for (query, snapshot) in counted {
            if let Some((query, process)) = self.0.query_of(from, query) {
                query.counters.on_counted(process, snapshot);
            }
        }
    }

    /// A worker is lost, and with it the queries that need it.
    pub(crate) fn on_lost(&self, from: (&str, Generation), reason: &str) {
        let queries: Vec<Arc<Query>> = locked(&self.0.queries).values().cloned().collect();
        for query in queries {
            if let Some(process) = query.process_of(from) {
                let error = ExecError::Lost { worker: from.0.to_owned(), reason: reason.to_owned() };
                self.0.on_report(&query, process);
                self.0.on_event(&query, Event::Lost(process, error));
            }
        }
    }

    /// The queries that run.
    pub fn queries(&self) -> Vec<QueryStatus> {
        let queries: Vec<Arc<Query>> = locked(&self.0.queries).values().cloned().collect();
        let running = queries.into_iter().filter(|query| *query.stage.borrow() == Stage::Running);
        running
            .map(|query| {
                let worker = |process: &Process| {
                    let member = query.members.get(process).filter(|_| *process != COORDINATOR);
                    member.map(|member| member.peer.name.clone())
                };
                let placement = query.placement.processes.iter();
                QueryStatus {
                    id: query.id,
                    dag: Arc::clone(&query.dag),
                    placement: placement.map(|tasks| tasks.iter().map(worker).collect()).collect(),
                    counted: query.counters.snapshot(),
                }
            })
            .collect()
    }
}

/// Ends the query when nobody wants it any more.
async fn watch_stop(inner: Arc<Inner>, query: Arc<Query>, mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
    inner.on_event(&query, Event::Stop);
}

impl Query {
    fn process_of(&self, (name, generation): (&str, Generation)) -> Option<Process> {
        let mut members = self.members.iter();
        let found = members.find(|(process, member)| {
            **process != COORDINATOR && member.peer.name == name && member.generation == generation
        });
        found.map(|(process, _)| *process)
    }
}

impl Inner {
    /// The processes that can have tasks of `dag`, with their slots.
    fn members(&self, dag: &Dag) -> Result<BTreeMap<Process, (Member, u32)>, StartError> {
        let address = self.registry.as_ref().map_or_else(String::new, |registry| registry.address());
        let own = Member { peer: Peer::coordinator(), address, generation: UNREGISTERED };
        let mut members = BTreeMap::from([(COORDINATOR, (own, 0))]);
        let Some(registry) = self.registry.as_ref().filter(|_| !is_small(dag)) else { return Ok(members) };
        members.extend((1..).map(Process).zip(registry.active()));
        if members.len() == 1 {
            return Err(StartError::NoWorkers);
        }
        Ok(members)
    }

    fn query_of(&self, from: (&str, Generation), query: QueryId) -> Option<(Arc<Query>, Process)> {
        let query = locked(&self.queries).get(&query).cloned()?;
        let process = query.process_of(from)?;
        Some((query, process))
    }

    /// Tells a process of a query something; false if it is gone.
    fn tell(&self, query: &Query, process: Process, message: ToWorker) -> bool {
        let (Some(registry), Some(member)) = (&self.registry, query.members.get(&process)) else { return false };
        registry.tell(&member.peer.name, member.generation, message)
    }

    /// Orders a process to make its tasks, unless the query is over; false if it is gone.
    fn prepare(&self, query: &Query, process: Process, order: Order) -> bool {
        // Who ends the query tells the process so, and must not be overtaken.
        let job = locked(&query.job);
        let over = job.as_ref().is_none_or(|job| job.ended().is_some());
        over || self.tell(query, process, ToWorker::Prepare(Box::new(order)))
    }

    /// A process will say no more of a query.
    fn on_report(&self, query: &Arc<Query>, process: Process) {
        if locked(&query.reports).remove(&process) {
            query.counters.on_last();
        }
        self.forget(query);
    }

    /// Forgets a query that is over everywhere.
    fn forget(&self, query: &Arc<Query>) {
        let over = matches!(*query.stage.borrow(), Stage::Ended | Stage::Failed);
        if over && locked(&query.reports).is_empty() {
            locked(&self.queries).remove(&query.id);
        }
    }

    fn on_event(self: &Arc<Self>, query: &Arc<Query>, event: Event) {
        // What one event comes to is done before the next one counts.
        let mut job = locked(&query.job);
        let Some(before) = job.take() else { return };
        let (after, effect) = before.step(event);
        let result = after.ended().map(|ended| ended.result.clone());
        *job = Some(after);
        let others = query.members.keys().copied().filter(|process| *process != COORDINATOR);
        match effect {
            None => {}
            Some(Effect::Start) => {
                info!(query = query.id.0, processes = query.members.len(), "started");
                for process in others {
                    self.tell(query, process, ToWorker::Start(query.id));
                }
                // First of all: the tasks may end at once.
                query.stage.send_replace(Stage::Running);
                let (inner, of) = (Arc::clone(self), Arc::clone(query));
                self.host.start(query.id, move |result, _| inner.on_event(&of, Event::Done(COORDINATOR, result)));
            }
            Some(Effect::Finish) => {
                debug!(query = query.id.0, ?result, "ended");
                let started = *query.stage.borrow() == Stage::Running;
                for process in others {
                    self.tell(query, process, ToWorker::Stop(query.id));
                }
                self.host.stop(query.id);
                query.outcome.send_replace(result);
                query.stage.send_replace(if started { Stage::Ended } else { Stage::Failed });
                if !started {
                    // Tasks that never ran report nothing.
                    locked(&query.reports).clear();
                }
                self.forget(query);
            }
        }
    }
}
