//! MIN and MAX of values that have codes, over input without deletes: the least code of each group.

use std::any::Any;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;

use super::{Accumulator, Update, same};
use crate::error::ExecError;
use crate::exact::{codes, values_of};

/// The codes of MAX are turned around, so that the least is looked for in either case.
#[derive(Debug)]
pub(super) struct CodedExtreme {
    greatest: bool,
    output: DataType,
    least: Vec<Option<i128>>,
}

impl CodedExtreme {
    pub(super) fn new(greatest: bool, output: DataType) -> Self {
        Self { greatest, output, least: Vec::new() }
    }

    fn turned(&self, code: i128) -> i128 {
        if self.greatest { !code } else { code }
    }

    fn add(&mut self, group: usize, code: i128) {
        let least = &mut self.least[group];
        *least = Some(least.map_or(code, |least| least.min(code)));
    }
}

impl Accumulator for CodedExtreme {
    fn resize(&mut self, groups: usize) {
        self.least.resize(groups, None);
    }

    fn update(&mut self, update: &Update<'_>) -> Result<(), ExecError> {
        let codes = codes(update.argument()?)?;
        update.each().for_each(|(group, _, row)| self.add(group, self.turned(codes[row])));
        Ok(())
    }

    fn merge(&mut self, other: &dyn Accumulator, map: &[u32]) -> Result<(), ExecError> {
        let other: &Self = same(other);
        let known = map.iter().zip(&other.least).filter_map(|(group, least)| Some((*group, (*least)?)));
        known.for_each(|(group, least)| self.add(group as usize, least));
        Ok(())
    }

    fn state(&self) -> Result<Vec<ArrayRef>, ExecError> {
        let all: Vec<u32> = (0..self.least.len() as u32).collect();
        Ok(vec![self.values(&all)?])
    }

    fn merge_state(&mut self, state: &[ArrayRef], groups: &[u32]) -> Result<(), ExecError> {
        let codes = codes(&state[0])?;
        let rows = groups.iter().enumerate().filter(|(row, _)| state[0].is_valid(*row));
        rows.for_each(|(row, group)| self.add(*group as usize, self.turned(codes[row])));
        Ok(())
    }

    fn values(&self, groups: &[u32]) -> Result<ArrayRef, ExecError> {
        values_of(groups.iter().map(|group| Some(self.turned(self.least[*group as usize]?))), &self.output)
    }

    fn reset(&mut self, group: u32) {
        self.least[group as usize] = None;
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
