//! Prefix sums: what lies between two places of a run is a difference.

use std::borrow::Cow;

/// Prefix sums of terms, in 64 bits while those of all rows fit.
#[derive(Debug)]
pub(super) enum Prefixes {
    Narrow {
        sums: Vec<i64>,
        /// Sum of the absolute values: no prefix is larger.
        most: u64,
    },
    Wide(Vec<i128>),
}

impl Prefixes {
    /// Of products.
    pub(super) fn of(products: impl ExactSizeIterator<Item = i128> + Clone) -> Self {
        let most: u128 = products.clone().map(i128::unsigned_abs).sum();
        match u64::try_from(most).ok().filter(|most| *most <= i64::MAX.unsigned_abs()) {
            Some(most) => Self::Narrow { sums: prefix_sums(products.map(|product| product as i64)), most },
            None => Self::Wide(prefix_sums(products)),
        }
    }

    /// The sum of the rows `from .. to`.
    pub(super) fn sum(&self, (from, to): (usize, usize)) -> i128 {
        match self {
            Self::Narrow { sums, .. } => i128::from(sums[to] - sums[from]),
            Self::Wide(sums) => sums[to] - sums[from],
        }
    }

    pub(super) fn merge(&self, other: &Self, from_other: &[bool]) -> Self {
        match (self, other) {
            (Self::Narrow { sums: a, most }, Self::Narrow { sums: b, most: other_most })
                if most.saturating_add(*other_most) <= i64::MAX.unsigned_abs() =>
            {
                Self::Narrow { sums: merge_sums(from_other, a, b), most: most + other_most }
            }
            (a, b) => Self::Wide(merge_sums(from_other, &a.widened(), &b.widened())),
        }
    }

    fn widened(&self) -> Cow<'_, [i128]> {
        match self {
            Self::Narrow { sums, .. } => sums.iter().copied().map(i128::from).collect(),
            Self::Wide(sums) => Cow::Borrowed(sums),
        }
    }

    pub(super) fn zero(rows: usize) -> Self {
        Self::Narrow { sums: vec![0; rows + 1], most: 0 }
    }

    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Narrow { sums, .. } => sums.capacity() * size_of::<i64>(),
            Self::Wide(sums) => sums.capacity() * size_of::<i128>(),
        }
    }
}

/// 0, then the sum of the first value, of the first two, ...
pub(super) fn prefix_sums<T: Copy + Default + std::ops::Add<Output = T>>(
    values: impl ExactSizeIterator<Item = T>,
) -> Vec<T> {
    let mut sums = Vec::with_capacity(values.len() + 1);
    let mut sum = T::default();
    sums.push(sum);
    for value in values {
        sum = sum + value;
        sums.push(sum);
    }
    sums
}

/// The prefix sums of two merged runs: at each row, what came from both before it.
pub(super) fn merge_sums<T: Copy + std::ops::Add<Output = T>>(from_other: &[bool], a: &[T], b: &[T]) -> Vec<T> {
    let mut sums = Vec::with_capacity(from_other.len() + 1);
    let (mut i, mut j) = (0, 0);
    sums.push(a[0] + b[0]);
    for second in from_other {
        i += usize::from(!second);
        j += usize::from(*second);
        sums.push(a[i] + b[j]);
    }
    sums
}
