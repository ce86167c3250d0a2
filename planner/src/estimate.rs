//! How many rows are expected, when nothing is known but the sizes of the streams. Lowering and
//! the order of joins reckon with the same numbers.

use std::sync::Arc;

use datafusion_common::JoinType;
use datafusion_expr::utils::split_conjunction;
use datafusion_expr::{Expr, LogicalPlan, logical_plan};

use crate::logical::StreamSource;
use crate::theta::{self, AtomClass, ConditionClass, Inputs, analyze};

/// Elements of a list.
const LIST_LENGTH: f64 = 10.0;

/// Share of the rows that a condition of so many conjuncts keeps.
pub(crate) fn kept(conjuncts: usize) -> f64 {
    0.4_f64.powi(i32::try_from(conjuncts.min(8)).unwrap_or(8))
}

/// Groups of so many rows.
pub(crate) fn groups(rows: f64) -> f64 {
    rows.sqrt().ceil()
}

/// Rows of so many rows with lists, after UNNEST.
pub(crate) fn unnested(rows: f64) -> f64 {
    rows * LIST_LENGTH
}

/// Pairs of two inputs that meet a condition.
pub(crate) fn pairs(rows: [Option<f64>; 2], class: &ConditionClass) -> Option<f64> {
    let [Some(left), Some(right)] = rows else {
        return None;
    };
    Some((left * right * share(class, left.max(right))).ceil())
}

/// Share of all pairs that meet a condition, if the larger input has so many rows.
pub(crate) fn share(class: &ConditionClass, larger: f64) -> f64 {
    let atoms = class.0.iter().map(|atom| match atom {
        AtomClass::Equality => 1.0 / larger.max(1.0),
        AtomClass::Band | AtomClass::Distance | AtomClass::GreatCircle => 0.001,
        AtomClass::Inequality | AtomClass::Residual => 0.4,
    });
    atoms.product()
}

/// Class of a condition over two inputs. One that cannot be read counts as a residual.
pub(crate) fn class(conjuncts: &[Expr], left: &LogicalPlan, right: &LogicalPlan) -> ConditionClass {
    let (left, right) = (left.schema(), right.schema());
    let analysis = left.join(right).ok().and_then(|pair| {
        let inputs = Inputs { left, right, pair: &Arc::new(pair) };
        analyze(conjuncts, inputs).ok()
    });
    analysis.map_or_else(|| ConditionClass(vec![AtomClass::Residual]), |analysis| analysis.class)
}

/// Rows of a plan. A stream of unknown size has `unknown` rows; without that, the answer may be
/// unknown too.
pub(crate) fn rows(plan: &LogicalPlan, unknown: Option<f64>) -> Option<f64> {
    let input = |plan: &LogicalPlan| rows(plan, unknown);
    match plan {
        LogicalPlan::TableScan(scan) => {
            let stream = scan.source.downcast_ref::<StreamSource>();
            let all = stream.and_then(|source| source.0.volume.rows).or(unknown);
            all.map(|rows| rows * kept(scan.filters.iter().flat_map(split_conjunction).count()))
        }
        LogicalPlan::Filter(filter) => {
            input(&filter.input).map(|rows| rows * kept(split_conjunction(&filter.predicate).len()))
        }
        LogicalPlan::Projection(projection) => input(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => input(&alias.input),
        LogicalPlan::Subquery(subquery) => input(&subquery.subquery),
        LogicalPlan::Sort(sort) => input(&sort.input),
        LogicalPlan::Join(join) => joined(join, unknown),
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => Some(1.0),
        LogicalPlan::Aggregate(aggregate) => input(&aggregate.input).map(groups),
        LogicalPlan::Union(union) => union.inputs.iter().map(|plan| input(plan)).sum(),
        LogicalPlan::Unnest(unnest) => input(&unnest.input).map(unnested),
        LogicalPlan::Values(values) => Some(values.values.len() as f64),
        LogicalPlan::EmptyRelation(empty) => Some(if empty.produce_one_row { 1.0 } else { 0.0 }),
        _ => unknown,
    }
}

fn joined(join: &logical_plan::Join, unknown: Option<f64>) -> Option<f64> {
    let sides = [rows(&join.left, unknown), rows(&join.right, unknown)];
    let equality = ConditionClass(vec![AtomClass::Equality]);
    match join.join_type {
        JoinType::LeftSemi => pairs([sides[0], sides[1].map(groups)], &equality),
        JoinType::RightSemi => pairs([sides[0].map(groups), sides[1]], &equality),
        JoinType::LeftAnti | JoinType::LeftMark => sides[0],
        JoinType::RightAnti | JoinType::RightMark => sides[1],
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
            pairs(sides, &class(&theta::conjuncts(join), &join.left, &join.right))
        }
    }
}
