//! The top of a query: ORDER BY, LIMIT and the sink.

use datafusion_common::DFSchema;
use datafusion_expr::logical_plan::{FetchType, Limit, SkipType, Sort};
use datafusion_expr::{Expr, LogicalPlan};

use super::{Flow, Lowering, Output, scalars, sort_keys};
use crate::error::PlanError;
use crate::physical::{Exchange, OperatorKind, Sink, SinkMode, Step};

/// What stands above the last operator that makes rows.
#[derive(Default)]
struct Top<'a> {
    skip: u64,
    limit: Option<u64>,
    sort: Option<&'a Sort>,
    /// A projection above the sort: its columns go out, the sort's keys may not be among them.
    columns: Option<(&'a [Expr], &'a DFSchema)>,
}

impl Lowering<'_> {
    pub(super) fn add_top(&mut self, plan: &LogicalPlan, output: Output) -> Result<(), PlanError> {
        let mut top = Top::default();
        let body = peel(plan, &mut top)?;
        let flow = self.flow(body)?;
        let out = super::flow_schema(plan.schema());
        let mode = match output {
            Output::Changes => self.changes(&top)?,
            Output::Result => self.result(&top, body, &flow)?,
        };
        // Without a sort there is nothing to keep the projection from running early.
        let flow = match (&mode, top.columns) {
            (SinkMode::Final { order, .. }, Some(_)) if !order.is_empty() => flow,
            (_, Some((exprs, schema))) => {
                let exprs = scalars(exprs, schema)?;
                Flow { schema: out.clone(), ..flow }.then(&Step::Project { exprs, schema: out.clone() })
            }
            _ => flow,
        };
        let (retracts, rows) = (flow.retracts, flow.rows);
        let finish = match (&mode, top.columns) {
            (SinkMode::Final { order, .. }, Some((exprs, schema))) if !order.is_empty() => scalars(exprs, schema)?,
            _ => Vec::new(),
        };
        let sink = Sink { mode, input: flow.schema.clone(), finish };
        let id = self.add(OperatorKind::Sink(sink), 1, out, retracts, rows);
        self.connect(flow, id, 0, &Exchange::Gather);
        Ok(())
    }

    fn changes(&mut self, top: &Top<'_>) -> Result<SinkMode, PlanError> {
        if top.limit.is_some() || top.skip > 0 {
            return Err(PlanError::unsupported(
                "LIMIT and OFFSET are not supported for the changes of a query",
                "leave them out, or ask for the result instead of its changes",
            ));
        }
        if top.sort.is_some() {
            self.notices.push("ORDER BY has no effect on the changes of a query".to_owned());
        }
        Ok(SinkMode::Changelog)
    }

    fn result(&self, top: &Top<'_>, body: &LogicalPlan, flow: &Flow) -> Result<SinkMode, PlanError> {
        let Some(sort) = top.sort else {
            // A result that changes and never ends is never final.
            if flow.retracts && !flow.bounded {
                if top.limit.is_some() || top.skip > 0 {
                    return Err(PlanError::unsupported(
                        "LIMIT and OFFSET need a result that ends or that only grows, and this one changes for ever",
                        "leave them out",
                    ));
                }
                return Ok(SinkMode::Changelog);
            }
            return Ok(if flow.retracts {
                SinkMode::Final { order: Vec::new(), skip: top.skip, limit: top.limit }
            } else {
                SinkMode::Append { skip: top.skip, limit: top.limit }
            });
        };
        if !flow.bounded {
            return Err(PlanError::unsupported(
                "ORDER BY needs a result that ends, and a source of this query never does",
                "leave ORDER BY out",
            ));
        }
        let order = sort_keys(&sort.expr, body.schema())?;
        Ok(SinkMode::Final { order, skip: top.skip, limit: top.limit })
    }
}

/// Takes LIMIT, a projection and ORDER BY off the top, as far as they stand in this order.
fn peel<'a>(plan: &'a LogicalPlan, top: &mut Top<'a>) -> Result<&'a LogicalPlan, PlanError> {
    match plan {
        LogicalPlan::Limit(limit) if top.columns.is_none() && top.limit.is_none() && top.skip == 0 => {
            take_limit(limit, top)?;
            peel(&limit.input, top)
        }
        LogicalPlan::Projection(projection) if top.columns.is_none() => {
            let above_sort = matches!(projection.input.as_ref(), LogicalPlan::Sort(_));
            if !above_sort {
                return Ok(plan);
            }
            top.columns = Some((&projection.expr, projection.input.schema()));
            peel(&projection.input, top)
        }
        LogicalPlan::Sort(sort) => {
            top.sort = Some(sort);
            if let Some(fetch) = sort.fetch {
                top.limit = Some(top.limit.map_or(fetch as u64, |limit| limit.min(fetch as u64)));
            }
            Ok(&sort.input)
        }
        other => Ok(other),
    }
}

fn take_limit(limit: &Limit, top: &mut Top<'_>) -> Result<(), PlanError> {
    let constant = || PlanError::unsupported("LIMIT and OFFSET must be constants", "write numbers");
    top.skip = match limit.get_skip_type()? {
        SkipType::Literal(skip) => skip as u64,
        SkipType::UnsupportedExpr => return Err(constant()),
    };
    top.limit = match limit.get_fetch_type()? {
        FetchType::Literal(fetch) => fetch.map(|fetch| fetch as u64),
        FetchType::UnsupportedExpr => return Err(constant()),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Schema;
    use datafusion_expr::EmptyRelation;

    use super::*;
    use crate::settings::Settings;

    fn mode(retracts: bool, bounded: bool, limit: Option<u64>) -> Result<SinkMode, PlanError> {
        let settings = Settings::new(1);
        let lowering = Lowering::new(&settings);
        let schema = Arc::new(Schema::empty());
        let flow = Flow { branches: Vec::new(), schema, retracts, rows: None, bounded };
        let body = EmptyRelation { produce_one_row: false, schema: Arc::new(DFSchema::empty()) };
        lowering.result(&Top { limit, ..Top::default() }, &LogicalPlan::EmptyRelation(body), &flow)
    }

    #[test]
    fn a_result_that_changes_for_ever_is_its_changes() {
        assert_eq!(mode(true, false, None).unwrap(), SinkMode::Changelog);
        assert!(mode(true, false, Some(1)).unwrap_err().hint.is_some());
        assert_eq!(mode(false, false, Some(1)).unwrap(), SinkMode::Append { skip: 0, limit: Some(1) });
        assert!(matches!(mode(true, true, None).unwrap(), SinkMode::Final { .. }));
    }
}
