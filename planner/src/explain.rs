//! EXPLAIN: the DAG as text, and per join what was seen, what was chosen and what the
//! alternatives would cost.

use std::fmt::Write;

use arrow::datatypes::SchemaRef;

use crate::Plan;
use crate::expr::ScalarExpr;
use crate::physical::{
    Aggregate, Alternative, Dag, Exchange, Join, LocalIndexKind, Operator, OperatorId, OperatorKind, Sink, SinkMode,
    Step,
};
use crate::theta::{Bounds, IndexKey, Range};

/// The text of a plan.
pub(crate) fn explain(plan: &Plan, verbose: bool) -> String {
    let mut out = String::new();
    if verbose {
        out += "logical plan:\n";
        for line in plan.logical.optimized.display_indent().to_string().lines() {
            let _ = writeln!(out, "  {line}");
        }
        out.push('\n');
    }
    for (id, operator) in (0..).map(OperatorId).zip(&plan.dag.operators) {
        explain_operator(&plan.dag, id, operator, &mut out);
    }
    for notice in &plan.notices {
        let _ = writeln!(out, "notice: {notice}");
    }
    out
}

fn names(schema: &SchemaRef) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

fn list(exprs: &[ScalarExpr], columns: &[String]) -> String {
    exprs.iter().map(|expr| expr.display(columns)).collect::<Vec<_>>().join(", ")
}

fn explain_operator(dag: &Dag, id: OperatorId, operator: &Operator, out: &mut String) {
    let tasks = if operator.tasks == 1 { "1 task".to_owned() } else { format!("{} tasks", operator.tasks) };
    let rows = operator.rows.map_or_else(|| "unknown".to_owned(), count);
    let changes = if operator.retracts { ", inserts and deletes" } else { "" };
    let _ = writeln!(out, "{} ({tasks}, about {rows} rows{changes})", dag.label(id));
    for edge in dag.edges.iter().filter(|edge| edge.to == id) {
        explain_edge(dag, edge.from, &edge.steps, &edge.exchange, out);
    }
    match &operator.kind {
        OperatorKind::Source(source) => {
            let columns: Vec<_> =
                source.projection.iter().map(|c| source.columns.field(*c as usize).name().as_str()).collect();
            let _ = writeln!(out, "  reads: {}\n  columns: {}", source.spec, columns.join(", "));
        }
        OperatorKind::Join(join) => explain_join(join, out),
        OperatorKind::Aggregate(aggregate) => explain_aggregate(aggregate, out),
        OperatorKind::Sink(sink) => explain_sink(sink, out),
    }
}

fn explain_edge(dag: &Dag, from: OperatorId, steps: &[Step], exchange: &Exchange, out: &mut String) {
    let mut columns = names(&dag.operator(from).schema);
    let _ = writeln!(out, "  <- {}", dag.label(from));
    for step in steps {
        let text = match step {
            Step::Filter(exprs) => {
                format!("filter: {}", exprs.iter().map(|e| e.display(&columns)).collect::<Vec<_>>().join(" AND "))
            }
            Step::Project { exprs, .. } => format!("project: {}", list(exprs, &columns)),
            Step::Unnest { lists, .. } => {
                let lists: Vec<_> = lists.iter().map(|list| columns[*list as usize].as_str()).collect();
                format!("unnest: {}", lists.join(", "))
            }
        };
        let _ = writeln!(out, "     {text}");
        if let Some(schema) = step.schema() {
            columns = names(schema);
        }
    }
    let text = match exchange {
        Exchange::Gather => "gather".to_owned(),
        Exchange::Hash(keys) => format!("hash({})", list(keys, &columns)),
        Exchange::Matrix(side) => format!("matrix, {side:?} side").to_lowercase(),
    };
    let _ = writeln!(out, "     exchange: {text}");
}

fn explain_join(join: &Join, out: &mut String) {
    let sides = [names(&join.inputs[0]), names(&join.inputs[1])];
    let qualified =
        |side: &str, names: &[String]| names.iter().map(|name| format!("{side}.{name}")).collect::<Vec<_>>();
    let [left, right] = [qualified("L", &sides[0]), qualified("R", &sides[1])];
    let pair: Vec<String> = left.iter().chain(&right).cloned().collect();
    let condition = join.condition.iter().map(|e| e.display(&pair)).collect::<Vec<_>>().join(" AND ");
    let _ = writeln!(out, "  condition: {}", if condition.is_empty() { "none" } else { &condition });
    let _ = writeln!(out, "  class: {}", join.report.class);
    let replication = join.layout.replication();
    let _ = writeln!(out, "  layout: {} ({})", join.layout.name(), join.report.reason);
    let _ = writeln!(out, "  replication: left {:.2}, right {:.2}", replication[0], replication[1]);
    let cells = f64::from(join.layout.cells());
    let per_cell = |side: usize| join.report.rows[side].map(|rows| rows * replication[side] / cells);
    if let (Some(left_rows), Some(right_rows)) = (per_cell(0), per_cell(1)) {
        let bytes = left_rows * join.report.row_bytes[0] + right_rows * join.report.row_bytes[1];
        let _ = writeln!(
            out,
            "  per cell: about {} + {} rows, {} bytes",
            count(left_rows),
            count(right_rows),
            count(bytes)
        );
    }
    let _ = writeln!(out, "  local index: {}", local_index(join, [&left, &right]));
    for alternative in &join.report.alternatives {
        let _ = writeln!(out, "  instead: {}", instead(alternative));
    }
    let _ = writeln!(out, "  state: {}", state(join.report.unbounded));
}

fn state(unbounded: [bool; 2]) -> &'static str {
    match unbounded {
        [false, false] => "both sides end",
        [true, false] => "the left side grows without bound",
        [false, true] => "the right side grows without bound",
        [true, true] => "both sides grow without bound",
    }
}

fn instead(alternative: &Alternative) -> String {
    match (alternative.network_rows, alternative.cell_rows) {
        (Some(network), Some(cell)) => {
            format!(
                "{}: {} rows sent, {} per cell; {}",
                alternative.name,
                count(network),
                count(cell),
                alternative.note
            )
        }
        _ => format!("{}: {}", alternative.name, alternative.note),
    }
}

fn local_index(join: &Join, [left, right]: [&[String]; 2]) -> String {
    let keys = || {
        let pairs = join.equality.iter().map(|(l, r)| format!("{} = {}", l.display(left), r.display(right)));
        pairs.collect::<Vec<_>>().join(", ")
    };
    let range = || join.range.as_ref().map_or_else(String::new, |range| self::range(range, left, right));
    match join.local_index() {
        LocalIndexKind::Hash => format!("hash on {}", keys()),
        LocalIndexKind::HashSorted => format!("hash on {}, sorted by {}", keys(), range()),
        LocalIndexKind::Sorted => format!("sorted by {}", range()),
        LocalIndexKind::Scan => "none: block scan".to_owned(),
    }
}

fn range(range: &Range, left: &[String], right: &[String]) -> String {
    let difference = format!("{} - {}", key(&range.left, left), key(&range.right, right));
    let limit = range.left.limit.map_or_else(String::new, |limit| format!(", for keys within {limit:.0}"));
    let bounded = match range.bounds {
        Bounds::Exact { lower, upper } => interval(&difference, lower, upper),
        Bounds::Float { lower, upper } => interval(&difference, lower, upper),
        Bounds::Ordered { lower, upper } => {
            let op = match (lower, upper) {
                (true, true) => "=",
                (true, false) => ">=",
                _ => "<=",
            };
            format!("{} {op} {}", key(&range.left, left), key(&range.right, right))
        }
    };
    bounded + &limit
}

fn interval<T: std::fmt::Display>(difference: &str, lower: Option<T>, upper: Option<T>) -> String {
    match (lower, upper) {
        (Some(lower), Some(upper)) => format!("{difference} in [{lower}, {upper}]"),
        (Some(lower), None) => format!("{difference} >= {lower}"),
        (None, Some(upper)) => format!("{difference} <= {upper}"),
        (None, None) => difference.to_owned(),
    }
}

fn key(key: &IndexKey, columns: &[String]) -> String {
    let terms: Vec<String> = key
        .terms
        .iter()
        .map(|term| match term.factor {
            1 => term.expr.display(columns),
            -1 => format!("-({})", term.expr.display(columns)),
            factor => format!("{factor} * ({})", term.expr.display(columns)),
        })
        .collect();
    if terms.len() == 1 { terms.concat() } else { format!("({})", terms.join(" + ")) }
}

fn explain_aggregate(aggregate: &Aggregate, out: &mut String) {
    let columns = names(&aggregate.input);
    if !aggregate.groups.is_empty() {
        let _ = writeln!(out, "  groups: {}", list(&aggregate.groups, &columns));
    }
    let calls = aggregate.aggregates.iter().map(|call| {
        let argument = call.argument.as_ref().map_or_else(|| "*".to_owned(), |argument| argument.display(&columns));
        let distinct = if call.distinct { "DISTINCT " } else { "" };
        let filter = call.filter.as_ref().map_or_else(String::new, |f| format!(" FILTER ({})", f.display(&columns)));
        format!("{}({distinct}{argument}){filter}", call.function.name())
    });
    let calls = calls.collect::<Vec<_>>().join(", ");
    if !calls.is_empty() {
        let _ = writeln!(out, "  computes: {calls}");
    }
}

fn explain_sink(sink: &Sink, out: &mut String) {
    let columns = names(&sink.input);
    let cut = |skip: u64, limit: Option<u64>| {
        let limit = limit.map_or_else(String::new, |limit| format!(", limit {limit}"));
        if skip > 0 { format!("{limit}, offset {skip}") } else { limit }
    };
    let text = match &sink.mode {
        SinkMode::Append { skip, limit } => format!("rows as they come{}", cut(*skip, *limit)),
        SinkMode::Changelog => "the changes of each epoch".to_owned(),
        SinkMode::Final { order, skip, limit } => {
            let keys = order
                .iter()
                .map(|key| format!("{}{}", key.expr.display(&columns), if key.descending { " DESC" } else { "" }));
            let keys = keys.collect::<Vec<_>>().join(", ");
            let order = if keys.is_empty() { keys } else { format!(", ordered by {keys}") };
            format!("the result at the end{order}{}", cut(*skip, *limit))
        }
    };
    let _ = writeln!(out, "  delivers: {text}");
}

/// A rounded number with separators.
fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
