//! The function library: DataFusion's scalar and aggregate functions, by name, and the aliases
//! that other databases have for them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::DataType;
use datafusion_common::{DataFusionError, not_impl_err};
use datafusion_expr::function::AccumulatorArgs;
use datafusion_expr::planner::ExprPlanner;
use datafusion_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, HigherOrderUDF, ScalarUDF, Signature, Volatility};

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
    by_name(functions.into_iter().map(adapt), |f| f.name(), |f| f.aliases())
});

static HIGHER_ORDER: LazyLock<HashMap<String, Arc<HigherOrderUDF>>> = LazyLock::new(|| {
    let functions = datafusion_functions_nested::all_default_higher_order_functions();
    by_name(functions.into_iter(), |f| f.name(), |f| f.aliases())
});

/// An aggregate function as Thetis has it.
fn adapt(function: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    let more: &[&'static str] = match function.name() {
        "var" => &["variance"],
        "bool_and" => &["every"],
        "string_agg" => &["listagg"],
        _ => &[],
    };
    match function.name() {
        "var" | "var_pop" | "stddev" | "stddev_pop" => Arc::new(Spread::of(&function, more).into()),
        _ if more.is_empty() => function,
        _ => Arc::new(function.as_ref().clone().with_aliases(more.iter().copied())),
    }
}

/// A variance or standard deviation that takes its argument as it is: DataFusion's would have it
/// cast to DOUBLE first, and digits of whole numbers and decimals would be lost.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Spread {
    name: String,
    aliases: Vec<String>,
    signature: Signature,
}

impl Spread {
    fn of(function: &AggregateUDF, aliases: &[&str]) -> Self {
        let aliases = function.aliases().iter().cloned().chain(aliases.iter().map(|alias| (*alias).to_owned()));
        let signature = Signature::numeric(1, Volatility::Immutable);
        Self { name: function.name().to_owned(), aliases: aliases.collect(), signature }
    }
}

impl AggregateUDFImpl for Spread {
    fn name(&self) -> &str {
        &self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType, DataFusionError> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, _arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>, DataFusionError> {
        not_impl_err!("{} is computed by the executor", self.name)
    }
}

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
