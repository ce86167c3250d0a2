//! The phrases that several formats share.

use std::fmt::{Display, Formatter, Result};

use super::describe::{
    AggregateFacts, AlternativeFacts, CallFacts, EdgeRun, ExchangeFacts, IndexFacts, IndexKind, JoinFacts,
    OperatorFacts, PairsFacts, Reads, RunFacts, Sides, SinkFacts, SortFacts, StepFacts, TaskRun,
};

impl OperatorFacts {
    /// Tasks, expected rows, and whether there are deletes.
    pub(super) fn size(&self) -> String {
        let tasks = if self.tasks == 1 { "1 task".to_owned() } else { format!("{} tasks", self.tasks) };
        let rows = self.expected_rows.map_or_else(|| "unknown".to_owned(), count);
        let changes = if self.retracts { ", inserts and deletes" } else { "" };
        format!("{tasks}, about {rows} rows{changes}")
    }
}

impl Display for Reads {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::File { format, path, readers: 1 } => write!(f, "{format} {path}"),
            Self::File { format, path, readers } => write!(f, "{format} {path}, by {readers} readers"),
            Self::Generator { text, .. } => f.write_str(text),
            Self::Values { rows } => write!(f, "{rows} constant rows"),
            Self::Table { follows: false } => f.write_str("the stored table as it is now"),
            Self::Table { follows: true } => f.write_str("the stored table and its changes"),
        }
    }
}

impl JoinFacts {
    pub(super) fn whole_condition(&self) -> String {
        if self.condition.is_empty() { "none".to_owned() } else { self.condition.join(" AND ") }
    }

    /// Which sides grow for ever.
    pub(super) fn state(&self) -> &'static str {
        match self.unbounded {
            Sides { left: false, right: false } => "both sides end",
            Sides { left: true, right: false } => "the left side grows without bound",
            Sides { left: false, right: true } => "the right side grows without bound",
            Sides { left: true, right: true } => "both sides grow without bound",
        }
    }
}

impl Display for IndexFacts {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let keys = self.keys.join(", ");
        let (range, others) = match self.ranges.as_slice() {
            [] => ("", String::new()),
            [range] => (range.as_str(), String::new()),
            [range, others @ ..] if self.kind == IndexKind::Striped => {
                (range.as_str(), format!(", filtered by {}", others.join(", ")))
            }
            [range, others @ ..] => {
                (range.as_str(), format!(" or by what selects more, filtered by {}", others.join(", ")))
            }
        };
        match self.kind {
            IndexKind::Striped => write!(f, "stripes, sorted by {range}{others}"),
            IndexKind::Hash => write!(f, "hash on {keys}"),
            IndexKind::HashSorted => write!(f, "hash on {keys}, sorted by {range}{others}"),
            IndexKind::Sorted => write!(f, "sorted by {range}{others}"),
            IndexKind::Scan => f.write_str("none: block scan"),
        }
    }
}

impl Display for AlternativeFacts {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}: ", self.name)?;
        if let (Some(network), Some(cell)) = (self.network_rows, self.cell_rows) {
            write!(f, "{} rows sent, {} per cell; ", count(network), count(cell))?;
        }
        f.write_str(&self.note)
    }
}

impl PairsFacts {
    /// What is computed, and how.
    pub(super) fn text(&self) -> String {
        let groups = &self.aggregate.groups;
        let by = if groups.is_empty() { String::new() } else { format!(" by {}", groups.join(", ")) };
        let how = if self.folded {
            "folded: from counts and sums of each side, no pairs are listed"
        } else {
            "from the pairs as they are found"
        };
        format!("partial {}{by} ({how})", self.aggregate.calls())
    }
}

impl AggregateFacts {
    /// All functions.
    pub(super) fn calls(&self) -> String {
        self.computes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

impl Display for CallFacts {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let distinct = if self.distinct { "DISTINCT " } else { "" };
        let arguments = if self.arguments.is_empty() { "*".to_owned() } else { self.arguments.join(", ") };
        write!(f, "{}({distinct}{arguments}", self.function)?;
        if let Some(delimiter) = &self.delimiter {
            write!(f, ", '{}'", delimiter.replace('\'', "''"))?;
        }
        if !self.order.is_empty() {
            write!(f, " ORDER BY {}", sort_keys(&self.order))?;
        }
        f.write_str(")")?;
        self.filter.as_ref().map_or(Ok(()), |filter| write!(f, " FILTER ({filter})"))
    }
}

impl Display for SinkFacts {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let cut = |skip: u64, limit: Option<u64>| {
            let limit = limit.map_or_else(String::new, |limit| format!(", limit {limit}"));
            if skip > 0 { format!("{limit}, offset {skip}") } else { limit }
        };
        match self {
            Self::Rows { skip, limit } => write!(f, "rows as they come{}", cut(*skip, *limit)),
            Self::Changes => f.write_str("the changes of each epoch"),
            Self::Result { order, skip, limit } => {
                let keys = sort_keys(order);
                let order = if keys.is_empty() { keys } else { format!(", ordered by {keys}") };
                write!(f, "the result at the end{order}{}", cut(*skip, *limit))
            }
        }
    }
}

fn sort_keys(keys: &[SortFacts]) -> String {
    let keys = keys.iter().map(|key| format!("{}{}", key.expr, if key.descending { " DESC" } else { "" }));
    keys.collect::<Vec<_>>().join(", ")
}

impl Display for StepFacts {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Filter { conditions } => write!(f, "filter: {}", conditions.join(" AND ")),
            Self::Project { exprs, .. } => write!(f, "project: {}", exprs.join(", ")),
            Self::Unnest { lists } => write!(f, "unnest: {}", lists.join(", ")),
            Self::Negate => f.write_str("negate: inserts become deletes"),
        }
    }
}

impl Display for ExchangeFacts {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Gather => f.write_str("gather"),
            Self::Spread => f.write_str("spread"),
            Self::Hash { keys } => write!(f, "hash({})", keys.join(", ")),
            Self::Matrix { side } => write!(f, "matrix, {side} side"),
        }
    }
}

impl Display for RunFacts {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let (epochs, rows) = (several(self.epochs, "epoch"), several(self.rows_out, "row"));
        write!(f, "{}, {epochs}, {rows} out", time(self.wall_ms))
    }
}

impl Display for TaskRun {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let rows_in = several(self.rows_in, "row");
        match (self.bytes, self.skipped) {
            (Some(bytes), Some(skipped)) => {
                let (bytes, skipped) = (several(bytes, "byte"), several(skipped, "record"));
                let left_out = self.left_out.map(|rows| format!(", {} left out", several(rows, "row")));
                write!(f, "{rows_in} read ({bytes}, {skipped} skipped{})", left_out.unwrap_or_default())?;
            }
            _ => write!(f, "{rows_in} in ({})", several(self.frames_in, "frame"))?,
        }
        write!(f, ", {} out ({})", several(self.rows_out, "row"), several(self.frames_out, "frame"))?;
        if let Some(pairs) = self.pairs {
            write!(f, "; {} examined, {} kept", several(pairs.examined, "pair"), whole(pairs.kept))?;
        }
        if let Some(stored) = self.stored {
            write!(f, "; stored {} left, {} right", whole(stored.left), whole(stored.right))?;
            let rows = stored.left + stored.right;
            if let Some(bytes) = self.state_bytes.filter(|_| rows > 0) {
                write!(f, " in {} bytes, {} a row", whole(bytes), whole(bytes / rows))?;
            }
        }
        write!(f, "; busy {}, blocked {}", time(self.busy_ms), time(self.blocked_ms))
    }
}

impl EdgeRun {
    /// What was carried; copies beside those that were predicted.
    pub(super) fn text(&self, predicted: Option<f64>) -> String {
        let rows = several(self.routed, "row");
        let sent = self.sent_bytes.map_or_else(String::new, |bytes| format!(", {} bytes sent", whole(bytes)));
        let rows = match (self.replication, predicted) {
            (Some(copies), Some(predicted)) => {
                let delivered = whole(self.delivered);
                format!("{rows}, {delivered} delivered: {copies:.2} copies of each, {predicted:.2} predicted")
            }
            _ => rows,
        };
        rows + &sent
    }
}

/// A rounded number with separators.
pub(super) fn count(value: f64) -> String {
    grouped(&format!("{value:.0}"))
}

fn whole(value: u64) -> String {
    grouped(&value.to_string())
}

fn grouped(digits: &str) -> String {
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 row`, `2 rows`.
fn several(value: u64, what: &str) -> String {
    format!("{} {what}{}", whole(value), if value == 1 { "" } else { "s" })
}

fn time(milliseconds: f64) -> String {
    if milliseconds < 1e3 { format!("{milliseconds:.1} ms") } else { format!("{:.2} s", milliseconds / 1e3) }
}
