//! FORMAT DOT: a digraph for Graphviz. Nodes are operators with their main facts, edges have
//! their exchange and steps.

use std::fmt::Write;

use super::describe::{Description, EdgeFacts, Facts, OperatorFacts};

/// Longest line of a label, in characters.
const WIDTH: usize = 100;

/// The digraph of a plan.
pub(super) fn render(plan: &Description) -> String {
    let mut out =
        "digraph plan {\n  node [shape=box, fontname=\"Helvetica\"];\n  edge [fontname=\"Helvetica\"];\n".to_owned();
    let run = plan.measured.iter().map(|run| format!("measured: {run}"));
    let notices = plan.notices.iter().map(|notice| format!("notice: {notice}"));
    let lines: Vec<String> = run.chain(notices).collect();
    if !lines.is_empty() {
        let _ = writeln!(out, "  label={};", quoted(&lines));
    }
    if let Some(lines) = &plan.logical_plan {
        let _ = writeln!(out, "  logical_plan [shape=note, label={}];", quoted(lines));
    }
    for operator in &plan.operators {
        let _ = writeln!(out, "  operator_{} [label={}];", operator.id, quoted(&operator_lines(operator)));
    }
    for edge in &plan.edges {
        let label = quoted(&edge_lines(edge));
        let _ = writeln!(out, "  operator_{} -> operator_{} [label={label}];", edge.from, edge.to);
    }
    out + "}\n"
}

fn operator_lines(operator: &OperatorFacts) -> Vec<String> {
    let mut lines = vec![operator.label.clone(), operator.size()];
    match &operator.facts {
        Facts::Source(source) => lines.push(source.reads.to_string()),
        Facts::Join(join) => {
            lines.push(join.whole_condition());
            lines.push(format!("layout: {}", join.layout.name));
            lines.push(format!("local index: {}", join.local_index));
            lines.extend(join.computes.iter().map(|pairs| format!("computes: {}", pairs.text())));
        }
        Facts::Aggregate(aggregate) => {
            if !aggregate.groups.is_empty() {
                lines.push(format!("groups: {}", aggregate.groups.join(", ")));
            }
            if !aggregate.computes.is_empty() {
                lines.push(format!("computes: {}", aggregate.calls()));
            }
        }
        Facts::Sink(sink) => lines.push(sink.to_string()),
    }
    lines.extend(operator.measured.iter().map(|run| format!("measured: {}", run.total)));
    lines
}

fn edge_lines(edge: &EdgeFacts) -> Vec<String> {
    let steps = edge.steps.iter().map(ToString::to_string);
    let run = edge.measured.iter().map(|run| format!("measured: {}", run.text(edge.replication)));
    steps.chain([edge.exchange.to_string()]).chain(run).collect()
}

/// A quoted string of lines that are aligned to the left. In it, Graphviz reads backslashes and
/// entities such as `&lt;` as its own.
fn quoted(lines: &[String]) -> String {
    let mut out = "\"".to_owned();
    for line in lines {
        let cut = line.chars().nth(WIDTH).is_some();
        for c in line.chars().take(if cut { WIDTH - 1 } else { WIDTH }) {
            match c {
                '"' => out += "\\\"",
                '\\' => out += "\\\\",
                '&' => out += "&amp;",
                c if c.is_control() => out += &c.escape_default().to_string().replace('\\', "\\\\"),
                c => out.push(c),
            }
        }
        if cut {
            out.push('…');
        }
        out += "\\l";
    }
    out + "\""
}
