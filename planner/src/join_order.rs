//! The order of inner joins, by cost.
//!
//! A maximal tree of inner joins, seen through filters and through projections that only pass
//! columns on, is taken apart into relations and conjuncts; the [search] finds a better tree
//! if there is one, and the plan is put together anew. Two relations stay as they are written, and
//! so does a tree that no other beats.

mod search;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, DFSchema, DFSchemaRef, DataFusionError, JoinType, NullEquality, TableReference};
use datafusion_expr::logical_plan::{Filter, Join, JoinConstraint, Projection, SubqueryAlias};
use datafusion_expr::utils::{conjunction, split_conjunction_owned};
use datafusion_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};

use self::search::{Edge, Graph, MOST, Set, Tree, better};
use crate::estimate;
use crate::theta::{AtomClass, ConditionClass, conjuncts};

/// Rows of a stream of unknown size.
const UNKNOWN_ROWS: f64 = 1e6;

type Planned = Result<Transformed<LogicalPlan>, DataFusionError>;

/// `plan` with its inner joins in a good order.
///
/// # Errors
/// A plan whose columns do not fit together.
pub(crate) fn order_joins(plan: LogicalPlan) -> Planned {
    if !leads_to_join(&plan) {
        return plan.map_children(order_joins);
    }
    let mut relations = Vec::new();
    collect(&plan, &mut relations);
    if (3..=MOST).contains(&relations.len())
        && let Some(ordered) = Joins::of(&plan, relations)?.ordered(plan.schema())?
    {
        return map_relations(ordered, &order_joins).map(|plan| Transformed::yes(plan.data));
    }
    map_relations(plan, &order_joins)
}

/// Whether `plan` is an inner join, perhaps under filters and renamings.
fn leads_to_join(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) => join.join_type == JoinType::Inner && !conjuncts(join).iter().any(Expr::is_volatile),
        LogicalPlan::Filter(filter) => !filter.predicate.is_volatile() && leads_to_join(&filter.input),
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().all(|expr| passed_on(expr).is_some()) && leads_to_join(&projection.input)
        }
        LogicalPlan::SubqueryAlias(alias) => leads_to_join(&alias.input),
        _ => false,
    }
}

/// The column that an expression only passes on.
fn passed_on(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => passed_on(&alias.expr),
        _ => None,
    }
}

/// The relations of a tree of joins, from left to right.
fn collect(plan: &LogicalPlan, relations: &mut Vec<LogicalPlan>) {
    if leads_to_join(plan) {
        plan.inputs().into_iter().for_each(|input| collect(input, relations));
    } else {
        relations.push(plan.clone());
    }
}

/// Replaces the relations of a tree of joins.
fn map_relations(plan: LogicalPlan, map: &impl Fn(LogicalPlan) -> Planned) -> Planned {
    if leads_to_join(&plan) { plan.map_children(|input| map_relations(input, map)) } else { map(plan) }
}

/// A tree of joins, taken apart.
struct Joins {
    /// The relations, with columns that no two of them share.
    relations: Vec<LogicalPlan>,
    /// Which relation each column is of.
    owners: HashMap<Column, usize>,
    conjuncts: Vec<(Set, Expr)>,
    /// What the whole tree puts out.
    columns: Vec<Column>,
    written: Tree,
}

impl Joins {
    fn of(plan: &LogicalPlan, relations: Vec<LogicalPlan>) -> Result<Self, DataFusionError> {
        let relations = distinguish(relations)?;
        let owners = relations
            .iter()
            .enumerate()
            .flat_map(|(owner, relation)| relation.schema().columns().into_iter().map(move |column| (column, owner)))
            .collect();
        let mut walk = Walk { relations: &relations, next: 0, conjuncts: Vec::new() };
        let (written, columns) = walk.visit(plan)?;
        let conjuncts = walk.conjuncts;
        let mut joins = Self { relations, owners, conjuncts: Vec::new(), columns, written };
        joins.conjuncts = conjuncts.into_iter().map(|expr| (joins.reads(&expr), expr)).collect();
        Ok(joins)
    }

    /// The relations whose columns an expression reads.
    fn reads(&self, expr: &Expr) -> Set {
        let owners = expr.column_refs().into_iter().filter_map(|column| self.owners.get(column));
        owners.fold(0, |set, owner| set | 1 << owner)
    }

    /// The tree in a better order, with columns as in `schema`, if there is a better one.
    fn ordered(mut self, schema: &DFSchemaRef) -> Result<Option<LogicalPlan>, DataFusionError> {
        self.filter_relations()?;
        let Some(tree) = better(&self.graph(), &self.written) else {
            return Ok(None);
        };
        let mut plan = self.build(&tree)?;
        let constant = self.conjuncts.iter().filter(|(set, _)| *set == 0).map(|(_, expr)| expr.clone());
        if let Some(predicate) = conjunction(constant) {
            plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(plan))?);
        }
        let columns = schema.columns();
        // By what the columns are and not by their names alone: a subquery may give one column the name of another.
        if self.columns == columns && plan.schema().columns() == columns {
            return Ok(Some(plan));
        }
        let named = self.columns.iter().zip(columns).map(|(column, name)| {
            let expr = Expr::Column(column.clone());
            if *column == name { expr } else { expr.alias_qualified(name.relation, name.name) }
        });
        let projection = Projection::try_new_with_schema(named.collect(), Arc::new(plan), Arc::clone(schema))?;
        Ok(Some(LogicalPlan::Projection(projection)))
    }

    /// Conditions on one relation are met before any join.
    fn filter_relations(&mut self) -> Result<(), DataFusionError> {
        let conjuncts = std::mem::take(&mut self.conjuncts);
        let (single, rest): (Vec<_>, Vec<_>) = conjuncts.into_iter().partition(|(set, _)| set.count_ones() == 1);
        self.conjuncts = rest;
        for (owner, relation) in self.relations.iter_mut().enumerate() {
            let own = single.iter().filter(|(set, _)| *set == 1 << owner).map(|(_, expr)| expr.clone());
            if let Some(predicate) = conjunction(own) {
                *relation = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(relation.clone()))?);
            }
        }
        Ok(())
    }

    fn graph(&self) -> Graph {
        let rows = |plan: &LogicalPlan| estimate::rows(plan, Some(UNKNOWN_ROWS)).unwrap_or(UNKNOWN_ROWS).max(1.0);
        let rows: Vec<f64> = self.relations.iter().map(rows).collect();
        let mut by_set: BTreeMap<Set, Vec<Expr>> = BTreeMap::new();
        for (set, expr) in self.conjuncts.iter().filter(|(set, _)| set.count_ones() > 1) {
            by_set.entry(*set).or_default().push(expr.clone());
        }
        let edges = by_set.into_iter().map(|(set, exprs)| {
            let members: Vec<usize> = (0..rows.len()).filter(|member| set >> member & 1 == 1).collect();
            let larger = members.iter().map(|member| rows[*member]).fold(1.0, f64::max);
            Edge { relations: set, share: estimate::share(&self.class(&exprs, &members), larger) }
        });
        let edges = edges.collect();
        Graph { rows, edges }
    }

    /// Class of the conjuncts over some relations.
    fn class(&self, exprs: &[Expr], members: &[usize]) -> ConditionClass {
        if let [left, right] = members {
            return estimate::class(exprs, &self.relations[*left], &self.relations[*right]);
        }
        let class = |expr: &Expr| match self.sides(expr) {
            Some(_) => AtomClass::Equality,
            None => AtomClass::Residual,
        };
        let mut classes: Vec<_> = exprs.iter().map(class).collect();
        classes.sort();
        classes.dedup();
        ConditionClass(classes)
    }

    /// The sides of an equality, if no relation is read by both.
    fn sides<'a>(&self, expr: &'a Expr) -> Option<[(Set, &'a Expr); 2]> {
        let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = expr else {
            return None;
        };
        let (left, right) = ((self.reads(left), left.as_ref()), (self.reads(right), right.as_ref()));
        (left.0 != 0 && right.0 != 0 && left.0 & right.0 == 0).then_some([left, right])
    }

    fn build(&self, tree: &Tree) -> Result<LogicalPlan, DataFusionError> {
        let (left_tree, right_tree) = match tree {
            Tree::Relation(relation) => return Ok(self.relations[*relation].clone()),
            Tree::Join(left, right) => (left, right),
        };
        let (left, right) = (self.build(left_tree)?, self.build(right_tree)?);
        let (left_set, right_set) = (left_tree.relations(), right_tree.relations());
        let complete = |set: Set| set & !(left_set | right_set) == 0 && set & left_set != 0 && set & right_set != 0;
        let (mut on, mut filter) = (Vec::new(), Vec::new());
        for (_, expr) in self.conjuncts.iter().filter(|(set, _)| complete(*set)) {
            match self.keys(expr, (left_set, left.schema()), (right_set, right.schema()))? {
                Some(keys) => on.push(keys),
                None => filter.push(expr.clone()),
            }
        }
        let join = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            on,
            conjunction(filter),
            JoinType::Inner,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        Ok(LogicalPlan::Join(join))
    }

    /// `expr` as (left key, right key), if it is an equality of one type between the sides.
    fn keys(
        &self,
        expr: &Expr,
        (left_set, left): (Set, &DFSchema),
        (right_set, right): (Set, &DFSchema),
    ) -> Result<Option<(Expr, Expr)>, DataFusionError> {
        let Some([a, b]) = self.sides(expr) else {
            return Ok(None);
        };
        let inside = |set: Set, whole: Set| set & !whole == 0;
        let (left_key, right_key) = if inside(a.0, left_set) && inside(b.0, right_set) {
            (a.1, b.1)
        } else if inside(b.0, left_set) && inside(a.0, right_set) {
            (b.1, a.1)
        } else {
            return Ok(None);
        };
        let same_type = left_key.get_type(left)? == right_key.get_type(right)?;
        Ok(same_type.then(|| (left_key.clone(), right_key.clone())))
    }
}

/// Gives every relation a name of its own if columns of two of them could be taken for one another.
fn distinguish(relations: Vec<LogicalPlan>) -> Result<Vec<LogicalPlan>, DataFusionError> {
    let columns: Vec<Column> = relations.iter().flat_map(|relation| relation.schema().columns()).collect();
    let mut seen = HashSet::new();
    let mut names = HashMap::new();
    columns.iter().for_each(|column| *names.entry(column.name.as_str()).or_insert(0) += 1);
    let clear = |column: &Column| column.relation.is_some() || names[column.name.as_str()] == 1;
    if columns.iter().all(|column| clear(column) && seen.insert(column)) {
        return Ok(relations);
    }
    let named = relations.into_iter().enumerate().map(|(number, relation)| {
        let name = TableReference::bare(format!("relation {}", number + 1));
        Ok(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(relation), name)?))
    });
    named.collect()
}

/// A walk over a tree of joins, which says everything in terms of the relations' columns.
struct Walk<'a> {
    relations: &'a [LogicalPlan],
    next: usize,
    conjuncts: Vec<Expr>,
}

impl Walk<'_> {
    /// The tree of `plan`, and for each of its columns the relation's column that it is.
    fn visit(&mut self, plan: &LogicalPlan) -> Result<(Tree, Vec<Column>), DataFusionError> {
        if !leads_to_join(plan) {
            let relation = self.next;
            self.next += 1;
            return Ok((Tree::Relation(relation), self.relations[relation].schema().columns()));
        }
        match plan {
            LogicalPlan::Join(join) => {
                let (left, mut columns) = self.visit(&join.left)?;
                let (right, right_columns) = self.visit(&join.right)?;
                columns.extend(right_columns);
                for expr in conjuncts(join) {
                    self.add(expr, &join.schema, &columns)?;
                }
                Ok((Tree::Join(Box::new(left), Box::new(right)), columns))
            }
            LogicalPlan::Filter(filter) => {
                let (tree, columns) = self.visit(&filter.input)?;
                self.add(filter.predicate.clone(), filter.input.schema(), &columns)?;
                Ok((tree, columns))
            }
            LogicalPlan::Projection(projection) => {
                let (tree, columns) = self.visit(&projection.input)?;
                let schema = projection.input.schema();
                let passed = projection.expr.iter().filter_map(passed_on);
                let passed = passed.map(|column| Ok(columns[schema.index_of_column(column)?].clone()));
                Ok((tree, passed.collect::<Result<_, DataFusionError>>()?))
            }
            LogicalPlan::SubqueryAlias(alias) => self.visit(&alias.input),
            other => Err(DataFusionError::Internal(format!("{} leads to no join", other.display()))),
        }
    }

    fn add(&mut self, expr: Expr, schema: &DFSchema, columns: &[Column]) -> Result<(), DataFusionError> {
        let renamed = expr.transform_up(|part| match part {
            Expr::Column(column) => {
                Ok(Transformed::yes(Expr::Column(columns[schema.index_of_column(&column)?].clone())))
            }
            other => Ok(Transformed::no(other)),
        })?;
        self.conjuncts.extend(split_conjunction_owned(renamed.data));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
