//! The function library: DataFusion's scalar and aggregate functions, by name.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use datafusion_expr::planner::ExprPlanner;
use datafusion_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF};

use crate::physical::AggregateFunction;

/// All scalar functions under their names and aliases.
static SCALAR: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
    let functions = datafusion_functions::all_default_functions()
        .into_iter()
        .chain(datafusion_functions_nested::all_default_nested_functions());
    by_name(functions, |f| f.name(), |f| f.aliases())
});

static AGGREGATE: LazyLock<HashMap<String, Arc<AggregateUDF>>> = LazyLock::new(|| {
    let functions = datafusion_functions_aggregate::all_default_aggregate_functions();
    by_name(functions.into_iter(), |f| f.name(), |f| f.aliases())
});

static HIGHER_ORDER: LazyLock<HashMap<String, Arc<HigherOrderUDF>>> = LazyLock::new(|| {
    let functions = datafusion_functions_nested::all_default_higher_order_functions();
    by_name(functions.into_iter(), |f| f.name(), |f| f.aliases())
});

fn by_name<F>(
    functions: impl Iterator<Item = Arc<F>>,
    name: fn(&F) -> &str,
    aliases: fn(&F) -> &[String],
) -> HashMap<String, Arc<F>> {
    let mut map = HashMap::new();
    for function in functions {
        for alias in aliases(&function) {
            map.entry(alias.clone()).or_insert_with(|| Arc::clone(&function));
        }
        map.insert(name(&function).to_owned(), function);
    }
    map
}

pub(crate) fn scalar(name: &str) -> Option<Arc<ScalarUDF>> {
    SCALAR.get(name).cloned()
}

pub(crate) fn aggregate(name: &str) -> Option<Arc<AggregateUDF>> {
    AGGREGATE.get(name).cloned()
}

pub(crate) fn higher_order(name: &str) -> Option<Arc<HigherOrderUDF>> {
    HIGHER_ORDER.get(name).cloned()
}

pub(crate) fn scalar_names() -> Vec<String> {
    SCALAR.keys().cloned().collect()
}

pub(crate) fn aggregate_names() -> Vec<String> {
    AGGREGATE.keys().cloned().collect()
}

/// The names of all functions that a query can call, in order.
pub fn function_names() -> Vec<String> {
    let aggregates = AggregateFunction::ALL.into_iter().map(|function| function.name().to_owned());
    let mut names: Vec<String> = scalar_names().into_iter().chain(aggregates).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// How special syntax (`EXTRACT`, `SUBSTRING`, `[...]`, `a.b`) becomes function calls.
pub(crate) fn expr_planners() -> Vec<Arc<dyn ExprPlanner>> {
    vec![
        Arc::new(datafusion_functions::core::planner::CoreFunctionPlanner::default()),
        Arc::new(datafusion_functions::unicode::planner::UnicodeFunctionPlanner),
        Arc::new(datafusion_functions::datetime::planner::DatetimeFunctionPlanner),
        Arc::new(datafusion_functions_nested::planner::NestedFunctionPlanner),
        Arc::new(datafusion_functions_nested::planner::FieldAccessPlanner),
        Arc::new(datafusion_functions_aggregate::planner::AggregateFunctionPlanner),
    ]
}
