//! COUNT.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::Int64Type;

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
        match (update.groups, update.weights) {
            (None, None) => self.counts[0] += update.rows.len() as i64,
            _ => update.each().for_each(|(group, weight, _)| self.counts[group] += weight),
        }
        Ok(())
    }

    fn state(&self) -> Result<Vec<ArrayRef>, ExecError> {
        Ok(vec![Arc::new(Int64Array::from(self.counts.clone()))])
    }

    fn merge_state(&mut self, state: &[ArrayRef], groups: &[u32]) -> Result<(), ExecError> {
        let counts = state[0].as_primitive::<Int64Type>().values();
        groups.iter().zip(counts).for_each(|(group, count)| self.counts[*group as usize] += count);
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
