//! A plan as the data that EXPLAIN shows. Field names are those of FORMAT JSON.

use arrow::datatypes::SchemaRef;
use serde::Serialize;

use super::measured::{EdgeMeasured, JoinMeasured, Measured, TaskMeasured};
use super::range::range_text;
use crate::Plan;
use crate::connector::{FileFormat, SourceSpec};
use crate::expr::ScalarExpr;
use crate::layout::{Layout, Partitioning};
use crate::physical::{
    Aggregate, AggregateCall, Dag, Edge, EpochPolicy, Exchange, Join, LocalIndexKind, Operator, OperatorId,
    OperatorKind, Phase, Side, Sink, SinkMode, SortKey, Source, Step,
};
use crate::sizing::Shape;
use crate::types::sql_name;

/// What EXPLAIN shows of a plan.
#[derive(Debug, Serialize)]
pub(super) struct Description {
    /// Lines; with VERBOSE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logical_plan: Option<Vec<String>>,
    pub(super) epochs: Epochs,
    pub(super) operators: Vec<OperatorFacts>,
    pub(super) edges: Vec<EdgeFacts>,
    pub(super) notices: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) measured: Option<RunFacts>,
}

/// When epochs are closed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Epochs {
    IntervalMs(f64),
    Rows(u64),
    Commits,
}

#[derive(Debug, Serialize)]
pub(super) struct OperatorFacts {
    pub(super) id: u32,
    pub(super) kind: &'static str,
    pub(super) label: String,
    pub(super) tasks: u32,
    pub(super) expected_rows: Option<f64>,
    pub(super) retracts: bool,
    pub(super) schema: Vec<Column>,
    /// Under the name of the kind.
    #[serde(flatten)]
    pub(super) facts: Facts,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) measured: Option<OperatorRun>,
}

#[derive(Debug, Serialize)]
pub(super) struct Column {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) sql_type: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Facts {
    Source(SourceFacts),
    Join(Box<JoinFacts>),
    Aggregate(AggregateFacts),
    Sink(SinkFacts),
}

#[derive(Debug, Serialize)]
pub(super) struct SourceFacts {
    pub(super) stream: String,
    #[serde(flatten)]
    pub(super) reads: Reads,
    /// Names of the columns that are read.
    pub(super) columns: Vec<String>,
    /// Row groups for which none of these can be true are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) needs: Vec<String>,
    pub(super) bounded: bool,
}

#[derive(Debug, Serialize)]
#[serde(tag = "connector", rename_all = "snake_case")]
pub(super) enum Reads {
    File { format: &'static str, path: String, readers: u32 },
    Generator { rows: Option<u64>, text: String },
    Values { rows: usize },
    Table { follows: bool },
}

#[derive(Debug, Serialize)]
pub(super) struct JoinFacts {
    /// Conjuncts.
    pub(super) condition: Vec<String>,
    pub(super) class: String,
    pub(super) layout: LayoutFacts,
    pub(super) reason: String,
    pub(super) replication: Sides<f64>,
    pub(super) per_cell: Option<PerCell>,
    pub(super) local_index: IndexFacts,
    /// What the cells compute of their pairs in place of emitting them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) computes: Option<PairsFacts>,
    pub(super) alternatives: Vec<AlternativeFacts>,
    pub(super) unbounded: Sides<bool>,
}

#[derive(Debug, Serialize)]
pub(super) struct PairsFacts {
    #[serde(flatten)]
    pub(super) aggregate: AggregateFacts,
    /// Without listing them.
    pub(super) folded: bool,
}

/// One value for each side of a join.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Sides<T> {
    pub(super) left: T,
    pub(super) right: T,
}

impl<T> From<[T; 2]> for Sides<T> {
    fn from([left, right]: [T; 2]) -> Self {
        Self { left, right }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct LayoutFacts {
    pub(super) name: String,
    pub(super) cells: u32,
    #[serde(flatten)]
    pub(super) partitioning: PartitioningFacts,
}

#[derive(Debug, Serialize)]
#[serde(tag = "partitioning", rename_all = "snake_case")]
pub(super) enum PartitioningFacts {
    Any { rows: u32, columns: u32 },
    Key,
    Grid { width: f64, home: &'static str },
}

#[derive(Debug, Serialize)]
pub(super) struct PerCell {
    pub(super) rows: Sides<f64>,
    pub(super) bytes: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct IndexFacts {
    pub(super) kind: IndexKind,
    pub(super) keys: Vec<String>,
    pub(super) ranges: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum IndexKind {
    Striped,
    Hash,
    HashSorted,
    Sorted,
    Scan,
}

#[derive(Debug, Serialize)]
pub(super) struct AlternativeFacts {
    pub(super) name: String,
    pub(super) network_rows: Option<f64>,
    pub(super) cell_rows: Option<f64>,
    pub(super) note: String,
}

#[derive(Debug, Serialize)]
pub(super) struct AggregateFacts {
    /// Of an aggregate in two phases: which one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<&'static str>,
    /// What the first phase does with its rows first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) steps: Vec<StepFacts>,
    pub(super) groups: Vec<String>,
    pub(super) computes: Vec<CallFacts>,
}

#[derive(Debug, Serialize)]
pub(super) struct CallFacts {
    pub(super) function: &'static str,
    /// None for `COUNT(*)`.
    pub(super) arguments: Vec<String>,
    /// Of STRING_AGG.
    pub(super) delimiter: Option<String>,
    pub(super) order: Vec<SortFacts>,
    pub(super) distinct: bool,
    pub(super) filter: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "delivers", rename_all = "snake_case")]
pub(super) enum SinkFacts {
    Rows { skip: u64, limit: Option<u64> },
    Changes,
    Result { order: Vec<SortFacts>, skip: u64, limit: Option<u64> },
}

#[derive(Debug, Serialize)]
pub(super) struct SortFacts {
    pub(super) expr: String,
    pub(super) descending: bool,
    pub(super) nulls_first: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct EdgeFacts {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) port: u8,
    /// Label of the sender, for formats that have no ids.
    #[serde(skip)]
    pub(super) sender: String,
    pub(super) steps: Vec<StepFacts>,
    pub(super) exchange: ExchangeFacts,
    /// Expected copies of a row, into a join.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replication: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) measured: Option<EdgeRun>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub(super) enum StepFacts {
    Filter { conditions: Vec<String> },
    Project { exprs: Vec<String>, columns: Vec<Column> },
    Unnest { lists: Vec<String> },
    Negate,
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum ExchangeFacts {
    Gather,
    Spread,
    Hash { keys: Vec<String> },
    Matrix { side: &'static str },
}

/// What happened in a run.
#[derive(Debug, Serialize)]
pub(super) struct RunFacts {
    pub(super) wall_ms: f64,
    pub(super) epochs: u64,
    pub(super) rows_out: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct OperatorRun {
    /// All tasks together.
    #[serde(flatten)]
    pub(super) total: TaskRun,
    pub(super) tasks: Vec<TaskRun>,
}

#[derive(Debug, Serialize)]
pub(super) struct TaskRun {
    pub(super) rows_in: u64,
    pub(super) frames_in: u64,
    pub(super) rows_out: u64,
    pub(super) frames_out: u64,
    pub(super) busy_ms: f64,
    pub(super) blocked_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pairs: Option<Pairs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stored: Option<Sides<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) skipped: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left_out: Option<u64>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Pairs {
    pub(super) examined: u64,
    pub(super) kept: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct EdgeRun {
    pub(super) routed: u64,
    pub(super) delivered: u64,
    /// Into a join: copies of a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replication: Option<f64>,
    /// Bytes that went to other processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sent_bytes: Option<u64>,
    /// Bytes of these rows in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sent_payload: Option<u64>,
}

/// The data of a plan; `verbose` adds the logical plan, `measured` what happened in a run.
pub(super) fn describe(plan: &Plan, verbose: bool, measured: Option<&Measured>) -> Description {
    let dag = &plan.dag;
    let logical = || plan.logical.optimized.display_indent().to_string().lines().map(str::to_owned).collect();
    let operators = (0..).map(OperatorId).zip(&dag.operators);
    Description {
        logical_plan: verbose.then(logical),
        epochs: match dag.epochs {
            EpochPolicy::Interval(interval) => Epochs::IntervalMs(interval.as_secs_f64() * 1e3),
            EpochPolicy::Rows(rows) => Epochs::Rows(rows),
            EpochPolicy::Commits => Epochs::Commits,
        },
        operators: operators.map(|(id, operator)| operator_facts(dag, id, operator, measured)).collect(),
        edges: dag.edges.iter().enumerate().map(|(number, edge)| edge_facts(dag, number, edge, measured)).collect(),
        notices: plan.notices.clone(),
        measured: measured.map(|run| RunFacts {
            wall_ms: run.wall.as_secs_f64() * 1e3,
            epochs: run.epochs,
            rows_out: run.rows_out,
        }),
    }
}

fn operator_facts(dag: &Dag, id: OperatorId, operator: &Operator, measured: Option<&Measured>) -> OperatorFacts {
    let (kind, facts) = match &operator.kind {
        OperatorKind::Source(source) => ("source", Facts::Source(source_facts(source, &dag.filters(id)))),
        OperatorKind::Join(join) => ("join", Facts::Join(Box::new(join_facts(join)))),
        OperatorKind::Aggregate(aggregate) => {
            ("aggregate", Facts::Aggregate(aggregate_facts(aggregate, &operator.schema, &operator_columns(dag, id))))
        }
        OperatorKind::Sink(sink) => ("sink", Facts::Sink(sink_facts(sink))),
    };
    let tasks = measured.and_then(|measured| measured.tasks.get(id.0 as usize));
    OperatorFacts {
        id: id.0,
        kind,
        label: dag.label(id),
        tasks: operator.tasks,
        expected_rows: operator.rows,
        retracts: operator.retracts,
        schema: columns(&operator.schema),
        facts,
        measured: tasks.map(|tasks| OperatorRun {
            total: task_run(&tasks.iter().copied().sum()),
            tasks: tasks.iter().map(task_run).collect(),
        }),
    }
}

fn task_run(task: &TaskMeasured) -> TaskRun {
    TaskRun {
        rows_in: task.rows_in,
        frames_in: task.frames_in,
        rows_out: task.rows_out,
        frames_out: task.frames_out,
        busy_ms: task.busy.as_secs_f64() * 1e3,
        blocked_ms: task.blocked.as_secs_f64() * 1e3,
        pairs: task.join.map(|JoinMeasured { examined, kept, .. }| Pairs { examined, kept }),
        stored: task.join.map(|join| join.stored.into()),
        state_bytes: task.join.map(|join| join.state_bytes),
        bytes: task.source.map(|source| source.bytes),
        skipped: task.source.map(|source| source.skipped),
        left_out: task.source.map(|source| source.left_out).filter(|rows| *rows > 0),
    }
}

fn columns(schema: &SchemaRef) -> Vec<Column> {
    let fields = schema.fields().iter();
    fields.map(|field| Column { name: field.name().clone(), sql_type: sql_name(field.data_type()) }).collect()
}

fn names(schema: &SchemaRef) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

fn texts(exprs: &[ScalarExpr], columns: &[String]) -> Vec<String> {
    exprs.iter().map(|expr| expr.display(columns)).collect()
}

fn source_facts(source: &Source, filters: &[&[ScalarExpr]]) -> SourceFacts {
    let columns: Vec<String> =
        source.projection.iter().map(|c| source.columns.field(*c as usize).name().clone()).collect();
    let by_groups = matches!(&source.spec, SourceSpec::File(file) if file.format == FileFormat::Parquet);
    let prunes = by_groups && filters.iter().all(|filters| !filters.is_empty());
    let needs = filters.iter().filter(|_| prunes).map(|filters| texts(filters, &columns).join(" AND "));
    SourceFacts {
        needs: needs.collect(),
        stream: source.stream.clone(),
        reads: match &source.spec {
            SourceSpec::File(file) => {
                Reads::File { format: file.format.name(), path: file.path.clone(), readers: source.readers }
            }
            SourceSpec::Generator(generator) => Reads::Generator { rows: generator.rows, text: generator.to_string() },
            SourceSpec::Values(rows) => Reads::Values { rows: rows.len() },
            SourceSpec::Table(_) => Reads::Table { follows: !source.bounded },
        },
        columns,
        bounded: source.bounded,
    }
}

fn join_facts(join: &Join) -> JoinFacts {
    let qualified = |side: &str, schema| names(schema).iter().map(|name| format!("{side}.{name}")).collect::<Vec<_>>();
    let [left, right] = [qualified("L", &join.inputs[0]), qualified("R", &join.inputs[1])];
    let pair: Vec<String> = left.iter().chain(&right).cloned().collect();
    let replication = join.layout.replication();
    let cells = f64::from(join.layout.cells());
    let per_cell = |side: usize| join.report.rows[side].map(|rows| rows * replication[side] / cells);
    let per_cell = per_cell(0).zip(per_cell(1)).map(|(left, right)| PerCell {
        rows: Sides { left, right },
        bytes: left * join.report.row_bytes[0] + right * join.report.row_bytes[1],
    });
    let alternatives = join.report.alternatives.iter().map(|alternative| AlternativeFacts {
        name: alternative.name.clone(),
        network_rows: alternative.network_rows,
        cell_rows: alternative.cell_rows,
        note: alternative.note.clone(),
    });
    JoinFacts {
        condition: texts(&join.condition, &pair),
        class: join.report.class.to_string(),
        layout: layout_facts(&join.layout),
        reason: join.report.reason.clone(),
        replication: replication.into(),
        per_cell,
        local_index: index_facts(join, [&left, &right]),
        computes: join.aggregate.as_ref().map(|aggregate| {
            let output: Vec<String> = join.output.iter().map(|column| pair[*column as usize].clone()).collect();
            let partial = &aggregate.partial;
            PairsFacts {
                aggregate: aggregate_facts(partial, &partial.input, &output),
                folded: aggregate.fold.is_some(),
            }
        }),
        alternatives: alternatives.collect(),
        unbounded: join.report.unbounded.into(),
    }
}

fn side_name(side: Side) -> &'static str {
    match side {
        Side::Left => "left",
        Side::Right => "right",
    }
}

fn layout_facts(layout: &Layout) -> LayoutFacts {
    let partitioning = match &layout.partitioning {
        Partitioning::Any => {
            let Shape { rows, columns } = layout.regions[0].shape;
            PartitioningFacts::Any { rows, columns }
        }
        Partitioning::Key { .. } => PartitioningFacts::Key,
        Partitioning::Grid(grid) => PartitioningFacts::Grid { width: grid.reach.width(), home: side_name(grid.home) },
    };
    LayoutFacts { name: layout.name(), cells: layout.cells(), partitioning }
}

fn index_facts(join: &Join, [left, right]: [&[String]; 2]) -> IndexFacts {
    let keys = join.equality.iter().map(|(l, r)| format!("{} = {}", l.display(left), r.display(right)));
    IndexFacts {
        kind: match join.local_index() {
            LocalIndexKind::Striped => IndexKind::Striped,
            LocalIndexKind::Hash => IndexKind::Hash,
            LocalIndexKind::HashSorted => IndexKind::HashSorted,
            LocalIndexKind::Sorted => IndexKind::Sorted,
            LocalIndexKind::Scan => IndexKind::Scan,
        },
        keys: keys.collect(),
        ranges: join.ranges.iter().map(|range| range_text(range, left, right)).collect(),
    }
}

/// Names of the columns that an operator gets on its first port, before it does anything.
fn operator_columns(dag: &Dag, id: OperatorId) -> Vec<String> {
    let edge = dag.edges.iter().find(|edge| edge.to == id);
    edge.map_or_else(Vec::new, |edge| names(dag.taken_schema(edge)))
}

/// `emitted` are the columns of the operator, `taken` the names of those that come in.
fn aggregate_facts(aggregate: &Aggregate, emitted: &SchemaRef, taken: &[String]) -> AggregateFacts {
    let mut columns = taken.to_vec();
    let mut steps = Vec::new();
    if let Phase::Partial(first) = &aggregate.phase {
        for step in first {
            steps.push(step_facts(step, &columns));
            if let Some(schema) = step.schema() {
                columns = names(schema);
            }
        }
    }
    let (phase, groups) = match aggregate.phase {
        Phase::Whole => (None, texts(&aggregate.groups, &columns)),
        Phase::Partial(_) => (Some("partial"), texts(&aggregate.groups, &columns)),
        Phase::Final => {
            columns = names(&aggregate.input);
            (Some("final"), texts(&aggregate.groups, &names(emitted)))
        }
    };
    let call = |call: &AggregateCall| CallFacts {
        function: call.function.name(),
        arguments: texts(&call.arguments, &columns),
        delimiter: call.delimiter.clone(),
        order: sort_facts(&call.order, &columns),
        distinct: call.distinct,
        filter: call.filter.as_ref().map(|filter| filter.display(&columns)),
    };
    AggregateFacts { phase, steps, groups, computes: aggregate.aggregates.iter().map(call).collect() }
}

fn sort_facts(keys: &[SortKey], columns: &[String]) -> Vec<SortFacts> {
    let facts = keys.iter().map(|key| SortFacts {
        expr: key.expr.display(columns),
        descending: key.descending,
        nulls_first: key.nulls_first,
    });
    facts.collect()
}

fn sink_facts(sink: &Sink) -> SinkFacts {
    let columns = names(&sink.input);
    match &sink.mode {
        SinkMode::Append { skip, limit } => SinkFacts::Rows { skip: *skip, limit: *limit },
        SinkMode::Changelog => SinkFacts::Changes,
        SinkMode::Final { order, skip, limit } => {
            SinkFacts::Result { order: sort_facts(order, &columns), skip: *skip, limit: *limit }
        }
    }
}

fn edge_facts(dag: &Dag, number: usize, edge: &Edge, measured: Option<&Measured>) -> EdgeFacts {
    let mut names = names(&dag.operator(edge.from).schema);
    let mut steps = Vec::with_capacity(edge.steps.len());
    for step in &edge.steps {
        steps.push(step_facts(step, &names));
        if let Some(schema) = step.schema() {
            names = self::names(schema);
        }
    }
    let exchange = match &edge.exchange {
        Exchange::Gather => ExchangeFacts::Gather,
        Exchange::Spread => ExchangeFacts::Spread,
        Exchange::Hash(keys) => ExchangeFacts::Hash { keys: texts(keys, &names) },
        Exchange::Matrix(side) => ExchangeFacts::Matrix { side: side_name(*side) },
    };
    let replication = match (&edge.exchange, &dag.operator(edge.to).kind) {
        (Exchange::Matrix(side), OperatorKind::Join(join)) => Some(join.layout.replication()[side.index()]),
        _ => None,
    };
    let run = measured.and_then(|measured| measured.edges.get(number));
    EdgeFacts {
        from: edge.from.0,
        to: edge.to.0,
        port: edge.port,
        sender: dag.label(edge.from),
        steps,
        exchange,
        replication,
        measured: run.map(|run: &EdgeMeasured| EdgeRun {
            routed: run.routed,
            delivered: run.delivered,
            replication: run.replication().filter(|_| replication.is_some()),
            sent_bytes: Some(run.sent_bytes).filter(|bytes| *bytes > 0),
            sent_payload: Some(run.sent_payload).filter(|bytes| *bytes > 0),
        }),
    }
}

fn step_facts(step: &Step, names: &[String]) -> StepFacts {
    match step {
        Step::Filter(exprs) => StepFacts::Filter { conditions: texts(exprs, names) },
        Step::Project { exprs, schema } => StepFacts::Project { exprs: texts(exprs, names), columns: columns(schema) },
        Step::Unnest { lists, .. } => {
            StepFacts::Unnest { lists: lists.iter().map(|list| names[*list as usize].clone()).collect() }
        }
        Step::Negate => StepFacts::Negate,
    }
}
