//! How a coordinator's workers, queries and tasks are, as plain rows.

use std::collections::BTreeMap;

use thetis_planner::explain::TaskMeasured;
use thetis_planner::physical::OperatorId;

use crate::coordinator::{Coordinator, QueryStatus};
use crate::front::protocol::{QueryRow, Status, TaskRow, WorkerRow};

/// What a coordinator knows. An embedded engine has no workers.
pub(crate) fn status_of(coordinator: &Coordinator) -> Status {
    let queries = coordinator.queries();
    let mut load: BTreeMap<&str, u32> = BTreeMap::new();
    for worker in queries.iter().flat_map(|query| query.placement.iter().flatten().flatten()) {
        *load.entry(worker).or_default() += 1;
    }
    let workers = coordinator.registry().map_or_else(Vec::new, |registry| registry.status());
    let worker_row = |worker: crate::coordinator::WorkerStatus| WorkerRow {
        tasks: load.get(worker.name.as_str()).copied().unwrap_or(0),
        name: worker.name,
        address: worker.address,
        state: worker.state.to_owned(),
        slots: worker.slots,
        silence: worker.silence,
    };
    Status {
        workers: workers.into_iter().map(worker_row).collect(),
        queries: queries.iter().map(query_row).collect(),
        tasks: queries.iter().flat_map(task_rows).collect(),
        ..Status::default()
    }
}

fn query_row(query: &QueryStatus) -> QueryRow {
    let measured = query.counted.measured();
    QueryRow {
        id: query.id.0,
        runs: query.counted.wall,
        tasks: query.placement.iter().map(|tasks| tasks.len() as u32).sum(),
        rows_in: query.counted.sources.iter().map(|source| source.rows).sum(),
        rows_out: measured.rows_out,
        epoch: measured.epochs,
    }
}

fn task_rows(query: &QueryStatus) -> Vec<TaskRow> {
    let row = |(id, counted): (&(OperatorId, u32), &TaskMeasured)| {
        let (operator, number) = *id;
        let tasks = query.placement.get(operator.0 as usize);
        let worker = tasks.and_then(|tasks| tasks.get(number as usize)).and_then(Clone::clone);
        TaskRow {
            query: query.id.0,
            task: format!("{}#{number}", query.dag.label(operator)),
            worker: worker.unwrap_or_else(|| "coordinator".to_owned()),
            rows_in: counted.rows_in,
            rows_out: counted.rows_out,
            busy: counted.busy,
            blocked: counted.blocked,
            idle: query.counted.wall.saturating_sub(counted.busy + counted.blocked),
            queue: counted.queue,
            bytes: counted.source.map_or(0, |source| source.bytes),
        }
    };
    query.counted.tasks.iter().map(row).collect()
}
