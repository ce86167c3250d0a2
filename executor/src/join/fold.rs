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
//! that deletes take away what their inserts added.

mod by_key;
mod by_range;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Decimal256Array, Int64Array, RecordBatch};
use arrow::datatypes::{SchemaRef, i256};
use datafusion_physical_expr::PhysicalExpr;
use thetis_planner::physical::{self, FoldSide, Join, Side};

use self::by_key::ByKey;
use self::by_range::ByRange;
use super::keys::{KeyMaker, Keys, RangeKey, Ranges};
use crate::error::ExecError;
use crate::exact::with_exact_values;
use crate::steps::{compile_all, evaluate};

/// The sums of both sides of a cell.
#[derive(Debug)]
pub(crate) struct Fold {
    calls: Vec<[Term; 2]>,
    /// Whether each call is a SUM or AVG.
    sums: Vec<bool>,
    structure: Structure,
    totals: Totals,
    /// Pairs that were counted.
    pub(crate) pairs: i128,
}

#[derive(Debug)]
enum Structure {
    Key(ByKey),
    Range(ByRange),
}

/// What a side gives to a call.
#[derive(Debug)]
struct Term {
    required: Vec<Arc<dyn PhysicalExpr>>,
    key: RangeKey,
}

/// Rows of one side: what they are found by, and what they give.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    keys: RowKeys,
    weights: Vec<i64>,
    calls: Vec<Given>,
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

/// What rows give to a call.
#[derive(Debug, Default)]
struct Given {
    /// The weights of the rows that count; absent when all do.
    counts: Option<Vec<i64>>,
    /// The terms; absent when they are zero.
    terms: Option<Vec<i64>>,
}

/// What pairs of one group add up to.
#[derive(Debug, Clone, Default)]
struct Total {
    pairs: i128,
    /// Of each call: pairs that count, and the sum of their terms.
    calls: Vec<(i128, i128)>,
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

impl Term {
    fn new(side: &FoldSide, schema: &SchemaRef) -> Result<Self, ExecError> {
        Ok(Self { required: compile_all(&side.required, schema)?, key: RangeKey::new(&side.term, schema)? })
    }

    /// `None` if a term is too large to be summed without a look at the query's own arithmetic.
    fn given(&self, batch: &RecordBatch, weights: &[i64], sums: bool) -> Result<Option<Given>, ExecError> {
        let mut counts: Option<Vec<i64>> = None;
        for required in &self.required {
            let array = evaluate(required, batch)?;
            let Some(nulls) = array.logical_nulls().filter(|nulls| nulls.null_count() > 0) else { continue };
            let counts = counts.get_or_insert_with(|| weights.to_vec());
            counts.iter_mut().enumerate().filter(|(row, _)| nulls.is_null(*row)).for_each(|(_, count)| *count = 0);
        }
        let terms = if sums && !self.required.is_empty() { self.terms(batch)? } else { Some(None) };
        Ok(terms.map(|terms| Given { counts, terms }))
    }

    fn terms(&self, batch: &RecordBatch) -> Result<Option<Option<Vec<i64>>>, ExecError> {
        let limit = self.key.limit() as i64;
        if let Some(values) = self.key.plain(batch)? {
            let modest = values.values().iter().all(|value| (-limit..=limit).contains(value));
            return Ok(modest.then(|| Some(values.values().to_vec())));
        }
        let mut sums = vec![0_i64; batch.num_rows()];
        let mut modest = true;
        for (factor, term) in self.key.terms() {
            let array = evaluate(term, batch)?;
            with_exact_values(&array, |value| {
                for (row, sum) in sums.iter_mut().enumerate().filter(|(row, _)| array.is_valid(*row)) {
                    let term = value(row).saturating_mul(i128::from(*factor));
                    modest &= term.unsigned_abs() <= u128::from(limit.unsigned_abs());
                    *sum = sum.wrapping_add(term as i64);
                }
            })?;
        }
        Ok(modest.then_some(Some(sums)))
    }
}

impl Fold {
    /// The sums of a cell of `join`, which folds as `fold` says.
    pub(crate) fn new(join: &Join, fold: &physical::Fold) -> Result<Self, ExecError> {
        let call = |call: &physical::FoldCall| {
            let [left, right] = &call.sides;
            Ok::<_, ExecError>([Term::new(left, &join.inputs[0])?, Term::new(right, &join.inputs[1])?])
        };
        let calls = fold.calls.iter().map(call).collect::<Result<Vec<_>, _>>()?;
        let sums: Vec<bool> = fold.calls.iter().map(|call| call.sums).collect();
        let structure = match join.ranges.first() {
            Some(range) => Structure::Range(ByRange::new(range.bounds, &sums)),
            None => Structure::Key(ByKey::new(join, fold)?),
        };
        let totals = Totals { totals: Vec::new(), changed: Vec::new(), calls: calls.len() };
        Ok(Self { calls, sums, structure, totals, pairs: 0 })
    }

    /// What the rows of a batch give; `None` if some must be looked at pair by pair.
    pub(crate) fn rows(
        &self,
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
        for (terms, sums) in self.calls.iter().zip(&self.sums) {
            // An error is one only if the row has a match.
            let Ok(Some(given)) = terms[side.index()].given(batch, &weights, *sums) else { return Ok(None) };
            calls.push(given);
        }
        let keys = match &self.structure {
            Structure::Key(_) => RowKeys::Columns(maker.equality(batch)?),
            Structure::Range(_) => match keys.ranges.into_iter().next() {
                Some(ranges) => RowKeys::Ranges(ranges, first),
                None => return Ok(None),
            },
        };
        Ok(Some(Rows { keys, weights, calls }))
    }

    /// Counts rows against the other side and takes them in, now or with those that come after.
    pub(crate) fn add(&mut self, side: Side, rows: Rows, judge: &dyn Judge) -> Result<(), ExecError> {
        match &mut self.structure {
            Structure::Key(sums) => sums.add(side, &rows, &mut self.totals),
            Structure::Range(sums) => sums.add(side, rows, judge, &mut self.totals),
        }
    }

    /// Does what was put off.
    fn flush(&mut self, judge: &dyn Judge) -> Result<(), ExecError> {
        if let Structure::Range(sums) = &mut self.structure {
            sums.flush(judge, &mut self.totals)?;
        }
        Ok(())
    }

    /// The totals since the last call, as the columns of a partial aggregate, with the number of
    /// their rows.
    pub(crate) fn take_states(&mut self, judge: &dyn Judge) -> Result<(Vec<ArrayRef>, usize), ExecError> {
        self.flush(judge)?;
        let groups = std::mem::take(&mut self.totals.changed);
        let totals: Vec<Total> =
            groups.iter().map(|group| std::mem::take(&mut self.totals.totals[*group as usize])).collect();
        self.pairs += totals.iter().map(|total| total.pairs).sum::<i128>();
        let mut columns = match &self.structure {
            Structure::Key(sums) => sums.group_columns(&groups)?,
            Structure::Range(_) => Vec::new(),
        };
        columns.push(Arc::new(counts(totals.iter().map(|total| total.pairs))?));
        for (call, sums) in self.sums.iter().enumerate() {
            let count = Arc::new(counts(totals.iter().map(|total| total.calls[call].0))?);
            if *sums {
                let sum = totals.iter().map(|total| i256::from_i128(total.calls[call].1));
                columns.push(Arc::new(Decimal256Array::from_iter_values(sum).with_precision_and_scale(76, 0)?));
            }
            columns.push(count);
        }
        Ok((columns, groups.len()))
    }

    /// Bytes of the sums that are kept.
    pub(crate) fn memory(&self) -> usize {
        match &self.structure {
            Structure::Key(sums) => sums.memory(),
            Structure::Range(sums) => sums.memory(),
        }
    }
}

fn counts(values: impl Iterator<Item = i128>) -> Result<Int64Array, ExecError> {
    let fit = |value| i64::try_from(value).map_err(|_| ExecError::out_of_range("overflow: COUNT does not fit BIGINT"));
    Ok(Int64Array::from(values.map(fit).collect::<Result<Vec<_>, _>>()?))
}
