//! Sums by equality key: of each key, what the rows of either side add up to.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use thetis_planner::physical::{Fold, Join, Side};

use super::{RowKeys, Rows, Totals};
use crate::aggregate::Groups;
use crate::error::ExecError;
use crate::steps::compile_all;

/// The keys of both sides, and the sums of each side by key.
#[derive(Debug)]
pub(super) struct ByKey {
    keys: Groups,
    sides: [Sums; 2],
    /// Positions of the group keys among the equality keys.
    groups: Vec<u32>,
}

/// What the rows of one side add up to, by key.
#[derive(Debug, Default)]
struct Sums {
    weights: Vec<i64>,
    /// Key by key, of each call: the weight of the rows that count, and the sum of their terms.
    calls: Vec<(i64, i128)>,
}

impl ByKey {
    pub(super) fn new(join: &Join, fold: &Fold) -> Result<Self, ExecError> {
        let left: Vec<_> = join.equality.iter().map(|(left, _)| left.clone()).collect();
        let schema = &join.inputs[0];
        let types = compile_all(&left, schema)?.into_iter().map(|key| key.data_type(schema));
        let types = types.collect::<Result<Vec<DataType>, _>>()?;
        Ok(Self { keys: Groups::new(&types)?, sides: Default::default(), groups: fold.groups.clone() })
    }

    pub(super) fn add(&mut self, side: Side, rows: &Rows, totals: &mut Totals) -> Result<(), ExecError> {
        let RowKeys::Columns(columns) = &rows.keys else {
            return Err(ExecError::Internal("rows without equality keys".to_owned()));
        };
        let keys = self.keys.intern_all(columns, rows.weights.len())?;
        let known = self.keys.len();
        let calls = rows.calls.len();
        for sums in &mut self.sides {
            sums.weights.resize(known, 0);
            sums.calls.resize(known * calls, (0, 0));
        }
        let [left, right] = &mut self.sides;
        let (own, other) = if side == Side::Left { (left, right) } else { (right, left) };
        for (row, key) in keys.into_iter().enumerate() {
            let weight = rows.weights[row];
            if weight == 0 {
                continue;
            }
            let (group, key) = (if self.groups.is_empty() { 0 } else { key }, key as usize);
            own.weights[key] += weight;
            for (call, given) in rows.calls.iter().enumerate() {
                let count = given.counts.as_ref().map_or(weight, |counts| counts[row]);
                let term = given.terms.as_ref().map_or(0, |terms| i128::from(terms[row]) * i128::from(count));
                let sums = &mut own.calls[key * calls + call];
                *sums = (sums.0 + count, sums.1 + term);
                let (matches, matched) = other.calls[key * calls + call];
                if (matches, matched) != (0, 0) {
                    let total = &mut totals.of(group).calls[call];
                    total.0 += i128::from(count) * i128::from(matches);
                    total.1 += term * i128::from(matches) + matched * i128::from(count);
                }
            }
            if other.weights[key] != 0 {
                totals.of(group).pairs += i128::from(weight) * i128::from(other.weights[key]);
            }
        }
        Ok(())
    }

    /// The group keys of some groups.
    pub(super) fn group_columns(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, ExecError> {
        if self.groups.is_empty() {
            return Ok(Vec::new());
        }
        let keys = self.keys.columns(groups)?;
        Ok(self.groups.iter().map(|position| keys[*position as usize].clone()).collect())
    }

    pub(super) fn memory(&self) -> usize {
        let sums = |side: &Sums| side.weights.capacity() * 8 + side.calls.capacity() * size_of::<(i64, i128)>();
        self.keys.memory() + self.sides.iter().map(sums).sum::<usize>()
    }
}
