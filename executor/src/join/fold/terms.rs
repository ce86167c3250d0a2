//! What the rows of a side give to an aggregate function.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion_physical_expr::PhysicalExpr;
use thetis_planner::physical::{FoldKind, FoldSide};

use crate::error::ExecError;
use crate::exact::{canonical_floats, codes, with_exact_values};
use crate::join::keys::RangeKey;
use crate::steps::{compile_all, evaluate};

/// What a side gives to a call.
#[derive(Debug)]
pub(super) struct Term {
    required: Vec<Arc<dyn PhysicalExpr>>,
    key: RangeKey,
}

/// What rows give to a call.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// The weights of the rows that count; absent when all do.
    pub(super) counts: Option<Vec<i64>>,
    /// The terms of a sum; absent when they are zero.
    pub(super) terms: Option<Vec<i64>>,
    /// The numbers of which the least is looked for; absent when they are the other side's.
    pub(super) codes: Option<Vec<i128>>,
}

impl Term {
    pub(super) fn new(side: &FoldSide, schema: &SchemaRef) -> Result<Self, ExecError> {
        Ok(Self { required: compile_all(&side.required, schema)?, key: RangeKey::new(&side.term, schema)? })
    }

    /// `None` if a term is too large to be summed without a look at the query's own arithmetic.
    pub(super) fn given(
        &self,
        batch: &RecordBatch,
        weights: &[i64],
        kind: FoldKind,
    ) -> Result<Option<Given>, ExecError> {
        let mut counts: Option<Vec<i64>> = None;
        for required in &self.required {
            let array = evaluate(required, batch)?;
            let Some(nulls) = array.logical_nulls().filter(|nulls| nulls.null_count() > 0) else { continue };
            let counts = counts.get_or_insert_with(|| weights.to_vec());
            counts.iter_mut().enumerate().filter(|(row, _)| nulls.is_null(*row)).for_each(|(_, count)| *count = 0);
        }
        let mut given = Given { counts, ..Given::default() };
        match (kind, self.key.terms()) {
            (FoldKind::Count, _) | (_, []) => {}
            (FoldKind::Sum, _) => match self.sums(batch)? {
                Some(terms) => given.terms = Some(terms),
                None => return Ok(None),
            },
            (FoldKind::Min | FoldKind::Max, [(_, term), ..]) => {
                let mut codes = codes(&canonical_floats(evaluate(term, batch)?))?;
                if kind == FoldKind::Max {
                    codes.iter_mut().for_each(|code| *code = turned(*code, kind));
                }
                given.codes = Some(codes);
            }
        }
        Ok(Some(given))
    }

    /// `None` if one is too large.
    fn sums(&self, batch: &RecordBatch) -> Result<Option<Vec<i64>>, ExecError> {
        let limit = self.key.limit() as i64;
        if let Some(values) = self.key.plain(batch)? {
            let modest = values.values().iter().all(|value| (-limit..=limit).contains(value));
            return Ok(modest.then(|| values.values().to_vec()));
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
        Ok(modest.then_some(sums))
    }
}

/// The codes of MAX are turned around, and back, so that the least is looked for in either case.
pub(super) fn turned(code: i128, kind: FoldKind) -> i128 {
    if kind == FoldKind::Max { !code } else { code }
}
