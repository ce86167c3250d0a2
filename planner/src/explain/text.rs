//! FORMAT TEXT: lines for people. Per join, what was seen, what was chosen and what the
//! alternatives would cost.

use std::fmt::Write;

use super::describe::{AggregateFacts, Description, EdgeFacts, Facts, JoinFacts, OperatorFacts, OperatorRun};
use super::display::count;

/// The text of a plan.
pub(super) fn render(plan: &Description) -> String {
    let mut out = String::new();
    if let Some(lines) = &plan.logical_plan {
        out += "logical plan:\n";
        for line in lines {
            let _ = writeln!(out, "  {line}");
        }
        out.push('\n');
    }
    for operator in &plan.operators {
        let _ = writeln!(out, "{} ({})", operator.label, operator.size());
        plan.edges.iter().filter(|edge| edge.to == operator.id).for_each(|edge| write_edge(edge, &mut out));
        write_operator(operator, &mut out);
    }
    for notice in &plan.notices {
        let _ = writeln!(out, "notice: {notice}");
    }
    if let Some(run) = &plan.measured {
        let _ = writeln!(out, "measured: {run}");
    }
    out
}

fn write_edge(edge: &EdgeFacts, out: &mut String) {
    let _ = writeln!(out, "  <- {}", edge.sender);
    for step in &edge.steps {
        let _ = writeln!(out, "     {step}");
    }
    let _ = writeln!(out, "     exchange: {}", edge.exchange);
    if let Some(run) = &edge.measured {
        let _ = writeln!(out, "     measured: {}", run.text(edge.replication));
    }
}

fn write_operator(operator: &OperatorFacts, out: &mut String) {
    match &operator.facts {
        Facts::Source(source) => {
            let _ = writeln!(out, "  reads: {}\n  columns: {}", source.reads, source.columns.join(", "));
            if !source.needs.is_empty() {
                let _ = writeln!(out, "  needs: row groups that may have {}", source.needs.join(", or "));
            }
        }
        Facts::Join(join) => write_join(join, out),
        Facts::Aggregate(aggregate) => write_aggregate(aggregate, out),
        Facts::Sink(sink) => {
            let _ = writeln!(out, "  delivers: {sink}");
        }
    }
    if let Some(OperatorRun { total, tasks }) = &operator.measured {
        let _ = writeln!(out, "  measured: {total}");
        for (number, task) in tasks.iter().enumerate().filter(|_| tasks.len() > 1) {
            let _ = writeln!(out, "    task {number}: {task}");
        }
    }
}

fn write_join(join: &JoinFacts, out: &mut String) {
    let _ = writeln!(out, "  condition: {}", join.whole_condition());
    let _ = writeln!(out, "  class: {}", join.class);
    let _ = writeln!(out, "  layout: {} ({})", join.layout.name, join.reason);
    let _ = writeln!(out, "  replication: left {:.2}, right {:.2}", join.replication.left, join.replication.right);
    if let Some(cell) = &join.per_cell {
        let (left, right) = (count(cell.rows.left), count(cell.rows.right));
        let _ = writeln!(out, "  per cell: about {left} + {right} rows, {} bytes", count(cell.bytes));
    }
    let _ = writeln!(out, "  local index: {}", join.local_index);
    if let Some(pairs) = &join.computes {
        let _ = writeln!(out, "  computes: {}", pairs.text());
        for step in &pairs.aggregate.steps {
            let _ = writeln!(out, "    of {step}");
        }
    }
    for alternative in &join.alternatives {
        let _ = writeln!(out, "  instead: {alternative}");
    }
    let _ = writeln!(out, "  state: {}", join.state());
}

fn write_aggregate(aggregate: &AggregateFacts, out: &mut String) {
    if let Some(phase) = aggregate.phase {
        let _ = writeln!(out, "  phase: {phase}");
    }
    for step in &aggregate.steps {
        let _ = writeln!(out, "  first: {step}");
    }
    if !aggregate.groups.is_empty() {
        let _ = writeln!(out, "  groups: {}", aggregate.groups.join(", "));
    }
    if !aggregate.computes.is_empty() {
        let _ = writeln!(out, "  computes: {}", aggregate.calls());
    }
}
