//! BOOL_AND and BOOL_OR: the rows that are false and those that are true are counted.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray};

use super::{Accumulator, Update, same};
use crate::error::ExecError;

/// Whether all are true, or any is.
#[derive(Debug)]
pub(super) struct Boolean {
    all: bool,
    /// How many are false, how many true.
    groups: Vec<[i64; 2]>,
}

impl Boolean {
    pub(super) fn new(all: bool) -> Self {
        Self { all, groups: Vec::new() }
    }

    fn value(&self, group: u32) -> Option<bool> {
        match self.groups[group as usize] {
            [0, 0] => None,
            [no, _] if self.all => Some(no == 0),
            [_, yes] => Some(yes != 0),
        }
    }
}

impl Accumulator for Boolean {
    fn resize(&mut self, groups: usize) {
        self.groups.resize(groups, [0; 2]);
    }

    fn update(&mut self, update: &Update<'_>) -> Result<(), ExecError> {
        let values = update.argument()?.as_boolean().values();
        update.each().for_each(|(group, weight, row)| self.groups[group][usize::from(values.value(row))] += weight);
        Ok(())
    }

    fn merge(&mut self, other: &dyn Accumulator, map: &[u32]) -> Result<(), ExecError> {
        let other: &Self = same(other);
        for (group, [no, yes]) in map.iter().zip(&other.groups) {
            let own = &mut self.groups[*group as usize];
            *own = [own[0] + no, own[1] + yes];
        }
        Ok(())
    }

    fn values(&self, groups: &[u32]) -> Result<ArrayRef, ExecError> {
        Ok(Arc::new(groups.iter().map(|group| self.value(*group)).collect::<BooleanArray>()))
    }

    fn reset(&mut self, group: u32) {
        self.groups[group as usize] = [0; 2];
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
