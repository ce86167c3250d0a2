//! Aggregates over pairs without listing them.
//!
//! COUNT, SUM and AVG of a sum of a left and a right term need, of the rows that match a row, only
//! their number and the sum of their terms:
//!
//! ```text
//! sum over pairs of (l + r)  =  sum over rows of (l * matches + sum of the matches' r)
//! ```
//!
//! The rows of a frame are counted against what is stored of the other side, then their own side
//! takes them in: each pair is counted when the second of its rows arrives. Weights are factors, so
//! that deletes take away what their inserts added. Where pairs are grouped by columns of one side, the
//! rows of that side wait for the end, and then each finds the sums of all its matches.
//!
//! MIN and MAX of one side's values need the least of the matches' as well; there are no deletes then.

mod by_key;
mod by_range;
mod minima;
mod prefix;
mod terms;

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Decimal256Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, i256};
use datafusion_physical_expr::PhysicalExpr;
use thetis_planner::physical::{self, FoldGroups, FoldKind, Join, PairAggregate, Side};

use self::by_key::ByKey;
use self::by_range::ByRange;
use self::terms::{Given, Term, turned};
use super::keys::{KeyMaker, Keys, Ranges};
use crate::aggregate::Groups;
use crate::error::ExecError;
use crate::exact::{canonical_floats, values_of};
use crate::steps::{compile_all, evaluate};

/// The sums of both sides of a cell.
#[derive(Debug)]
pub(crate) struct Fold {
    calls: Vec<Call>,
    structure: Structure,
    grouped: Option<GroupedSide>,
    totals: Totals,
    /// Pairs that were counted.
    pub(crate) pairs: i128,
}

#[derive(Debug)]
struct Call {
    kind: FoldKind,
    sides: [Term; 2],
    /// Type of the result.
    output: DataType,
}

/// The side whose columns make the groups.
#[derive(Debug)]
struct GroupedSide {
    side: Side,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    groups: Groups,
    /// Its rows.
    waiting: Vec<Rows>,
}

#[derive(Debug)]
enum Structure {
    Key(ByKey),
    Range(ByRange),
}

/// Rows of one side: what they are found by, and what they give.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    keys: RowKeys,
    weights: Vec<i64>,
    calls: Vec<Given>,
    /// Of the side that makes the groups: the group of every row.
    groups: Option<Vec<u32>>,
}

impl Rows {
    fn memory(&self) -> usize {
        let call = |call: &Given| {
            let words = |words: &Option<Vec<i64>>| words.as_ref().map_or(0, |words| words.capacity() * 8);
            words(&call.counts) + words(&call.terms) + call.codes.as_ref().map_or(0, |codes| codes.capacity() * 16)
        };
        let groups = self.groups.as_ref().map_or(0, |groups| groups.capacity() * 4);
        // The keys are as long as the weights.
        self.weights.capacity() * 16 + groups + self.calls.iter().map(call).sum::<usize>()
    }
}

#[derive(Debug, Default)]
enum RowKeys {
    #[default]
    Nothing,
    /// The columns of the equality keys.
    Columns(Vec<ArrayRef>),
    /// The keys, and the number of the first row in the store.
    Ranges(Ranges, u32),
}

/// Looks at pairs by the condition itself: of rows of a side and rows of the other, side by side.
pub(crate) trait Judge {
    /// Which pairs match.
    fn judge(&self, side: Side, rows: &[u32], others: &[u32]) -> Result<BooleanArray, ExecError>;
}

/// What pairs of one group add up to.
#[derive(Debug, Clone, Default)]
struct Total {
    pairs: i128,
    /// Of each call: pairs that count, and the sum or the least of their terms.
    calls: Vec<(i128, i128)>,
}

/// Adds `count` pairs, the least of which has this number.
fn add_least(total: &mut (i128, i128), count: i128, least: i128) {
    total.1 = if total.0 == 0 { least } else { total.1.min(least) };
    total.0 += count;
}

/// What the pairs of the open epoch add up to: one total, or one per key.
#[derive(Debug)]
struct Totals {
    totals: Vec<Total>,
    changed: Vec<u32>,
    calls: usize,
}

impl Totals {
    /// The total of a group.
    fn of(&mut self, group: u32) -> &mut Total {
        let at = group as usize;
        if self.totals.len() <= at {
            self.totals.resize(at + 1, Total::default());
        }
        let total = &mut self.totals[at];
        if total.calls.is_empty() {
            // Marked by having its calls.
            total.calls = vec![(0, 0); self.calls.max(1)];
            self.changed.push(group);
        }
        total
    }
}

impl Fold {
    /// The sums of a cell of `join` for `aggregate`, which folds as `fold` says.
    pub(crate) fn new(join: &Join, aggregate: &PairAggregate, fold: &physical::Fold) -> Result<Self, ExecError> {
        let call = |(call, results): (&physical::FoldCall, &physical::AggregateCall)| {
            let [left, right] = &call.sides;
            let sides = [Term::new(left, &join.inputs[0])?, Term::new(right, &join.inputs[1])?];
            Ok::<_, ExecError>(Call { kind: call.kind, sides, output: results.output.clone() })
        };
        let calls = fold.calls.iter().zip(&aggregate.partial.aggregates).map(call).collect::<Result<Vec<_>, _>>()?;
        let kinds: Vec<FoldKind> = fold.calls.iter().map(|call| call.kind).collect();
        let (keys, grouped) = match &fold.groups {
            FoldGroups::Keys(keys) => (keys.as_slice(), None),
            FoldGroups::Side(side, exprs) => {
                let schema = &join.inputs[side.index()];
                let exprs = compile_all(exprs, schema)?;
                let types = exprs.iter().map(|expr| expr.data_type(schema)).collect::<Result<Vec<_>, _>>()?;
                let groups = Groups::new(&types)?;
                (Default::default(), Some(GroupedSide { side: *side, exprs, groups, waiting: Vec::new() }))
            }
        };
        let structure = match join.ranges.first() {
            Some(range) => Structure::Range(ByRange::new(range.bounds, &kinds)),
            None => Structure::Key(ByKey::new(join, keys, &kinds)?),
        };
        let totals = Totals { totals: Vec::new(), changed: Vec::new(), calls: calls.len() };
        Ok(Self { calls, structure, grouped, totals, pairs: 0 })
    }

    /// What the rows of a batch give; `None` if some must be looked at pair by pair.
    pub(crate) fn rows(
        &mut self,
        side: Side,
        (batch, first): (&RecordBatch, u32),
        weights: Option<&[i64]>,
        keys: Keys,
        maker: &KeyMaker,
    ) -> Result<Option<Rows>, ExecError> {
        let floats = matches!(keys.ranges.first(), Some(Ranges::Float(..)));
        if !(keys.sure || floats && keys.wild.is_empty()) {
            return Ok(None);
        }
        let mut weights = weights.map_or_else(|| vec![1; batch.num_rows()], <[i64]>::to_vec);
        // Rows with a NULL key match nothing: as if they were not there.
        weights.iter_mut().zip(&keys.null).filter(|(_, null)| **null).for_each(|(weight, _)| *weight = 0);
        let mut calls = Vec::with_capacity(self.calls.len());
        for call in &self.calls {
            // An error is one only if the row has a match.
            let given = call.sides[side.index()].given(batch, &weights, call.kind);
            let Ok(Some(given)) = given else { return Ok(None) };
            calls.push(given);
        }
        let groups = match &mut self.grouped {
            Some(grouped) if grouped.side == side => match grouped.of(batch) {
                Ok(groups) => Some(groups),
                Err(_) => return Ok(None),
            },
            _ => None,
        };
        let keys = match &self.structure {
            Structure::Key(_) => RowKeys::Columns(maker.equality(batch)?),
            Structure::Range(_) => match keys.ranges.into_iter().next() {
                Some(ranges) => RowKeys::Ranges(ranges, first),
                None => return Ok(None),
            },
        };
        Ok(Some(Rows { keys, weights, calls, groups }))
    }

    /// Counts rows against the other side and takes them in, now or with those that come after.
    pub(crate) fn add(&mut self, side: Side, rows: Rows, judge: &dyn Judge) -> Result<(), ExecError> {
        match (&mut self.structure, &mut self.grouped) {
            (_, Some(grouped)) if grouped.side == side => {
                grouped.waiting.push(rows);
                Ok(())
            }
            (Structure::Key(sums), _) => sums.add(side, &rows, &mut self.totals),
            (Structure::Range(sums), _) => sums.add(side, rows, judge, &mut self.totals),
        }
    }

    /// Does what was put off.
    fn flush(&mut self, judge: &dyn Judge) -> Result<(), ExecError> {
        if let Structure::Range(sums) = &mut self.structure {
            sums.flush(judge, &mut self.totals)?;
        }
        let Some(grouped) = &mut self.grouped else { return Ok(()) };
        let waiting = std::mem::take(&mut grouped.waiting);
        match &mut self.structure {
            Structure::Key(sums) => waiting.iter().try_for_each(|rows| sums.add(grouped.side, rows, &mut self.totals)),
            Structure::Range(sums) => sums.add_all(grouped.side, waiting, judge, &mut self.totals),
        }
    }

    /// The totals since the last call, as the columns of a partial aggregate, with the number of
    /// their rows.
    pub(crate) fn take_states(&mut self, judge: &dyn Judge) -> Result<(Vec<ArrayRef>, usize), ExecError> {
        self.flush(judge)?;
        let groups = std::mem::take(&mut self.totals.changed);
        let totals: Vec<Total> =
            groups.iter().map(|group| std::mem::take(&mut self.totals.totals[*group as usize])).collect();
        self.pairs += totals.iter().map(|total| total.pairs).sum::<i128>();
        let mut columns = match (&self.structure, &self.grouped) {
            (_, Some(grouped)) => grouped.groups.columns(&groups)?,
            (Structure::Key(sums), None) => sums.group_columns(&groups)?,
            (Structure::Range(_), None) => Vec::new(),
        };
        columns.push(Arc::new(counts(totals.iter().map(|total| total.pairs))?));
        for (number, call) in self.calls.iter().enumerate() {
            let found = || totals.iter().map(|total| total.calls[number]);
            match call.kind {
                FoldKind::Min | FoldKind::Max => {
                    let codes = found().map(|(count, code)| (count != 0).then(|| turned(code, call.kind)));
                    columns.push(values_of(codes, &call.output)?);
                    continue;
                }
                FoldKind::Sum => {
                    let sum = found().map(|(_, sum)| i256::from_i128(sum));
                    columns.push(Arc::new(Decimal256Array::from_iter_values(sum).with_precision_and_scale(76, 0)?));
                }
                FoldKind::Count => {}
            }
            columns.push(Arc::new(counts(found().map(|(count, _)| count))?));
        }
        Ok((columns, groups.len()))
    }

    /// Bytes of the sums that are kept.
    pub(crate) fn memory(&self) -> usize {
        let grouped = self.grouped.as_ref();
        let waiting = grouped
            .map_or(0, |grouped| grouped.groups.memory() + grouped.waiting.iter().map(Rows::memory).sum::<usize>());
        waiting
            + match &self.structure {
                Structure::Key(sums) => sums.memory(),
                Structure::Range(sums) => sums.memory(),
            }
    }
}

impl GroupedSide {
    /// The groups of the rows of a batch.
    fn of(&mut self, batch: &RecordBatch) -> Result<Vec<u32>, ExecError> {
        let columns = self.exprs.iter().map(|expr| evaluate(expr, batch).map(canonical_floats));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        self.groups.intern_all(&columns, batch.num_rows())
    }
}

fn counts(values: impl Iterator<Item = i128>) -> Result<Int64Array, ExecError> {
    let fit = |value| i64::try_from(value).map_err(|_| ExecError::out_of_range("overflow: COUNT does not fit BIGINT"));
    Ok(Int64Array::from(values.map(fit).collect::<Result<Vec<_>, _>>()?))
}
