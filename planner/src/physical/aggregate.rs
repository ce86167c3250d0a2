//! Aggregates, whole and in two phases, and the ways to compute them from a join without listing
//! its pairs.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use super::{Side, SortKey, Step};
use crate::compile;
use crate::expr::ScalarExpr;
use crate::theta::IndexKey;

/// GROUP BY and aggregate functions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Aggregate {
    /// Columns of the input.
    pub input: SchemaRef,
    /// Group keys; none means one group that always has a row.
    pub groups: Vec<ScalarExpr>,
    /// The aggregates; the output is the groups, then these.
    pub aggregates: Vec<AggregateCall>,
    /// The input can have deletes.
    pub input_retracts: bool,
    /// Which part of the work this operator does.
    pub phase: Phase,
    /// Results go out when the input has ended: nobody sees those of the epochs before.
    pub at_end: bool,
}

/// The parts of an aggregate that is computed in two phases: near the rows, one row per group and
/// epoch is made of many; after the exchange, these are put together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Phase {
    /// From rows to results.
    Whole,
    /// From rows, after these steps, to the columns of [`Aggregate::partial_schema`].
    Partial(Vec<Step>),
    /// From those to results. Group keys are the first columns.
    Final,
}

/// One aggregate function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AggregateCall {
    /// Which function.
    pub function: AggregateFunction,
    /// Its arguments, without STRING_AGG's delimiter; none for `COUNT(*)`. Rows in which one is NULL
    /// are left out.
    pub arguments: Vec<ScalarExpr>,
    /// `DISTINCT`.
    pub distinct: bool,
    /// `ORDER BY` of STRING_AGG; the others do not depend on an order.
    pub order: Vec<SortKey>,
    /// What STRING_AGG writes between two values.
    pub delimiter: Option<String>,
    /// `FILTER (WHERE ...)`.
    pub filter: Option<ScalarExpr>,
    /// Type of the result.
    pub output: DataType,
}

/// The aggregate functions, all exact under deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AggregateFunction {
    /// Rows, or rows with a value.
    Count,
    /// Sum.
    Sum,
    /// Mean.
    Avg,
    /// Least value.
    Min,
    /// Greatest value.
    Max,
    /// Standard deviation of a sample.
    StddevSamp,
    /// Standard deviation of a population.
    StddevPop,
    /// Variance of a sample.
    VarSamp,
    /// Variance of a population.
    VarPop,
    /// Whether all are true.
    BoolAnd,
    /// Whether any is true.
    BoolOr,
    /// Values in a row, with a delimiter between them.
    StringAgg,
}

impl AggregateFunction {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Count,
        Self::Sum,
        Self::Avg,
        Self::Min,
        Self::Max,
        Self::StddevSamp,
        Self::StddevPop,
        Self::VarSamp,
        Self::VarPop,
        Self::BoolAnd,
        Self::BoolOr,
        Self::StringAgg,
    ];

    /// SQL name, lower case: that of the function in the library.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
            Self::StddevSamp => "stddev",
            Self::StddevPop => "stddev_pop",
            Self::VarSamp => "var",
            Self::VarPop => "var_pop",
            Self::BoolAnd => "bool_and",
            Self::BoolOr => "bool_or",
            Self::StringAgg => "string_agg",
        }
    }
}

impl AggregateCall {
    /// SUM or AVG of whole numbers or decimals, over rows of `input`.
    pub fn sums_exactly(&self, input: &SchemaRef) -> bool {
        let argument = self.arguments.first().and_then(|argument| compile(argument, input).ok());
        argument.and_then(|argument| argument.data_type(input).ok()).is_some_and(|argument| !argument.is_floating())
    }

    /// Columns that carry the function's state between two phases; `None` if it cannot be split.
    /// `retracts` says that the input can have deletes.
    pub fn state_types(&self, input: &SchemaRef, retracts: bool) -> Option<Vec<DataType>> {
        use AggregateFunction as F;
        if self.distinct {
            return None;
        }
        match self.function {
            F::Count => Some(vec![DataType::Int64]),
            F::Sum | F::Avg if self.sums_exactly(input) => Some(vec![STATE_SUM, DataType::Int64]),
            F::Min | F::Max if !retracts => Some(vec![self.output.clone()]),
            _ => None,
        }
    }
}

/// Sums on their way, whatever the scale of the values.
const STATE_SUM: DataType = DataType::Decimal256(76, 0);

impl Aggregate {
    /// Columns between the two phases: the groups as `output` has them, the number of rows, then
    /// the states; `None` if it cannot be computed in two phases.
    pub fn partial_schema(&self, output: &SchemaRef) -> Option<SchemaRef> {
        let mut fields: Vec<Field> =
            output.fields()[..self.groups.len()].iter().map(|field| field.as_ref().clone()).collect();
        fields.push(Field::new("rows", DataType::Int64, true));
        for (call, column) in self.aggregates.iter().zip(&output.fields()[self.groups.len()..]) {
            let types = call.state_types(&self.input, self.input_retracts)?;
            fields.extend(types.into_iter().map(|state| Field::new(column.name(), state, true)));
        }
        Some(Arc::new(Schema::new(fields)))
    }
}

/// A partial aggregate that the cells of a join compute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairAggregate {
    /// Over the pairs, as the join would emit them.
    pub partial: Aggregate,
    /// How to compute it without listing the pairs.
    pub fold: Option<Fold>,
}

/// An aggregate over pairs from sums over each side: of the rows that match a row, their number,
/// the sums of their terms and the least of them are enough.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fold {
    /// What pairs are grouped by.
    pub groups: FoldGroups,
    /// The calls, in the order of the aggregate's.
    pub calls: Vec<FoldCall>,
}

/// The groups of a [`Fold`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FoldGroups {
    /// Each group key is the equality key at this position; none means one group.
    Keys(Vec<u32>),
    /// They are columns of this side. The rows of it are counted when those of the other are all
    /// there: only where results wait for the end.
    Side(Side, Vec<ScalarExpr>),
}

/// Whether values of this type can be told by whole numbers in the same order.
pub fn has_codes(data_type: &DataType) -> bool {
    let time = matches!(data_type, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..));
    time || data_type.is_integer() || data_type.is_floating() || matches!(data_type, DataType::Decimal128(..))
}

/// What a [`FoldCall`] computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FoldKind {
    /// COUNT.
    Count,
    /// SUM or AVG: the argument is a sum of a term of each side.
    Sum,
    /// MIN, of an argument of one side, without deletes.
    Min,
    /// MAX, likewise.
    Max,
}

/// An aggregate function over pairs, from what each side gives to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FoldCall {
    /// What it computes.
    pub kind: FoldKind,
    /// Left, right.
    pub sides: [FoldSide; 2],
}

/// What one side gives to a [`FoldCall`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FoldSide {
    /// Rows in which one of these is NULL are left out.
    pub required: Vec<ScalarExpr>,
    /// The term; nothing is zero.
    pub term: IndexKey,
}
