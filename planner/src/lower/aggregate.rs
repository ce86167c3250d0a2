//! GROUP BY and aggregate functions.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_common::DFSchema;
use datafusion_expr::expr::{AggregateFunction as Call, Alias};
use datafusion_expr::{Expr, ExprSchemable, logical_plan};

use super::{Branch, Flow, Lowering, flow_schema, scalars};
use crate::error::PlanError;
use crate::estimate;
use crate::expr::ScalarExpr;
use crate::physical::{Aggregate, AggregateCall, AggregateFunction, Exchange, OperatorKind};

impl Lowering<'_> {
    pub(super) fn aggregate(&mut self, aggregate: &logical_plan::Aggregate) -> Result<Flow, PlanError> {
        let input_schema = aggregate.input.schema();
        if let Some(Expr::GroupingSet(_)) = aggregate.group_expr.first() {
            return Err(PlanError::unsupported(
                "GROUPING SETS, CUBE and ROLLUP are not supported",
                "write one SELECT per grouping and join them with UNION ALL",
            ));
        }
        let input = self.flow(&aggregate.input)?;
        let groups = scalars(&aggregate.group_expr, input_schema)?;
        let aggregates =
            aggregate.aggr_expr.iter().map(|expr| call(expr, input_schema)).collect::<Result<Vec<_>, _>>()?;
        let (tasks, rows) = if groups.is_empty() {
            (1, Some(1.0))
        } else {
            (self.settings.parallelism, input.rows.map(estimate::groups))
        };
        let operator =
            Aggregate { input: Arc::clone(&input.schema), groups, aggregates, input_retracts: input.retracts };
        Ok(self.add_aggregate(input, operator, flow_schema(&aggregate.schema), tasks, rows))
    }

    /// The distinct rows of `input`. If it can have only one, one task finds it.
    pub(super) fn distinct(&mut self, input: Flow, at_most_one: bool) -> Flow {
        let schema = Arc::clone(&input.schema);
        let (tasks, rows) =
            if at_most_one { (1, Some(1.0)) } else { (self.settings.parallelism, input.rows.map(estimate::groups)) };
        let operator = Aggregate {
            input: Arc::clone(&schema),
            groups: (0..schema.fields().len() as u32).map(ScalarExpr::Column).collect(),
            aggregates: Vec::new(),
            input_retracts: input.retracts,
        };
        self.add_aggregate(input, operator, schema, tasks, rows)
    }

    fn add_aggregate(
        &mut self,
        input: Flow,
        operator: Aggregate,
        schema: SchemaRef,
        tasks: u32,
        rows: Option<f64>,
    ) -> Flow {
        let one_task = operator.groups.is_empty() || tasks < self.settings.parallelism;
        let exchange = if one_task { Exchange::Gather } else { Exchange::Hash(operator.groups.clone()) };
        // DISTINCT alone over rows that stay: every group is emitted once and never changes.
        let retracts = !operator.aggregates.is_empty() || input.retracts;
        let bounded = input.bounded;
        let id = self.add(OperatorKind::Aggregate(operator), tasks, Arc::clone(&schema), retracts, rows);
        self.connect(input, id, 0, &exchange);
        Flow { branches: vec![Branch { from: id, steps: Vec::new() }], schema, retracts, rows, bounded }
    }
}

fn call(expr: &Expr, schema: &DFSchema) -> Result<AggregateCall, PlanError> {
    let Call { func, params } = match expr {
        Expr::Alias(Alias { expr, .. }) => return call(expr, schema),
        Expr::AggregateFunction(call) => call,
        other => {
            return Err(PlanError::unsupported(
                format!("{other} is not supported as an aggregate"),
                "use COUNT, SUM, AVG, MIN and MAX",
            ));
        }
    };
    let name = func.name();
    let function = AggregateFunction::ALL.into_iter().find(|f| f.name() == name).ok_or_else(|| {
        PlanError::unsupported(
            format!("aggregate function {name} is not supported"),
            "COUNT, SUM, AVG, MIN and MAX are; variances follow from SUM(x), SUM(x * x) and COUNT(x)",
        )
    })?;
    if !params.order_by.is_empty() || params.null_treatment.is_some() || params.args.len() != 1 {
        return Err(PlanError::unsupported(
            format!("this form of {name} is not supported: {expr}"),
            "give it one argument, without ORDER BY and IGNORE NULLS",
        ));
    }
    let argument = match &params.args[0] {
        Expr::Literal(value, _) if function == AggregateFunction::Count && !value.is_null() && !params.distinct => None,
        argument => Some(ScalarExpr::of(argument, schema)?),
    };
    // The least of all values is the least of the distinct ones.
    let distinct = params.distinct && !matches!(function, AggregateFunction::Min | AggregateFunction::Max);
    Ok(AggregateCall {
        function,
        argument,
        distinct,
        filter: params.filter.as_deref().map(|filter| ScalarExpr::of(filter, schema)).transpose()?,
        output: expr.get_type(schema)?,
    })
}
