//! Local indexes: how a cell finds candidate pairs without looking at every stored row.

use std::collections::BTreeSet;
use std::ops::Bound;

use hashbrown::HashMap;
use thetis_planner::physical::{Join, LocalIndexKind, Side};
use thetis_planner::theta::Bounds;

use super::keys::{Keys, Ranges, reach};

/// Candidate pairs: positions of probing rows and numbers of stored rows, side by side.
#[derive(Debug, Default)]
pub struct Candidates {
    /// Rows of the probing frame.
    pub probes: Vec<u32>,
    /// Rows of the store.
    pub stored: Vec<u32>,
}

impl Candidates {
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
    last: Last,
}

#[derive(Debug, Default, Clone, Copy)]
enum Last {
    /// The row has not been looked at.
    #[default]
    None,
    /// Position in a list of entries.
    Entry(usize),
    /// Last key of the sorted entries.
    Key(i64, u32),
    /// The sorted entries are done; last wild entry.
    Wild(u32),
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

    /// Adds candidates to `out` from `cursor` on, until it has `limit` of them.
    fn probe(&self, keys: &Keys, cursor: &mut Cursor, limit: usize, out: &mut Candidates) -> Probe;
}

/// The index for the rows that `stored` keeps in a cell of this join; `None` means a scan.
pub fn index_for(join: &Join, stored: Side) -> Option<Box<dyn LocalIndex>> {
    match (join.local_index(), &join.range) {
        (LocalIndexKind::Scan, _) => None,
        (_, Some(range)) => Some(Box::new(SortedIndex::new(stored, range.bounds))),
        (_, None) => Some(Box::new(HashIndex::default())),
    }
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
            let older = if keys.null[row] { None } else { self.heads.insert(keys.prefix(row), stored) };
            self.older.push(older.unwrap_or(NO_ROW));
        }
    }

    fn probe(&self, keys: &Keys, cursor: &mut Cursor, limit: usize, out: &mut Candidates) -> Probe {
        while cursor.row < keys.rows {
            let mut stored = match cursor.last {
                Last::Entry(stored) => stored as u32,
                _ if keys.null[cursor.row] => NO_ROW,
                _ => self.heads.get(&keys.prefix(cursor.row)).copied().unwrap_or(NO_ROW),
            };
            while stored != NO_ROW {
                if out.len() >= limit {
                    cursor.last = Last::Entry(stored as usize);
                    return Probe::Full;
                }
                out.push(cursor.row, stored);
                stored = self.older[stored as usize];
            }
            *cursor = Cursor { row: cursor.row + 1, last: Last::None };
        }
        Probe::Done
    }
}

/// Rows in the order of their range keys, within each hash of equality keys.
#[derive(Debug)]
pub struct SortedIndex {
    stored: Side,
    bounds: Bounds,
    entries: BTreeSet<(u64, i64, u32)>,
    /// Rows whose key has no place in the order: candidates for every probe.
    wild: BTreeSet<(u64, u32)>,
    error: f64,
}

impl SortedIndex {
    /// An empty index of the rows of `stored`, for a range with these bounds.
    pub fn new(stored: Side, bounds: Bounds) -> Self {
        Self { stored, bounds, entries: BTreeSet::new(), wild: BTreeSet::new(), error: 0.0 }
    }

    fn probe_row(
        &self,
        keys: &Keys,
        ranges: &Ranges,
        cursor: &mut Cursor,
        limit: usize,
        out: &mut Candidates,
    ) -> Probe {
        let row = cursor.row;
        let prefix = keys.prefix(row);
        let (low, high) = reach(ranges, row, &self.bounds, self.stored, self.error);
        if !matches!(cursor.last, Last::Wild(_)) && low <= high {
            let from = match cursor.last {
                Last::Key(key, stored) => Bound::Excluded((prefix, key, stored)),
                _ => Bound::Included((prefix, low, 0)),
            };
            for (_, key, stored) in self.entries.range((from, Bound::Included((prefix, high, NO_ROW)))) {
                if out.len() >= limit {
                    return Probe::Full;
                }
                out.push(row, *stored);
                cursor.last = Last::Key(*key, *stored);
            }
        }
        let from = match cursor.last {
            Last::Wild(stored) => Bound::Excluded((prefix, stored)),
            _ => Bound::Included((prefix, 0)),
        };
        for (_, stored) in self.wild.range((from, Bound::Included((prefix, NO_ROW)))) {
            if out.len() >= limit {
                return Probe::Full;
            }
            out.push(row, *stored);
            cursor.last = Last::Wild(*stored);
        }
        Probe::Done
    }
}

impl LocalIndex for SortedIndex {
    fn insert(&mut self, keys: &Keys, first: u32) {
        let Some(ranges) = &keys.ranges else { return };
        self.error = self.error.max(ranges.error());
        for row in (0..keys.rows).filter(|row| !keys.null[*row]) {
            let stored = first + row as u32;
            match ranges.order(row) {
                Some(key) => {
                    self.entries.insert((keys.prefix(row), key, stored));
                }
                None => {
                    self.wild.insert((keys.prefix(row), stored));
                }
            }
        }
    }

    fn probe(&self, keys: &Keys, cursor: &mut Cursor, limit: usize, out: &mut Candidates) -> Probe {
        let Some(ranges) = &keys.ranges else {
            return Probe::Done;
        };
        while cursor.row < keys.rows {
            if !keys.null[cursor.row] && self.probe_row(keys, ranges, cursor, limit, out) == Probe::Full {
                return Probe::Full;
            }
            *cursor = Cursor { row: cursor.row + 1, last: Last::None };
        }
        Probe::Done
    }
}

#[cfg(test)]
mod tests;
