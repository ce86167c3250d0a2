//! The grid: rows in cells about as wide as a band, of one key or of two; the rows of a cell stand
//! side by side with all keys that a range asks for, so that a probe looks at few cells and reads
//! them from front to back.

use std::hash::BuildHasher;

use datafusion_common::hash_utils::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;
use thetis_planner::physical::Side;
use thetis_planner::theta::Bounds;

use super::{Candidates, Cursor, LocalIndex, Probe};
use crate::join::keys::{Keys, Ranges, float_of, reach, slack};
use crate::route::shared_hasher;

/// A cell is at least so many times as wide as the band: fewer cells to find, more rows to look at.
const WIDTHS_OF_BAND: f64 = 2.0;
/// Rows whose cells are found before the first of them is read: their cache misses overlap.
const BLOCK: usize = 32;
/// Rows of a cell that are looked at between two looks at the limit.
const STRETCH: usize = 4096;
/// Parts of the directory: each grows for itself, so that none takes long.
const PARTS: usize = 64;

/// Rows by the cells of one or two of their `D` keys, within each prefix.
#[derive(Debug)]
pub struct Grid<const D: usize> {
    stored: Side,
    bounds: [Bounds; D],
    /// One or two.
    axes: Vec<Axis>,
    /// Bounds on the errors of the stored keys.
    errors: [f64; D],
    hasher: RandomState,
    /// Where in `cells` each cell is.
    directory: Vec<HashTable<(CellId, u32)>>,
    cells: Vec<Vec<Entry<D>>>,
    /// Rows whose keys have no place: candidates for every probe.
    wild: Vec<u32>,
    /// Rows that were inserted, with those that have a NULL key.
    rows: u32,
}

/// How a key is cut into cells.
#[derive(Debug, Clone, Copy)]
enum Axis {
    /// Cells of 2^shift numbers.
    Exact { shift: u32 },
    /// Cells of this width, for keys up to this size: beyond, rounding alone is wider.
    Float { span: f64, offset: f64, width: f64, most: f64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CellId {
    prefix: u64,
    at: [i64; 2],
}

/// A row in its cell: the order numbers of its keys.
#[derive(Debug, Clone, Copy)]
struct Entry<const D: usize> {
    keys: [i64; D],
    row: u32,
}

impl Axis {
    fn of(bounds: &Bounds) -> Option<Self> {
        match *bounds {
            Bounds::Exact { lower: Some(lower), upper: Some(upper) } => {
                let span = i128::from(upper) - i128::from(lower) + 1;
                let shift = (span.max(1) as f64 * WIDTHS_OF_BAND).log2().ceil();
                Some(Self::Exact { shift: (shift as u32).min(63) })
            }
            Bounds::Float { lower: Some(lower), upper: Some(upper) } => {
                let span = (upper - lower).max(0.0);
                let offset = lower.abs().max(upper.abs());
                Some(Self::Float { span, offset, width: 0.0, most: 0.0 }).filter(|_| span.is_finite())
            }
            _ => None,
        }
    }

    fn cell(self, key: i64) -> i64 {
        match self {
            Self::Exact { shift } => key >> shift,
            Self::Float { width, .. } => (float_of(key) / width).floor() as i64,
        }
    }
}

impl<const D: usize> Grid<D> {
    /// An empty grid of the rows of `stored`, for ranges with these bounds; `None` if the first one
    /// is no band.
    pub fn new(stored: Side, bounds: [Bounds; D]) -> Option<Self> {
        let axes: Vec<Axis> = bounds.iter().take(2).map_while(Axis::of).collect();
        let directory = (0..PARTS).map(|_| HashTable::new()).collect();
        let (errors, cells, wild) = ([0.0; D], Vec::new(), Vec::new());
        (!axes.is_empty()).then(|| Self {
            stored,
            bounds,
            axes,
            errors,
            hasher: shared_hasher(),
            directory,
            cells,
            wild,
            rows: 0,
        })
    }

    fn cell_id(&self, prefix: u64, keys: &[i64; D]) -> CellId {
        let mut at = [0; 2];
        at.iter_mut().zip(&self.axes).zip(keys).for_each(|((at, axis), key)| *at = axis.cell(*key));
        CellId { prefix, at }
    }

    fn insert_entry(&mut self, prefix: u64, entry: Entry<D>) {
        let id = self.cell_id(prefix, &entry.keys);
        let hash = self.hasher.hash_one(id);
        let Self { hasher, directory, cells, .. } = self;
        let found = directory[part(hash)].entry(hash, |(other, _)| *other == id, |(other, _)| hasher.hash_one(other));
        match found {
            Place::Occupied(place) => cells[place.get().1 as usize].push(entry),
            Place::Vacant(place) => {
                place.insert((id, cells.len() as u32));
                cells.push(vec![entry]);
            }
        }
    }

    /// Widens the cells of floats until the rounding of the largest key is small in them.
    fn widen(&mut self, keys: &Keys) {
        let mut outgrown = false;
        for (axis, (range, error)) in self.axes.iter_mut().zip(keys.ranges.iter().zip(&mut self.errors)) {
            let (Axis::Float { span, offset, width, most }, Ranges::Float(values, own)) = (axis, range) else { continue };
            *error = error.max(*own);
            let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
            if largest > *most || *width == 0.0 {
                *most = 2.0 * largest;
                let needed = *span + 4.0 * (slack(*most, *offset) + *error);
                if *width < needed {
                    *width = WIDTHS_OF_BAND * needed;
                    outgrown = true;
                }
            }
        }
        if outgrown {
            let prefixed: Vec<(u64, u32)> =
                self.directory.iter().flat_map(|part| part.iter().map(|(id, cell)| (id.prefix, *cell))).collect();
            let cells = std::mem::take(&mut self.cells);
            self.directory.iter_mut().for_each(HashTable::clear);
            for (prefix, cell) in prefixed {
                cells[cell as usize].iter().for_each(|entry| self.insert_entry(prefix, *entry));
            }
        }
    }

    /// What a row that is not wild can meet, key by key.
    fn reach(&self, keys: &Keys, row: usize) -> [(i64, i64); D] {
        std::array::from_fn(|i| reach(&keys.ranges[i], row, &self.bounds[i], self.stored, self.errors[i]))
    }

    /// The cells that a row's ranges touch; `None` if they are too many to be looked up.
    fn touched(&self, reach: &[(i64, i64); D]) -> Option<[(i64, i64); 2]> {
        const MOST: u64 = 8;
        let mut touched = [(0, 0); 2];
        for ((touched, axis), (low, high)) in touched.iter_mut().zip(&self.axes).zip(reach) {
            if matches!(axis, Axis::Float { .. }) && (*low == i64::MIN || *high == i64::MAX) {
                return None;
            }
            *touched = (axis.cell(*low), axis.cell(*high));
            if touched.1.abs_diff(touched.0) > MOST {
                return None;
            }
        }
        Some(touched)
    }

    fn find(&self, id: CellId) -> Option<u32> {
        let hash = self.hasher.hash_one(id);
        self.directory[part(hash)].find(hash, |(other, _)| *other == id).map(|(_, cell)| *cell)
    }

    /// Adds the rows of a cell that are in reach, from `cursor` on.
    fn look(
        &self,
        cell: u32,
        row: usize,
        reach: &[(i64, i64); D],
        cursor: &mut Cursor,
        limit: usize,
        out: &mut Candidates,
    ) -> Probe {
        let entries = &self.cells[cell as usize];
        while cursor.entry < entries.len() {
            if out.len() >= limit {
                return Probe::Full;
            }
            let stretch = &entries[cursor.entry..entries.len().min(cursor.entry + STRETCH.min(limit - out.len()))];
            let first = out.len();
            out.stored.resize(first + stretch.len(), 0);
            let mut found = first;
            for entry in stretch {
                // Written in any case, kept if it is in reach: no branch to guess.
                out.stored[found] = entry.row;
                let inside = entry.keys.iter().zip(reach).all(|(key, (low, high))| (*low <= *key) & (*key <= *high));
                found += usize::from(inside);
            }
            out.stored.truncate(found);
            out.probes.resize(found, row as u32);
            cursor.entry += stretch.len();
        }
        cursor.entry = 0;
        Probe::Done
    }

    /// Adds rows `from ..` of a list to the candidates of `row`.
    fn list(
        row: usize,
        rows: impl ExactSizeIterator<Item = u32>,
        cursor: &mut Cursor,
        limit: usize,
        out: &mut Candidates,
    ) -> Probe {
        for stored in rows.skip(cursor.entry) {
            if out.len() >= limit {
                return Probe::Full;
            }
            out.push(row, stored);
            cursor.entry += 1;
        }
        cursor.entry = 0;
        Probe::Done
    }

    /// Probes with the rows of a block, whose cells are known.
    fn probe_row(
        &self,
        row: usize,
        place: &Touched<D>,
        cursor: &mut Cursor,
        limit: usize,
        out: &mut Candidates,
    ) -> Probe {
        let Some(cells) = &place.cells else {
            return Self::list(row, 0..self.rows, cursor, limit, out);
        };
        while let Some(cell) = cells.get(cursor.cell) {
            if self.look(*cell, row, &place.reach, cursor, limit, out) == Probe::Full {
                return Probe::Full;
            }
            cursor.cell += 1;
        }
        Self::list(row, self.wild.iter().copied(), cursor, limit, out)
    }

    fn places(&self, keys: &Keys, rows: std::ops::Range<usize>) -> Vec<Option<Touched<D>>> {
        rows.map(|row| {
            if keys.is_null(row) {
                return None;
            }
            if keys.is_wild(row) {
                return Some(Touched { reach: [(0, 0); D], cells: None });
            }
            let (reach, prefix) = (self.reach(keys, row), keys.prefix(row));
            if reach.iter().any(|(low, high)| low > high) {
                return Some(Touched { reach, cells: Some(Vec::new()) });
            }
            let cells = self.touched(&reach).map(|[(x, to_x), (y, to_y)]| {
                let ids = (x..=to_x).flat_map(|x| (y..=to_y).map(move |y| CellId { prefix, at: [x, y] }));
                ids.filter_map(|id| self.find(id)).collect()
            });
            Some(Touched { reach, cells })
        })
        .collect()
    }
}

/// What a probing row looks at: these cells, or everything.
#[derive(Debug)]
struct Touched<const D: usize> {
    reach: [(i64, i64); D],
    cells: Option<Vec<u32>>,
}

fn part(hash: u64) -> usize {
    (hash >> 32) as usize % PARTS
}

impl<const D: usize> LocalIndex for Grid<D> {
    fn insert(&mut self, keys: &Keys, first: u32) {
        self.widen(keys);
        for (i, error) in self.errors.iter_mut().enumerate() {
            *error = error.max(keys.ranges[i].error());
        }
        self.rows = first + keys.rows as u32;
        for row in (0..keys.rows).filter(|row| !keys.is_null(*row)) {
            let stored = first + row as u32;
            if keys.is_wild(row) {
                self.wild.push(stored);
                continue;
            }
            let entry = Entry { keys: std::array::from_fn(|i| keys.ranges[i].order(row)), row: stored };
            self.insert_entry(keys.prefix(row), entry);
        }
    }

    fn probe(&self, keys: &Keys, cursor: &mut Cursor, limit: usize, out: &mut Candidates) -> Probe {
        while cursor.row < keys.rows {
            let first = cursor.row;
            let last = keys.rows.min(first + BLOCK);
            for (row, place) in (first..last).zip(self.places(keys, first..last)) {
                if let Some(place) = place
                    && self.probe_row(row, &place, cursor, limit, out) == Probe::Full
                {
                    return Probe::Full;
                }
                *cursor = Cursor { row: row + 1, ..Cursor::default() };
            }
        }
        Probe::Done
    }

    fn memory(&self) -> usize {
        let directory: usize = self.directory.iter().map(|part| part.capacity() * size_of::<(CellId, u32)>()).sum();
        let entries: usize = self.cells.iter().map(|cell| cell.capacity() * size_of::<Entry<D>>()).sum();
        directory + entries + self.cells.capacity() * size_of::<Vec<Entry<D>>>() + self.wild.capacity() * 4
    }
}
