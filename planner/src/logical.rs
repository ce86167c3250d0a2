//! SQL to an optimised logical plan: names, types, coercion, simplification, pushdown and
//! decorrelation by the DataFusion sub-crates, without its execution engine.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{Column, DFSchema, DataFusionError, ParamValues, ScalarValue, SchemaError, TableReference};
use datafusion_expr::logical_plan::Limit;
use datafusion_expr::planner::{ContextProvider, ExprPlanner};
use datafusion_expr::{
    AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, LogicalPlanBuilder, ScalarUDF, TableSource, WindowUDF,
};
use datafusion_optimizer::analyzer::Analyzer;
use datafusion_optimizer::optimize_projections::OptimizeProjections;
use datafusion_optimizer::optimizer::{Optimizer, OptimizerContext, OptimizerRule};
use datafusion_sql::planner::{ParserOptions, PlannerContext, SqlToRel};
use thetis_parser::ast;

use crate::catalog::{Catalog, Relation, Stream, View};
use crate::error::{PlanError, PlanErrorKind};
use crate::fold::fold_constants;
use crate::functions;
use crate::join_order::order_joins;
use crate::names::with_names;
use crate::set_ops::count_set_operations;
use crate::subqueries::spell_out;
use crate::write::is_default;

/// A stream, as the logical plan sees it.
#[derive(Debug)]
pub struct StreamSource(pub Arc<Stream>);

impl TableSource for StreamSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0.columns)
    }
}

/// A view, whose plan takes its place.
#[derive(Debug)]
struct ViewSource {
    schema: SchemaRef,
    plan: LogicalPlan,
}

impl TableSource for ViewSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn get_logical_plan(&'_ self) -> Option<Cow<'_, LogicalPlan>> {
        Some(Cow::Borrowed(&self.plan))
    }
}

/// A planned query before it is lowered to operators.
#[derive(Debug, Clone)]
pub struct Logical {
    /// The plan as it was written: names resolved, types coerced, nothing moved.
    pub written: LogicalPlan,
    /// The same, with set operations and NOT IN in other words.
    pub analyzed: LogicalPlan,
    /// The plan that is run.
    pub optimized: LogicalPlan,
    /// Folded names of the relations that the query names.
    pub uses: Vec<String>,
}

/// Plans a query against the catalogue.
///
/// # Errors
/// Whatever is wrong with it, with a position where one is known.
pub fn plan_query(query: &ast::Query, catalog: &Catalog) -> Result<Logical, PlanError> {
    resolve(query, catalog, &[])?.optimize()
}

/// A query whose names are resolved and whose parameters (`$1`, ...) may be open.
#[derive(Debug, Clone)]
pub struct Resolved {
    plan: LogicalPlan,
    uses: Vec<String>,
}

/// Resolves the names of a query. Its parameters have these types, in their order.
///
/// # Errors
/// Whatever is wrong with the query, with a position where one is known.
pub fn resolve(query: &ast::Query, catalog: &Catalog, parameters: &[DataType]) -> Result<Resolved, PlanError> {
    let context = Context::new(catalog);
    let planned = context.plan(query, parameters);
    let plan = planned.map_err(|error| context.explain(error))?;
    let uses = lock(&context.uses).iter().cloned().collect();
    Ok(Resolved { plan, uses })
}

/// Constant rows, each expression as `value` makes it of its position, its text and what it means.
///
/// # Errors
/// Whatever is wrong with an expression, or what `value` says.
pub(crate) fn resolve_rows(
    rows: &[ast::Parens<Vec<ast::Expr>>],
    catalog: &Catalog,
    parameters: &[DataType],
    row: impl Fn(&[ast::Expr], Vec<Expr>) -> Result<Vec<Expr>, PlanError>,
) -> Result<Resolved, PlanError> {
    let context = Context::new(catalog);
    let planner = context.planner();
    let mut state = with_parameters(parameters);
    let mut values = Vec::with_capacity(rows.len());
    for texts in rows {
        let texts = &texts.content;
        let exprs = texts.iter().map(|text| match is_default(text) {
            // No column has another default.
            true => Ok(Expr::Literal(ScalarValue::Null, None)),
            false => planner.sql_to_expr(text.clone(), &DFSchema::empty(), &mut state),
        });
        let exprs = exprs.collect::<Result<Vec<_>, _>>().map_err(|error| context.explain(error))?;
        values.push(row(texts, exprs)?);
    }
    Ok(Resolved { plan: LogicalPlanBuilder::values(values)?.build()?, uses: Vec::new() })
}

fn with_parameters(types: &[DataType]) -> PlannerContext {
    let typed = |data_type: &DataType| Some(Arc::new(Field::new("", data_type.clone(), true)));
    PlannerContext::new().with_prepare_param_data_types(types.iter().map(typed).collect())
}

impl Resolved {
    /// The same query with values for its parameters.
    ///
    /// # Errors
    /// A parameter without a value.
    pub fn bind(&self, values: &[ScalarValue]) -> Result<Self, PlanError> {
        let plan = self.plan.clone().with_param_values(ParamValues::from(values.to_vec()))?;
        Ok(Self { plan, uses: self.uses.clone() })
    }

    /// The same constant rows once for each set of values; `None` for anything but `VALUES (...)`.
    ///
    /// # Errors
    /// A parameter without a value.
    pub fn bind_rows(&self, sets: &[Vec<ScalarValue>]) -> Result<Option<Self>, PlanError> {
        let LogicalPlan::Values(_) = &self.plan else { return Ok(None) };
        let mut rows = Vec::new();
        for set in sets {
            if let LogicalPlan::Values(bound) = self.plan.clone().with_param_values(ParamValues::from(set.clone()))? {
                rows.extend(bound.values);
            }
        }
        let plan = LogicalPlanBuilder::values(rows)?.build()?;
        Ok(Some(Self { plan, uses: self.uses.clone() }))
    }

    /// The columns of its result.
    pub fn schema(&self) -> &DFSchema {
        self.plan.schema()
    }

    /// The same query with a projection of its rows; a LIMIT stays on top.
    ///
    /// # Errors
    /// An expression that does not fit the query's columns.
    pub(crate) fn project(self, exprs: Vec<Expr>) -> Result<Self, PlanError> {
        let project = |plan| LogicalPlanBuilder::from(plan).project(exprs)?.build();
        let plan = match self.plan {
            LogicalPlan::Limit(limit) => {
                let input = project(Arc::unwrap_or_clone(limit.input))?;
                LogicalPlan::Limit(Limit { input: Arc::new(input), ..limit })
            }
            plan => project(plan)?,
        };
        Ok(Self { plan, uses: self.uses })
    }

    /// Coerces types, moves work to where it costs least.
    ///
    /// # Errors
    /// Types that do not go together, constants that overflow.
    pub fn optimize(self) -> Result<Logical, PlanError> {
        let Self { plan, uses } = self;
        let written = analyze(plan.clone())?;
        let counted = count_set_operations(plan)?;
        let spelled = spell_out(counted.data)?;
        let analyzed =
            if counted.transformed || spelled.transformed { analyze(spelled.data)? } else { written.clone() };
        let optimized = optimize(&OPTIMIZER, analyzed.clone())?;
        let ordered = order_joins(optimized)?;
        // A new order leaves columns at joins that do not need them.
        let optimized = if ordered.transformed { optimize(&PROJECTIONS, ordered.data)? } else { ordered.data };
        Ok(Logical { written, analyzed, optimized, uses })
    }
}

fn analyze(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    fold_constants(Analyzer::new().execute_and_check(plan, &CONFIG, |_, _| {})?)
}

fn optimize(optimizer: &Optimizer, plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    let config = OptimizerContext::new_with_config_options(Arc::clone(&CONFIG))
        .without_query_execution_start_time()
        .with_skip_failing_rules(false);
    optimizer.optimize(plan, &config, |_, _| {})
}

/// The Arrow type of a SQL type.
///
/// # Errors
/// A type that is not known or not supported.
pub fn data_type(sql: &ast::DataType) -> Result<DataType, PlanError> {
    let catalog = Catalog::default();
    let context = Context::new(&catalog);
    let column = ast::ColumnDef { name: ast::Ident::new("c"), data_type: sql.clone(), options: Vec::new() };
    let schema = context.planner().build_schema(vec![column])?;
    Ok(schema.field(0).data_type().clone())
}

static CONFIG: LazyLock<Arc<ConfigOptions>> = LazyLock::new(|| {
    let mut options = ConfigOptions::default();
    // Thetis drops rows with NULL keys itself, and runs scalar subqueries as one-row sides.
    options.optimizer.filter_null_join_keys = false;
    options.optimizer.enable_physical_uncorrelated_scalar_subquery = false;
    options.sql_parser.map_string_types_to_utf8view = false;
    Arc::new(options)
});

/// Rules that would undo what Thetis does itself: DISTINCT aggregates are exact under deletes as
/// they are; leaf expressions are cheap to evaluate where they stand; shared subexpressions of
/// conditions would hide them from theta analysis.
/// An inner join is not made a semi join, which would be lowered to two operators.
const NOT_USED: [&str; 6] = [
    "eliminate_join",
    "push_down_limit",
    "single_distinct_aggregation_to_group_by",
    "extract_leaf_expressions",
    "push_down_leaf_projections",
    "common_sub_expression_eliminate",
];

static OPTIMIZER: LazyLock<Optimizer> = LazyLock::new(|| {
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> =
        Optimizer::new().rules.into_iter().filter(|rule| !NOT_USED.contains(&rule.name())).collect();
    Optimizer::with_rules(rules)
});

static PROJECTIONS: LazyLock<Optimizer> =
    LazyLock::new(|| Optimizer::with_rules(vec![Arc::new(OptimizeProjections::new())]));

struct Context<'a> {
    catalog: &'a Catalog,
    expr_planners: Vec<Arc<dyn ExprPlanner>>,
    uses: Mutex<BTreeSet<String>>,
    unknown: Mutex<Option<PlanError>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Context<'a> {
    fn new(catalog: &'a Catalog) -> Self {
        Self { catalog, expr_planners: functions::expr_planners(), uses: Mutex::default(), unknown: Mutex::default() }
    }

    fn planner(&self) -> SqlToRel<'_, Self> {
        let options = ParserOptions::new().with_collect_spans(true).with_map_string_types_to_utf8view(false);
        SqlToRel::new_with_options(self, options)
    }

    fn plan(&self, query: &ast::Query, parameters: &[DataType]) -> Result<LogicalPlan, DataFusionError> {
        let mut context = with_parameters(parameters);
        let statement = ast::Statement::Query(Box::new(with_names(query)));
        self.planner().sql_statement_to_plan_with_context(statement, &mut context)
    }

    fn view(&self, view: &View) -> Result<ViewSource, DataFusionError> {
        let mut plan = self.plan(&view.query, &[])?;
        if !view.columns.is_empty() {
            let columns = plan.schema().columns();
            let renamed = columns.into_iter().zip(&view.columns).map(|(column, name)| Expr::Column(column).alias(name));
            plan = LogicalPlanBuilder::from(plan).project(renamed)?.build()?;
        }
        let schema = Arc::clone(plan.schema().inner());
        Ok(ViewSource { schema, plan })
    }

    /// The error that the catalogue had, if that is what stopped the planning.
    fn explain(&self, error: DataFusionError) -> PlanError {
        match lock(&self.unknown).take() {
            Some(unknown) => {
                let below = PlanError::from(error);
                unknown.at(below.position)
            }
            None => suggest(PlanError::from(error)),
        }
    }
}

/// Adds what DataFusion knows but says in prose: near column and function names.
fn suggest(error: PlanError) -> PlanError {
    let root = error.source.as_ref().and_then(|e| e.downcast_ref::<DataFusionError>());
    match root.map(DataFusionError::find_root) {
        Some(DataFusionError::SchemaError(schema, _)) => {
            let SchemaError::FieldNotFound { field, valid_fields } = schema.as_ref() else {
                return error;
            };
            let (field, valid_fields) = (field.clone(), valid_fields.clone());
            suggest_column(error, &field, &valid_fields)
        }
        _ if error.message.starts_with("WITHIN GROUP") => PlanError::unsupported(
            "WITHIN GROUP is not supported",
            "write the order inside of the call, as in STRING_AGG(x, ',' ORDER BY y)",
        )
        .at(error.position),
        _ => suggest_function(error),
    }
}

fn suggest_column(error: PlanError, field: &Column, valid: &[Column]) -> PlanError {
    let message = format!("there is no column '{}'", field.flat_name());
    let flat: Vec<_> = valid.iter().map(Column::flat_name).collect();
    let hint = if flat.is_empty() {
        "no columns are in scope here".to_owned()
    } else {
        format!("the columns here are {}", shorten(&flat))
    };
    PlanError { message, ..error }.hint(hint).suggest(&field.name, valid.iter().map(|field| field.name.as_str()))
}

fn shorten(names: &[String]) -> String {
    const MOST: usize = 12;
    let shown = names.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MOST { format!("{shown} and {} more", names.len() - MOST) } else { shown }
}

const WINDOW_FUNCTIONS: [&str; 11] = [
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
];

fn suggest_function(error: PlanError) -> PlanError {
    if error.kind != PlanErrorKind::UndefinedFunction {
        return error;
    }
    let name = error.message.split('\'').nth(1).unwrap_or_default().to_owned();
    if WINDOW_FUNCTIONS.contains(&name.to_lowercase().as_str()) {
        return PlanError::unsupported(
            format!("window function {name} is not supported"),
            "join with an aggregate in a subquery instead",
        )
        .at(error.position);
    }
    let known: Vec<String> = functions::scalar_names().into_iter().chain(functions::aggregate_names()).collect();
    PlanError { message: format!("there is no function '{name}'"), ..error }
        .suggest(&name, known.iter().map(String::as_str))
}

impl ContextProvider for Context<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>, DataFusionError> {
        let unknown = |error: PlanError| {
            let message = error.to_string();
            *lock(&self.unknown) = Some(error);
            DataFusionError::Plan(message)
        };
        let TableReference::Bare { table } = &name else {
            return Err(unknown(PlanError::unsupported(
                format!("a qualified name such as {name} is not supported"),
                "there is one catalogue with one schema: use the plain name",
            )));
        };
        let relation = self.catalog.get(table).ok_or_else(|| unknown(self.catalog.unknown(table)))?;
        lock(&self.uses).insert(table.to_string());
        Ok(match relation {
            Relation::Stream(stream) => Arc::new(StreamSource(Arc::clone(stream))),
            Relation::Table(table) => Arc::new(StreamSource(Arc::new(table.stream()))),
            Relation::View(view) => Arc::new(self.view(view)?),
            Relation::Sink(_) => {
                return Err(unknown(
                    PlanError::new(PlanErrorKind::Semantic, format!("'{table}' is a sink, which cannot be read"))
                        .hint("read the stream that feeds it, or what it has written with CREATE STREAM"),
                ));
            }
        })
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.expr_planners
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        functions::scalar(name)
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        functions::higher_order(name)
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        functions::aggregate(name)
    }

    fn get_window_meta(&self, _name: &str) -> Option<Arc<WindowUDF>> {
        None
    }

    fn get_variable_type(&self, _names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &CONFIG
    }

    fn udf_names(&self) -> Vec<String> {
        functions::scalar_names()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        functions::aggregate_names()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}
