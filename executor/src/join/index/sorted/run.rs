//! A sorted run: rows in the order of one range key, in columns.

use std::ops::Range;

use super::super::Candidates;
use crate::join::runs::{Run, merge_keys, merge_values, seek};

/// Sorted rows.
#[derive(Debug, Default)]
pub(super) struct SortedRun {
    /// What rows are sorted by before their key: hashes of equality keys, stripes, or classes.
    pub(super) prefixes: Option<Vec<u64>>,
    /// They are classes.
    pub(super) classed: bool,
    /// The order numbers of the keys of each range.
    pub(super) ranges: Vec<Vec<i64>>,
    /// The range whose keys make the order.
    pub(super) driver: usize,
    /// Numbers in the store.
    pub(super) rows: Vec<u32>,
    /// [`crate::join::keys::Keys::carried`].
    pub(super) carried: Vec<Vec<u64>>,
    /// Parts that are searched one by one.
    pub(super) groups: Vec<Group>,
}

/// Rows of a run, and how far the keys of each range are from those that make the order:
///
/// ```text
/// low <= other  and  other <= key + most   give   key >= low - most
/// ```
///
/// So what is asked of another range narrows the span of the keys that are looked at. Of intervals that
/// are about as long, few are looked at that do not hold the point.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) rows: Range<usize>,
    /// Least and greatest difference, of each range; one that does not fit is not known.
    spreads: Vec<(i64, i64)>,
}

impl Group {
    /// The keys of the driving range that can be in reach of a row, by what it reaches by each.
    pub(super) fn narrowed(&self, reaches: &[Vec<(i64, i64)>], row: usize) -> (i64, i64) {
        if let [reach] = reaches {
            return reach[row];
        }
        const NONE: (i64, i64) = (i64::MAX, i64::MIN);
        let (mut low, mut high) = (i64::MIN, i64::MAX);
        for (reach, (least, most)) in reaches.iter().zip(&self.spreads) {
            let (from, to) = reach[row];
            if from > to {
                return NONE;
            }
            // A bound beyond all keys bounds nothing, or leaves nothing.
            match from.checked_sub(*most) {
                _ if *most == i64::MAX => {}
                Some(bound) => low = low.max(bound),
                None if *most < 0 => return NONE,
                None => {}
            }
            match to.checked_sub(*least) {
                _ if *least == i64::MIN => {}
                Some(bound) => high = high.min(bound),
                None if *least > 0 => return NONE,
                None => {}
            }
        }
        (low, high)
    }

    /// What is in the narrowed span is in all ranges: their keys are the same but for constants.
    pub(super) fn is_exact(&self) -> bool {
        self.spreads.iter().all(|(least, most)| least == most && ![i64::MIN, i64::MAX].contains(least))
    }
}

/// Rows whose other key is about as far from the driving one, within a factor of sixteen, have the same
/// class: fewer classes are searched faster, and the longest that a class has is known.
pub(super) fn class(difference: i64) -> u64 {
    let bits = u64::BITS - difference.unsigned_abs().leading_zeros();
    u64::from(bits.div_ceil(4)) << 1 | u64::from(difference < 0)
}

/// What a row asks of the ranges that do not make the order.
pub(super) type Filters = Vec<(usize, (i64, i64))>;

impl SortedRun {
    pub(super) fn keys(&self) -> &[i64] {
        self.ranges.get(self.driver).map_or(&[], Vec::as_slice)
    }

    /// Finds the groups: one for each prefix, if those are classes.
    pub(super) fn group(&mut self) {
        let whole = std::iter::once(0..self.rows.len());
        let parts: Vec<Range<usize>> = match &self.prefixes {
            Some(classes) if self.classed => {
                let ends = classes.chunk_by(|a, b| a == b).scan(0, |end, part| {
                    *end += part.len();
                    Some(*end - part.len()..*end)
                });
                ends.collect()
            }
            _ => whole.collect(),
        };
        let keys = self.keys();
        let spread = |range: &Vec<i64>, part: &Range<usize>| {
            let differences = range[part.clone()].iter().zip(&keys[part.clone()]).map(|(a, b)| a.saturating_sub(*b));
            differences.fold((i64::MAX, i64::MIN), |(least, most), d| (least.min(d), most.max(d)))
        };
        let spreads = |part: &Range<usize>| match self.ranges.as_slice() {
            [_] => Vec::new(),
            ranges => ranges.iter().map(|range| spread(range, part)).collect(),
        };
        self.groups = parts.into_iter().map(|part| Group { spreads: spreads(&part), rows: part }).collect();
    }

    /// The positions that lie between two keys: within `rows`, or of a prefix.
    pub(super) fn span(
        &self,
        near: (usize, usize),
        (rows, prefix): (Range<usize>, Option<u64>),
        (low, high): (i64, i64),
    ) -> (usize, usize) {
        let keys = self.keys();
        let end = rows.end;
        match (&self.prefixes, prefix) {
            (Some(prefixes), Some(prefix)) => {
                let start = seek(rows, near.0, |at| (prefixes[at], keys[at]) < (prefix, low));
                (start, seek(start..end, near.1, |at| (prefixes[at], keys[at]) <= (prefix, high)))
            }
            _ => {
                let start = seek(rows, near.0, |at| keys[at] < low);
                (start, seek(start..end, near.1, |at| keys[at] <= high))
            }
        }
    }

    /// Adds the rows `from .. to` that pass all filters.
    pub(super) fn list(&self, (from, to): (usize, usize), row: usize, filters: &Filters, out: &mut Candidates) {
        let first = out.len();
        if filters.is_empty() {
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
                let inside = |(range, (low, high)): &(usize, (i64, i64))| {
                    let key = self.ranges[*range][at];
                    (*low <= key) & (key <= *high)
                };
                found += usize::from(filters.iter().all(inside));
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

    pub(super) fn memory(&self) -> usize {
        let words = |columns: &[Vec<u64>]| columns.iter().map(|values| values.capacity() * 8).sum::<usize>();
        let ranges: usize = self.ranges.iter().map(|keys| keys.capacity() * 8).sum();
        words(self.prefixes.as_slice()) + ranges + self.rows.capacity() * 4 + words(&self.carried)
    }
}

impl Run for SortedRun {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn merge(&self, other: &Self) -> Self {
        let (prefixes, keys, second) = match (&self.prefixes, &other.prefixes) {
            (Some(a), Some(b)) => {
                let places = |prefixes: &[u64], keys: &[i64]| {
                    prefixes.iter().copied().zip(keys.iter().copied()).collect::<Vec<(u64, i64)>>()
                };
                let (places, second) = merge_keys(&places(a, self.keys()), &places(b, other.keys()));
                let (prefixes, keys) = places.into_iter().unzip();
                (Some(prefixes), keys, second)
            }
            _ => {
                let (keys, second) = merge_keys(self.keys(), other.keys());
                (None, keys, second)
            }
        };
        let mut keys = Some(keys);
        let ranges = self.ranges.iter().zip(&other.ranges).enumerate().map(|(range, (a, b))| {
            let driving = (range == self.driver).then(|| keys.take()).flatten();
            driving.unwrap_or_else(|| merge_values(&second, a, b))
        });
        let carried = self.carried.iter().zip(&other.carried);
        let carried = carried.map(|(a, b)| match a.is_empty() || b.is_empty() {
            true => Vec::new(),
            false => merge_values(&second, a, b),
        });
        let mut merged = Self {
            ranges: ranges.collect(),
            carried: carried.collect(),
            rows: merge_values(&second, &self.rows, &other.rows),
            driver: self.driver,
            classed: self.classed,
            prefixes,
            groups: Vec::new(),
        };
        merged.group();
        merged
    }
}
