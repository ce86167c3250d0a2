//! GROUP BY and aggregate functions.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::DFSchema;
use datafusion_expr::expr::{AggregateFunction as Call, AggregateFunctionParams, Alias};
use datafusion_expr::{Expr, ExprSchemable, logical_plan};

use super::{Branch, Flow, Lowering, flow_schema, scalars, sort_keys, volatile};
use crate::compile;
use crate::error::PlanError;
use crate::estimate;
use crate::expr::ScalarExpr;
use crate::physical::{Aggregate, AggregateCall, AggregateFunction, Exchange, OperatorKind, Phase};

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
        volatile::check(aggregate.group_expr.iter().chain(&aggregate.aggr_expr), input.retracts)?;
        let groups = scalars(&aggregate.group_expr, input_schema)?;
        let aggregates =
            aggregate.aggr_expr.iter().map(|expr| call(expr, input_schema)).collect::<Result<Vec<_>, _>>()?;
        let (tasks, rows) = if groups.is_empty() {
            (1, Some(1.0))
        } else {
            (self.settings.parallelism, input.rows.map(estimate::groups))
        };
        let operator = Aggregate {
            input: Arc::clone(&input.schema),
            groups,
            aggregates,
            input_retracts: input.retracts,
            phase: Phase::Whole,
            at_end: false,
        };
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
            phase: Phase::Whole,
            at_end: false,
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

/// The functions that work, for people.
const KNOWN: &str = "COUNT, SUM, AVG, MIN, MAX, STDDEV, STDDEV_POP, VARIANCE, VAR_POP, BOOL_AND, BOOL_OR and \
                     STRING_AGG are supported";

fn call(expr: &Expr, schema: &DFSchema) -> Result<AggregateCall, PlanError> {
    use AggregateFunction as F;
    let Call { func, params } = match expr {
        Expr::Alias(Alias { expr, .. }) => return call(expr, schema),
        Expr::AggregateFunction(call) => call,
        other => return Err(PlanError::unsupported(format!("{other} is not supported as an aggregate"), KNOWN)),
    };
    let name = func.name();
    let function = F::ALL.into_iter().find(|f| f.name() == name).ok_or_else(|| {
        PlanError::unsupported(format!("aggregate function {name} is not supported"), instead_of(name))
    })?;
    if params.null_treatment.is_some() {
        return Err(PlanError::unsupported(
            format!("IGNORE NULLS and RESPECT NULLS are not supported with {name}: {expr}"),
            "leave it out: aggregates pass over NULLs",
        ));
    }
    let (arguments, delimiter) = arguments_of(function, params)?;
    let order = if function == F::StringAgg { sort_keys(&params.order_by, schema)? } else { Vec::new() };
    let mut arguments = scalars(arguments, schema)?;
    if function == F::Avg {
        arguments = arguments.into_iter().map(|argument| whole(argument, schema)).collect();
    }
    if params.distinct && order.iter().any(|key| !arguments.contains(&key.expr)) {
        return Err(PlanError::unsupported(
            format!("with DISTINCT, {name} can be ordered by its first argument only: {expr}"),
            "order by the argument, or make the rows distinct in a subquery with GROUP BY",
        ));
    }
    // The least of all values is the least of the distinct ones.
    let distinct = params.distinct && !matches!(function, F::Min | F::Max | F::BoolAnd | F::BoolOr);
    Ok(AggregateCall {
        function,
        arguments,
        distinct,
        order,
        delimiter,
        filter: params.filter.as_deref().map(|filter| ScalarExpr::of(filter, schema)).transpose()?,
        output: expr.get_type(schema)?,
    })
}

/// The mean of whole numbers comes from their exact sum: without the cast that the types ask for.
fn whole(argument: ScalarExpr, schema: &DFSchema) -> ScalarExpr {
    let ScalarExpr::Cast { expr, to: DataType::Float64, safe: false } = &argument else { return argument };
    let schema = flow_schema(schema);
    match compile(expr, &schema).and_then(|expr| expr.data_type(&schema)) {
        Ok(data_type) if data_type.is_integer() => expr.as_ref().clone(),
        _ => argument,
    }
}

/// The arguments that are values, and STRING_AGG's delimiter.
fn arguments_of(
    function: AggregateFunction,
    params: &AggregateFunctionParams,
) -> Result<(&[Expr], Option<String>), PlanError> {
    use AggregateFunction as F;
    let constant = |e: &Expr| matches!(e, Expr::Literal(value, _) if !value.is_null());
    Ok(match (function, params.args.as_slice()) {
        (F::StringAgg, [value, delimiter]) => (std::slice::from_ref(value), Some(delimiter_of(delimiter)?)),
        (F::Count, arguments) if !arguments.iter().all(constant) => (arguments, None),
        // COUNT(*) comes as COUNT(1), and COUNT(DISTINCT *) as COUNT(DISTINCT 1), which would be 1.
        (F::Count, _) if !params.distinct => (&[], None),
        (F::Count, _) => {
            return Err(PlanError::unsupported(
                "COUNT(DISTINCT *) and COUNT(DISTINCT constant) are not supported",
                "name the columns, as in COUNT(DISTINCT a, b)",
            ));
        }
        (_, arguments @ [_]) => (arguments, None),
        (_, arguments) => {
            return Err(PlanError::unsupported(
                format!("{} of {} arguments is not supported", function.name(), arguments.len()),
                "give it one argument; COUNT may have several",
            ));
        }
    })
}

/// What to write in place of an aggregate function that is not there.
fn instead_of(name: &str) -> String {
    let other = match name {
        "array_agg" => "STRING_AGG(x, ',') gives the values as one text; ",
        "approx_distinct" => "COUNT(DISTINCT x) is exact; ",
        "any_value" | "first_value" | "last_value" | "nth_value" => "use MIN or MAX; ",
        "corr" | "covar_pop" | "covar_samp" => "it follows from SUM(x * y), SUM(x), SUM(y) and COUNT(*); ",
        _ if name.starts_with("regr_") => "it follows from SUM(x * y), SUM(x), SUM(y) and COUNT(*); ",
        _ => "",
    };
    format!("{other}{KNOWN}")
}

/// STRING_AGG's second argument. NULL writes nothing between the values.
fn delimiter_of(expr: &Expr) -> Result<String, PlanError> {
    match expr {
        Expr::Literal(value, _) if value.is_null() => Some(String::new()),
        Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_owned),
        _ => None,
    }
    .ok_or_else(|| {
        PlanError::unsupported(
            format!("a delimiter of STRING_AGG that is not a constant text is not supported: {expr}"),
            "make it part of the value, as in STRING_AGG(x || delimiter, '')",
        )
    })
}
