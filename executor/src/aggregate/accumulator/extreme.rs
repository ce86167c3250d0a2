//! MIN and MAX: the values with their multiplicities when deletes can come, else the best one.

use std::any::Any;
use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, new_null_array};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};

use super::{Accumulator, Update, same};
use crate::error::ExecError;

/// MIN and MAX over row bytes, whose order is the order of the values.
#[derive(Debug)]
pub(super) struct Extreme {
    greatest: bool,
    output: DataType,
    converter: RowConverter,
    /// All values with their multiplicities are needed only if some can be deleted.
    retracts: bool,
    groups: Vec<BTreeMap<Box<[u8]>, i64>>,
}

impl Extreme {
    pub(super) fn new(greatest: bool, output: DataType, retracts: bool) -> Result<Self, ExecError> {
        let converter = RowConverter::new(vec![SortField::new(output.clone())])?;
        Ok(Self { greatest, output, converter, retracts, groups: Vec::new() })
    }

    fn best(&self, group: usize) -> Option<&[u8]> {
        let values = &self.groups[group];
        let best = if self.greatest { values.last_key_value() } else { values.first_key_value() };
        best.map(|(bytes, _)| bytes.as_ref())
    }

    fn add(&mut self, group: usize, bytes: &[u8], weight: i64) {
        if !self.retracts {
            let better = self.best(group).is_none_or(|best| if self.greatest { bytes > best } else { bytes < best });
            if better {
                self.groups[group].clear();
                self.groups[group].insert(bytes.into(), 1);
            }
            return;
        }
        let values = &mut self.groups[group];
        match values.get_mut(bytes) {
            Some(count) if *count + weight == 0 => {
                values.remove(bytes);
            }
            Some(count) => *count += weight,
            None => {
                values.insert(bytes.into(), weight);
            }
        }
    }
}

impl Accumulator for Extreme {
    fn resize(&mut self, groups: usize) {
        self.groups.resize(groups, BTreeMap::new());
    }

    fn update(&mut self, update: &Update<'_>) -> Result<(), ExecError> {
        let rows = self.converter.convert_columns(std::slice::from_ref(update.argument()?))?;
        update.each().for_each(|(group, weight, row)| self.add(group, rows.row(row).data(), weight));
        Ok(())
    }

    fn merge(&mut self, other: &dyn Accumulator, map: &[u32]) -> Result<(), ExecError> {
        let other: &Self = same(other);
        for (group, values) in map.iter().zip(&other.groups) {
            values.iter().for_each(|(bytes, weight)| self.add(*group as usize, bytes, *weight));
        }
        Ok(())
    }

    fn state(&self) -> Result<Vec<ArrayRef>, ExecError> {
        let all: Vec<u32> = (0..self.groups.len() as u32).collect();
        Ok(vec![self.values(&all)?])
    }

    fn merge_state(&mut self, state: &[ArrayRef], groups: &[u32]) -> Result<(), ExecError> {
        let rows = self.converter.convert_columns(state)?;
        for (row, group) in groups.iter().enumerate().filter(|(row, _)| state[0].is_valid(*row)) {
            self.add(*group as usize, rows.row(row).data(), 1);
        }
        Ok(())
    }

    fn values(&self, groups: &[u32]) -> Result<ArrayRef, ExecError> {
        let nothing = self.converter.convert_columns(&[new_null_array(&self.output, 1)])?;
        let parser = self.converter.parser();
        let rows = groups.iter().map(|group| match self.best(*group as usize) {
            Some(bytes) => parser.parse(bytes),
            None => nothing.row(0),
        });
        Ok(self.converter.convert_rows(rows)?.remove(0))
    }

    fn reset(&mut self, group: u32) {
        self.groups[group as usize].clear();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
