use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};

use super::*;

fn schema() -> Arc<Schema> {
    Arc::new(Schema::new(vec![
        Field::new("epoch", DataType::Int64, false),
        Field::new("op", DataType::Utf8, false),
        Field::new("k", DataType::Int64, true),
        Field::new("s", DataType::Utf8, true),
    ]))
}

fn changes(epoch: i64, rows: &[(&str, Option<i64>, &str)]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![epoch; rows.len()])),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.0))),
        Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>()),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.2))),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

fn shown(live: &Live, columns: usize, rows: usize) -> Vec<String> {
    let mut lines = live.lines(Size { columns, rows }, &Progress::default());
    assert!(lines.pop().unwrap().starts_with("0 rows in"));
    lines
}

#[test]
fn only_complete_epochs_are_shown_in_the_order_of_their_values() {
    let mut live = Live::new(&schema());
    live.add(&changes(1, &[("+", Some(10), "a"), ("+", Some(9), "b"), ("+", None, "c")])).unwrap();
    assert_eq!(shown(&live, 80, 24), [" k | s", "---+---"]);
    live.add(&changes(2, &[("-", Some(9), "b"), ("+", Some(9), "bb")])).unwrap();
    assert_eq!(shown(&live, 80, 24)[2..], ["    9 | b", "   10 | a", " NULL | c"]);
    live.complete(2).unwrap();
    assert_eq!(shown(&live, 80, 24)[2..], ["    9 | bb", "   10 | a", " NULL | c"]);
}

#[test]
fn equal_rows_count_and_what_does_not_fit_is_counted() {
    let mut live = Live::new(&schema());
    live.add(&changes(1, &[("+", Some(1), "x"); 10])).unwrap();
    live.add(&changes(1, &[("-", Some(1), "x"); 3])).unwrap();
    live.complete(1).unwrap();
    assert_eq!(shown(&live, 80, 24).len(), 2 + 7);
    assert_eq!(shown(&live, 80, 8)[2..], [" 1 | x", " 1 | x", " 1 | x", "... 4 more rows"]);
    live.add(&changes(2, &[("-", Some(1), "x"); 7])).unwrap();
    live.complete(2).unwrap();
    assert_eq!(shown(&live, 80, 24).len(), 2);
}

#[test]
fn lines_are_cut_at_the_width_of_the_screen() {
    let mut live = Live::new(&schema());
    live.add(&changes(1, &[("+", Some(1), "a long text that is cut")])).unwrap();
    live.complete(1).unwrap();
    assert_eq!(live.lines(Size { columns: 10, rows: 24 }, &Progress::default())[2], " 1 | a lo…");
}

#[test]
fn rows_are_as_if_counted_one_by_one() {
    let mut live = Live::new(&schema());
    let mut counts = std::collections::BTreeMap::<i64, i64>::new();
    let mut seed = 7_u64;
    for epoch in 1..200 {
        let mut rows = Vec::new();
        for _ in 0..5 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (seed >> 33) as i64 % 6;
            let count = counts.entry(key).or_default();
            let op = if *count > 0 && (seed >> 60).is_multiple_of(2) { "-" } else { "+" };
            *count += if op == "+" { 1 } else { -1 };
            rows.push((op, Some(key), "x"));
        }
        live.add(&changes(epoch, &rows)).unwrap();
        live.complete(epoch as u64).unwrap();
        assert_eq!(live.rows.count(), counts.values().sum::<i64>() as u64);
    }
    let listed: Vec<i64> = live.rows.iter().map(|row| row[0].parse().unwrap()).collect();
    let expected: Vec<i64> = counts.iter().flat_map(|(key, count)| vec![*key; *count as usize]).collect();
    assert_eq!(listed, expected);
}
