//! Sums by equality key: of each key, what the rows of either side add up to.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use thetis_planner::physical::{FoldKind, Join, Side};

use super::{RowKeys, Rows, Totals, add_least};
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
    /// Of each call: it looks for the least.
    least: Vec<bool>,
}

/// What the rows of one side add up to, by key.
#[derive(Debug, Default)]
struct Sums {
    weights: Vec<i64>,
    /// Key by key, of each call: the weight of the rows that count, and the sum or the least of their
    /// terms.
    calls: Vec<(i128, i128)>,
}

impl ByKey {
    pub(super) fn new(join: &Join, groups: &[u32], kinds: &[FoldKind]) -> Result<Self, ExecError> {
        let left: Vec<_> = join.equality.iter().map(|(left, _)| left.clone()).collect();
        let schema = &join.inputs[0];
        let types = compile_all(&left, schema)?.into_iter().map(|key| key.data_type(schema));
        let types = types.collect::<Result<Vec<DataType>, _>>()?;
        let least = kinds.iter().map(|kind| matches!(kind, FoldKind::Min | FoldKind::Max)).collect();
        Ok(Self { keys: Groups::new(&types)?, sides: Default::default(), groups: groups.to_vec(), least })
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
            let by_key = if self.groups.is_empty() { 0 } else { key };
            let (group, key) = (rows.groups.as_ref().map_or(by_key, |groups| groups[row]), key as usize);
            own.weights[key] += weight;
            for (call, given) in rows.calls.iter().enumerate() {
                let count = given.counts.as_ref().map_or(weight, |counts| counts[row]);
                let count = i128::from(count);
                let sums = &mut own.calls[key * calls + call];
                let (matches, matched) = other.calls[key * calls + call];
                if self.least[call] {
                    let code = given.codes.as_ref().map(|codes| codes[row]);
                    if count != 0 {
                        add_least(sums, count, code.unwrap_or(i128::MAX));
                    }
                    if count != 0 && matches != 0 {
                        add_least(&mut totals.of(group).calls[call], count * matches, code.unwrap_or(matched));
                    }
                    continue;
                }
                let term = given.terms.as_ref().map_or(0, |terms| i128::from(terms[row]) * count);
                *sums = (sums.0 + count, sums.1 + term);
                if (matches, matched) != (0, 0) {
                    let total = &mut totals.of(group).calls[call];
                    total.0 += count * matches;
                    total.1 += term * matches + matched * count;
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
        let sums = |side: &Sums| side.weights.capacity() * 8 + side.calls.capacity() * size_of::<(i128, i128)>();
        self.keys.memory() + self.sides.iter().map(sums).sum::<usize>()
    }
}
