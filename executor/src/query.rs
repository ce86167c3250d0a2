//! A DAG to the tasks and channels of one process: all of them, or its share.

use std::collections::BTreeMap;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thetis_planner::connector::SourceSpec;
use thetis_planner::physical::{Dag, Edge, OperatorId, OperatorKind, Phase, Source};
use tokio::sync::mpsc;
use tracing::{Instrument, info_span};

use crate::aggregate::{Aggregation, PartialAggregation};
use crate::counters::{EdgeCounters, Meter, QueryCounters, TaskCounters};
use crate::error::ExecError;
use crate::join::cell::Cell;
use crate::operator::Operator;
use crate::route::{Receivers, route_for};
use crate::sink::sink_for;
use crate::source::{SourceCounters, Split, Waits, reader_for};
use crate::steps::Steps;
use crate::table::{Opened, TableTask, Tables};
use crate::task::{Addressed, Control, Delivery, Envelope, OperatorTask, OutEdge, Outbox, SourceTask, Target};
use crate::threads::in_turns;

/// Messages that an inbox holds.
const INBOX: usize = 64;
/// Messages that wait to be sent to another process by an edge.
const QUEUE: usize = 16;
/// Deliveries that wait for the client.
const CLIENT_QUEUE: usize = 4;

/// A process that has tasks of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process(pub u32);

/// The process of each task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// By operator, then by task.
    pub processes: Vec<Vec<Process>>,
}

impl Placement {
    /// All tasks of `dag` in one process.
    pub fn alone(dag: &Dag, process: Process) -> Self {
        let processes = dag.operators.iter().map(|operator| vec![process; operator.tasks as usize]);
        Self { processes: processes.collect() }
    }

    /// The processes of an operator's tasks.
    pub fn of(&self, operator: OperatorId) -> &[Process] {
        self.processes.get(operator.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// Whether it places the tasks of `dag`.
    pub fn fits(&self, dag: &Dag) -> bool {
        let tasks = dag.operators.iter().map(|operator| operator.tasks as usize);
        self.processes.iter().map(Vec::len).eq(tasks)
    }
}

/// What one process runs of a query.
#[derive(Debug, Clone, Copy)]
pub struct Share<'a> {
    /// The query.
    pub dag: &'a Dag,
    /// Who runs what.
    pub placement: &'a Placement,
    /// This process.
    pub here: Process,
}

/// What the tasks of this process send to those of another one by one edge.
#[derive(Debug)]
pub struct Outgoing {
    /// Position of the edge in the DAG.
    pub edge: u32,
    /// The other process.
    pub to: Process,
    /// The messages, in order.
    pub queue: mpsc::Receiver<Addressed>,
}

/// A task that is ready to run.
pub type TaskFuture = Pin<Box<dyn Future<Output = Result<(), ExecError>> + Send>>;

/// The tasks of a share and what they deliver.
pub struct Instance {
    /// To be run, all of them.
    pub tasks: Vec<TaskFuture>,
    /// What the sink delivers, if it is here.
    pub results: mpsc::Receiver<Delivery>,
    /// What goes to other processes.
    pub outgoing: Vec<Outgoing>,
    /// Where messages from other processes go, by operator and task.
    pub inboxes: BTreeMap<(OperatorId, u32), mpsc::Sender<Envelope>>,
    /// What the tasks count.
    pub counters: Arc<QueryCounters>,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance")
            .field("tasks", &self.tasks.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// Makes the tasks of a share. Those of a query without parallelism run in turns, as one; a source that waits
/// for a writer stays by itself.
///
/// # Errors
/// A source that cannot be opened, a plan that this build cannot run.
pub fn instantiate(share: &Share<'_>, control: &Control, tables: &Tables) -> Result<Instance, ExecError> {
    let Share { dag, .. } = *share;
    let mut opened = open_tables(share, tables)?;
    let (client, results) = mpsc::channel(CLIENT_QUEUE);
    let mut wiring = Wiring::new(share);
    let mut counters = QueryCounters::start(&control.clock);
    let mut tasks: Vec<TaskFuture> = Vec::new();
    let mut waiting: Vec<TaskFuture> = Vec::new();
    for (id, operator) in (0..).map(OperatorId).zip(&dag.operators) {
        for task in share.tasks_here(id) {
            let name = || format!("{}#{task}", dag.label(id));
            let is_sink = matches!(operator.kind, OperatorKind::Sink(_));
            let outbox = if is_sink {
                Outbox::Client(client.clone())
            } else {
                Outbox::Edges(wiring.out_edges(id, task, &mut counters)?)
            };
            if let OperatorKind::Source(source) = &operator.kind {
                let own = Arc::new(SourceCounters::default());
                counters.sources.push((id, Arc::clone(&own)));
                let number = task;
                let task = counters.add_task(id, task, TaskCounters::of_source(Arc::clone(&own)));
                if let Some(opened) = opened.remove(&id) {
                    let task = TableTask {
                        table: source.stream.clone(),
                        opened,
                        projection: source.projection.iter().map(|column| *column as usize).collect(),
                        schema: source.schema(),
                        policy: dag.epochs,
                        version: tables.watch_version(),
                        outbox,
                        control: control.clone(),
                        counters: own,
                        meter: Meter::new(&control.clock, task),
                    };
                    tasks.push(in_span(name, task.run()));
                    continue;
                }
                let split = Split { number, of: operator.tasks };
                let source = SourceTask {
                    stream: if operator.tasks == 1 {
                        source.stream.clone()
                    } else {
                        format!("{}, split {} of {}", source.stream, number + 1, operator.tasks)
                    },
                    reader: reader_for(source, split, &dag.filters(id), &own)?,
                    policy: dag.epochs,
                    constant: matches!(source.spec, SourceSpec::Values(_)),
                    outbox,
                    meter: Meter::new(&control.clock, task),
                    control: control.clone(),
                    counters: own,
                };
                let tasks = if source.reader.waits() == Waits::ForWriter { &mut waiting } else { &mut tasks };
                tasks.push(in_span(name, source.run()));
                continue;
            }
            let (inbox, ports) = wiring.inbox(id, task)?;
            let own = match &operator.kind {
                OperatorKind::Join(_) => TaskCounters::of_join(),
                _ => TaskCounters::default(),
            };
            let task = OperatorTask {
                label: dag.label(id),
                operator: operator_for(dag, id)?,
                inbox,
                ports,
                outbox,
                meter: Meter::new(&control.clock, counters.add_task(id, task, own)),
                control: control.clone(),
                is_sink,
            };
            tasks.push(in_span(name, task.run()));
        }
    }
    let Wiring { outgoing, mut inboxes, .. } = wiring;
    inboxes.retain(|(id, _), _| share.has_senders_elsewhere(*id));
    if dag.parallelism == 1 {
        tasks = vec![Box::pin(in_turns(tasks))];
    }
    tasks.append(&mut waiting);
    Ok(Instance { tasks, results, outgoing, inboxes, counters: Arc::new(counters) })
}

/// A task in a span of its name, for the logs.
fn in_span(
    name: impl Fn() -> String,
    task: impl Future<Output = Result<(), ExecError>> + Send + 'static,
) -> TaskFuture {
    Box::pin(task.instrument(info_span!("task", name = name())))
}

impl Share<'_> {
    /// The tasks of an operator that are of this process.
    fn tasks_here(&self, id: OperatorId) -> impl Iterator<Item = u32> + use<'_> {
        (0..).zip(self.placement.of(id)).filter(|(_, process)| **process == self.here).map(|(task, _)| task)
    }

    fn has_senders_elsewhere(&self, id: OperatorId) -> bool {
        let mut edges = self.dag.edges.iter().filter(|edge| edge.to == id);
        edges.any(|edge| self.placement.of(edge.from).iter().any(|process| *process != self.here))
    }
}

/// The stored tables that the share reads, all as they are at one commit.
fn open_tables(share: &Share<'_>, tables: &Tables) -> Result<BTreeMap<OperatorId, Opened>, ExecError> {
    let here = (0..).map(OperatorId).zip(&share.dag.operators).filter(|(id, _)| share.tasks_here(*id).next().is_some());
    let sources = here.filter_map(|(id, operator)| match &operator.kind {
        OperatorKind::Source(Source { spec: SourceSpec::Table(table), bounded, .. }) => Some((id, (*table, !bounded))),
        _ => None,
    });
    let (ids, wanted): (Vec<_>, Vec<_>) = sources.unzip();
    Ok(ids.into_iter().zip(tables.open(&wanted)?).collect())
}

/// The operator of one task of `id`.
///
/// # Errors
/// A source, which takes no input, or a plan that this build cannot run.
pub fn operator_for(dag: &Dag, id: OperatorId) -> Result<Box<dyn Operator>, ExecError> {
    let operator = dag.operator(id);
    let schema = Arc::clone(&operator.schema);
    Ok(match &operator.kind {
        OperatorKind::Join(join) => Box::new(Cell::new(Arc::new(join.as_ref().clone()), schema)?),
        OperatorKind::Aggregate(aggregate) if matches!(aggregate.phase, Phase::Partial(_)) => {
            let taken = dag.inputs(id).into_values().flatten().next();
            let taken = taken.map(|edge| Arc::clone(dag.taken_schema(edge)));
            let taken = taken.ok_or_else(|| ExecError::Internal("an aggregate without input".to_owned()))?;
            Box::new(PartialAggregation::new(aggregate.clone(), &taken, schema)?)
        }
        OperatorKind::Aggregate(aggregate) => Box::new(Aggregation::new(Arc::new(aggregate.clone()), schema)?),
        OperatorKind::Sink(sink) => sink_for(sink, schema, operator.retracts)?,
        OperatorKind::Source(_) => {
            return Err(ExecError::Internal("a source takes no input".to_owned()));
        }
    })
}

/// The edges into an operator, with the channels of each at every task of it: one per sending task.
pub fn channels(dag: &Dag, id: OperatorId) -> impl Iterator<Item = (&Edge, Range<u32>)> {
    let mut next = 0;
    dag.edges.iter().filter(move |edge| edge.to == id).map(move |edge| {
        let first = next;
        next += dag.operator(edge.from).tasks;
        (edge, first..next)
    })
}

/// The channels of a share.
struct Wiring<'a> {
    share: Share<'a>,
    /// The inboxes of the tasks that are here, until they are taken.
    receivers: BTreeMap<(OperatorId, u32), mpsc::Receiver<Envelope>>,
    inboxes: BTreeMap<(OperatorId, u32), mpsc::Sender<Envelope>>,
    /// The queues to other processes, by edge.
    queues: BTreeMap<(usize, Process), mpsc::Sender<Addressed>>,
    outgoing: Vec<Outgoing>,
}

impl<'a> Wiring<'a> {
    fn new(share: &Share<'a>) -> Self {
        let (mut inboxes, mut receivers) = (BTreeMap::new(), BTreeMap::new());
        for id in (0..share.dag.operators.len() as u32).map(OperatorId) {
            for task in share.tasks_here(id) {
                let (to, from) = mpsc::channel(INBOX);
                inboxes.insert((id, task), to);
                receivers.insert((id, task), from);
            }
        }
        Self { share: *share, receivers, inboxes, queues: BTreeMap::new(), outgoing: Vec::new() }
    }

    /// The inbox of a task and the port of each of its channels.
    fn inbox(&mut self, id: OperatorId, task: u32) -> Result<(mpsc::Receiver<Envelope>, Vec<u8>), ExecError> {
        let ports = channels(self.share.dag, id).flat_map(|(edge, channels)| channels.map(|_| edge.port)).collect();
        let inbox = self.receivers.remove(&(id, task));
        let inbox = inbox.ok_or_else(|| ExecError::Internal("an inbox has one task".to_owned()))?;
        Ok((inbox, ports))
    }

    /// The tasks of an edge's receiver.
    fn targets(&mut self, number: usize, edge: &Edge) -> Result<Vec<Target>, ExecError> {
        let here = self.share.here;
        let target = |(task, process): (u32, &Process)| {
            if *process == here {
                let inbox = self.inboxes.get(&(edge.to, task));
                let inbox = inbox.ok_or_else(|| ExecError::Internal("a task has an inbox".to_owned()))?;
                return Ok(Target::Here(inbox.clone()));
            }
            let queue = self.queues.entry((number, *process)).or_insert_with(|| {
                let (queue, receiver) = mpsc::channel(QUEUE);
                self.outgoing.push(Outgoing { edge: number as u32, to: *process, queue: receiver });
                queue
            });
            Ok(Target::Elsewhere(queue.clone()))
        };
        (0..).zip(self.share.placement.of(edge.to)).map(target).collect()
    }

    /// The edges out of a task.
    fn out_edges(
        &mut self,
        id: OperatorId,
        task: u32,
        counters: &mut QueryCounters,
    ) -> Result<Vec<OutEdge>, ExecError> {
        let mut out = Vec::new();
        let dag = self.share.dag;
        for (number, edge) in dag.edges.iter().enumerate().filter(|(_, edge)| edge.from == id) {
            let sender = dag.operator(id);
            let receiver = dag.operator(edge.to);
            let schema = dag.taken_schema(edge);
            // A row and its delete may come from different senders, and must meet in one cell.
            let (layout, retracts) = match &receiver.kind {
                OperatorKind::Join(join) => (Some(&join.layout), join.retracts[usize::from(edge.port)]),
                _ => (None, sender.retracts),
            };
            let own = channels(dag, edge.to).find(|(other, _)| std::ptr::eq(*other, edge));
            let first = own.map_or(0, |(_, channels)| channels.start);
            let own = Arc::new(EdgeCounters::default());
            counters.edges.push((number, Arc::clone(&own)));
            let mut nearby: Vec<u32> = self.share.tasks_here(edge.to).collect();
            if nearby.is_empty() {
                nearby.extend(0..receiver.tasks);
            }
            let receivers = Receivers { tasks: receiver.tasks, nearby, layout };
            out.push(OutEdge {
                steps: Steps::new(&edge.steps, &sender.schema)?,
                route: route_for(&edge.exchange, receivers, schema, retracts, task)?,
                channel: first + task,
                targets: self.targets(number, edge)?,
                counters: own,
            });
        }
        Ok(out)
    }
}
