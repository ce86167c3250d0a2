//! The physical DAG: plain data that goes from the planner to workers, the one contract between
//! planner, executor and cluster.
//!
//! ```text
//! operator --[steps]--> exchange --> operator
//! ```
//!
//! An operator has one or several tasks. An edge first runs its steps (filter, project, unnest,
//! negate) in the sending task, then its exchange chooses the target tasks. Several edges into one port
//! are a UNION ALL; several edges out of one source share its rows, so that all references to a
//! stream see the same prefix of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::connector::SourceSpec;
use crate::expr::ScalarExpr;
use crate::layout::Layout;
use crate::theta::{ConditionClass, Range, Said};

mod aggregate;

pub use aggregate::{
    Aggregate, AggregateCall, AggregateFunction, Fold, FoldCall, FoldGroups, FoldKind, FoldSide, PairAggregate, Phase,
    has_codes,
};

/// Position of an operator in [`Dag::operators`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OperatorId(pub u32);

impl std::fmt::Display for OperatorId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A query as a graph of operators. Edges lead from lower to higher operator ids; the last
/// operator is the sink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dag {
    /// The operators, by id.
    pub operators: Vec<Operator>,
    /// What flows between them.
    pub edges: Vec<Edge>,
    /// When springs close epochs.
    pub epochs: EpochPolicy,
    /// Tasks that an operator may have. With 1, a process runs all its tasks of the query in turns, on one core.
    pub parallelism: u32,
}

/// How springs cut their input into epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EpochPolicy {
    /// By the clock.
    Interval(Duration),
    /// After so many rows of each stream: epoch e holds the rows (e-1)n+1 ..= en.
    Rows(u64),
    /// By the commits to stored tables: epoch 1 is what they hold at the start, each commit is an epoch.
    Commits,
}

/// A node of the DAG.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Operator {
    /// What it does.
    pub kind: OperatorKind,
    /// Number of tasks.
    pub tasks: u32,
    /// Columns of the rows that it emits.
    pub schema: SchemaRef,
    /// Whether it can emit deletes.
    pub retracts: bool,
    /// Expected rows out, if anything is known.
    pub rows: Option<f64>,
}

/// The operators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum OperatorKind {
    /// Emits the rows of a stream.
    Source(Source),
    /// Joins two inputs in a matrix of cells.
    Join(Box<Join>),
    /// Groups and aggregates.
    Aggregate(Aggregate),
    /// Hands the result to the client.
    Sink(Sink),
}

/// A spring that reads one stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// Name of the stream.
    pub stream: String,
    /// Where the rows come from.
    pub spec: SourceSpec,
    /// The stream's declared columns, all of them.
    pub columns: SchemaRef,
    /// Positions of the columns that are read, ascending.
    pub projection: Vec<u32>,
    /// The input ends.
    pub bounded: bool,
    /// Threads that decode parts of its files at a time.
    pub readers: u32,
    /// The files and their lengths, if several tasks share them: they must share the same ones.
    pub listing: Option<Vec<(String, u64)>>,
}

impl Source {
    /// The columns that are read as the rows carry them: in the order of the projection, nullable.
    pub fn schema(&self) -> SchemaRef {
        nullable(self.projection.iter().map(|column| self.columns.field(*column as usize)))
    }
}

/// A schema of these fields, every one nullable: rows between operators promise no more.
pub(crate) fn nullable<'a>(fields: impl Iterator<Item = &'a Field>) -> SchemaRef {
    let fields = fields.map(|field| Field::new(field.name(), field.data_type().clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// One side of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Side {
    /// R, port 0.
    Left,
    /// S, port 1.
    Right,
}

impl Side {
    /// Both, in the order of their ports.
    pub const BOTH: [Self; 2] = [Self::Left, Self::Right];

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }

    /// 0 or 1.
    pub fn index(self) -> usize {
        match self {
            Self::Left => 0,
            Self::Right => 1,
        }
    }
}

/// An inner join. Its pairs have the columns of the left input, then those of the right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Join {
    /// Columns of the inputs: left, right.
    pub inputs: [SchemaRef; 2],
    /// Inputs that can have deletes.
    pub retracts: [bool; 2],
    /// The whole condition over the columns of a pair, as conjuncts in the order of the text.
    pub condition: Vec<ScalarExpr>,
    /// Equality keys: (over the left columns, over the right columns).
    pub equality: Vec<(ScalarExpr, ScalarExpr)>,
    /// Ranges that all pairs lie in, the one that drives the local index first.
    pub ranges: Vec<Range>,
    /// What says all that a conjunct says, of each.
    pub said: Vec<Said>,
    /// Positions of the pair's columns that go out, or into [`Self::aggregate`].
    pub output: Vec<u32>,
    /// Cells emit the partial aggregate of their pairs, not the pairs.
    pub aggregate: Option<PairAggregate>,
    /// Which cell gets which rows.
    pub layout: Layout,
    /// What the planner saw and why it chose: for EXPLAIN.
    pub report: JoinReport,
}

impl Join {
    /// The equality keys and the ranges say all that the condition says (see [`Range::tight`]).
    pub fn is_covered(&self) -> bool {
        !self.said.contains(&Said::ByItself)
    }

    fn second_band(&self) -> bool {
        self.ranges.get(1).is_some_and(|range| range.bounds.is_numeric_band())
    }

    /// What the local index of a cell is sorted or hashed by.
    pub fn local_index(&self) -> LocalIndexKind {
        match (self.equality.is_empty(), self.ranges.first()) {
            (true, Some(range)) if range.bounds.is_numeric_band() && self.second_band() => LocalIndexKind::Striped,
            (false, None) => LocalIndexKind::Hash,
            (false, Some(_)) => LocalIndexKind::HashSorted,
            (true, Some(_)) => LocalIndexKind::Sorted,
            (true, None) => LocalIndexKind::Scan,
        }
    }
}

impl LocalIndexKind {
    /// It consists of sorted runs.
    pub fn is_sorted(self) -> bool {
        matches!(self, Self::Striped | Self::HashSorted | Self::Sorted)
    }
}

/// The structures in which a cell finds its candidate pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalIndexKind {
    /// Sorted by a band within each stripe of a second one.
    Striped,
    /// Equality keys only.
    Hash,
    /// Sorted by a range within each equality key.
    HashSorted,
    /// Sorted by a range.
    Sorted,
    /// Every stored row is looked at.
    Scan,
}

/// What the planner saw in a join, and what it expects of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinReport {
    /// Class of the whole condition.
    pub class: ConditionClass,
    /// Expected rows of the inputs; `None` when nothing is known (equal sizes are assumed).
    pub rows: [Option<f64>; 2],
    /// Bytes per row of the inputs.
    pub row_bytes: [f64; 2],
    /// Inputs that never end.
    pub unbounded: [bool; 2],
    /// What the layouts that were not chosen would cost.
    pub alternatives: Vec<Alternative>,
    /// Why this one.
    pub reason: String,
}

/// A layout that was considered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// Its name, as in `any 1x4`.
    pub name: String,
    /// Rows delivered to all cells together; `None` when it cannot run this join.
    pub network_rows: Option<f64>,
    /// Rows stored per cell.
    pub cell_rows: Option<f64>,
    /// What is to be known about it.
    pub note: String,
}

/// The end of the query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sink {
    /// What the client wants to see.
    pub mode: SinkMode,
    /// Columns of the input.
    pub input: SchemaRef,
    /// Computed from the input's columns at the very end; nothing means the columns as they are.
    pub finish: Vec<ScalarExpr>,
}

/// What the client wants to see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SinkMode {
    /// Rows of an append-only result, as they come; at most `limit` of them after `skip`.
    Append {
        /// Rows left out at the start.
        skip: u64,
        /// Most rows.
        limit: Option<u64>,
    },
    /// The consolidated changes of each epoch, in the order of epochs.
    Changelog,
    /// The result when the input has ended.
    Final {
        /// ORDER BY.
        order: Vec<SortKey>,
        /// OFFSET.
        skip: u64,
        /// LIMIT.
        limit: Option<u64>,
    },
}

/// One key of ORDER BY.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SortKey {
    /// Over the input's columns.
    pub expr: ScalarExpr,
    /// DESC.
    pub descending: bool,
    /// NULLS FIRST.
    pub nulls_first: bool,
}

/// What flows from one operator to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// The sending operator.
    pub from: OperatorId,
    /// The receiving operator.
    pub to: OperatorId,
    /// The input of the receiver: 0, or 1 for the right side of a join.
    pub port: u8,
    /// What the sender does with its rows first.
    pub steps: Vec<Step>,
    /// How rows choose their tasks.
    pub exchange: Exchange,
}

/// Row-wise work, fused into the sender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Keeps the rows for which all of these are true, looking at them in order.
    Filter(Vec<ScalarExpr>),
    /// Computes new rows.
    Project {
        /// One expression per column.
        exprs: Vec<ScalarExpr>,
        /// Columns of the new rows.
        schema: SchemaRef,
    },
    /// One row per element of list columns; lists side by side are filled up with NULL.
    Unnest {
        /// Positions of the list columns.
        lists: Vec<u32>,
        /// Columns of the new rows.
        schema: SchemaRef,
        /// A row whose lists are all NULL or empty becomes one row with NULLs.
        keep_empty: bool,
    },
    /// Turns inserts into deletes and deletes into inserts.
    Negate,
}

impl Step {
    /// Columns of the rows after this step, if it changes them.
    pub fn schema(&self) -> Option<&SchemaRef> {
        match self {
            Self::Filter(_) | Self::Negate => None,
            Self::Project { schema, .. } | Self::Unnest { schema, .. } => Some(schema),
        }
    }
}

/// How rows choose their target tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Exchange {
    /// All to task 0.
    Gather,
    /// Frame by frame to one task after the other: for work that any task can do.
    Spread,
    /// By the hash of these keys.
    Hash(Vec<ScalarExpr>),
    /// To the cells that the layout of the receiving join says, for this side of it.
    Matrix(Side),
}

impl Dag {
    /// The operator `id`.
    pub fn operator(&self, id: OperatorId) -> &Operator {
        &self.operators[id.0 as usize]
    }

    /// The last operator.
    pub fn sink(&self) -> &Operator {
        self.operators.last().expect("invariant: the planner ends every DAG with a sink")
    }

    /// Whether the input ends.
    pub fn bounded(&self) -> bool {
        self.operators.iter().all(|op| !matches!(&op.kind, OperatorKind::Source(s) if !s.bounded))
    }

    /// Whether the query ends by itself: its input does, or it has all the rows that it wants.
    pub fn ends(&self) -> bool {
        let sink = &self.sink().kind;
        let limited = matches!(sink, OperatorKind::Sink(Sink { mode: SinkMode::Append { limit: Some(_), .. }, .. }));
        self.bounded() || limited
    }

    /// A short name for each operator, as in `join 4`.
    pub fn label(&self, id: OperatorId) -> String {
        match &self.operator(id).kind {
            OperatorKind::Source(source) => format!("source {id} {}", source.stream),
            OperatorKind::Join(_) => format!("join {id}"),
            OperatorKind::Aggregate(_) => format!("aggregate {id}"),
            OperatorKind::Sink(_) => format!("sink {id}"),
        }
    }

    /// What each edge out of an operator keeps of its rows, before it does anything else.
    pub fn filters(&self, id: OperatorId) -> Vec<&[ScalarExpr]> {
        let edges = self.edges.iter().filter(|edge| edge.from == id);
        edges
            .map(|edge| if let Some(Step::Filter(filters)) = edge.steps.first() { filters.as_slice() } else { &[] })
            .collect()
    }

    /// Columns of the rows that the receiver of an edge takes.
    pub fn taken_schema<'a>(&'a self, edge: &'a Edge) -> &'a SchemaRef {
        edge.steps.iter().rev().find_map(Step::schema).unwrap_or(&self.operator(edge.from).schema)
    }

    /// Edges into `id`, by port.
    pub fn inputs(&self, id: OperatorId) -> BTreeMap<u8, Vec<&Edge>> {
        let mut inputs: BTreeMap<u8, Vec<&Edge>> = BTreeMap::new();
        for edge in self.edges.iter().filter(|edge| edge.to == id) {
            inputs.entry(edge.port).or_default().push(edge);
        }
        inputs
    }
}
