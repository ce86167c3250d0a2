//! Sums by the range of one key: each side is a few sorted runs with prefix sums, so that what lies
//! between two keys is a difference, however many rows that are.

use thetis_planner::physical::{FoldKind, Side};
use thetis_planner::theta::Bounds;

use super::minima::Minima;
use super::prefix::{Prefixes, merge_sums, prefix_sums};
use super::{Given, Judge, RowKeys, Rows, Total, Totals, add_least};
use crate::error::ExecError;
use crate::join::keys::{Ranges, reach_of, sure_reach_of};
use crate::join::runs::{self, Run, advance, merge_keys, merge_values};

/// Rows of a side that are sorted together: more when there are many, so that a walk along a long run
/// does not step over most of it.
const LEAST_BATCH: usize = 1 << 16;
const MOST_BATCH: usize = 1 << 19;

/// Rows that are counted at a time.
const STRETCH: usize = 4096;

/// Both sides.
#[derive(Debug)]
pub(super) struct ByRange {
    bounds: Bounds,
    kinds: Vec<FoldKind>,
    waiting: [Waiting; 2],
    runs: [Vec<Sums>; 2],
    /// Bounds on the errors of the keys.
    errors: [f64; 2],
}

/// Rows that came and are in no run yet. Those of either side are counted when they become one: the
/// order of the sides makes no difference.
#[derive(Debug, Default)]
struct Waiting {
    rows: usize,
    parts: Vec<Rows>,
}

/// A run: keys in their order, and prefix sums of what belongs to them.
#[derive(Debug, Default)]
struct Sums {
    keys: Vec<i64>,
    /// Numbers in the store, of keys that are not exact.
    rows: Option<Vec<u32>>,
    /// Absent when all weights are one.
    weights: Option<Vec<i64>>,
    calls: Vec<CallSums>,
}

#[derive(Debug, Default)]
struct CallSums {
    /// Absent when they are the run's weights.
    counts: Option<Vec<i64>>,
    /// Absent when all are zero.
    terms: Option<Prefixes>,
    /// Of a call that looks for the least of this side.
    least: Option<Minima>,
}

/// Sorted rows that are counted against runs.
struct Batch {
    keys: Vec<i64>,
    /// Numbers in the store, where not all that is in reach matches.
    rows: Option<Vec<u32>>,
    weights: Option<Vec<i64>>,
    calls: Vec<Given>,
    groups: Option<Vec<u32>>,
}

impl ByRange {
    pub(super) fn new(bounds: Bounds, kinds: &[FoldKind]) -> Self {
        Self { bounds, kinds: kinds.to_vec(), waiting: Default::default(), runs: Default::default(), errors: [0.0; 2] }
    }

    pub(super) fn add(
        &mut self,
        side: Side,
        rows: Rows,
        judge: &dyn Judge,
        totals: &mut Totals,
    ) -> Result<(), ExecError> {
        self.allow_for(side, &rows);
        let waiting = &mut self.waiting[side.index()];
        waiting.rows += rows.weights.len();
        waiting.parts.push(rows);
        let known: usize = self.runs[side.other().index()].iter().map(Run::len).sum();
        let enough = (known / 4).clamp(LEAST_BATCH, MOST_BATCH);
        if waiting.rows >= enough { self.flush_side(side, judge, totals) } else { Ok(()) }
    }

    /// The errors of keys count wherever they are compared.
    fn allow_for(&mut self, side: Side, rows: &Rows) {
        if let RowKeys::Ranges(ranges, _) = &rows.keys {
            let error = &mut self.errors[side.index()];
            *error = error.max(ranges.error());
        }
    }

    pub(super) fn flush(&mut self, judge: &dyn Judge, totals: &mut Totals) -> Result<(), ExecError> {
        Side::BOTH.into_iter().try_for_each(|side| self.flush_side(side, judge, totals))
    }

    fn flush_side(&mut self, side: Side, judge: &dyn Judge, totals: &mut Totals) -> Result<(), ExecError> {
        let waiting = std::mem::take(&mut self.waiting[side.index()]);
        if waiting.rows == 0 {
            return Ok(());
        }
        let batch = Batch::of(waiting)?;
        for run in &self.runs[side.other().index()] {
            self.count(&batch, run, (side, judge), totals)?;
        }
        runs::push(&mut self.runs[side.index()], Sums::of(batch));
        Ok(())
    }

    /// Counts rows of the side that makes the groups, when all of the other are there.
    pub(super) fn add_all(
        &mut self,
        side: Side,
        rows: Vec<Rows>,
        judge: &dyn Judge,
        totals: &mut Totals,
    ) -> Result<(), ExecError> {
        rows.iter().for_each(|rows| self.allow_for(side, rows));
        let mut left = rows.into_iter().peekable();
        while left.peek().is_some() {
            let mut waiting = Waiting::default();
            while let Some(rows) = left.next_if(|_| waiting.rows < MOST_BATCH) {
                waiting.rows += rows.weights.len();
                waiting.parts.push(rows);
            }
            let batch = Batch::of(waiting)?;
            for run in &self.runs[side.other().index()] {
                self.count(&batch, run, (side, judge), totals)?;
            }
        }
        Ok(())
    }

    /// Adds the pairs of a batch with the rows of a run of the other side.
    fn count(
        &self,
        batch: &Batch,
        run: &Sums,
        (side, judge): (Side, &dyn Judge),
        totals: &mut Totals,
    ) -> Result<(), ExecError> {
        let (bounds, other, error) = (&self.bounds, side.other(), self.errors[0] + self.errors[1]);
        let (mut from, mut to) = (0, 0);
        let mut counted: Vec<(usize, (usize, usize))> = Vec::with_capacity(STRETCH);
        let mut doubts = Doubts::default();
        for start in (0..batch.keys.len()).step_by(STRETCH) {
            counted.clear();
            for (row, key) in (start..).zip(batch.keys[start..].iter().take(STRETCH)) {
                let (low, high) = reach_of(*key, bounds, other, error);
                from = advance(run.keys.len(), from, |at| run.keys[at] < low);
                to = advance(run.keys.len(), to.max(from), |at| run.keys[at] <= high);
                let mut span = (from, to);
                if batch.rows.is_some() && from < to {
                    let (low, high) = sure_reach_of(*key, bounds, other, error);
                    let sure_from = advance(to, from, |at| run.keys[at] < low);
                    let sure_to = advance(to, sure_from, |at| run.keys[at] <= high);
                    span = (sure_from, sure_to);
                    doubts.add(batch, row, run, [(from, sure_from), (sure_to, to)]);
                }
                if span.0 < span.1 {
                    counted.push((row, span));
                }
            }
            if !doubts.spans.is_empty() {
                let matches = judge.judge(side, &doubts.rows, &doubts.others)?;
                counted.extend(matches.values().set_indices().map(|at| doubts.spans[at]));
                doubts = Doubts::default();
            }
            match &batch.groups {
                None => batch.add(run, &counted, &self.kinds, totals.of(0)),
                Some(groups) => {
                    for one in &counted {
                        batch.add(run, std::slice::from_ref(one), &self.kinds, totals.of(groups[one.0]));
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn memory(&self) -> usize {
        self.runs.iter().flatten().map(Sums::memory).sum()
    }
}

/// What rows of several parts give, in the order of their keys, parts and rows.
fn arranged<T>(order: &[(i64, u32, u32)], parts: &[Rows], of: impl Fn(&Rows, usize) -> T) -> Vec<T> {
    order.iter().map(|(_, part, row)| of(&parts[*part as usize], *row as usize)).collect()
}

impl Batch {
    /// Sorts what waits. Rows of weight zero are left out.
    fn of(waiting: Waiting) -> Result<Self, ExecError> {
        let mut order: Vec<(i64, u32, u32)> = Vec::with_capacity(waiting.rows);
        let (mut weighted, mut floats) = (false, false);
        for (number, part) in (0..).zip(&waiting.parts) {
            let RowKeys::Ranges(keys, _) = &part.keys else {
                return Err(ExecError::Internal("rows without range keys".to_owned()));
            };
            floats |= matches!(keys, Ranges::Float(..));
            weighted |= part.weights.iter().any(|weight| *weight != 1);
            let present = (0..part.weights.len()).filter(|row| part.weights[*row] != 0);
            order.extend(present.map(|row| (keys.order(row), number, row as u32)));
        }
        order.sort_unstable_by_key(|(key, ..)| *key);
        let parts = &waiting.parts;
        let calls = (0..parts[0].calls.len()).map(|call| {
            let some = |is: fn(&Given) -> bool| parts.iter().any(|part| is(&part.calls[call]));
            let count = |part: &Rows, row: usize| {
                part.calls[call].counts.as_ref().map_or_else(|| part.weights[row], |counts| counts[row])
            };
            let term = |part: &Rows, row: usize| part.calls[call].terms.as_ref().map_or(0, |terms| terms[row]);
            let code = |part: &Rows, row: usize| part.calls[call].codes.as_ref().map_or(i128::MAX, |codes| codes[row]);
            Given {
                counts: some(|given| given.counts.is_some()).then(|| arranged(&order, parts, count)),
                terms: some(|given| given.terms.is_some()).then(|| arranged(&order, parts, term)),
                codes: some(|given| given.codes.is_some()).then(|| arranged(&order, parts, code)),
            }
        });
        let calls = calls.collect();
        let number = |part: &Rows, row: usize| match &part.keys {
            RowKeys::Ranges(_, first) => first + row as u32,
            _ => 0,
        };
        let group = |part: &Rows, row: usize| part.groups.as_ref().map_or(0, |groups| groups[row]);
        let weights = weighted.then(|| arranged(&order, parts, |part, row| part.weights[row]));
        let rows = floats.then(|| arranged(&order, parts, number));
        let groups = parts.iter().any(|part| part.groups.is_some()).then(|| arranged(&order, parts, group));
        let keys = order.into_iter().map(|(key, ..)| key).collect();
        Ok(Self { keys, rows, weights, calls, groups })
    }

    /// Adds the pairs of rows with spans of a run.
    fn add(&self, run: &Sums, counted: &[(usize, (usize, usize))], kinds: &[FoldKind], total: &mut Total) {
        let weight = |row: usize| i128::from(self.weights.as_ref().map_or(1, |weights| weights[row]));
        let matched = |(from, to): (usize, usize)| i128::from(run.weight(from, to));
        total.pairs += counted.iter().map(|(row, span)| weight(*row) * matched(*span)).sum::<i128>();
        let calls = self.calls.iter().zip(&run.calls).zip(kinds).zip(&mut total.calls);
        for (((given, sums), kind), total) in calls {
            for (row, span) in counted.iter().copied() {
                let count = given.counts.as_ref().map_or_else(|| weight(row), |counts| i128::from(counts[row]));
                let matches = match &sums.counts {
                    Some(sums) => i128::from(sums[span.1] - sums[span.0]),
                    None => matched(span),
                };
                if matches!(kind, FoldKind::Min | FoldKind::Max) {
                    let own = given.codes.as_ref().map(|codes| codes[row]);
                    let least = || own.or_else(|| Some(sums.least.as_ref()?.least(span))).unwrap_or(i128::MAX);
                    if count * matches != 0 {
                        add_least(total, count * matches, least());
                    }
                    continue;
                }
                total.0 += count * matches;
                if let Some(terms) = &given.terms {
                    total.1 += i128::from(terms[row]) * count * matches;
                }
                if let Some(sums) = &sums.terms {
                    total.1 += sums.sum(span) * count;
                }
            }
        }
    }
}

/// Pairs of a row and rows with one key that may match or not.
#[derive(Default)]
struct Doubts {
    spans: Vec<(usize, (usize, usize))>,
    /// In the store: the row, and one of the others.
    rows: Vec<u32>,
    others: Vec<u32>,
}

impl Doubts {
    /// Adds the pairs of a row with spans of a run. Rows with the same key match alike.
    fn add(&mut self, batch: &Batch, row: usize, run: &Sums, spans: [(usize, usize); 2]) {
        let (Some(rows), Some(others)) = (&batch.rows, &run.rows) else { return };
        for (mut start, end) in spans {
            for equal in run.keys[start..end].chunk_by(|a, b| a == b) {
                self.spans.push((row, (start, start + equal.len())));
                self.rows.push(rows[row]);
                self.others.push(others[start]);
                start += equal.len();
            }
        }
    }
}

impl Sums {
    fn of(mut batch: Batch) -> Self {
        let weights = batch.weights.as_ref();
        let call = |given: &mut Given| {
            let count = |row: usize| {
                let weight = || weights.map_or(1, |weights| weights[row]);
                given.counts.as_ref().map_or_else(weight, |counts| counts[row])
            };
            let products = |terms: &Vec<i64>| {
                Prefixes::of(terms.iter().enumerate().map(|(row, term)| i128::from(*term) * i128::from(count(row))))
            };
            let least = given.codes.take().map(|mut codes| {
                // Rows that do not count have nothing to say.
                codes
                    .iter_mut()
                    .enumerate()
                    .filter(|(row, _)| count(*row) == 0)
                    .for_each(|(_, code)| *code = i128::MAX);
                Minima::new(codes)
            });
            CallSums {
                counts: given.counts.as_ref().map(|counts| prefix_sums(counts.iter().copied())),
                terms: given.terms.as_ref().map(products),
                least,
            }
        };
        Self {
            calls: batch.calls.iter_mut().map(call).collect(),
            weights: batch.weights.as_ref().map(|weights| prefix_sums(weights.iter().copied())),
            rows: batch.rows,
            keys: batch.keys,
        }
    }

    /// Sum of the weights of the rows `from .. to`.
    fn weight(&self, from: usize, to: usize) -> i64 {
        self.weights.as_ref().map_or((to - from) as i64, |sums| sums[to] - sums[from])
    }

    fn memory(&self) -> usize {
        let words = |sums: &Option<Vec<i64>>| sums.as_ref().map_or(0, |sums| sums.capacity() * 8);
        let call = |call: &CallSums| {
            let least = call.least.as_ref().map_or(0, Minima::memory);
            words(&call.counts) + call.terms.as_ref().map_or(0, Prefixes::memory) + least
        };
        let rows = self.rows.as_ref().map_or(0, |rows| rows.capacity() * 4);
        self.keys.capacity() * 8 + rows + words(&self.weights) + self.calls.iter().map(call).sum::<usize>()
    }
}

impl Run for Sums {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn merge(&self, other: &Self) -> Self {
        let (keys, from_other) = merge_keys(&self.keys, &other.keys);
        let weights = |run: &Self| run.weights.clone().unwrap_or_else(|| (0..=run.keys.len() as i64).collect());
        let weighted = self.weights.is_some() || other.weights.is_some();
        let call = |(a, b): (&CallSums, &CallSums)| {
            let counts = |sums: &CallSums, run: &Self| sums.counts.clone().unwrap_or_else(|| weights(run));
            let counted = a.counts.is_some() || b.counts.is_some();
            CallSums {
                counts: counted.then(|| merge_sums(&from_other, &counts(a, self), &counts(b, other))),
                terms: match (&a.terms, &b.terms) {
                    (Some(a), Some(b)) => Some(a.merge(b, &from_other)),
                    (None, None) => None,
                    (Some(a), None) => Some(a.merge(&Prefixes::zero(other.keys.len()), &from_other)),
                    (None, Some(b)) => Some(Prefixes::zero(self.keys.len()).merge(b, &from_other)),
                },
                least: a
                    .least
                    .as_ref()
                    .zip(b.least.as_ref())
                    .map(|(a, b)| Minima::new(merge_values(&from_other, a.values(), b.values()))),
            }
        };
        Self {
            calls: self.calls.iter().zip(&other.calls).map(call).collect(),
            weights: weighted.then(|| merge_sums(&from_other, &weights(self), &weights(other))),
            rows: self.rows.as_ref().zip(other.rows.as_ref()).map(|(a, b)| merge_values(&from_other, a, b)),
            keys,
        }
    }
}
