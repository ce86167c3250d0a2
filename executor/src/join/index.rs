//! Local indexes: how a cell finds candidate pairs without looking at every stored row.

mod sorted;

use hashbrown::HashMap;
use thetis_planner::physical::{Join, LocalIndexKind, Side};
use thetis_planner::theta::Bounds;

pub use self::sorted::SortedIndex;
use super::keys::{KNOWN_RANGES, Keys};
use super::stripes::Stripes;

/// Candidate pairs: positions of probing rows and numbers of stored rows, side by side.
#[derive(Debug, Default)]
pub struct Candidates {
    /// Rows of the probing frame.
    pub probes: Vec<u32>,
    /// Rows of the store.
    pub stored: Vec<u32>,
    /// Columns of the stored rows that the index carries; shorter than the others when it does not
    /// have the values of all of them.
    pub carried: Vec<Vec<u64>>,
    /// Where in a run the rows of one span are: a buffer.
    places: Vec<u32>,
}

impl Candidates {
    /// None yet, and room for so many.
    pub fn with_capacity(pairs: usize) -> Self {
        Self { probes: Vec::with_capacity(pairs), stored: Vec::with_capacity(pairs), ..Self::default() }
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.probes.len()
    }

    /// No pairs.
    pub fn is_empty(&self) -> bool {
        self.probes.is_empty()
    }

    fn push(&mut self, probe: usize, stored: u32) {
        self.probes.push(probe as u32);
        self.stored.push(stored);
    }
}

/// Where a probe goes on after its output was full.
#[derive(Debug, Default)]
pub struct Cursor {
    row: usize,
    /// Of a hash: the stored row that comes next.
    next: Option<u32>,
    /// The entry in a span of a run.
    entry: usize,
    /// Of sorted runs: the run, and where in it the last row was.
    run: usize,
    span: (usize, usize),
    /// What the rows reach, and how many of the passes are done.
    reach: Option<sorted::FrameReach>,
    pass: usize,
}

/// Whether a probe has to be called again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// All candidates of all rows have been found.
    Done,
    /// The limit was reached.
    Full,
}

/// Finds, for rows of one side, the stored rows of the other that may match. It may find too
/// many, never too few; no pair is found twice.
pub trait LocalIndex: Send + std::fmt::Debug {
    /// Adds the rows `first ..` of the store, which have these keys.
    fn insert(&mut self, keys: &Keys, first: u32);

    /// Looks at what rows ask for before they probe: an index may change its own order.
    fn observe(&mut self, _keys: &Keys) {}

    /// Adds candidates to `out` from `cursor` on, until it has `limit` of them.
    fn probe(&self, keys: &Keys, cursor: &mut Cursor, limit: usize, out: &mut Candidates) -> Probe;

    /// Bytes that it takes.
    fn memory(&self) -> usize;
}

/// The index for the rows that `stored` keeps in a cell of this join; `None` means a scan.
pub fn index_for(join: &Join, stored: Side) -> Option<Box<dyn LocalIndex>> {
    let ranges: Vec<Bounds> = join.ranges.iter().take(KNOWN_RANGES).map(|range| range.bounds).collect();
    match join.local_index() {
        LocalIndexKind::Scan => None,
        LocalIndexKind::Hash => Some(Box::new(HashIndex::default())),
        LocalIndexKind::HashSorted | LocalIndexKind::Sorted | LocalIndexKind::Striped => {
            Some(Box::new(SortedIndex::new(stored, &ranges, Stripes::of(join))))
        }
    }
}

/// Whether every candidate of the index is in all ranges of the join, if all keys are sure.
pub fn proves_ranges(join: &Join) -> bool {
    let known = match join.local_index() {
        LocalIndexKind::Striped | LocalIndexKind::HashSorted | LocalIndexKind::Sorted => KNOWN_RANGES,
        LocalIndexKind::Hash => 0,
        LocalIndexKind::Scan => return false,
    };
    join.ranges.len() <= known
}

/// Rows by the hash of their equality keys.
#[derive(Debug, Default)]
pub struct HashIndex {
    /// Newest row of each hash.
    heads: HashMap<u64, u32>,
    /// The next older row with the same hash, by row; [`NO_ROW`] ends the chain.
    older: Vec<u32>,
}

const NO_ROW: u32 = u32::MAX;

impl LocalIndex for HashIndex {
    fn insert(&mut self, keys: &Keys, first: u32) {
        self.older.resize(first as usize, NO_ROW);
        for row in 0..keys.rows {
            let stored = first + row as u32;
            let older = if keys.is_null(row) { None } else { self.heads.insert(keys.prefix(row), stored) };
            self.older.push(older.unwrap_or(NO_ROW));
        }
    }

    fn probe(&self, keys: &Keys, cursor: &mut Cursor, limit: usize, out: &mut Candidates) -> Probe {
        while cursor.row < keys.rows {
            let mut stored = match cursor.next {
                Some(stored) => stored,
                _ if keys.is_null(cursor.row) => NO_ROW,
                _ => self.heads.get(&keys.prefix(cursor.row)).copied().unwrap_or(NO_ROW),
            };
            while stored != NO_ROW {
                if out.len() >= limit {
                    cursor.next = Some(stored);
                    return Probe::Full;
                }
                out.push(cursor.row, stored);
                stored = self.older[stored as usize];
            }
            *cursor = Cursor { row: cursor.row + 1, ..Cursor::default() };
        }
        Probe::Done
    }

    fn memory(&self) -> usize {
        self.heads.capacity() * 13 + self.older.capacity() * 4
    }
}

#[cfg(test)]
mod tests;
