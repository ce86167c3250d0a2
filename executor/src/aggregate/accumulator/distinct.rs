//! DISTINCT.

use std::any::Any;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use hashbrown::HashMap;

use super::{Accumulator, Selected, Update, same};
use crate::error::ExecError;

/// An aggregate of distinct values, or tuples of them: one reaches the inner aggregate when it
/// appears, and leaves it when its last row is gone.
#[derive(Debug)]
pub(super) struct Distinct {
    inner: Box<dyn Accumulator>,
    converter: RowConverter,
    groups: Vec<HashMap<Box<[u8]>, i64>>,
}

impl Distinct {
    pub(super) fn new(inner: Box<dyn Accumulator>, arguments: &[DataType]) -> Result<Self, ExecError> {
        let fields = arguments.iter().cloned().map(SortField::new).collect();
        Ok(Self { inner, converter: RowConverter::new(fields)?, groups: Vec::new() })
    }
}

impl Accumulator for Distinct {
    fn resize(&mut self, groups: usize) {
        self.groups.resize(groups, HashMap::new());
        self.inner.resize(groups);
    }

    fn update(&mut self, update: &Update<'_>) -> Result<(), ExecError> {
        // Only multiplicities here: which values are distinct is known once tables are merged.
        let rows = self.converter.convert_columns(update.values)?;
        for (group, weight, row) in update.each() {
            add_weight(&mut self.groups[group], rows.row(row).data(), weight);
        }
        Ok(())
    }

    fn merge(&mut self, other: &dyn Accumulator, map: &[u32]) -> Result<(), ExecError> {
        let other: &Self = same(other);
        let (mut changed, mut groups, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for (group, values) in map.iter().zip(&other.groups) {
            let own = &mut self.groups[*group as usize];
            for (bytes, weight) in values {
                let change = add_weight(own, bytes, *weight);
                if change != 0 {
                    changed.push(bytes);
                    groups.push(*group);
                    weights.push(change);
                }
            }
        }
        let parser = self.converter.parser();
        let values = self.converter.convert_rows(changed.iter().map(|bytes| parser.parse(bytes)))?;
        let rows = Selected::All(groups.len());
        let (groups, weights) = (Some(groups.as_slice()), Some(weights.as_slice()));
        self.inner.update(&Update { values: &values, order: &[], rows, groups, weights })
    }

    fn values(&self, groups: &[u32]) -> Result<ArrayRef, ExecError> {
        self.inner.values(groups)
    }

    fn reset(&mut self, group: u32) {
        self.groups[group as usize].clear();
        self.inner.reset(group);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Adds to a multiplicity; +1 when the value appears by that, -1 when it disappears.
fn add_weight(values: &mut HashMap<Box<[u8]>, i64>, bytes: &[u8], weight: i64) -> i64 {
    let before = values.get(bytes).copied().unwrap_or(0);
    let after = before + weight;
    if after == 0 {
        values.remove(bytes);
    } else {
        values.insert(bytes.into(), after);
    }
    i64::from(after > 0) - i64::from(before > 0)
}
