//! Rows as sets: semi joins and their like, INTERSECT and EXCEPT, DISTINCT.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch, UInt64Array};
use arrow::compute::take_record_batch;
use datafusion_common::{DFSchema, JoinType, NullEquality, ScalarValue};
use datafusion_expr::{Expr, logical_plan};

use super::{Tagged, batch, bind, conditions, evaluate, physical};

/// Rows by number, in no epoch of their own: they may come and go.
fn taken(rows: &RecordBatch, numbers: Vec<u64>) -> Tagged {
    let epochs = vec![0; numbers.len()];
    Tagged { batch: take_record_batch(rows, &UInt64Array::from(numbers)).unwrap(), epochs }
}

/// The values of some expressions for each row, in letters.
fn keys(exprs: &[Expr], schema: &DFSchema, rows: &RecordBatch) -> Vec<String> {
    let columns: Vec<_> = exprs.iter().map(|expr| evaluate(expr, schema, rows)).collect();
    let key = |row| {
        let values = columns.iter().map(|column| ScalarValue::try_from_array(column, row).unwrap());
        format!("{:?}", values.collect::<Vec<_>>())
    };
    (0..rows.num_rows()).map(key).collect()
}

/// Each row once.
pub(super) fn distinct(rows: &RecordBatch, schema: &DFSchema) -> Tagged {
    let columns: Vec<Expr> = schema.columns().into_iter().map(Expr::Column).collect();
    let mut seen = std::collections::HashSet::new();
    let firsts = keys(&columns, schema, rows).into_iter().enumerate().filter(|(_, key)| seen.insert(key.clone()));
    let firsts = firsts.map(|(row, _)| row as u64).collect();
    taken(rows, firsts)
}

/// Whether a join is an INTERSECT or an EXCEPT.
pub(super) fn is_set_operation(join: &logical_plan::Join) -> bool {
    join.null_equality == NullEquality::NullEqualsNull && join.filter.is_none() && join.join_type != JoinType::Inner
}

/// INTERSECT ALL: a row as often as on the side where it is rarer. EXCEPT ALL: as often as it is
/// more on the left. Without ALL the left side is distinct, and the same is right.
pub(super) fn set_operation(join: &logical_plan::Join, left: &RecordBatch, right: &RecordBatch) -> Tagged {
    let (left_keys, right_keys): (Vec<Expr>, Vec<Expr>) = join.on.iter().cloned().unzip();
    let mut on_right: HashMap<String, usize> = HashMap::new();
    for key in keys(&right_keys, join.right.schema(), right) {
        *on_right.entry(key).or_default() += 1;
    }
    let intersect = join.join_type == JoinType::LeftSemi;
    let mut kept = Vec::new();
    for (row, key) in keys(&left_keys, join.left.schema(), left).into_iter().enumerate() {
        let partner = match on_right.get_mut(&key) {
            Some(count) if *count > 0 => {
                // EXCEPT without ALL takes away all equal rows, and the left side has only one.
                *count -= 1;
                true
            }
            _ => false,
        };
        if partner == intersect {
            kept.push(row as u64);
        }
    }
    taken(left, kept)
}

/// Semi, anti and mark joins: every row against all rows of the other side.
pub(super) fn semi_join(join: &logical_plan::Join, left: &RecordBatch, right: &RecordBatch) -> Tagged {
    let pair = join.left.schema().join(join.right.schema()).unwrap();
    let conditions: Vec<_> = conditions(join).iter().map(|condition| physical(condition, &pair)).collect();
    let (mut left_found, mut right_found) = (vec![false; left.num_rows()], vec![false; right.num_rows()]);
    for (row, found) in left_found.iter_mut().enumerate() {
        let mut matches = vec![true; right.num_rows()];
        for condition in &conditions {
            let mask = bind(condition, left, row).evaluate(right).unwrap().into_array(right.num_rows()).unwrap();
            let mask = mask.as_boolean();
            // What may be equal is not certainly not in.
            let holds = |i: usize| if mask.is_valid(i) { mask.value(i) } else { join.null_aware };
            matches.iter_mut().enumerate().for_each(|(i, all)| *all &= holds(i));
        }
        *found = matches.contains(&true);
        right_found.iter_mut().zip(matches).for_each(|(found, this)| *found |= this);
    }
    let some = |found: &[bool], wanted: bool| {
        let rows = found.iter().enumerate().filter(|(_, found)| **found == wanted);
        rows.map(|(row, _)| row as u64).collect()
    };
    match join.join_type {
        JoinType::LeftSemi => taken(left, some(&left_found, true)),
        JoinType::LeftAnti => taken(left, some(&left_found, false)),
        JoinType::RightSemi => taken(right, some(&right_found, true)),
        JoinType::RightAnti => taken(right, some(&right_found, false)),
        JoinType::LeftMark => marked(left, left_found),
        JoinType::RightMark => marked(right, right_found),
        other => panic!("the oracle does not know a {other} join"),
    }
}

fn marked(rows: &RecordBatch, found: Vec<bool>) -> Tagged {
    let mut columns = rows.columns().to_vec();
    columns.push(Arc::new(BooleanArray::from(found)));
    Tagged { batch: batch(columns, rows.num_rows()), epochs: vec![0; rows.num_rows()] }
}
