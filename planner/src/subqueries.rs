//! IN and EXISTS before the optimiser makes joins of them: what it would get wrong.
//!
//! `x IN (subquery)` is NULL when there is no match but a NULL on either side could have been one.
//! A match in WHERE, or in an AND or OR there, need not tell NULL from false. Elsewhere (NOT, CASE,
//! IS NULL) it must, and the joins do not; there it is spelled out with EXISTS:
//!
//! ```text
//! match = EXISTS (S with y = x)    null = EXISTS (S with y IS NULL) OR x IS NULL AND EXISTS (S)
//! x IN S          CASE WHEN match THEN true WHEN null THEN NULL ELSE false END
//! x NOT IN S      NOT match AND NOT null, where NULL counts as false
//! ```
//!
//! A plain `NOT IN` in WHERE is left to a join that is aware of NULLs.

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, DFSchema, DataFusionError, ExprSchema, ScalarValue};
use datafusion_expr::expr::{Exists, InSubquery};
use datafusion_expr::logical_plan::{FetchType, Filter, SkipType, Subquery};
use datafusion_expr::utils::{conjunction, split_conjunction_owned};
use datafusion_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, exists, lit, not, when,
};

use crate::error::PlanError;

/// `plan` with its INs and EXISTS as the optimiser gets them right.
///
/// # Errors
/// A correlated subquery that is an aggregate of all rows: the optimiser would lose the row that
/// it has for no rows.
pub(crate) fn spell_out(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>, PlanError> {
    let mut lost = false;
    let plan = plan.transform_down_with_subqueries(|node| {
        let node = node.map_expressions(|expr| {
            expr.transform_down(|part| {
                lost |= subquery_of(&part).is_some_and(aggregates_all_of_a_correlation);
                Ok(without_limit(part))
            })
        })?;
        node.transform_data(|node| match node {
            LogicalPlan::Filter(filter) => spell_out_filter(filter),
            other => Ok(Transformed::no(other)),
        })
    })?;
    if lost {
        return Err(PlanError::unsupported(
            "EXISTS and IN with a correlated aggregate without GROUP BY are not supported",
            "put the correlated columns into GROUP BY of a subquery in FROM and join it",
        ));
    }
    Ok(plan)
}

fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::Exists(Exists { subquery, .. }) | Expr::InSubquery(InSubquery { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// Whether outer columns are read below an aggregate without GROUP BY.
fn aggregates_all_of_a_correlation(subquery: &Subquery) -> bool {
    let found = subquery.subquery.exists(|node| {
        Ok(matches!(node, LogicalPlan::Aggregate(aggregate)
            if aggregate.group_expr.is_empty() && !node.all_out_ref_exprs().is_empty()))
    });
    found.unwrap_or(true)
}

/// EXISTS does not ask how many rows there are, nor in which order.
fn without_limit(expr: Expr) -> Transformed<Expr> {
    let Expr::Exists(Exists { subquery, negated }) = expr else {
        return Transformed::no(expr);
    };
    let mut plan = Arc::clone(&subquery.subquery);
    loop {
        plan = match plan.as_ref() {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => Arc::clone(&sort.input),
            LogicalPlan::Limit(limit) if keeps_one(limit) => Arc::clone(&limit.input),
            _ => break,
        };
    }
    let changed = !Arc::ptr_eq(&plan, &subquery.subquery);
    let exists = Expr::Exists(Exists { subquery: Subquery { subquery: plan, ..subquery }, negated });
    if changed { Transformed::yes(exists) } else { Transformed::no(exists) }
}

fn keeps_one(limit: &datafusion_expr::Limit) -> bool {
    matches!(limit.get_skip_type(), Ok(SkipType::Literal(0)))
        && matches!(limit.get_fetch_type(), Ok(FetchType::Literal(fetch)) if fetch != Some(0))
}

fn spell_out_filter(filter: Filter) -> Result<Transformed<LogicalPlan>, DataFusionError> {
    if !filter.predicate.exists(|part| Ok(matches!(part, Expr::InSubquery(_))))? {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let Filter { predicate, input, .. } = filter;
    let schema = Arc::clone(input.schema());
    let mut changed = false;
    let conjuncts = split_conjunction_owned(predicate).into_iter().map(|conjunct| {
        let conjunct = match negated_in(conjunct) {
            Ok(found) if is_plain(&found, &schema)? => Transformed::no(not_in(found)),
            Ok(found) => spell_out_condition(not_in(found), &schema)?,
            Err(other) => spell_out_condition(other, &schema)?,
        };
        changed |= conjunct.transformed;
        Ok(conjunct.data)
    });
    let predicate = conjunction(conjuncts.collect::<Result<Vec<_>, DataFusionError>>()?).unwrap_or_else(|| lit(true));
    let filter = LogicalPlan::Filter(Filter::try_new(predicate, input)?);
    Ok(if changed { Transformed::yes(filter) } else { Transformed::no(filter) })
}

/// `x IN (subquery)`
struct In {
    x: Expr,
    subquery: Subquery,
}

fn not_in(found: In) -> Expr {
    Expr::InSubquery(InSubquery::new(Box::new(found.x), found.subquery, true))
}

/// `expr` as `x NOT IN (subquery)`, else as it is.
fn negated_in(expr: Expr) -> Result<In, Expr> {
    match expr {
        Expr::InSubquery(InSubquery { expr, subquery, negated: true }) => Ok(In { x: *expr, subquery }),
        Expr::Not(inner) => match *inner {
            Expr::InSubquery(InSubquery { expr, subquery, negated: false }) => Ok(In { x: *expr, subquery }),
            other => Err(not(other)),
        },
        other => Err(other),
    }
}

/// Whether a join that is aware of NULLs answers this NOT IN: it compares one column or
/// expression of the outer query with a subquery that stands alone. It looks for NULLs only where
/// a column can be NULL.
fn is_plain(found: &In, schema: &DFSchema) -> Result<bool, DataFusionError> {
    let columns: Vec<&Column> = found.x.column_refs().into_iter().collect();
    let mut nullable = found.subquery.subquery.schema().field(0).is_nullable();
    for column in &columns {
        nullable |= schema.field_from_column(column)?.is_nullable();
    }
    let seen = nullable || !found.x.nullable(schema)?;
    Ok(seen && !columns.is_empty() && !found.x.contains_outer() && found.subquery.outer_ref_columns.is_empty())
}

/// A condition for which NULL is as good as false.
fn spell_out_condition(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>, DataFusionError> {
    match negated_in(expr) {
        Ok(found) if !can_be_null(&found, schema)? => Ok(Transformed::no(not_in(found))),
        Ok(found) => {
            let (matches, nulls) = (matching(&found, schema)?, null(&found, schema)?);
            Ok(Transformed::yes(not(matches).and(nulls.into_iter().map(not).fold(lit(true), Expr::and))))
        }
        Err(Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right })) => {
            let (left, right) = (spell_out_condition(*left, schema)?, spell_out_condition(*right, schema)?);
            let changed = left.transformed || right.transformed;
            let both = Expr::BinaryExpr(BinaryExpr::new(Box::new(left.data), op, Box::new(right.data)));
            Ok(if changed { Transformed::yes(both) } else { Transformed::no(both) })
        }
        Err(found @ Expr::InSubquery(_)) => Ok(Transformed::no(found)),
        Err(other) => other.transform_up(|part| match part {
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                spell_out_value(In { x: *expr, subquery }, negated, schema)
            }
            other => Ok(Transformed::no(other)),
        }),
    }
}

/// True, false or NULL, as SQL says.
fn spell_out_value(found: In, negated: bool, schema: &DFSchema) -> Result<Transformed<Expr>, DataFusionError> {
    if !can_be_null(&found, schema)? {
        let In { x, subquery } = found;
        return Ok(Transformed::no(Expr::InSubquery(InSubquery::new(Box::new(x), subquery, negated))));
    }
    let nulls = null(&found, schema)?.into_iter().fold(lit(false), Expr::or);
    let value = when(matching(&found, schema)?, lit(!negated))
        .when(nulls, lit(ScalarValue::Boolean(None)))
        .otherwise(lit(negated))?;
    Ok(Transformed::yes(value))
}

fn can_be_null(found: &In, schema: &DFSchema) -> Result<bool, DataFusionError> {
    Ok(found.x.nullable(schema)? || found.subquery.subquery.schema().field(0).is_nullable())
}

/// `EXISTS (S with y = x)`
fn matching(found: &In, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    let outer = found.x.clone().transform_up(|part| match part {
        Expr::Column(column) => {
            let field = Arc::clone(schema.field_from_column(&column)?);
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(exists(with(&found.subquery, first_column(&found.subquery).eq(outer.data))?))
}

/// The cases in which a match that is not there is NULL: a NULL in S, and no x but rows in S.
fn null(found: &In, schema: &DFSchema) -> Result<Vec<Expr>, DataFusionError> {
    let mut cases = vec![exists(with(&found.subquery, first_column(&found.subquery).is_null())?)];
    if found.x.nullable(schema)? {
        cases.push(found.x.clone().is_null().and(exists(Arc::clone(&found.subquery.subquery))));
    }
    Ok(cases)
}

fn with(subquery: &Subquery, condition: Expr) -> Result<Arc<LogicalPlan>, DataFusionError> {
    LogicalPlanBuilder::from(Arc::clone(&subquery.subquery)).filter(condition)?.build().map(Arc::new)
}

fn first_column(subquery: &Subquery) -> Expr {
    Expr::Column(Column::from(subquery.subquery.schema().qualified_field(0)))
}
