//! Joins: the condition is analysed, the layout chosen, unneeded columns left behind.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion_common::JoinType;
use datafusion_expr::{LogicalPlan, logical_plan};

use super::semi::is_semi;
use super::{Branch, Flow, Lowering, row_bytes, volatile};
use crate::choose::{Choice, Volumes, choose};
use crate::error::PlanError;
use crate::estimate;
use crate::expr::ScalarExpr;
use crate::physical::{Exchange, Join, JoinReport, OperatorKind, Side, nullable};
use crate::sample;
use crate::theta::{Analysis, Inputs, analyze, conjuncts};

impl Lowering<'_> {
    pub(super) fn join(&mut self, join: &logical_plan::Join) -> Result<Flow, PlanError> {
        if is_semi(join.join_type) {
            return self.semi_join(join);
        }
        check_type(join)?;
        let conjuncts = conjuncts(join);
        let (left_schema, right_schema) = (join.left.schema(), join.right.schema());
        let pair = Arc::new(left_schema.join(right_schema)?);
        let analysis = analyze(&conjuncts, Inputs { left: left_schema, right: right_schema, pair: &pair })?;
        let condition = conjuncts.iter().map(|e| ScalarExpr::of(e, &pair)).collect::<Result<Vec<_>, _>>()?;
        let inputs = [self.flow(&join.left)?, self.flow(&join.right)?];
        volatile::check(&conjuncts, inputs.iter().any(|input| input.retracts))?;
        self.add_join(inputs, condition, analysis)
    }

    pub(super) fn add_join(
        &mut self,
        inputs: [Flow; 2],
        condition: Vec<ScalarExpr>,
        analysis: Analysis,
    ) -> Result<Flow, PlanError> {
        let volumes = Volumes {
            rows: [inputs[0].rows, inputs[1].rows],
            row_bytes: [row_bytes(&inputs[0].schema), row_bytes(&inputs[1].schema)],
        };
        if condition.is_empty() && volumes.rows != [Some(1.0), Some(1.0)] && !volumes.rows.contains(&Some(1.0)) {
            self.notices.push(
                "the query has a cross product: every row of one side is paired with every row of the other".to_owned(),
            );
        }
        let Choice { layout, alternatives, reason } =
            choose(self.settings, &analysis, volumes, &|side| self.sample(&inputs[side.index()]))?;
        let [left, right] = &inputs;
        let fields = left.schema.fields().iter().chain(right.schema.fields());
        let schema = nullable(fields.map(AsRef::as_ref));
        let retracts = left.retracts || right.retracts;
        let rows = estimate::pairs(volumes.rows, &analysis.class);
        let bounded = left.bounded && right.bounded;
        let operator = Join {
            inputs: [Arc::clone(&left.schema), Arc::clone(&right.schema)],
            retracts: [left.retracts, right.retracts],
            condition,
            equality: analysis.equality,
            ranges: analysis.ranges,
            said: analysis.said,
            aggregate: None,
            output: (0..schema.fields().len() as u32).collect(),
            report: JoinReport {
                class: analysis.class,
                rows: volumes.rows,
                row_bytes: volumes.row_bytes,
                unbounded: [!left.bounded, !right.bounded],
                alternatives,
                reason,
            },
            layout,
        };
        let cells = operator.layout.cells();
        let id = self.add(OperatorKind::Join(Box::new(operator)), cells, Arc::clone(&schema), retracts, rows);
        for (flow, side) in inputs.into_iter().zip(Side::BOTH) {
            self.connect(flow, id, side.index() as u8, &Exchange::Matrix(side));
        }
        Ok(Flow { branches: vec![Branch { from: id, steps: Vec::new() }], schema, retracts, rows, bounded })
    }
}

impl Lowering<'_> {
    /// Some rows of what flows from a source.
    fn sample(&self, flow: &Flow) -> Option<RecordBatch> {
        let [branch] = flow.branches.as_slice() else { return None };
        let OperatorKind::Source(source) = &self.operators[branch.from.0 as usize].kind else { return None };
        let columns: Vec<usize> = source.projection.iter().map(|column| *column as usize).collect();
        let rows = self.samples.get(&branch.from)?.rows()?.project(&columns).ok()?;
        sample::after(&branch.steps, rows)
    }
}

fn check_type(join: &logical_plan::Join) -> Result<(), PlanError> {
    match join.join_type {
        JoinType::Inner => Ok(()),
        // The other side has exactly one row, and nothing can filter it away: an inner join.
        JoinType::Left if join.filter.is_none() && join.on.is_empty() && has_one_row(&join.right) => Ok(()),
        JoinType::Right if join.filter.is_none() && join.on.is_empty() && has_one_row(&join.left) => Ok(()),
        _ => Err(PlanError::unsupported(
            format!("outer joins are not supported ({} join)", join.join_type),
            "an inner join gives the rows with a match; a scalar subquery must be an aggregate without GROUP BY and HAVING",
        )),
    }
}

/// A scalar subquery has at most one row: known from its plan, as nothing checks it later.
pub(super) fn has_at_most_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Filter(filter) => has_at_most_one_row(&filter.input),
        LogicalPlan::Projection(projection) => has_at_most_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_at_most_one_row(&alias.input),
        LogicalPlan::Sort(sort) => has_at_most_one_row(&sort.input),
        other => has_one_row(other),
    }
}

/// A global aggregate always has one row, as has a row of constants.
fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(projection) => has_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_one_row(&alias.input),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        LogicalPlan::Values(values) => values.values.len() == 1,
        _ => false,
    }
}
