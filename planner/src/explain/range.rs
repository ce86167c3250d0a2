//! The range that a local index is sorted by, as text.

use crate::theta::{Bounds, IndexKey, Range};

/// `range` over columns with these names.
pub(super) fn range_text(range: &Range, left: &[String], right: &[String]) -> String {
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
