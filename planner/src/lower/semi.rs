//! EXISTS, IN and their negations: semi, anti and mark joins, made of the operators that are there.
//!
//! ```text
//! matched = rows JOIN (DISTINCT keys of the subquery) ON the keys
//! semi = matched        anti = rows - matched        mark = (matched, true) + (rows - matched, false)
//! ```
//!
//! Every row meets at most one of the distinct keys, so its weight stays; `-` is UNION ALL with
//! the weights negated. What leaves `matched` comes back to `rows - matched` in the same epoch.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, DFSchema, JoinType};
use datafusion_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, lit, logical_plan};

use super::{Flow, Lowering, flow_schema, volatile};
use crate::error::PlanError;
use crate::expr::{ScalarExpr, Unary};
use crate::physical::{Side, nullable};
use crate::theta::{Analysis, AtomClass, ConditionClass, Inputs, Reads, Said, conjuncts};

/// What goes out for a row, by whether it has a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The row, if it has one.
    Semi,
    /// The row, if it has none.
    Anti,
    /// The row and whether it has one.
    Mark,
}

/// The kind of a join, and the side whose rows go out.
fn kind(join_type: JoinType) -> Option<(Kind, Side)> {
    Some(match join_type {
        JoinType::LeftSemi => (Kind::Semi, Side::Left),
        JoinType::LeftAnti => (Kind::Anti, Side::Left),
        JoinType::LeftMark => (Kind::Mark, Side::Left),
        JoinType::RightSemi => (Kind::Semi, Side::Right),
        JoinType::RightAnti => (Kind::Anti, Side::Right),
        JoinType::RightMark => (Kind::Mark, Side::Right),
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => return None,
    })
}

/// Whether `join` asks only if there is a match.
pub(super) fn is_semi(join_type: JoinType) -> bool {
    kind(join_type).is_some()
}

/// `row op key`: the row's side is an expression over its columns, the other one over those of
/// the subquery.
#[derive(Debug, Clone)]
struct Key {
    row: ScalarExpr,
    other: ScalarExpr,
    data_type: DataType,
    name: String,
    /// `=` by which a hash can find the match; else the condition is evaluated for every key.
    class: AtomClass,
    op: &'static str,
}

/// A match: equal keys, and what else must hold on one side.
#[derive(Debug, Default)]
struct Matching {
    keys: Vec<Key>,
    row_filter: Vec<ScalarExpr>,
    other_filter: Vec<ScalarExpr>,
}

impl Matching {
    /// The key of a NOT IN, whose condition is nothing but an equality.
    fn only_key(self) -> Result<Key, PlanError> {
        let unsupported = || {
            PlanError::unsupported(
                "this form of NOT IN is not supported",
                "use NOT EXISTS with the condition in the WHERE of its subquery",
            )
        };
        let mut keys = self.keys;
        let key = keys.pop().ok_or_else(unsupported)?;
        let nothing_else = keys.is_empty() && self.row_filter.is_empty() && self.other_filter.is_empty();
        if nothing_else { Ok(key) } else { Err(unsupported()) }
    }
}

impl Lowering<'_> {
    pub(super) fn semi_join(&mut self, join: &logical_plan::Join) -> Result<Flow, PlanError> {
        let Some((kind, side)) = kind(join.join_type) else {
            return Err(PlanError::unsupported(format!("a {} join is not supported here", join.join_type), "use JOIN"));
        };
        let (rows, other) = match side {
            Side::Left => (&join.left, &join.right),
            Side::Right => (&join.right, &join.left),
        };
        if kind != Kind::Semi {
            volatile::check_plan(rows)?;
        }
        let matching = matching(join, rows, other)?;
        let (rows, other) = (self.flow(rows)?, self.flow(other)?);
        if join.null_aware {
            return self.not_in(rows, other, matching.only_key()?);
        }
        let other = other.filter(matching.other_filter);
        let matched = self.matched(rows.clone().filter(matching.row_filter), other, matching.keys)?;
        match kind {
            Kind::Semi => Ok(matched),
            Kind::Anti => Ok(without(rows, matched)),
            Kind::Mark => mark(&rows, &matched, &flow_schema(&join.schema)),
        }
    }

    /// The rows of `rows` that have a match in `other`.
    fn matched(&mut self, rows: Flow, other: Flow, keys: Vec<Key>) -> Result<Flow, PlanError> {
        let width = rows.schema.fields().len() as u32;
        let once = self.distinct_keys(other, &keys)?;
        let (mut condition, mut equality) = (Vec::new(), Vec::new());
        let (mut class, mut said) = (Vec::new(), Vec::new());
        for (position, key) in (0..).zip(keys) {
            if key.class == AtomClass::Equality {
                equality.push((key.row.clone(), ScalarExpr::Column(position)));
            }
            said.push(if key.class == AtomClass::Equality { Said::ByKeys } else { Said::ByItself });
            class.push(key.class);
            condition.push(ScalarExpr::Binary {
                op: key.op.to_owned(),
                left: Box::new(key.row),
                right: Box::new(ScalarExpr::Column(width + position)),
            });
        }
        class.sort();
        class.dedup();
        let analysis = Analysis { class: ConditionClass(class), equality, ranges: Vec::new(), said };
        let schema = Arc::clone(&rows.schema);
        let pairs = self.add_join([rows, once], condition, analysis)?;
        Ok(pairs.project((0..width).map(ScalarExpr::Column).collect(), &schema))
    }

    /// Each combination of keys once. Without keys there is one row if there is any at all.
    fn distinct_keys(&mut self, other: Flow, keys: &[Key]) -> Result<Flow, PlanError> {
        if keys.is_empty() {
            let schema = nullable([Field::new("exists", DataType::Boolean, true)].iter());
            return Ok(self.distinct(other.project(vec![boolean(true)?], &schema), true));
        }
        let fields: Vec<_> = keys.iter().map(|key| Field::new(&key.name, key.data_type.clone(), true)).collect();
        let exprs = keys.iter().map(|key| key.other.clone()).collect();
        Ok(self.distinct(other.project(exprs, &nullable(fields.iter())), false))
    }

    /// `x NOT IN (subquery)`: with a NULL in the subquery no row qualifies, and a row whose x is
    /// NULL only if the subquery has no rows at all.
    ///
    /// Both say that a row with x goes when there is a mark equal to `x IS NOT NULL`: `true` for
    /// a NULL in the subquery, `false` for any row of it.
    fn not_in(&mut self, rows: Flow, other: Flow, key: Key) -> Result<Flow, PlanError> {
        let schema = nullable([Field::new("has_null", DataType::Boolean, true)].iter());
        let nulls = other.clone().filter(vec![ScalarExpr::Unary(Unary::IsNull, Box::new(key.other.clone()))]);
        let marks = [(nulls, true), (other.clone(), false)]
            .into_iter()
            .map(|(flow, mark)| Ok(flow.project(vec![boolean(mark)?], &schema)))
            .collect::<Result<Vec<_>, PlanError>>()?;
        let mark = Key {
            row: ScalarExpr::Unary(Unary::IsNotNull, Box::new(key.row.clone())),
            other: ScalarExpr::Column(0),
            data_type: DataType::Boolean,
            name: "has_null".to_owned(),
            // Two values at most: to hash by them would leave most cells empty.
            class: AtomClass::Residual,
            op: "=",
        };
        let excluded = self.matched(rows.clone(), Flow::union(marks, &schema), vec![mark])?;
        let open = without(rows, excluded);
        let matched = self.matched(open.clone(), other, vec![key])?;
        Ok(without(open, matched))
    }
}

/// The rows that are not in `gone`, which is a part of them.
fn without(rows: Flow, gone: Flow) -> Flow {
    let (schema, expected) = (Arc::clone(&rows.schema), rows.rows);
    Flow { rows: expected, ..Flow::union(vec![rows, gone.negate()], &schema) }
}

fn mark(rows: &Flow, matched: &Flow, schema: &SchemaRef) -> Result<Flow, PlanError> {
    let width = rows.schema.fields().len() as u32;
    let marked = |flow: &Flow, mark: bool| {
        let exprs = (0..width).map(ScalarExpr::Column).chain([boolean(mark)?]).collect();
        Ok::<_, PlanError>(flow.clone().project(exprs, schema))
    };
    let parts = vec![marked(matched, true)?, marked(rows, false)?, marked(matched, false)?.negate()];
    Ok(Flow { rows: rows.rows, ..Flow::union(parts, schema) })
}

fn boolean(value: bool) -> Result<ScalarExpr, PlanError> {
    ScalarExpr::of(&lit(value), &DFSchema::empty())
}

/// Reads the condition of a join.
fn matching(join: &logical_plan::Join, rows: &LogicalPlan, other: &LogicalPlan) -> Result<Matching, PlanError> {
    let (row_schema, other_schema) = (rows.schema(), other.schema());
    let inputs = Inputs { left: row_schema, right: other_schema, pair: row_schema };
    let mut matching = Matching::default();
    for conjunct in conjuncts(join) {
        match inputs.reads(&conjunct) {
            Reads::Nothing | Reads::One(Side::Left) => {
                matching.row_filter.push(ScalarExpr::of(&conjunct, row_schema)?);
            }
            Reads::One(Side::Right) => matching.other_filter.push(ScalarExpr::of(&conjunct, other_schema)?),
            Reads::Both => matching.keys.push(key(&conjunct, inputs)?.ok_or_else(|| theta(&conjunct))?),
        }
    }
    Ok(matching)
}

/// An equality between the two sides, if `conjunct` is one.
fn key(conjunct: &Expr, inputs: Inputs<'_>) -> Result<Option<Key>, PlanError> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = conjunct else {
        return Ok(None);
    };
    let (row, other) = match (inputs.reads(left), inputs.reads(right)) {
        (Reads::One(Side::Left), Reads::One(Side::Right)) => (left, right),
        (Reads::One(Side::Right), Reads::One(Side::Left)) => (right, left),
        _ => return Ok(None),
    };
    let data_type = other.get_type(inputs.right)?;
    let same_type = row.get_type(inputs.left)? == data_type;
    let (class, op) = match op {
        Operator::Eq if same_type => (AtomClass::Equality, "="),
        Operator::Eq => (AtomClass::Residual, "="),
        Operator::IsNotDistinctFrom => (AtomClass::Residual, "IS NOT DISTINCT FROM"),
        _ => return Ok(None),
    };
    let row = ScalarExpr::of(row, inputs.left)?;
    Ok(Some(Key {
        row: positive_zero(row, &data_type)?,
        other: ScalarExpr::of(other, inputs.right)?,
        data_type,
        name: match other.as_ref() {
            Expr::Column(column) => column.name.clone(),
            other => other.schema_name().to_string(),
        },
        class,
        op,
    }))
}

/// -0.0 becomes 0.0, as it does in the distinct keys.
fn positive_zero(expr: ScalarExpr, data_type: &DataType) -> Result<ScalarExpr, PlanError> {
    let zero = match data_type {
        DataType::Float32 => lit(0.0_f32),
        DataType::Float64 => lit(0.0_f64),
        _ => return Ok(expr),
    };
    let zero = ScalarExpr::of(&zero, &DFSchema::empty())?;
    Ok(ScalarExpr::Binary { op: "+".to_owned(), left: Box::new(expr), right: Box::new(zero) })
}

fn theta(conjunct: &Expr) -> PlanError {
    PlanError::unsupported(
        format!(
            "theta EXISTS and NOT EXISTS are not supported yet: {} is no equality of both sides",
            without_made_names(conjunct)
        ),
        "for EXISTS and IN, join with the other side and use SELECT DISTINCT",
    )
}

/// `expr` without the names that the logical planner makes for subqueries.
fn without_made_names(expr: &Expr) -> Expr {
    let bare = expr.clone().transform(|expr| {
        Ok(match expr {
            Expr::Column(column) if column.relation.as_ref().is_some_and(|name| name.table().starts_with("__")) => {
                Transformed::yes(Expr::from(Column::from_name(column.name)))
            }
            other => Transformed::no(other),
        })
    });
    bare.map_or_else(|_| expr.clone(), |bare| bare.data)
}
