//! Aggregate functions over changes: each can add and take away, and be merged.

mod boolean;
mod coded;
mod count;
mod distinct;
mod extreme;
mod float_sum;
mod sum;
mod text;
mod variance;
mod wide;

use std::any::Any;
use std::fmt::Debug;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, SchemaRef};
use thetis_planner::expr::{ScalarExpr, plain_schema};
use thetis_planner::physical::{AggregateCall, AggregateFunction, has_codes};

use self::boolean::Boolean;
use self::coded::CodedExtreme;
use self::count::Count;
use self::distinct::Distinct;
use self::extreme::Extreme;
use self::float_sum::FloatSum;
use self::sum::ExactSum;
use self::text::Text;
use self::variance::Variance;
use crate::error::ExecError;
use crate::steps::compile_all;

/// Rows for an accumulator.
pub(super) struct Update<'a> {
    /// The arguments; none for `COUNT(*)`.
    pub(super) values: &'a [ArrayRef],
    /// The keys of the call's ORDER BY.
    pub(super) order: &'a [ArrayRef],
    /// The rows that count: those with all arguments, and for which the filter holds.
    pub(super) rows: Selected<'a>,
    /// The group of every row; absent means group 0.
    pub(super) groups: Option<&'a [u32]>,
    /// The weight of every row; absent means 1.
    pub(super) weights: Option<&'a [i64]>,
}

/// Some of the rows of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) enum Selected<'a> {
    /// So many, all.
    All(usize),
    /// These.
    Rows(&'a [u32]),
}

impl Selected<'_> {
    fn len(self) -> usize {
        match self {
            Self::All(rows) => rows,
            Self::Rows(rows) => rows.len(),
        }
    }
}

impl Update<'_> {
    /// Group, weight and position of the rows that count.
    fn each(&self) -> impl Iterator<Item = (usize, i64, usize)> + '_ {
        (0..self.rows.len()).map(|i| {
            let row = match self.rows {
                Selected::All(_) => i,
                Selected::Rows(rows) => rows[i] as usize,
            };
            let group = self.groups.map_or(0, |groups| groups[row] as usize);
            (group, self.weights.map_or(1, |weights| weights[row]), row)
        })
    }

    fn argument(&self) -> Result<&ArrayRef, ExecError> {
        self.values.first().ok_or_else(|| ExecError::Internal("an aggregate without its argument".to_owned()))
    }
}

/// The state of one aggregate function for all groups of a table.
pub(super) trait Accumulator: Send + Debug {
    /// Makes room for so many groups.
    fn resize(&mut self, groups: usize);
    /// Adds rows.
    fn update(&mut self, update: &Update<'_>) -> Result<(), ExecError>;
    /// Adds the groups of another accumulator of the same kind; `map` gives their numbers here.
    fn merge(&mut self, other: &dyn Accumulator, map: &[u32]) -> Result<(), ExecError>;
    /// The state of all groups, as columns that [`Self::merge_state`] takes (see
    /// [`AggregateCall::state_types`]).
    fn state(&self) -> Result<Vec<ArrayRef>, ExecError> {
        Err(ExecError::Internal("an aggregate that cannot be split".to_owned()))
    }
    /// Columns of [`Self::state`].
    fn state_columns(&self) -> usize {
        1
    }
    /// Adds the states of other accumulators of the same kind: row i to group `groups[i]`.
    fn merge_state(&mut self, _state: &[ArrayRef], _groups: &[u32]) -> Result<(), ExecError> {
        Err(ExecError::Internal("an aggregate that cannot be split".to_owned()))
    }
    /// The results of some groups.
    fn values(&self, groups: &[u32]) -> Result<ArrayRef, ExecError>;
    /// Empties a group.
    fn reset(&mut self, group: u32);
    /// For merging.
    fn as_any(&self) -> &dyn Any;
}

/// The accumulator of a call. `retracts` says that its input can have deletes.
pub(super) fn accumulator_for(
    call: &AggregateCall,
    input: &SchemaRef,
    retracts: bool,
) -> Result<Box<dyn Accumulator>, ExecError> {
    use AggregateFunction as F;
    let arguments = types(&call.arguments, input)?;
    let argument = || arguments.first().cloned().unwrap_or(DataType::Int64);
    let mean = call.function == F::Avg;
    let inner: Box<dyn Accumulator> = match call.function {
        F::Count => Box::new(Count::default()),
        F::Min | F::Max if !retracts && has_codes(&call.output) && argument() == call.output => {
            Box::new(CodedExtreme::new(call.function == F::Max, call.output.clone()))
        }
        F::Min | F::Max => Box::new(Extreme::new(call.function == F::Max, call.output.clone(), retracts)?),
        F::Sum | F::Avg if argument().is_floating() => Box::new(FloatSum::new(mean)),
        F::Sum | F::Avg => Box::new(ExactSum::new(mean, argument(), call.output.clone())),
        F::StddevSamp | F::StddevPop | F::VarSamp | F::VarPop => Box::new(Variance::new(call.function, &argument())),
        F::BoolAnd | F::BoolOr => Box::new(Boolean::new(call.function == F::BoolAnd)),
        // It has all values and needs no help to find the distinct ones.
        F::StringAgg => return Ok(Box::new(Text::new(call, input)?)),
    };
    Ok(if call.distinct { Box::new(Distinct::new(inner, &arguments)?) } else { inner })
}

/// The types of expressions over the input's columns.
pub(super) fn types<'a>(
    exprs: impl IntoIterator<Item = &'a ScalarExpr>,
    input: &SchemaRef,
) -> Result<Vec<DataType>, ExecError> {
    let schema = plain_schema(input);
    let data_type = |expr| Ok(compile_all(std::slice::from_ref(expr), input)?[0].data_type(&schema)?);
    exprs.into_iter().map(data_type).collect()
}

#[cfg(test)]
pub(super) use self::variance::tests::naive as naive_variance;

fn same<T: 'static>(other: &dyn Accumulator) -> &T {
    other.as_any().downcast_ref().expect("invariant: tables of one aggregate have the same accumulators")
}
