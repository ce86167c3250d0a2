//! Rows in the order of a range key, within each hash of equality keys, each stripe of a second band,
//! or each class of rows whose second key is about as far from the first.
//!
//! ```text
//! stripe of y   rows by x                      a probe looks, in each stripe that its band of y
//!     7         .  . ...   . .[.. .  .].  .    touches, at the rows between two x; what is in reach
//!     8         . .  .   ..  .[ .. .. ] ..     of y too is a candidate
//!
//! class b - a   intervals a..b by a            a point t looks, in each class, at the intervals that
//!     3         .  .[ . ] .  .  .. .   .       begin before it and not longer before than the
//!     4         . [ .. . ] .. .  .    . ..     longest of the class
//! ```
//!
//! Which of several ranges makes the order is found out by what rows ask for.

mod run;

use thetis_planner::physical::Side;
use thetis_planner::theta::Bounds;

use self::run::{Filters, SortedRun, class};
use super::{Candidates, Cursor, LocalIndex, Probe};
use crate::join::keys::{Keys, reach};
use crate::join::runs::{self, Run};
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
    /// The range that makes the order.
    pub(super) driver: usize,
    /// How much each range selects.
    selected: Selected,
}

/// Of stored rows that were held against probing ones, how many each range selected.
#[derive(Debug, Default)]
struct Selected {
    looked: u64,
    by_range: Vec<u64>,
}

/// What is sampled of a probing frame and of the longest run.
const SAMPLED_PROBES: usize = 16;
const SAMPLED_ROWS: usize = 64;
/// Pairs that were looked at before the order is changed; then what was seen counts half.
const ENOUGH: u64 = 1 << 14;
/// Another range must select so many times less.
const CLEARLY: u64 = 2;

/// What the rows of a frame can meet.
#[derive(Debug)]
pub(super) struct FrameReach {
    /// The rows, in the order in which they walk along the runs: [`Keys::order`] if absent.
    order: Option<Vec<u32>>,
    /// Order numbers, of each range and row.
    reaches: Vec<Vec<(i64, i64)>>,
    /// The stripes that a row touches, counted from its own.
    stripes: Vec<(i64, i64)>,
    /// Those that any row touches.
    passes: Vec<i64>,
}

impl FrameReach {
    fn order<'a>(&'a self, keys: &'a Keys) -> &'a [u32] {
        self.order.as_deref().unwrap_or(&keys.order)
    }
}

impl SortedIndex {
    /// An empty index of the rows of `stored`, for ranges with these bounds, the first of which
    /// makes the order at first, and with these stripes of the second.
    pub fn new(stored: Side, bounds: &[Bounds], stripes: Option<Stripes>) -> Self {
        Self {
            stored,
            bounds: bounds.to_vec(),
            stripes,
            runs: Vec::new(),
            wild: Vec::new(),
            errors: vec![0.0; bounds.len()],
            rows: 0,
            driver: 0,
            selected: Selected { looked: 0, by_range: vec![0; bounds.len()] },
        }
    }

    /// What a row that is not wild can meet by the range `range`.
    fn reach(&self, keys: &Keys, row: usize, range: usize) -> (i64, i64) {
        reach(&keys.ranges[range], row, &self.bounds[range], self.stored, self.errors[range])
    }

    /// The order of a frame's rows by prefix and driving key.
    fn order(&self, keys: &Keys) -> Option<Vec<u32>> {
        (self.driver != 0).then(|| {
            let mut order = keys.order.clone();
            let range = &keys.ranges[self.driver];
            order.sort_unstable_by_key(|row| (keys.prefix(*row as usize), range.order(*row as usize), *row));
            order
        })
    }

    /// What the rows of a frame reach, row by row in their order.
    fn frame_reach(&self, keys: &Keys) -> FrameReach {
        let order = self.order(keys);
        let rows = || order.as_deref().unwrap_or(&keys.order).iter().map(|row| *row as usize);
        let reach_of = |range| rows().map(|row| self.reach(keys, row, range)).collect::<Vec<_>>();
        let reaches: Vec<_> = (0..self.bounds.len()).map(reach_of).collect();
        let Some(cut) = self.stripes else {
            return FrameReach { order, reaches, stripes: Vec::new(), passes: Vec::new() };
        };
        let touched = |(row, (low, high)): (usize, &(i64, i64))| {
            let own = stripe_of(keys.prefix(row));
            (cut.stripe(*low).saturating_sub(own), cut.stripe(*high).saturating_sub(own))
        };
        let stripes: Vec<(i64, i64)> = rows().zip(&reaches[1]).map(touched).collect();
        let mut passes = Vec::new();
        for pass in stripes.iter().flat_map(|(low, high)| *low..=*high) {
            if let Err(place) = passes.binary_search(&pass) {
                passes.insert(place, pass);
            }
        }
        FrameReach { order, reaches, stripes, passes }
    }

    /// Walks along a run with the rows of a frame: in one of its groups, or in the stripe that is so
    /// many after that of each row.
    fn walk(
        &self,
        run: &SortedRun,
        (keys, frame): (&Keys, &FrameReach),
        cursor: &mut Cursor,
        limit: usize,
        out: &mut Candidates,
    ) -> Probe {
        let order = frame.order(keys);
        let pass = frame.passes.get(cursor.pass);
        let group = &run.groups[if pass.is_some() { 0 } else { cursor.pass }];
        let filtered = self.bounds.len() > 1 && (pass.is_some() || !group.is_exact());
        let mut filters = Filters::new();
        while let Some(row) = order.get(cursor.row) {
            let row = *row as usize;
            let (prefix, reach) = match pass {
                None => {
                    (keys.prefixes.as_ref().map(|prefixes| prefixes[row]), group.narrowed(&frame.reaches, cursor.row))
                }
                Some(pass) => {
                    let (low, high) = frame.stripes[cursor.row];
                    if !(low..=high).contains(pass) {
                        cursor.row += 1;
                        continue;
                    }
                    let stripe = stripe_of(keys.prefix(row)).saturating_add(*pass);
                    (Some(stripe_prefix(stripe)), frame.reaches[0][cursor.row])
                }
            };
            if reach.0 > reach.1 {
                cursor.row += 1;
                continue;
            }
            let span = run.span(cursor.span, (group.rows.clone(), prefix), reach);
            cursor.span = span;
            if filtered && span.0 < span.1 {
                let others = (0..self.bounds.len()).filter(|range| *range != self.driver);
                filters.clear();
                filters.extend(others.map(|range| (range, frame.reaches[range][cursor.row])));
            }
            let mut at = span.0 + cursor.entry;
            while at < span.1 {
                if out.len() >= limit {
                    cursor.entry = at - span.0;
                    return Probe::Full;
                }
                let to = span.1.min(at + STRETCH.min(limit - out.len()));
                run.list((at, to), row, &filters, out);
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

    /// Sorts all rows anew, by the keys of another range.
    pub(super) fn drive_by(&mut self, driver: usize) {
        self.driver = driver;
        let runs = std::mem::take(&mut self.runs);
        self.runs = runs.into_iter().map(|run| self.sorted(SortedRun { driver, ..run }, false)).collect();
    }

    /// Puts rows in the order of a run; they may be `in_order` but for their classes.
    fn sorted(&self, mut run: SortedRun, in_order: bool) -> SortedRun {
        // A band says enough by itself.
        let one_sided = self.bounds.len() > 1 && !self.bounds[run.driver].is_numeric_band();
        let hashed = run.prefixes.is_some() && !run.classed;
        run.classed = self.stripes.is_none() && one_sided && !hashed;
        if in_order && !run.classed {
            run.group();
            return run;
        }
        if !hashed {
            run.prefixes = None;
        }
        if run.classed {
            let other = usize::from(run.driver == 0);
            let differences =
                run.keys().iter().zip(&run.ranges[other]).map(|(key, other)| class(other.saturating_sub(*key)));
            run.prefixes = Some(differences.collect());
        }
        let place =
            |at: u32| (run.prefixes.as_ref().map_or(0, |prefixes| prefixes[at as usize]), run.keys()[at as usize]);
        let mut order: Vec<u32> = (0..run.len() as u32).collect();
        order.sort_by_key(|at| place(*at));
        let mut sorted = SortedRun {
            prefixes: run.prefixes.as_ref().map(|prefixes| arranged(prefixes, &order)),
            carried: run.carried.iter().map(|values| arranged(values, &order)).collect(),
            ranges: run.ranges.iter().map(|keys| arranged(keys, &order)).collect(),
            rows: arranged(&run.rows, &order),
            groups: Vec::new(),
            ..run
        };
        sorted.group();
        sorted
    }
}

/// Values in another order; none stay none.
fn arranged<T: Copy>(values: &[T], order: &[u32]) -> Vec<T> {
    if values.is_empty() { Vec::new() } else { order.iter().map(|at| values[*at as usize]).collect() }
}

impl LocalIndex for SortedIndex {
    fn insert(&mut self, keys: &Keys, first: u32) {
        for (error, range) in self.errors.iter_mut().zip(&keys.ranges) {
            *error = error.max(range.error());
        }
        self.rows = first + keys.rows as u32;
        let wild = (0..keys.wild.len()).filter(|row| keys.is_wild(*row) && !keys.is_null(*row));
        self.wild.extend(wild.map(|row| first + row as u32));
        if keys.order.is_empty() {
            return;
        }
        let order = || keys.order.iter().map(|row| *row as usize);
        let run = SortedRun {
            prefixes: keys.prefixes.as_ref().map(|prefixes| arranged(prefixes, &keys.order)),
            ranges: keys.ranges.iter().map(|range| order().map(|row| range.order(row)).collect()).collect(),
            driver: self.driver,
            rows: keys.order.iter().map(|row| first + row).collect(),
            carried: keys.carried.iter().map(|values| arranged(values, &keys.order)).collect(),
            ..SortedRun::default()
        };
        let run = self.sorted(run, self.driver == 0);
        runs::push(&mut self.runs, run);
    }

    fn observe(&mut self, keys: &Keys) {
        let Some(run) = self.runs.first().filter(|_| self.bounds.len() > 1 && self.stripes.is_none()) else { return };
        let probes = keys.order.iter().step_by(keys.order.len() / SAMPLED_PROBES + 1).map(|row| *row as usize);
        let mut looked = 0;
        let mut found = vec![0; self.bounds.len()];
        for row in probes {
            let stored = (0..run.len()).step_by(run.len() / SAMPLED_ROWS + 1);
            looked += stored.len() as u64;
            for (range, found) in found.iter_mut().enumerate() {
                let (low, high) = self.reach(keys, row, range);
                let keys = &run.ranges[range];
                *found += stored.clone().filter(|at| (low..=high).contains(&keys[*at])).count() as u64;
            }
        }
        self.selected.looked += looked;
        self.selected.by_range.iter_mut().zip(found).for_each(|(all, found)| *all += found);
        if self.selected.looked < ENOUGH {
            return;
        }
        let by_range = &self.selected.by_range;
        let best = (0..by_range.len()).min_by_key(|range| by_range[*range]).unwrap_or(self.driver);
        let change = by_range[best].saturating_mul(CLEARLY) < by_range[self.driver];
        self.selected.looked /= 2;
        self.selected.by_range.iter_mut().for_each(|found| *found /= 2);
        if change {
            self.drive_by(best);
        }
    }

    fn probe(&self, keys: &Keys, cursor: &mut Cursor, limit: usize, out: &mut Candidates) -> Probe {
        if let Some(run) = self.runs.first() {
            let capacity = out.stored.capacity();
            out.carried.resize_with(run.carried.len(), || Vec::with_capacity(capacity));
        }
        let frame = cursor.reach.take().unwrap_or_else(|| self.frame_reach(keys));
        while let Some(run) = self.runs.get(cursor.run) {
            let passes = if self.stripes.is_some() { frame.passes.len() } else { run.groups.len() };
            while cursor.pass < passes {
                if self.walk(run, (keys, &frame), cursor, limit, out) == Probe::Full {
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
        self.runs.iter().map(SortedRun::memory).sum::<usize>() + self.wild.capacity() * 4
    }
}
