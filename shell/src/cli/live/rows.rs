//! The rows of a changing result, with their weights, in an order that keeps a group in its place.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A multiset of rows. Rows are told apart by their texts and ordered by their first columns,
/// numbers by value.
pub(super) struct Rows {
    numeric: Vec<bool>,
    weights: BTreeMap<Row, i64>,
    count: u64,
}

impl Rows {
    /// `numeric` says which columns are numbers.
    pub(super) fn new(numeric: Vec<bool>) -> Self {
        Self { numeric, weights: BTreeMap::new(), count: 0 }
    }

    /// Adds or takes away a row.
    pub(super) fn add(&mut self, cells: Vec<String>, weight: i64) {
        let numbers = cells
            .iter()
            .zip(&self.numeric)
            .map(|(cell, numeric)| if *numeric { cell.parse().ok() } else { None })
            .collect();
        match self.weights.entry(Row { numbers, cells }) {
            Entry::Vacant(entry) => {
                self.count += positive(weight);
                entry.insert(weight);
            }
            Entry::Occupied(mut entry) => {
                let before = *entry.get();
                let after = before + weight;
                self.count = self.count + positive(after) - positive(before);
                if after == 0 {
                    entry.remove();
                } else {
                    entry.insert(after);
                }
            }
        }
    }

    /// How many rows there are.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The rows, equal ones as often as they are there.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[String]> {
        self.weights
            .iter()
            .flat_map(|(row, weight)| std::iter::repeat_n(row.cells.as_slice(), usize::try_from(*weight).unwrap_or(0)))
    }
}

fn positive(weight: i64) -> u64 {
    u64::try_from(weight).unwrap_or(0)
}

struct Row {
    numbers: Vec<Option<f64>>,
    cells: Vec<String>,
}

impl Ord for Row {
    fn cmp(&self, other: &Self) -> Ordering {
        let pairs = self.numbers.iter().zip(&self.cells).zip(other.numbers.iter().zip(&other.cells));
        let mut orders = pairs.map(|((number, cell), (other_number, other_cell))| {
            // What is no number, such as NULL, comes last.
            let by_value = match (number, other_number) {
                (Some(a), Some(b)) => a.total_cmp(b),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => Ordering::Equal,
            };
            by_value.then_with(|| cell.cmp(other_cell))
        });
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Row {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Row {}
