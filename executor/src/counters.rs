//! What a running query counts, for its progress and for EXPLAIN ANALYZE. Each counter has one
//! writer, its task, which adds to it per frame; anybody may read it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thetis_planner::explain::{EdgeMeasured, JoinMeasured, Measured, SourceMeasured, TaskMeasured};
use thetis_planner::physical::OperatorId;

use crate::clock::Clock;
use crate::frame::Frame;
use crate::operator::Counted;
use crate::source::SourceCounters;

/// Counters of a query.
#[derive(Debug)]
pub struct QueryCounters {
    clock: Arc<dyn Clock>,
    started: Duration,
    /// Of each source.
    pub sources: Vec<(OperatorId, Arc<SourceCounters>)>,
    /// Of each task (of an operator, its number), sources among them.
    pub tasks: Vec<(OperatorId, u32, Arc<TaskCounters>)>,
    /// Of each edge (its position in the DAG), of each sending task.
    pub edges: Vec<(usize, Arc<EdgeCounters>)>,
}

/// What a task has done.
#[derive(Debug, Default)]
pub struct TaskCounters {
    rows_in: AtomicU64,
    frames_in: AtomicU64,
    rows_out: AtomicU64,
    frames_out: AtomicU64,
    busy_nanoseconds: AtomicU64,
    blocked_nanoseconds: AtomicU64,
    queue: AtomicU64,
    join: Option<JoinCounters>,
    source: Option<Arc<SourceCounters>>,
}

#[derive(Debug, Default)]
struct JoinCounters {
    examined: AtomicU64,
    kept: AtomicU64,
    stored: [AtomicU64; 2],
    state_bytes: AtomicU64,
}

/// What an edge of a sending task has carried.
#[derive(Debug, Default)]
pub struct EdgeCounters {
    /// Rows that have a target.
    pub routed: AtomicU64,
    /// Rows that were delivered: more, where rows are copied.
    pub delivered: AtomicU64,
}

impl QueryCounters {
    /// Counters of a query that starts now.
    pub(crate) fn start(clock: &Arc<dyn Clock>) -> Self {
        let (clock, started) = (Arc::clone(clock), clock.now());
        Self { clock, started, sources: Vec::new(), tasks: Vec::new(), edges: Vec::new() }
    }

    pub(crate) fn add_task(&mut self, operator: OperatorId, task: u32, counters: TaskCounters) -> Arc<TaskCounters> {
        let counters = Arc::new(counters);
        self.tasks.push((operator, task, Arc::clone(&counters)));
        counters
    }

    /// What has been counted until now.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot { wall: self.clock.now().saturating_sub(self.started), ..Snapshot::default() };
        snapshot.sources.extend(self.sources.iter().map(|(operator, source)| source.read(*operator)));
        for (operator, task, counters) in &self.tasks {
            snapshot.tasks.insert((*operator, *task), counters.measured());
        }
        for (edge, counters) in &self.edges {
            let sum = place(&mut snapshot.edges, *edge);
            sum.routed += counters.routed.load(Ordering::Relaxed);
            sum.delivered += counters.delivered.load(Ordering::Relaxed);
        }
        snapshot
    }
}

/// What the tasks of one process, or of several, have counted at some time.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Since the start.
    pub wall: Duration,
    /// Of each source task.
    pub sources: Vec<SourceSnapshot>,
    /// By operator and number of the task.
    pub tasks: BTreeMap<(OperatorId, u32), TaskMeasured>,
    /// By edge of the DAG.
    pub edges: Vec<EdgeMeasured>,
}

/// What a source task has read.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct SourceSnapshot {
    /// Its operator.
    pub operator: OperatorId,
    /// Rows given out.
    pub rows: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Bytes that there are to read; 0 when that is not known.
    pub total_bytes: u64,
    /// Records that could not be read and were skipped.
    pub skipped: u64,
    /// The last epoch that has rows.
    pub epoch: u64,
    /// The epoch of the last row, once all are read; 0 before.
    pub last_epoch: u64,
}

impl Snapshot {
    /// Adds what another process has counted of the same query.
    pub fn merge(&mut self, other: Self) {
        self.wall = self.wall.max(other.wall);
        self.sources.extend(other.sources);
        self.tasks.extend(other.tasks);
        for (edge, counted) in other.edges.into_iter().enumerate() {
            let sum = place(&mut self.edges, edge);
            sum.routed += counted.routed;
            sum.delivered += counted.delivered;
            sum.sent_bytes += counted.sent_bytes;
            sum.sent_payload += counted.sent_payload;
        }
    }

    /// Adds what an edge has sent to other processes.
    pub fn add_sent(&mut self, edge: usize, bytes: u64, payload: u64) {
        let sum = place(&mut self.edges, edge);
        sum.sent_bytes += bytes;
        sum.sent_payload += payload;
    }

    /// What EXPLAIN ANALYZE shows.
    pub fn measured(&self) -> Measured {
        let mut tasks: Vec<Vec<TaskMeasured>> = Vec::new();
        for ((operator, _), task) in &self.tasks {
            place(&mut tasks, operator.0 as usize).push(*task);
        }
        let rows_out = tasks.last().into_iter().flatten().map(|task| task.rows_out).sum();
        let epochs = self.sources.iter().map(|source| source.epoch).max().unwrap_or(0);
        Measured { wall: self.wall, epochs, rows_out, tasks, edges: self.edges.clone() }
    }
}

/// The element at `index` of a list that is as long as it must be.
fn place<T: Default>(list: &mut Vec<T>, index: usize) -> &mut T {
    if list.len() <= index {
        list.resize_with(index + 1, T::default);
    }
    &mut list[index]
}

impl TaskCounters {
    /// Of a cell.
    pub(crate) fn of_join() -> Self {
        Self { join: Some(JoinCounters::default()), ..Self::default() }
    }

    /// Of a source that counts what it reads.
    pub(crate) fn of_source(source: Arc<SourceCounters>) -> Self {
        Self { source: Some(source), ..Self::default() }
    }

    pub(crate) fn add_in(&self, frame: &Frame) {
        add(&self.rows_in, frame.rows() as u64);
        add(&self.frames_in, 1);
    }

    pub(crate) fn add_out(&self, frame: &Frame) {
        add(&self.rows_out, frame.rows() as u64);
        add(&self.frames_out, 1);
    }

    /// So many messages wait for it.
    pub(crate) fn set_queue(&self, messages: usize) {
        self.queue.store(messages as u64, Ordering::Relaxed);
    }

    /// What a cell has counted itself.
    pub(crate) fn set_join(&self, counted: Counted) {
        if let Some(join) = &self.join {
            join.examined.store(counted.examined, Ordering::Relaxed);
            join.kept.store(counted.kept, Ordering::Relaxed);
            for (counter, rows) in join.stored.iter().zip(counted.stored) {
                counter.store(rows, Ordering::Relaxed);
            }
        }
    }

    /// What a cell keeps.
    pub(crate) fn set_state_bytes(&self, bytes: usize) {
        if let Some(join) = &self.join {
            join.state_bytes.store(bytes as u64, Ordering::Relaxed);
        }
    }

    fn measured(&self) -> TaskMeasured {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TaskMeasured {
            rows_in: get(self.source.as_ref().map_or(&self.rows_in, |source| &source.rows)),
            frames_in: get(&self.frames_in),
            rows_out: get(&self.rows_out),
            frames_out: get(&self.frames_out),
            busy: Duration::from_nanos(get(&self.busy_nanoseconds)),
            blocked: Duration::from_nanos(get(&self.blocked_nanoseconds)),
            queue: get(&self.queue),
            join: self.join.as_ref().map(|join| JoinMeasured {
                examined: get(&join.examined),
                kept: get(&join.kept),
                stored: join.stored.each_ref().map(get),
                state_bytes: get(&join.state_bytes),
            }),
            source: self.source.as_ref().map(|source| SourceMeasured {
                bytes: get(&source.bytes),
                skipped: get(&source.skipped),
                left_out: get(&source.left_out),
            }),
        }
    }
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Divides the time of a task: what passes between two calls was work, or waiting for room
/// downstream, or neither.
#[derive(Debug)]
pub(crate) struct Meter {
    clock: Arc<dyn Clock>,
    last: Duration,
    pub(crate) counters: Arc<TaskCounters>,
}

impl Meter {
    pub(crate) fn new(clock: &Arc<dyn Clock>, counters: Arc<TaskCounters>) -> Self {
        Self { clock: Arc::clone(clock), last: clock.now(), counters }
    }

    /// Work begins; what has passed since the last call counts for nothing.
    pub(crate) fn begin(&mut self) {
        self.last = self.clock.now();
    }

    /// The time since the last call was work.
    pub(crate) fn worked(&mut self) {
        let passed = self.passed();
        add(&self.counters.busy_nanoseconds, passed);
    }

    /// The time since the last call went by in waiting for room.
    pub(crate) fn waited(&mut self) {
        let passed = self.passed();
        add(&self.counters.blocked_nanoseconds, passed);
    }

    fn passed(&mut self) -> u64 {
        let now = self.clock.now();
        let passed = now.saturating_sub(self.last);
        self.last = now;
        u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::VirtualClock;

    #[test]
    fn time_is_work_or_waiting_or_neither() {
        let virtual_clock = Arc::new(VirtualClock::default());
        let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(&virtual_clock);
        let counters = Arc::new(TaskCounters::default());
        let mut meter = Meter::new(&clock, Arc::clone(&counters));
        let pass = |milliseconds| virtual_clock.advance(Duration::from_millis(milliseconds));
        pass(1);
        meter.begin();
        pass(2);
        meter.worked();
        pass(4);
        meter.waited();
        pass(8);
        meter.worked();
        let measured = counters.measured();
        assert_eq!((measured.busy, measured.blocked), (Duration::from_millis(10), Duration::from_millis(4)));
    }
}
