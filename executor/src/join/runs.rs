//! Sorted runs: the rows of a side by their keys, in a few sorted runs.
//!
//! A batch of rows is sorted and becomes a run; a run that is not much smaller than the one before is
//! merged with it, so that there are few, whatever the keys: a log-structured merge tree in memory.
//! Probes come sorted too, and walk along a run. Measured against a grid of cells in hash tables, a
//! B-tree and a plain tree of two runs, see `docs/performance.md`.

use std::ops::Range;

/// A run is merged with the one before until that is so many times as long.
const RATIO: usize = 4;

/// A sorted run.
pub(super) trait Run: Sized {
    /// Number of rows.
    fn len(&self) -> usize;

    /// The rows of both.
    fn merge(&self, other: &Self) -> Self;
}

/// Adds a run, and merges what is not much longer.
pub(super) fn push<R: Run>(runs: &mut Vec<R>, run: R) {
    runs.push(run);
    while let [.., before, last] = runs.as_slice()
        && last.len() * RATIO > before.len()
    {
        let merged = before.merge(last);
        runs.truncate(runs.len() - 2);
        runs.push(merged);
    }
}

/// Two sorted lists as one, and of each element whether it is from the second.
pub(super) fn merge_keys<K: Copy + PartialOrd>(a: &[K], b: &[K]) -> (Vec<K>, Vec<bool>) {
    let rows = a.len() + b.len();
    let (mut keys, mut second) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let from_b = b[j] < a[i];
        keys.push(if from_b { b[j] } else { a[i] });
        second.push(from_b);
        i += usize::from(!from_b);
        j += usize::from(from_b);
    }
    second.resize(second.len() + a.len() - i, false);
    keys.extend_from_slice(&a[i..]);
    second.resize(second.len() + b.len() - j, true);
    keys.extend_from_slice(&b[j..]);
    (keys, second)
}

/// What belongs to the keys that [`merge_keys`] merged.
pub(super) fn merge_values<T: Copy>(second: &[bool], a: &[T], b: &[T]) -> Vec<T> {
    let (mut i, mut j) = (0, 0);
    let mut next = |from_b: &bool| {
        let value = if *from_b { b[j] } else { a[i] };
        i += usize::from(!from_b);
        j += usize::from(*from_b);
        value
    };
    second.iter().map(&mut next).collect()
}

/// The first position of `from .. rows` that is not `before`, if all after it are not either: looked
/// for in growing steps, as it is seldom far.
pub(super) fn advance(rows: usize, from: usize, before: impl Fn(usize) -> bool) -> usize {
    let mut low = from;
    let mut step = 1;
    while low + step <= rows && before(low + step - 1) {
        low += step;
        step *= 2;
    }
    partition(low, rows.min(low + step - 1), before)
}

/// The first position of `rows` that is not `before`, if all after it are not either: looked for in
/// growing steps in both directions from `near`.
pub(super) fn seek(rows: Range<usize>, near: usize, before: impl Fn(usize) -> bool) -> usize {
    let near = near.clamp(rows.start, rows.end);
    if near == rows.start || before(near - 1) {
        return advance(rows.end, near, before);
    }
    let (mut low, mut high, mut step) = (rows.start, near - 1, 1);
    while high - rows.start >= step {
        if before(high - step) {
            low = high - step + 1;
            break;
        }
        high -= step;
        step *= 2;
    }
    partition(low, high, before)
}

/// The first position of `low ..= high` that is not `before`, which all before it are.
fn partition(mut low: usize, mut high: usize, before: impl Fn(usize) -> bool) -> usize {
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Run for Vec<(i64, u32)> {
        fn len(&self) -> usize {
            self.len()
        }

        fn merge(&self, other: &Self) -> Self {
            let keys = |run: &Self| run.iter().map(|(key, _)| *key).collect::<Vec<_>>();
            let values = |run: &Self| run.iter().map(|(_, value)| *value).collect::<Vec<_>>();
            let (merged, second) = merge_keys(&keys(self), &keys(other));
            merged.into_iter().zip(merge_values(&second, &values(self), &values(other))).collect()
        }
    }

    proptest! {
        #[test]
        fn runs_hold_what_was_pushed_in_order(batches in prop::collection::vec(prop::collection::vec(-20_i64..20, 0..40), 0..30)) {
            let mut runs: Vec<Vec<(i64, u32)>> = Vec::new();
            let mut all = Vec::new();
            for (number, mut batch) in (0..).zip(batches) {
                batch.sort_unstable();
                let run: Vec<(i64, u32)> = batch.into_iter().map(|key| (key, number)).collect();
                all.extend_from_slice(&run);
                push(&mut runs, run);
            }
            prop_assert!(runs.iter().all(|run| run.is_sorted_by_key(|(key, _)| *key)));
            prop_assert!(runs.windows(2).all(|pair| pair[1].len() * RATIO <= pair[0].len()));
            let mut held: Vec<_> = runs.concat();
            held.sort_unstable();
            all.sort_unstable();
            prop_assert_eq!(held, all);
        }

        #[test]
        fn advancing_finds_the_first(mut keys in prop::collection::vec(-20_i64..20, 0..60), from in 0_usize..60, bound in -22_i64..22) {
            keys.sort_unstable();
            let from = from.min(keys.len());
            let expected = (from..keys.len()).find(|at| keys[*at] >= bound).unwrap_or(keys.len());
            prop_assert_eq!(advance(keys.len(), from, |at| keys[at] < bound), expected);
        }

        #[test]
        fn seeking_finds_the_first_from_anywhere(
            mut keys in prop::collection::vec(-20_i64..20, 0..60), part in (0_usize..60, 0_usize..60), near in 0_usize..70, bound in -22_i64..22,
        ) {
            keys.sort_unstable();
            let (a, b) = (part.0.min(keys.len()), part.1.min(keys.len()));
            let rows = a.min(b)..a.max(b);
            let expected = rows.clone().find(|at| keys[*at] >= bound).unwrap_or(rows.end);
            prop_assert_eq!(seek(rows, near, |at| keys[at] < bound), expected);
        }
    }
}
