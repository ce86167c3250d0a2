//! COUNT.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};

use super::{Accumulator, Update, same};
use crate::error::ExecError;

/// Rows, or rows with all arguments.
#[derive(Debug, Default)]
pub(super) struct Count {
    counts: Vec<i64>,
}

impl Accumulator for Count {
    fn resize(&mut self, groups: usize) {
        self.counts.resize(groups, 0);
    }

    fn update(&mut self, update: &Update<'_>) -> Result<(), ExecError> {
        update.each().for_each(|(group, weight, _)| self.counts[group] += weight);
        Ok(())
    }

    fn merge(&mut self, other: &dyn Accumulator, map: &[u32]) -> Result<(), ExecError> {
        let other: &Self = same(other);
        map.iter().zip(&other.counts).for_each(|(group, count)| self.counts[*group as usize] += count);
        Ok(())
    }

    fn values(&self, groups: &[u32]) -> Result<ArrayRef, ExecError> {
        Ok(Arc::new(Int64Array::from_iter_values(groups.iter().map(|group| self.counts[*group as usize]))))
    }

    fn reset(&mut self, group: u32) {
        self.counts[group as usize] = 0;
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
