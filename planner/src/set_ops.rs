//! INTERSECT and EXCEPT, by counting: how often a row stands on either side says how often it
//! goes out.
//!
//! ```text
//! UNION ALL of (row, 1, 0) and (row, 0, 1) -> GROUP BY row with l and r, the sums
//!   INTERSECT      l > 0 and r > 0       ALL: least(l, r) times
//!   EXCEPT         l > 0 and r = 0       ALL: l - r times
//! ```
//!
//! A group per row takes NULLs as equal, and an aggregate is exact when rows come and go. The SQL
//! planner makes semi and anti joins of set operations, which are not.

use std::sync::Arc;

use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, DFSchema, DataFusionError, JoinType, NullEquality};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::logical_plan::{Distinct, Join};
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit, when};

use crate::functions;

/// `plan` with its INTERSECTs and EXCEPTs counted. It is to be analysed after that: the sides of a
/// UNION ALL get common types there.
///
/// # Errors
/// A plan whose columns do not fit together.
pub(crate) fn count_set_operations(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>, DataFusionError> {
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(join) if is_set_operation(&join) => Ok(Transformed::yes(counted(join)?)),
        other => Ok(Transformed::no(other)),
    })
}

/// Only set operations take NULLs as equal: EXISTS, IN and SEMI JOIN do not.
fn is_set_operation(join: &Join) -> bool {
    join.null_equality == NullEquality::NullEqualsNull
        && matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
}

fn counted(join: Join) -> Result<LogicalPlan, DataFusionError> {
    let width = join.schema.fields().len();
    // Distinct rows of the left side are the same with and without ALL.
    let (left, all) = match join.left.as_ref() {
        LogicalPlan::Distinct(Distinct::All(input)) => (input, false),
        _ => (&join.left, true),
    };
    let sides = tagged(left, [1, 0])?.union(tagged(&join.right, [0, 1])?.build()?)?;
    let groups: Vec<Expr> = (0..width).map(column).collect();
    let counts = [total("left_rows")?, total("right_rows")?];
    let (l, r) = (|| named("left_rows"), || named("right_rows"));
    let (kept, copies) = match (join.join_type, all) {
        (JoinType::LeftSemi, false) => (l().gt(lit(0_i64)).and(r().gt(lit(0_i64))), None),
        (JoinType::LeftSemi, true) => {
            let least = when(l().lt(r()), l()).otherwise(r())?;
            (l().gt(lit(0_i64)).and(r().gt(lit(0_i64))), Some(least))
        }
        (_, false) => (l().gt(lit(0_i64)).and(r().eq(lit(0_i64))), None),
        (_, true) => (l().gt(r()), Some(l() - r())),
    };
    let mut plan = sides.aggregate(groups, counts)?.filter(kept)?;
    if let Some(copies) = copies {
        let list = repeated(copies)?.alias("copies");
        plan = plan.project((0..width).map(column).chain([list]))?.unnest_column(Column::from_name("copies"))?;
    }
    plan.project(renamed(&join.schema))?.build()
}

/// The rows of a side under names that both sides share, with what each adds to the two counts.
fn tagged(side: &Arc<LogicalPlan>, [left, right]: [i64; 2]) -> Result<LogicalPlanBuilder, DataFusionError> {
    let columns = side.schema().columns().into_iter().enumerate();
    let columns = columns.map(|(i, column)| Expr::Column(column).alias(column_name(i)));
    let tags = [lit(left).alias("left_rows"), lit(right).alias("right_rows")];
    LogicalPlanBuilder::from(Arc::clone(side)).project(columns.chain(tags))
}

/// The columns of the operation under their own names again.
fn renamed(schema: &DFSchema) -> Vec<Expr> {
    let columns = schema.columns().into_iter().enumerate();
    columns.map(|(i, own)| column(i).alias_qualified(own.relation, own.name)).collect()
}

fn column_name(position: usize) -> String {
    format!("column{}", position + 1)
}

fn column(position: usize) -> Expr {
    named(&column_name(position))
}

fn named(name: &str) -> Expr {
    Expr::Column(Column::from_name(name))
}

/// `SUM(name) AS name`
fn total(name: &str) -> Result<Expr, DataFusionError> {
    let sum = functions::aggregate("sum").ok_or_else(|| missing("sum"))?;
    Ok(sum.call(vec![named(name)]).alias(name))
}

/// A list of so many elements.
fn repeated(count: Expr) -> Result<Expr, DataFusionError> {
    let range = functions::scalar("range").ok_or_else(|| missing("range"))?;
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(range, vec![lit(0_i64), count])))
}

fn missing(function: &str) -> DataFusionError {
    DataFusionError::Internal(format!("the library has no function {function}"))
}
