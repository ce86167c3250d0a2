//! A DAG to its tasks and channels, all in one process.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use thetis_planner::connector::SourceSpec;
use thetis_planner::physical::{Dag, Edge, OperatorId, OperatorKind, Phase, Source};
use tokio::sync::mpsc;

use crate::aggregate::{Aggregation, PartialAggregation};
use crate::counters::{EdgeCounters, Meter, QueryCounters, TaskCounters};
use crate::error::ExecError;
use crate::join::cell::Cell;
use crate::operator::Operator;
use crate::route::route_for;
use crate::sink::sink_for;
use crate::source::{SourceCounters, reader_for};
use crate::steps::Steps;
use crate::table::{Opened, TableTask, Tables};
use crate::task::{Control, Delivery, Envelope, OperatorTask, OutEdge, Outbox, SourceTask};

/// Messages that an inbox holds.
const INBOX: usize = 64;
/// Deliveries that wait for the client.
const CLIENT_QUEUE: usize = 4;

/// A task that is ready to run.
pub type TaskFuture = Pin<Box<dyn Future<Output = Result<(), ExecError>> + Send>>;

/// The tasks of a query and what they deliver.
pub struct Instance {
    /// To be run, all of them.
    pub tasks: Vec<TaskFuture>,
    /// What the sink delivers.
    pub results: mpsc::Receiver<Delivery>,
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

/// Makes the tasks of `dag`.
///
/// # Errors
/// A source that cannot be opened, a plan that this build cannot run.
pub fn instantiate(dag: &Dag, control: &Control, tables: &Tables) -> Result<Instance, ExecError> {
    let mut opened = open_tables(dag, tables)?;
    let (client, results) = mpsc::channel(CLIENT_QUEUE);
    let mut wiring = Wiring::new(dag);
    let mut counters = QueryCounters::start(&control.clock);
    let mut tasks: Vec<TaskFuture> = Vec::new();
    for (id, operator) in (0..).map(OperatorId).zip(&dag.operators) {
        for task in 0..operator.tasks {
            let is_sink = matches!(operator.kind, OperatorKind::Sink(_));
            let outbox = if is_sink {
                Outbox::Client(client.clone())
            } else {
                Outbox::Edges(wiring.out_edges(id, task, &mut counters)?)
            };
            if let OperatorKind::Source(source) = &operator.kind {
                let own = Arc::new(SourceCounters::default());
                counters.sources.push((id, Arc::clone(&own)));
                let task = counters.add_task(id, TaskCounters::of_source(Arc::clone(&own)));
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
                    tasks.push(Box::pin(task.run()));
                    continue;
                }
                let source = SourceTask {
                    stream: source.stream.clone(),
                    reader: reader_for(source, &dag.filters(id), &own)?,
                    policy: dag.epochs,
                    constant: matches!(source.spec, SourceSpec::Values(_)),
                    outbox,
                    meter: Meter::new(&control.clock, task),
                    control: control.clone(),
                    counters: own,
                };
                tasks.push(Box::pin(source.run()));
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
                meter: Meter::new(&control.clock, counters.add_task(id, own)),
                control: control.clone(),
                is_sink,
            };
            tasks.push(Box::pin(task.run()));
        }
    }
    Ok(Instance { tasks, results, counters: Arc::new(counters) })
}

/// The stored tables that the DAG reads, all as they are at one commit.
fn open_tables(dag: &Dag, tables: &Tables) -> Result<BTreeMap<OperatorId, Opened>, ExecError> {
    let sources = (0..).map(OperatorId).zip(&dag.operators).filter_map(|(id, operator)| match &operator.kind {
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

/// The channels of a DAG.
struct Wiring<'a> {
    dag: &'a Dag,
    senders: Vec<Vec<mpsc::Sender<Envelope>>>,
    receivers: Vec<Vec<Option<mpsc::Receiver<Envelope>>>>,
}

impl<'a> Wiring<'a> {
    fn new(dag: &'a Dag) -> Self {
        let mut senders = Vec::new();
        let mut receivers = Vec::new();
        for operator in &dag.operators {
            let channels: Vec<_> = (0..operator.tasks).map(|_| mpsc::channel(INBOX)).collect();
            let (to, from): (Vec<_>, Vec<_>) = channels.into_iter().map(|(to, from)| (to, Some(from))).unzip();
            senders.push(to);
            receivers.push(from);
        }
        Self { dag, senders, receivers }
    }

    /// The edges into an operator, with the number of the first channel of each: one channel per
    /// sending task.
    fn channels(&self, id: OperatorId) -> impl Iterator<Item = (&'a Edge, u32)> + use<'a> {
        let mut next = 0;
        let dag = self.dag;
        dag.edges.iter().filter(move |edge| edge.to == id).map(move |edge| {
            let first = next;
            next += dag.operator(edge.from).tasks;
            (edge, first)
        })
    }

    /// The inbox of a task and the port of each of its channels.
    fn inbox(&mut self, id: OperatorId, task: u32) -> Result<(mpsc::Receiver<Envelope>, Vec<u8>), ExecError> {
        let ports = self
            .channels(id)
            .flat_map(|(edge, _)| std::iter::repeat_n(edge.port, self.dag.operator(edge.from).tasks as usize))
            .collect();
        let inbox = self.receivers[id.0 as usize][task as usize].take();
        let inbox = inbox.ok_or_else(|| ExecError::Internal("an inbox has one task".to_owned()))?;
        Ok((inbox, ports))
    }

    /// The edges out of a task.
    fn out_edges(&self, id: OperatorId, task: u32, counters: &mut QueryCounters) -> Result<Vec<OutEdge>, ExecError> {
        let mut out = Vec::new();
        for (number, edge) in self.dag.edges.iter().enumerate().filter(|(_, edge)| edge.from == id) {
            let sender = self.dag.operator(id);
            let receiver = self.dag.operator(edge.to);
            let schema = self.dag.taken_schema(edge);
            // A row and its delete may come from different senders, and must meet in one cell.
            let (layout, retracts) = match &receiver.kind {
                OperatorKind::Join(join) => (Some(&join.layout), join.retracts[usize::from(edge.port)]),
                _ => (None, sender.retracts),
            };
            let first =
                self.channels(edge.to).find(|(other, _)| std::ptr::eq(*other, edge)).map_or(0, |(_, first)| first);
            let own = Arc::new(EdgeCounters::default());
            counters.edges.push((number, Arc::clone(&own)));
            out.push(OutEdge {
                steps: Steps::new(&edge.steps, &sender.schema)?,
                route: route_for(&edge.exchange, receiver.tasks, schema, layout, retracts, task)?,
                targets: self.senders[edge.to.0 as usize].iter().map(|inbox| (inbox.clone(), first + task)).collect(),
                counters: own,
            });
        }
        Ok(out)
    }
}
