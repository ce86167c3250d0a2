//! The least of any span of a list, in a time that does not depend on its length.

/// Values that share an entry of the table.
const BLOCK: usize = 32;

/// A list, and the least value of each 1, 2, 4, ... of its blocks.
#[derive(Debug, Default)]
pub(super) struct Minima {
    values: Vec<i128>,
    levels: Vec<Vec<i128>>,
}

fn least(values: &[i128]) -> i128 {
    values.iter().copied().min().unwrap_or(i128::MAX)
}

impl Minima {
    pub(super) fn new(values: Vec<i128>) -> Self {
        let mut levels: Vec<Vec<i128>> = vec![values.chunks_exact(BLOCK).map(least).collect()];
        let mut width = 1;
        while let Some(last) = levels.last()
            && last.len() > width
        {
            levels.push((0..last.len() - width).map(|block| last[block].min(last[block + width])).collect());
            width *= 2;
        }
        Self { values, levels }
    }

    pub(super) fn values(&self) -> &[i128] {
        &self.values
    }

    /// The least of `from .. to`; `i128::MAX` of none.
    pub(super) fn least(&self, (from, to): (usize, usize)) -> i128 {
        let (first, end) = (from.div_ceil(BLOCK), to / BLOCK);
        if first >= end {
            return least(&self.values[from..to]);
        }
        let level = (end - first).ilog2() as usize;
        let blocks = &self.levels[level];
        let between = blocks[first].min(blocks[end - (1 << level)]);
        between.min(least(&self.values[from..first * BLOCK])).min(least(&self.values[end * BLOCK..to]))
    }

    pub(super) fn memory(&self) -> usize {
        let levels: usize = self.levels.iter().map(Vec::capacity).sum();
        (self.values.capacity() + levels) * size_of::<i128>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn spans_have_their_least(values in prop::collection::vec(-1000_i128..1000, 0..400), ends in (0_usize..400, 0_usize..400)) {
            let (a, b) = (ends.0.min(values.len()), ends.1.min(values.len()));
            let (from, to) = (a.min(b), a.max(b));
            prop_assert_eq!(Minima::new(values.clone()).least((from, to)), least(&values[from..to]));
        }
    }
}
