//! Which process runs which task: plain functions on plain data.
//!
//! A slot is a share of a worker. Tasks are dealt to slots in turn; the cells of one row of a matrix, and of
//! one column, go to different workers where there are enough, so that the loss of a worker takes as
//! little as possible of either side.

use std::collections::BTreeSet;

use thetis_executor::query::{Placement, Process};
use thetis_planner::connector::SourceSpec;
use thetis_planner::layout::Layout;
use thetis_planner::physical::{Dag, OperatorKind};

/// The coordinator's process: it has the stored tables, and the way to the client.
pub const COORDINATOR: Process = Process(0);

/// Whether a plan is so small that the coordinator runs it: no join, nothing to read but tables and
/// constants.
pub fn is_small(dag: &Dag) -> bool {
    dag.operators.iter().all(|operator| match &operator.kind {
        OperatorKind::Join(_) => false,
        OperatorKind::Source(source) => matches!(source.spec, SourceSpec::Table(_) | SourceSpec::Values(_)),
        OperatorKind::Aggregate(_) | OperatorKind::Sink(_) => true,
    })
}

/// Places the tasks of `dag` on workers with so many slots each.
pub fn place(dag: &Dag, workers: &[(Process, u32)]) -> Placement {
    let slots = deal(workers);
    if slots.is_empty() {
        return Placement::alone(dag, COORDINATOR);
    }
    // The next operator begins where the one before has ended: slots get equal shares.
    let mut next = 0;
    let processes = dag.operators.iter().map(|operator| {
        let count = operator.tasks as usize;
        match &operator.kind {
            OperatorKind::Sink(_) => vec![COORDINATOR; count],
            OperatorKind::Source(source) if matches!(source.spec, SourceSpec::Table(_)) => vec![COORDINATOR; count],
            OperatorKind::Join(join) => place_cells(&join.layout, count, &slots),
            OperatorKind::Source(_) | OperatorKind::Aggregate(_) => {
                let placed = (0..count).map(|task| slots[(next + task) % slots.len()]).collect();
                next = (next + count) % slots.len();
                placed
            }
        }
    });
    Placement { processes: processes.collect() }
}

/// The slots of all workers in turn: first one of each, then the second one of those that have more.
fn deal(workers: &[(Process, u32)]) -> Vec<Process> {
    let most = workers.iter().map(|(_, slots)| *slots).max().unwrap_or(0);
    let round = |round| workers.iter().filter(move |(_, slots)| *slots > round).map(|(process, _)| *process);
    (0..most).flat_map(round).collect()
}

/// The processes of a join's cells. Row i of a region begins `stride` slots after row i - 1; of all strides
/// the one with the fewest cells of one row or column on one process, then with the most even load.
fn place_cells(layout: &Layout, cells: usize, slots: &[Process]) -> Vec<Process> {
    let by_stride = (0..slots.len()).map(|stride| {
        let mut placed = vec![slots[0]; cells];
        let mut start = 0;
        for region in &layout.regions {
            let columns = region.shape.columns as usize;
            for (i, cell) in region.cells.iter().enumerate() {
                let (row, column) = (i / columns, i % columns);
                // A region of one cell is like a task of any other operator.
                if let Some(place) = placed.get_mut(*cell as usize) {
                    *place = slots[(start + row * stride + column) % slots.len()];
                }
            }
            start += region.cells.len();
        }
        placed
    });
    by_stride.min_by_key(|placed| (conflicts(layout, placed), heaviest(placed))).unwrap_or_default()
}

/// Cells that share their process with another one of their row or column.
fn conflicts(layout: &Layout, placed: &[Process]) -> usize {
    let mut conflicts = 0;
    for region in &layout.regions {
        let (rows, columns) = (region.shape.rows as usize, region.shape.columns as usize);
        let process = |row: usize, column: usize| placed.get(region.cells[row * columns + column] as usize);
        for row in 0..rows {
            conflicts += columns - (0..columns).map(|column| process(row, column)).collect::<BTreeSet<_>>().len();
        }
        for column in 0..columns {
            conflicts += rows - (0..rows).map(|row| process(row, column)).collect::<BTreeSet<_>>().len();
        }
    }
    conflicts
}

fn heaviest(placed: &[Process]) -> usize {
    let count = |process: &Process| placed.iter().filter(|other| *other == process).count();
    placed.iter().map(count).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thetis_planner::layout::{Partitioning, Region};
    use thetis_planner::sizing::Shape;

    fn region(rows: u32, columns: u32) -> Layout {
        let cells = (0..rows * columns).collect();
        let regions = vec![Region { shape: Shape { rows, columns }, cells }];
        Layout { version: 1, first_epoch: 1, partitioning: Partitioning::Any, regions, bucket_regions: vec![0] }
    }

    proptest::proptest! {
        #[test]
        fn cells_of_a_row_or_column_are_apart_if_there_are_enough_workers(
            rows in 1_u32..5, columns in 1_u32..5, more in 0_u32..4, slots in 1_u32..4,
        ) {
            let workers: Vec<_> = (1..=rows.max(columns) + more).map(|process| (Process(process), slots)).collect();
            let layout = region(rows, columns);
            let placed = place_cells(&layout, (rows * columns) as usize, &deal(&workers));
            assert_eq!(conflicts(&layout, &placed), 0, "{placed:?}");
            assert!(heaviest(&placed) <= (rows.min(columns) as usize));
        }

        #[test]
        fn as_many_cells_as_slots_fill_them(rows in 1_u32..6, columns in 1_u32..6) {
            let workers: Vec<_> = (1..=rows * columns).map(|process| (Process(process), 1)).collect();
            let placed = place_cells(&region(rows, columns), workers.len(), &deal(&workers));
            assert_eq!(heaviest(&placed), 1);
        }
    }

    #[test]
    fn slots_are_dealt_in_turn() {
        let [a, b, c] = [1, 2, 3].map(Process);
        assert_eq!(deal(&[(a, 1), (b, 3), (c, 2)]), [a, b, c, b, c, b]);
        assert_eq!(deal(&[]), []);
    }
}
