//! How the rows of an edge choose their target tasks.
//!
//! Invariant: a `gather`, `spread` or `hash` route delivers every row exactly once; a `matrix` route
//! delivers it once to each cell that the layout names for one of its units.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion_common::hash_utils::{RandomState, create_hashes};
use datafusion_physical_expr::PhysicalExpr;
use thetis_planner::layout::{BUCKETS, Layout, Partitioning, Reach, SLICES};
use thetis_planner::physical::{Exchange, Side};
use thetis_planner::theta::SURE;

use crate::error::ExecError;
use crate::exact::canonical_floats;
use crate::frame::{Frame, Units};
use crate::join::keys::{RangeKey, slack};
use crate::steps::{compile_all, evaluate};

/// Chooses target tasks for frames. `out` gets (task, frame) pairs; the result is the number of
/// rows that have a target: rows of a join with a NULL key have none.
pub trait Route: Send + std::fmt::Debug {
    /// Routes one frame.
    ///
    /// # Errors
    /// A key cannot be computed.
    fn route(&mut self, frame: Frame, out: &mut Vec<(u32, Frame)>) -> Result<usize, ExecError>;
}

/// Who receives the rows of an edge.
#[derive(Debug)]
pub struct Receivers<'a> {
    /// Number of tasks.
    pub tasks: u32,
    /// The tasks that are chosen where any will do, not empty: those of the sender's process, if it has any.
    pub nearby: Vec<u32>,
    /// The layout, of a join.
    pub layout: Option<&'a Layout>,
}

/// The route of an exchange, for rows of `schema`. `retracts` says that deletes can come, `seed`
/// differs between senders.
///
/// # Errors
/// Keys that this build cannot compute.
pub fn route_for(
    exchange: &Exchange,
    receivers: Receivers<'_>,
    schema: &SchemaRef,
    retracts: bool,
    seed: u32,
) -> Result<Box<dyn Route + Sync>, ExecError> {
    let Receivers { tasks, nearby, layout } = receivers;
    Ok(match exchange {
        Exchange::Gather => Box::new(Gather),
        Exchange::Spread => Box::new(Spread { next: seed as usize % nearby.len(), tasks: nearby }),
        Exchange::Hash(_) if tasks == 1 => Box::new(Gather),
        Exchange::Hash(keys) => Box::new(Hash { keys: compile_all(keys, schema)?, tasks }),
        Exchange::Matrix(side) => {
            let layout = layout.ok_or_else(|| ExecError::Internal("a matrix route without a layout".to_owned()))?;
            Box::new(Matrix::new(*side, layout, schema, retracts, seed)?)
        }
    })
}

/// Seed of all hashes that tasks must agree on.
pub(crate) fn shared_hasher() -> RandomState {
    RandomState::with_seed(0x7468_6574_6973)
}

/// One hash per row over some columns.
pub(crate) fn hash_rows(columns: &[ArrayRef], rows: usize) -> Result<Vec<u64>, ExecError> {
    let mut hashes = vec![0; rows];
    create_hashes(columns, &shared_hasher(), &mut hashes)?;
    Ok(hashes)
}

/// Everything to task 0.
#[derive(Debug)]
struct Gather;

impl Route for Gather {
    fn route(&mut self, frame: Frame, out: &mut Vec<(u32, Frame)>) -> Result<usize, ExecError> {
        let rows = frame.rows();
        out.push((0, frame));
        Ok(rows)
    }
}

/// One frame to each task in turn.
#[derive(Debug)]
struct Spread {
    /// Position in `tasks`.
    next: usize,
    tasks: Vec<u32>,
}

impl Route for Spread {
    fn route(&mut self, frame: Frame, out: &mut Vec<(u32, Frame)>) -> Result<usize, ExecError> {
        let rows = frame.rows();
        out.push((self.tasks[self.next], frame));
        self.next = (self.next + 1) % self.tasks.len();
        Ok(rows)
    }
}

/// By the hash of keys.
#[derive(Debug)]
struct Hash {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    tasks: u32,
}

impl Route for Hash {
    fn route(&mut self, frame: Frame, out: &mut Vec<(u32, Frame)>) -> Result<usize, ExecError> {
        let keys = values(&self.keys, &frame)?;
        let all = frame.rows();
        let hashes = hash_rows(&keys, all)?;
        let mut targets: Vec<Vec<u32>> = vec![Vec::new(); self.tasks as usize];
        for (row, hash) in (0..).zip(hashes) {
            targets[(hash % u64::from(self.tasks)) as usize].push(row);
        }
        for (task, rows) in (0..).zip(targets) {
            if rows.len() == all {
                out.push((task, frame));
                return Ok(all);
            }
            if !rows.is_empty() {
                out.push((task, take_rows(&frame, &rows)?));
            }
        }
        Ok(all)
    }
}

/// The values of keys, those that are equal the same.
fn values(keys: &[Arc<dyn PhysicalExpr>], frame: &Frame) -> Result<Vec<ArrayRef>, ExecError> {
    Ok(keys.iter().map(|key| evaluate(key, &frame.batch).map(canonical_floats)).collect::<Result<_, _>>()?)
}

fn take_rows(frame: &Frame, rows: &[u32]) -> Result<Frame, ExecError> {
    let batch = take_record_batch(&frame.batch, &UInt32Array::from(rows.to_vec()))?;
    let weights = frame.weights.as_ref().map(|weights| rows.iter().map(|row| weights[*row as usize]).collect());
    Ok(frame.with_rows(batch, weights))
}

/// To the cells of a join.
#[derive(Debug)]
struct Matrix {
    side: Side,
    layout: Layout,
    buckets: Buckets,
    slices: Slices,
    /// Rows of cells (left) or columns of cells (right) of each region before this one.
    first_share: Vec<u32>,
    /// The cells of each row or column of cells.
    share_cells: Vec<Vec<u32>>,
}

#[derive(Debug)]
enum Buckets {
    One,
    Key(Vec<Arc<dyn PhysicalExpr>>),
    Grid { from: RangeKey, to: Option<RangeKey>, reach: Reach, is_home: bool },
}

/// Slices are stamped once: counted while rows only come, hashed from the whole row when a
/// delete must find the cell of its insert.
#[derive(Debug)]
enum Slices {
    Counter(u32),
    Hash,
}

/// Rows chosen for one row or column of cells.
#[derive(Debug, Default, Clone)]
struct Share {
    rows: Vec<u32>,
    buckets: Vec<u32>,
    slices: Vec<u16>,
}

impl Matrix {
    fn new(side: Side, layout: &Layout, schema: &SchemaRef, retracts: bool, seed: u32) -> Result<Self, ExecError> {
        let buckets = match &layout.partitioning {
            Partitioning::Any => Buckets::One,
            Partitioning::Key { left, right } => {
                Buckets::Key(compile_all(if side == Side::Left { left } else { right }, schema)?)
            }
            Partitioning::Grid(grid) => {
                let is_home = side == grid.home;
                let (from, to) = if is_home { (&grid.key, &None) } else { (&grid.from, &grid.to) };
                let from = RangeKey::new(from, schema)?;
                let to = to.as_ref().map(|to| RangeKey::new(to, schema)).transpose()?;
                let reach = if is_home { grid.reach.nowhere_else() } else { grid.reach };
                Buckets::Grid { from, to, reach, is_home }
            }
        };
        let mut first_share = Vec::new();
        let mut share_cells = Vec::new();
        for region in &layout.regions {
            first_share.push(share_cells.len() as u32);
            share_cells
                .extend((0..region.shares(side)).map(|share| region.share_cells(side, share).collect::<Vec<_>>()));
        }
        Ok(Self {
            side,
            layout: layout.clone(),
            buckets,
            slices: if retracts { Slices::Hash } else { Slices::Counter(seed.wrapping_mul(97) % SLICES) },
            first_share,
            share_cells,
        })
    }

    fn slices(&mut self, frame: &Frame) -> Result<Vec<u16>, ExecError> {
        match &mut self.slices {
            Slices::Counter(next) => {
                let slices = (0..frame.rows() as u32).map(|row| ((*next + row) % SLICES) as u16).collect();
                *next = (*next + frame.rows() as u32) % SLICES;
                Ok(slices)
            }
            Slices::Hash => {
                let hashes = hash_rows(frame.batch.columns(), frame.rows())?;
                Ok(hashes.into_iter().map(|hash| (hash % u64::from(SLICES)) as u16).collect())
            }
        }
    }

    /// Calls `visit` with each (row, bucket), a row after the other. Rows with a NULL key meet nobody and are left out.
    fn buckets(&self, frame: &Frame, visit: &mut impl FnMut(u32, u32)) -> Result<(), ExecError> {
        let rows = frame.rows();
        match &self.buckets {
            Buckets::One => (0..rows as u32).for_each(|row| visit(row, 0)),
            Buckets::Key(keys) => {
                let keys = values(keys, frame)?;
                for (row, hash) in hash_rows(&keys, rows)?.into_iter().enumerate() {
                    if keys.iter().all(|key| key.is_valid(row)) {
                        visit(row as u32, (hash % u64::from(BUCKETS)) as u32);
                    }
                }
            }
            Buckets::Grid { from, to, reach: Reach::Exact { below, above, width }, is_home } => {
                let reach = (*below, *above, *width);
                let (batch, to) = (&frame.batch, to.as_ref());
                let sure =
                    |keys: &Int64Array| keys.values().iter().all(|key| key.unsigned_abs() <= SURE.unsigned_abs());
                if let Some(from) = from.plain(batch)?.filter(sure)
                    && let Some(to) = to.map_or_else(|| Ok(Some(from.clone())), |to| to.plain(batch))?.filter(sure)
                {
                    if *is_home {
                        let cells = from.values().iter().map(|key| key.div_euclid(*width));
                        (0..).zip(cells).for_each(|(row, cell)| visit(row, grid_bucket(cell as u64)));
                        return Ok(());
                    }
                    for (row, (from, to)) in (0..).zip(from.values().iter().zip(to.values())) {
                        visit_cells(row, Reach::sure_cells(reach, *from, *to), visit);
                    }
                    return Ok(());
                }
                let from = from.exact(batch)?;
                let to = to.map_or_else(|| Ok(from.clone()), |to| to.exact(batch))?;
                for (row, ends) in (0..).zip(from.into_iter().zip(to)) {
                    let (Some(from), Some(to)) = ends else { continue };
                    visit_cells(row, Reach::exact_cells(reach, from, to), visit);
                }
            }
            Buckets::Grid { from, to, reach: Reach::Float { below, above, width }, is_home } => {
                let reach = (*below, *above, *width);
                let offset = below.abs().max(above.abs());
                let starts = from.values(&frame.batch)?;
                let ends = to.as_ref().map_or_else(|| Ok(starts.clone()), |to| to.values(&frame.batch))?;
                for (row, (from, end)) in (0..).zip(starts.iter().zip(&ends)) {
                    let (Some(from), Some(end)) = (from, end) else { continue };
                    if from.is_finite() && end.is_finite() {
                        let slack = if *is_home { 0.0 } else { slack(from.abs().max(end.abs()), offset) };
                        visit_cells(row, Reach::float_cells(reach, from, end, slack), visit);
                    } else if to.is_none() {
                        visit(row, UNPLACED);
                    } else {
                        // An interval that begins or ends nowhere.
                        (0..BUCKETS).for_each(|bucket| visit(row, bucket));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The bucket of NaN and infinities.
const UNPLACED: u32 = 0;

/// The buckets of grid cells side by side.
fn visit_cells(row: u32, (first, last): (i64, i64), visit: &mut impl FnMut(u32, u32)) {
    if last.saturating_sub(first) < i64::from(BUCKETS) {
        (first..=last).for_each(|cell| visit(row, grid_bucket(cell as u64)));
    } else {
        // A long interval, or a key so large that its band is less than its rounding.
        (0..BUCKETS).for_each(|bucket| visit(row, bucket));
    }
}

/// Neighbouring grid cells go to far-apart buckets, so that a dense spot is spread.
fn grid_bucket(cell: u64) -> u32 {
    // The multiplier of Fibonacci hashing: 2^64 divided by the golden ratio.
    let hash = cell.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (((hash >> 32) * u64::from(BUCKETS)) >> 32) as u32
}

impl Route for Matrix {
    fn route(&mut self, frame: Frame, out: &mut Vec<(u32, Frame)>) -> Result<usize, ExecError> {
        let slices = self.slices(&frame)?;
        let mut shares = vec![Share::default(); self.share_cells.len()];
        let layout = &self.layout;
        let (side, first_share) = (self.side, &self.first_share);
        let (mut placed, mut last) = (0, None);
        self.buckets(&frame, &mut |row, bucket| {
            placed += usize::from(last.replace(row) != Some(row));
            let region = layout.bucket_regions[bucket as usize] as usize;
            let slice = slices[row as usize];
            let number = first_share[region] + layout.regions[region].share(side, slice);
            let share = &mut shares[number as usize];
            // Pairs meet by the cell: a second bucket of the same cell has nothing to add.
            if share.rows.last() == Some(&row) {
                return;
            }
            share.rows.push(row);
            share.buckets.push(bucket);
            share.slices.push(slice);
        })?;
        for (share, cells) in shares.into_iter().zip(&self.share_cells) {
            if share.rows.is_empty() {
                continue;
            }
            let whole = share.rows.len() == frame.rows() && share.rows.iter().copied().eq(0..frame.rows() as u32);
            let mut part = if whole { frame.clone() } else { take_rows(&frame, &share.rows)? };
            part.units = Some(Units { buckets: share.buckets.into(), slices: share.slices.into() });
            part.layout = layout.version;
            for cell in cells {
                out.push((*cell, part.clone()));
            }
        }
        Ok(placed)
    }
}
