//! Rows in the order of a range key, within each hash of equality keys or each stripe of a second
//! band, with the other keys that a range asks for beside them.
//!
//! ```text
//! stripe of y   rows by x                      a probe looks, in each stripe that its band of y
//!     7         .  . ...   . .[.. .  .].  .    touches, at the rows between two x; what is in reach
//!     8         . .  .   ..  .[ .. .. ] ..     of y too is a candidate
//! ```

use thetis_planner::physical::Side;
use thetis_planner::theta::Bounds;

use super::{Candidates, Cursor, LocalIndex, Probe};
use crate::join::keys::{Keys, reach};
use crate::join::runs::{self, Run, advance, merge_keys, merge_values};
use crate::join::stripes::{Stripes, stripe_of, stripe_prefix};

/// Rows of a run that are looked at between two looks at the limit.
const STRETCH: usize = 4096;

/// Sorted runs of the rows of one side.
#[derive(Debug)]
pub struct SortedIndex {
    stored: Side,
    bounds: Vec<Bounds>,
    stripes: Option<Stripes>,
    runs: Vec<SortedRun>,
    /// Rows whose keys have no place in the order: candidates for every probe.
    wild: Vec<u32>,
    /// Bounds on the errors of the stored keys.
    errors: Vec<f64>,
    /// Rows that were inserted, with those that have a NULL key.
    rows: u32,
}

/// A prefix and an order number.
type Place = (u64, i64);

#[derive(Debug)]
struct SortedRun {
    /// Absent when there are neither equality keys nor stripes.
    prefixes: Option<Vec<u64>>,
    keys: Vec<i64>,
    rows: Vec<u32>,
    /// The order numbers of the other keys.
    others: Vec<Vec<i64>>,
    /// [`Keys::carried`].
    carried: Vec<Vec<u64>>,
}

impl Run for SortedRun {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn merge(&self, other: &Self) -> Self {
        let (prefixes, keys, second) = match (&self.prefixes, &other.prefixes) {
            (Some(a), Some(b)) => {
                let places = |prefixes: &[u64], keys: &[i64]| {
                    prefixes.iter().copied().zip(keys.iter().copied()).collect::<Vec<Place>>()
                };
                let (places, second) = merge_keys(&places(a, &self.keys), &places(b, &other.keys));
                let (prefixes, keys) = places.into_iter().unzip();
                (Some(prefixes), keys, second)
            }
            _ => {
                let (keys, second) = merge_keys(&self.keys, &other.keys);
                (None, keys, second)
            }
        };
        let others = self.others.iter().zip(&other.others).map(|(a, b)| merge_values(&second, a, b));
        let carried = self.carried.iter().zip(&other.carried);
        let carried = carried.map(|(a, b)| match a.is_empty() || b.is_empty() {
            true => Vec::new(),
            false => merge_values(&second, a, b),
        });
        Self {
            others: others.collect(),
            carried: carried.collect(),
            rows: merge_values(&second, &self.rows, &other.rows),
            prefixes,
            keys,
        }
    }
}

impl SortedRun {
    /// The positions from `from` on that lie between two places.
    fn span(&self, from: (usize, usize), prefix: u64, (low, high): (i64, i64)) -> (usize, usize) {
        let (keys, rows) = (self.keys.as_slice(), self.keys.len());
        match &self.prefixes {
            None => {
                let start = advance(rows, from.0, |at| keys[at] < low);
                (start, advance(rows, from.1.max(start), |at| keys[at] <= high))
            }
            Some(prefixes) => {
                let start = advance(rows, from.0, |at| (prefixes[at], keys[at]) < (prefix, low));
                (start, advance(rows, from.1.max(start), |at| (prefixes[at], keys[at]) <= (prefix, high)))
            }
        }
    }

    /// Adds the rows `from .. to` that are in reach of the others.
    fn list(&self, (from, to): (usize, usize), row: usize, reach: &[(i64, i64)], out: &mut Candidates) {
        let first = out.len();
        if self.others.is_empty() {
            out.stored.extend_from_slice(&self.rows[from..to]);
            for (values, carried) in out.carried.iter_mut().zip(&self.carried) {
                values.extend_from_slice(carried.get(from..to).unwrap_or_default());
            }
        } else {
            out.stored.resize(first + to - from, 0);
            let mut found = first;
            out.places.resize(to - from, 0);
            for at in from..to {
                // Written in any case, kept if it is in reach: no branch to guess.
                out.stored[found] = self.rows[at];
                out.places[found - first] = at as u32;
                let inside = |(keys, (low, high)): (&Vec<i64>, &(i64, i64))| (*low <= keys[at]) & (keys[at] <= *high);
                found += usize::from(self.others.iter().zip(reach).all(inside));
            }
            out.stored.truncate(found);
            for (values, carried) in
                out.carried.iter_mut().zip(&self.carried).filter(|(_, carried)| !carried.is_empty())
            {
                values.extend(out.places[..found - first].iter().map(|at| carried[*at as usize]));
            }
        }
        out.probes.resize(out.stored.len(), row as u32);
    }
}

/// What the rows of a frame can meet, in the order of [`Keys::order`].
#[derive(Debug)]
pub(super) struct FrameReach {
    /// Order numbers of the first key.
    spans: Vec<(i64, i64)>,
    /// The stripes that a row touches, counted from its own.
    stripes: Vec<(i64, i64)>,
    /// Those that any row touches.
    passes: Vec<i64>,
}

impl SortedIndex {
    /// An empty index of the rows of `stored`, for ranges with these bounds, the first of which
    /// makes the order, and with these stripes of the second.
    pub fn new(stored: Side, bounds: &[Bounds], stripes: Option<Stripes>) -> Self {
        let errors = vec![0.0; bounds.len()];
        Self { stored, bounds: bounds.to_vec(), stripes, runs: Vec::new(), wild: Vec::new(), errors, rows: 0 }
    }

    /// What a row that is not wild can meet by the range `range`.
    fn reach(&self, keys: &Keys, row: usize, range: usize) -> (i64, i64) {
        reach(&keys.ranges[range], row, &self.bounds[range], self.stored, self.errors[range])
    }

    /// What the rows of a frame reach, row by row in their order.
    fn frame_reach(&self, keys: &Keys) -> FrameReach {
        let rows = || keys.order.iter().map(|row| *row as usize);
        let spans = rows().map(|row| self.reach(keys, row, 0)).collect();
        let Some(stripes) = self.stripes else {
            return FrameReach { spans, stripes: Vec::new(), passes: vec![0] };
        };
        let touched = |row| {
            let (own, (low, high)) = (stripe_of(keys.prefix(row)), self.reach(keys, row, 1));
            (stripes.stripe(low).saturating_sub(own), stripes.stripe(high).saturating_sub(own))
        };
        let stripes: Vec<(i64, i64)> = rows().map(touched).collect();
        let mut passes = Vec::new();
        for pass in stripes.iter().flat_map(|(low, high)| *low..=*high) {
            if let Err(place) = passes.binary_search(&pass) {
                passes.insert(place, pass);
            }
        }
        FrameReach { spans, stripes, passes }
    }

    /// Walks along a run with the rows of a frame, in the stripe that is so many after that of each.
    fn walk(
        &self,
        run: &SortedRun,
        (keys, frame, pass): (&Keys, &FrameReach, i64),
        cursor: &mut Cursor,
        limit: usize,
        out: &mut Candidates,
    ) -> Probe {
        let mut reaches = vec![(0, 0); self.bounds.len() - 1];
        while let Some(row) = keys.order.get(cursor.row) {
            let row = *row as usize;
            let prefix = match self.stripes {
                None => keys.prefix(row),
                Some(_) => {
                    let (low, high) = frame.stripes[cursor.row];
                    if !(low..=high).contains(&pass) {
                        cursor.row += 1;
                        continue;
                    }
                    stripe_prefix(stripe_of(keys.prefix(row)).saturating_add(pass))
                }
            };
            let span = run.span(cursor.span, prefix, frame.spans[cursor.row]);
            cursor.span = span;
            if span.0 < span.1 {
                for (i, reach) in reaches.iter_mut().enumerate() {
                    *reach = self.reach(keys, row, i + 1);
                }
            }
            let mut at = span.0 + cursor.entry;
            while at < span.1 {
                if out.len() >= limit {
                    cursor.entry = at - span.0;
                    return Probe::Full;
                }
                let to = span.1.min(at + STRETCH.min(limit - out.len()));
                run.list((at, to), row, &reaches, out);
                at = to;
            }
            cursor.entry = 0;
            cursor.row += 1;
        }
        (cursor.row, cursor.span) = (0, (0, 0));
        Probe::Done
    }

    /// The pairs with wild rows, of either side: all with all.
    fn probe_wild(&self, keys: &Keys, cursor: &mut Cursor, limit: usize, out: &mut Candidates) -> Probe {
        while cursor.row < keys.rows && !(keys.wild.is_empty() && self.wild.is_empty()) {
            let row = cursor.row;
            if !keys.is_null(row) {
                let wild = keys.is_wild(row);
                let stored = if wild { self.rows as usize } else { self.wild.len() };
                while cursor.entry < stored {
                    if out.len() >= limit {
                        return Probe::Full;
                    }
                    out.push(row, if wild { cursor.entry as u32 } else { self.wild[cursor.entry] });
                    cursor.entry += 1;
                }
            }
            cursor.entry = 0;
            cursor.row += 1;
        }
        Probe::Done
    }
}

/// Values in the order of a run; none if there are none.
fn arranged(values: &[u64], order: &[u32]) -> Vec<u64> {
    if values.is_empty() { Vec::new() } else { order.iter().map(|row| values[*row as usize]).collect() }
}

impl LocalIndex for SortedIndex {
    fn insert(&mut self, keys: &Keys, first: u32) {
        for (error, range) in self.errors.iter_mut().zip(&keys.ranges) {
            *error = error.max(range.error());
        }
        self.rows = first + keys.rows as u32;
        let wild = (0..keys.wild.len()).filter(|row| keys.is_wild(*row) && !keys.is_null(*row));
        self.wild.extend(wild.map(|row| first + row as u32));
        let order = || keys.order.iter().map(|row| *row as usize);
        let others = keys.ranges[1..].iter().map(|range| order().map(|row| range.order(row)).collect());
        let run = SortedRun {
            prefixes: keys.prefixes.as_ref().map(|prefixes| order().map(|row| prefixes[row]).collect()),
            keys: order().map(|row| keys.ranges[0].order(row)).collect(),
            rows: keys.order.iter().map(|row| first + row).collect(),
            others: others.collect(),
            carried: keys.carried.iter().map(|values| arranged(values, &keys.order)).collect(),
        };
        runs::push(&mut self.runs, run);
    }

    fn probe(&self, keys: &Keys, cursor: &mut Cursor, limit: usize, out: &mut Candidates) -> Probe {
        if let Some(run) = self.runs.first() {
            let capacity = out.stored.capacity();
            out.carried.resize_with(run.carried.len(), || Vec::with_capacity(capacity));
        }
        let frame = cursor.reach.take().unwrap_or_else(|| self.frame_reach(keys));
        while let Some(run) = self.runs.get(cursor.run) {
            while let Some(pass) = frame.passes.get(cursor.pass) {
                if self.walk(run, (keys, &frame, *pass), cursor, limit, out) == Probe::Full {
                    cursor.reach = Some(frame);
                    return Probe::Full;
                }
                cursor.pass += 1;
            }
            (cursor.run, cursor.pass) = (cursor.run + 1, 0);
        }
        cursor.reach = Some(frame);
        self.probe_wild(keys, cursor, limit, out)
    }

    fn memory(&self) -> usize {
        let run = |run: &SortedRun| {
            let prefixes = run.prefixes.as_ref().map_or(0, |prefixes| prefixes.capacity() * 8);
            let others: usize = run.others.iter().map(|other| other.capacity() * 8).sum();
            let carried: usize = run.carried.iter().map(|values| values.capacity() * 8).sum();
            prefixes + run.keys.capacity() * 8 + run.rows.capacity() * 4 + others + carried
        };
        self.runs.iter().map(run).sum::<usize>() + self.wild.capacity() * 4
    }
}
