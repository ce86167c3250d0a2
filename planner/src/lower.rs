//! The optimised logical plan to the physical DAG.

mod aggregate;
mod join;
mod prune;
mod semi;
mod split;
mod top;
mod volatile;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::DFSchema;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::expr::Sort;
use datafusion_expr::logical_plan::{TableScan, Unnest, Values};
use datafusion_expr::utils::split_conjunction;
use datafusion_expr::{Expr, LogicalPlan};
use serde::{Deserialize, Serialize};

use crate::catalog::{Sample, Stream};
use crate::connector::SourceSpec;
use crate::error::PlanError;
use crate::estimate;
use crate::expr::ScalarExpr;
use crate::logical::StreamSource;
use crate::physical::{
    Dag, Edge, EpochPolicy, Exchange, Operator, OperatorId, OperatorKind, SortKey, Source, Step, nullable,
};
use crate::settings::Settings;

/// What a query's client wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// Its result: rows as they come if they stay, else once at the end; if it has no end, its changes.
    Result,
    /// Its changes, epoch by epoch.
    Changes,
}

/// A DAG, and what its user should be told.
#[derive(Debug, Clone)]
pub(crate) struct Lowered {
    pub(crate) dag: Dag,
    pub(crate) notices: Vec<String>,
}

/// Refuses scalar subqueries that can have several rows. To be asked before the optimiser makes
/// joins of them.
///
/// # Errors
/// There is such a subquery.
pub(crate) fn check_scalar_subqueries(plan: &LogicalPlan) -> Result<(), PlanError> {
    let mut several = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarSubquery(subquery) = expr {
                    several |= !join::has_at_most_one_row(&subquery.subquery);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    if several {
        return Err(PlanError::unsupported(
            "a scalar subquery that can have several rows is not supported",
            "make it an aggregate without GROUP BY, such as SELECT MAX(...), or join with it in FROM",
        ));
    }
    Ok(())
}

/// Lowers `plan`.
pub(crate) fn lower(plan: &LogicalPlan, settings: &Settings, output: Output) -> Result<Lowered, PlanError> {
    let mut lowering = Lowering::new(settings);
    lowering.add_sources(plan, output)?;
    lowering.add_top(plan, output)?;
    lowering.prune_joins();
    lowering.split_aggregates();
    lowering.defer_results();
    let epochs = match settings.epoch_rows {
        Some(rows) => EpochPolicy::Rows(rows.get()),
        None => EpochPolicy::Interval(settings.epoch_interval),
    };
    let epochs = if lowering.follows_tables_only() { EpochPolicy::Commits } else { epochs };
    let Lowering { operators, edges, notices, .. } = lowering;
    Ok(Lowered { dag: Dag { operators, edges, epochs, parallelism: settings.parallelism }, notices })
}

struct Lowering<'a> {
    settings: &'a Settings,
    operators: Vec<Operator>,
    edges: Vec<Edge>,
    sources: BTreeMap<String, OperatorId>,
    /// Some rows of sources.
    samples: BTreeMap<OperatorId, Sample>,
    notices: Vec<String>,
}

/// Rows on their way: from one or (UNION ALL) several operators, through steps not yet placed.
#[derive(Debug, Clone)]
struct Flow {
    branches: Vec<Branch>,
    /// Columns of the rows after the steps.
    schema: SchemaRef,
    retracts: bool,
    rows: Option<f64>,
    bounded: bool,
}

#[derive(Debug, Clone)]
struct Branch {
    from: OperatorId,
    steps: Vec<Step>,
}

impl Flow {
    fn then(mut self, step: &Step) -> Self {
        for branch in &mut self.branches {
            branch.steps.push(step.clone());
        }
        self
    }

    /// New columns, computed from the old ones.
    fn project(self, exprs: Vec<ScalarExpr>, schema: &SchemaRef) -> Self {
        let step = Step::Project { exprs, schema: Arc::clone(schema) };
        Self { schema: Arc::clone(schema), ..self }.then(&step)
    }

    /// The rows for which all of `exprs` hold.
    fn filter(self, exprs: Vec<ScalarExpr>) -> Self {
        if exprs.is_empty() {
            return self;
        }
        let rows = self.rows.map(|rows| rows * estimate::kept(exprs.len()));
        Self { rows, ..self }.then(&Step::Filter(exprs))
    }

    /// The rows, to be taken away: inserts become deletes and deletes inserts.
    fn negate(self) -> Self {
        Self { retracts: true, ..self }.then(&Step::Negate)
    }

    /// UNION ALL. The columns of all flows have the types of `schema`.
    fn union(flows: Vec<Self>, schema: &SchemaRef) -> Self {
        let mut union =
            Self { branches: Vec::new(), schema: Arc::clone(schema), retracts: false, rows: Some(0.0), bounded: true };
        for mut flow in flows {
            if flow.schema != *schema {
                let exprs = (0..schema.fields().len() as u32).map(ScalarExpr::Column).collect();
                flow = flow.project(exprs, schema);
            }
            union.branches.extend(flow.branches);
            union.retracts |= flow.retracts;
            union.rows = union.rows.zip(flow.rows).map(|(a, b)| a + b);
            union.bounded &= flow.bounded;
        }
        union
    }
}

/// Bytes that are worth a task of their own.
const MIN_SPLIT: u64 = 1 << 20;

/// Schemas between operators: names for people, every column nullable.
fn flow_schema(schema: &DFSchema) -> SchemaRef {
    nullable(schema.fields().iter().map(AsRef::as_ref))
}

/// About how many bytes a value of this type takes.
fn width(data_type: &DataType) -> f64 {
    match data_type {
        DataType::Boolean => 0.125,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => 20.0,
        DataType::List(item) | DataType::LargeList(item) => 8.0 * width(item.data_type()),
        other => other.primitive_width().map_or(16.0, |width| width as f64),
    }
}

fn row_bytes(schema: &SchemaRef) -> f64 {
    schema.fields().iter().map(|field| width(field.data_type())).sum::<f64>().max(1.0)
}

impl<'a> Lowering<'a> {
    fn new(settings: &'a Settings) -> Self {
        Self {
            settings,
            operators: Vec::new(),
            edges: Vec::new(),
            sources: BTreeMap::new(),
            samples: BTreeMap::new(),
            notices: Vec::new(),
        }
    }
}

impl Lowering<'_> {
    fn add(
        &mut self,
        kind: OperatorKind,
        tasks: u32,
        schema: SchemaRef,
        retracts: bool,
        rows: Option<f64>,
    ) -> OperatorId {
        let id = OperatorId(self.operators.len() as u32);
        self.operators.push(Operator { kind, tasks, schema, retracts, rows });
        id
    }

    fn connect(&mut self, flow: Flow, to: OperatorId, port: u8, exchange: &Exchange) {
        for branch in flow.branches {
            let edge = Edge { from: branch.from, to, port, steps: branch.steps, exchange: exchange.clone() };
            self.edges.push(edge);
        }
    }

    /// One source per stream, which reads what all scans of the stream need together: all
    /// references to a stream see the same prefix of it.
    ///
    /// A stored table is read as it is now, if the query ends by itself; a query that goes on, or whose
    /// changes are asked for, follows it.
    fn add_sources(&mut self, plan: &LogicalPlan, output: Output) -> Result<(), PlanError> {
        let mut needed: BTreeMap<String, (Arc<Stream>, BTreeSet<u32>)> = BTreeMap::new();
        visit_scans(plan, &mut |scan| {
            let stream = stream_of(scan)?;
            let (_, columns) =
                needed.entry(stream.name.clone()).or_insert_with(|| (Arc::clone(&stream), BTreeSet::new()));
            columns.extend(scanned(scan));
            for filter in &scan.filters {
                for column in filter.column_refs() {
                    columns.insert(stream.columns.index_of(&column.name).map_err(not_in_stream)? as u32);
                }
            }
            Ok(())
        })?;
        let is_table = |stream: &Stream| matches!(stream.spec, SourceSpec::Table(_));
        let follow = output == Output::Changes
            || needed.values().any(|(stream, _)| !is_table(stream) && !stream.spec.is_bounded());
        // Sources work side by side; what is left of the cores helps them.
        let readers = (self.settings.parallelism as usize / needed.len().max(1)).max(1) as u32;
        for (name, (stream, mut columns)) in needed {
            if columns.is_empty() && !stream.columns.fields().is_empty() {
                columns.insert(0);
            }
            let projection: Vec<u32> = columns.into_iter().collect();
            let tasks = self.source_tasks(&stream);
            let source = Source {
                stream: name.clone(),
                spec: stream.spec.clone(),
                columns: Arc::clone(&stream.columns),
                projection,
                bounded: if is_table(&stream) { !follow } else { stream.spec.is_bounded() },
                readers: if matches!(stream.spec, SourceSpec::File(_)) && tasks == 1 { readers } else { 1 },
                listing: None,
            };
            let schema = source.schema();
            let follows = is_table(&stream) && follow;
            // What a table holds now says nothing of what it will hold.
            let rows = stream.volume.rows.filter(|_| !follows);
            let id = self.add(OperatorKind::Source(source), tasks, schema, follows, rows);
            self.sources.insert(name, id);
            self.samples.insert(id, stream.sample.clone());
        }
        Ok(())
    }

    /// Large files are read by several tasks of a cluster. Epochs that are cut by rows need one.
    fn source_tasks(&self, stream: &Stream) -> u32 {
        let shared = self.settings.spread_sources
            && self.settings.epoch_rows.is_none()
            && matches!(stream.spec, SourceSpec::File(_));
        let splits = stream.volume.bytes.filter(|_| shared).map_or(1, |bytes| bytes / MIN_SPLIT);
        (splits as u32).clamp(1, self.settings.parallelism)
    }

    /// Every source that goes on is a table: commits cut the epochs.
    fn follows_tables_only(&self) -> bool {
        let mut sources = self.operators.iter().filter_map(|operator| match &operator.kind {
            OperatorKind::Source(source) => Some(source),
            _ => None,
        });
        let mut follows = false;
        sources.all(|source| match source.spec {
            SourceSpec::Table(_) => {
                follows |= !source.bounded;
                true
            }
            SourceSpec::Values(_) => true,
            _ => false,
        }) && follows
    }

    fn flow(&mut self, plan: &LogicalPlan) -> Result<Flow, PlanError> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::Filter(filter) => {
                let input = self.flow(&filter.input)?;
                volatile::check([&filter.predicate], input.retracts)?;
                let conjuncts = split_conjunction(&filter.predicate);
                Ok(input.filter(conjunct_scalars(&conjuncts, filter.input.schema())?))
            }
            LogicalPlan::Projection(projection) => {
                let input = self.flow(&projection.input)?;
                volatile::check(&projection.expr, input.retracts)?;
                let exprs = scalars(&projection.expr, projection.input.schema())?;
                Ok(input.project(exprs, &flow_schema(&projection.schema)))
            }
            LogicalPlan::SubqueryAlias(alias) => self.flow(&alias.input),
            LogicalPlan::Subquery(subquery) => self.flow(&subquery.subquery),
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Union(union) => self.union(&union.inputs, &union.schema),
            LogicalPlan::Unnest(unnest) => self.unnest(unnest),
            LogicalPlan::Values(values) => self.values(values),
            LogicalPlan::EmptyRelation(empty) => {
                let rows = if empty.produce_one_row { vec![Vec::new()] } else { Vec::new() };
                Ok(self.constant_rows(rows, flow_schema(&empty.schema)))
            }
            // Without a LIMIT, the order of a subquery's rows means nothing.
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.flow(&sort.input),
            LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => Err(PlanError::unsupported(
                "LIMIT inside a query is not supported",
                "use LIMIT at the end of the whole query, or MIN and MAX with GROUP BY in the subquery",
            )),
            LogicalPlan::Distinct(_) => Err(PlanError::unsupported(
                "DISTINCT ON is not supported",
                "use GROUP BY with MIN or MAX for the other columns",
            )),
            LogicalPlan::Window(_) => Err(PlanError::unsupported(
                "window functions (OVER) are not supported",
                "join with an aggregate in a subquery instead",
            )),
            LogicalPlan::RecursiveQuery(_) => Err(PlanError::unsupported(
                "WITH RECURSIVE is not supported",
                "write out the levels that are needed as joins",
            )),
            other => Err(PlanError::unsupported(
                format!("{} is not supported in a query", plan_name(other)),
                "a query is made of SELECT, joins, aggregates and UNION ALL",
            )),
        }
    }

    fn scan(&mut self, scan: &TableScan) -> Result<Flow, PlanError> {
        let stream = stream_of(scan)?;
        let from = self.sources[&stream.name];
        let source = &self.operators[from.0 as usize];
        let source_schema = Arc::clone(&source.schema);
        let mut flow = Flow {
            branches: vec![Branch { from, steps: Vec::new() }],
            schema: Arc::clone(&source_schema),
            retracts: source.retracts,
            rows: source.rows,
            bounded: !matches!(&source.kind, OperatorKind::Source(s) if !s.bounded),
        };
        volatile::check(&scan.filters, flow.retracts)?;
        if !scan.filters.is_empty() {
            let read = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &source_schema)?;
            let conjuncts: Vec<&Expr> = scan.filters.iter().flat_map(split_conjunction).collect();
            flow = flow.filter(conjunct_scalars(&conjuncts, &read)?);
        }
        let columns: Vec<u32> = scanned(scan)
            .map(|column| {
                let name = stream.columns.field(column as usize).name();
                source_schema.index_of(name).map(|index| index as u32).map_err(not_in_stream)
            })
            .collect::<Result<_, _>>()?;
        if columns.iter().copied().eq(0..source_schema.fields().len() as u32) {
            return Ok(flow);
        }
        let schema = project_schema(&source_schema, &columns);
        Ok(flow.project(columns.into_iter().map(ScalarExpr::Column).collect(), &schema))
    }

    fn union(&mut self, inputs: &[Arc<LogicalPlan>], schema: &DFSchema) -> Result<Flow, PlanError> {
        let flows = inputs.iter().map(|input| self.flow(input)).collect::<Result<Vec<_>, _>>()?;
        Ok(Flow::union(flows, &flow_schema(schema)))
    }

    fn unnest(&mut self, unnest: &Unnest) -> Result<Flow, PlanError> {
        let input = self.flow(&unnest.input)?;
        let lists: Vec<u32> = unnest.list_type_columns.iter().map(|(column, _)| *column as u32).collect();
        let distinct: BTreeSet<_> = lists.iter().collect();
        let nested = unnest.list_type_columns.iter().any(|(_, list)| list.depth != 1);
        if !unnest.struct_type_columns.is_empty() || nested || distinct.len() != lists.len() {
            return Err(PlanError::unsupported(
                "UNNEST of structs or of nested lists in one step is not supported",
                "unnest one level per subquery",
            ));
        }
        let schema = flow_schema(&unnest.schema);
        let step = Step::Unnest { lists, schema: Arc::clone(&schema), keep_empty: unnest.options.preserve_nulls() };
        Ok(Flow { schema, rows: input.rows.map(estimate::unnested), ..input }.then(&step))
    }

    fn values(&mut self, values: &Values) -> Result<Flow, PlanError> {
        let rows = values.values.iter().map(|row| scalars(row, &DFSchema::empty())).collect::<Result<Vec<_>, _>>()?;
        Ok(self.constant_rows(rows, flow_schema(&values.schema)))
    }

    fn constant_rows(&mut self, rows: Vec<Vec<ScalarExpr>>, schema: SchemaRef) -> Flow {
        let count = rows.len() as f64;
        let source = Source {
            stream: "(values)".to_owned(),
            spec: SourceSpec::Values(rows),
            columns: Arc::clone(&schema),
            projection: (0..schema.fields().len() as u32).collect(),
            bounded: true,
            readers: 1,
            listing: None,
        };
        let from = self.add(OperatorKind::Source(source), 1, Arc::clone(&schema), false, Some(count));
        Flow {
            branches: vec![Branch { from, steps: Vec::new() }],
            schema,
            retracts: false,
            rows: Some(count),
            bounded: true,
        }
    }
}

fn sort_keys(keys: &[Sort], schema: &DFSchema) -> Result<Vec<SortKey>, PlanError> {
    let key = |key: &Sort| {
        let expr = ScalarExpr::of(&key.expr, schema)?;
        Ok(SortKey { expr, descending: !key.asc, nulls_first: key.nulls_first })
    };
    keys.iter().map(key).collect()
}

fn scalars(exprs: &[Expr], schema: &DFSchema) -> Result<Vec<ScalarExpr>, PlanError> {
    exprs.iter().map(|expr| ScalarExpr::of(expr, schema)).collect()
}

fn conjunct_scalars(conjuncts: &[&Expr], schema: &DFSchema) -> Result<Vec<ScalarExpr>, PlanError> {
    conjuncts.iter().map(|expr| ScalarExpr::of(expr, schema)).collect()
}

fn project_schema(schema: &SchemaRef, columns: &[u32]) -> SchemaRef {
    nullable(columns.iter().map(|column| schema.field(*column as usize)))
}

fn visit_scans(
    plan: &LogicalPlan,
    visit: &mut impl FnMut(&TableScan) -> Result<(), PlanError>,
) -> Result<(), PlanError> {
    if let LogicalPlan::TableScan(scan) = plan {
        visit(scan)?;
    }
    plan.inputs().into_iter().try_for_each(|input| visit_scans(input, visit))
}

fn stream_of(scan: &TableScan) -> Result<Arc<Stream>, PlanError> {
    scan.source
        .downcast_ref::<StreamSource>()
        .map(|source| Arc::clone(&source.0))
        .ok_or_else(|| PlanError::unsupported(format!("{} cannot be read", scan.table_name), "read a stream or a view"))
}

fn scanned(scan: &TableScan) -> impl Iterator<Item = u32> {
    let columns: Vec<u32> = match &scan.projection {
        Some(projection) => projection.iter().map(|column| *column as u32).collect(),
        None => (0..scan.source.schema().fields().len() as u32).collect(),
    };
    columns.into_iter()
}

fn not_in_stream(error: arrow::error::ArrowError) -> PlanError {
    PlanError::new(crate::error::PlanErrorKind::UndefinedColumn, "a column is not in its stream").caused_by(error)
}

fn plan_name(plan: &LogicalPlan) -> String {
    let text = plan.display().to_string();
    text.split([':', ' ']).next().unwrap_or_default().to_owned()
}
