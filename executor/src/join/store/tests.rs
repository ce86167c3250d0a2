use std::collections::BTreeMap;

use arrow::array::{AsArray, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    value: Option<i64>,
    text: String,
    epoch: u64,
    weight: i64,
    bucket: u32,
    slice: u16,
}

/// Rows of one epoch.
#[derive(Debug, Clone)]
struct Part {
    rows: Vec<Row>,
    weighted: bool,
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let weight = prop_oneof![4 => Just(1_i64), 3 => Just(-1_i64), 1 => Just(2_i64), 1 => Just(-2_i64)];
    let row = (prop::option::weighted(0.9, 0_i64..4), 0_u8..2, weight, 0_u32..2, 0_u16..2);
    // Long frames repeat their rows, so that there are several chunks.
    let length = prop_oneof![4 => 1_usize..12, 2 => 900_usize..1300, 1 => 4000_usize..=FRAME_ROWS];
    let part = (prop::collection::vec(row, 1..12), 1_u64..6, any::<bool>(), length);
    let part = part.prop_map(|(rows, epoch, weighted, length)| {
        let row = |(value, text, weight, bucket, slice): &(Option<i64>, u8, i64, u32, u16)| Row {
            value: *value,
            text: format!("text {text}"),
            epoch,
            weight: if weighted { *weight } else { 1 },
            bucket: *bucket,
            slice: *slice,
        };
        Part { rows: rows.iter().cycle().take(length).map(row).collect(), weighted }
    });
    prop::collection::vec(part, 0..9)
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true), Field::new("t", DataType::Utf8, true)]))
}

fn frame(part: &Part) -> Frame {
    let values: ArrayRef = Arc::new(part.rows.iter().map(|row| row.value).collect::<Int64Array>());
    let texts: ArrayRef = Arc::new(part.rows.iter().map(|row| Some(row.text.as_str())).collect::<StringArray>());
    let batch = RecordBatch::try_new(schema(), vec![values, texts]).unwrap();
    Frame {
        weights: part.weighted.then(|| part.rows.iter().map(|row| row.weight).collect()),
        units: Some(Units {
            buckets: part.rows.iter().map(|row| row.bucket).collect(),
            slices: part.rows.iter().map(|row| row.slice).collect(),
        }),
        ..Frame::inserts(batch, Epoch(part.rows[0].epoch))
    }
}

/// A store of these parts and its rows in order.
fn filled(parts: &[Part], retracts: bool) -> (Store, Vec<Row>) {
    let mut store = Store::new(schema(), retracts, true);
    let mut rows = Vec::new();
    for part in parts {
        assert_eq!(store.append(&frame(part)).unwrap() as usize, rows.len());
        rows.extend(part.rows.iter().cloned());
    }
    (store, rows)
}

fn values_of(store: &Store, rows: &[u32]) -> Vec<(Option<i64>, String)> {
    if rows.is_empty() {
        return Vec::new();
    }
    let values = store.gather(0, rows).unwrap();
    let texts = store.gather(1, rows).unwrap();
    let texts = texts.as_string::<i32>().iter().map(|text| text.unwrap().to_owned());
    values.as_primitive::<Int64Type>().iter().zip(texts).collect()
}

/// All rows, and that the chunks agree with them.
fn rows_of(store: &Store) -> Vec<Row> {
    let mut start = 0;
    for (number, chunk) in store.chunks().iter().enumerate() {
        assert_eq!(store.chunk_start(number), start);
        assert!(chunk.num_rows() > 0);
        start += chunk.num_rows() as u32;
    }
    assert_eq!(store.len(), start as usize);
    assert_eq!(store.is_empty(), start == 0);
    let numbers: Vec<u32> = (0..start).collect();
    let values = values_of(store, &numbers);
    let rows: Vec<Row> = numbers
        .iter()
        .zip(values)
        .map(|(row, (value, text))| Row {
            value,
            text,
            epoch: store.epoch(*row).0,
            weight: store.weight(*row),
            bucket: store.bucket(*row),
            slice: store.slices[*row as usize],
        })
        .collect();
    assert_eq!(store.latest_epoch().0, rows.iter().map(|row| row.epoch).max().unwrap_or(0));
    rows
}

type Consolidated = BTreeMap<(Option<i64>, String, u32, u16), i64>;

fn consolidated<'a>(rows: impl Iterator<Item = &'a Row>) -> Consolidated {
    let mut sums = Consolidated::new();
    for row in rows {
        *sums.entry((row.value, row.text.clone(), row.bucket, row.slice)).or_default() += row.weight;
    }
    sums.retain(|_, weight| *weight != 0);
    sums
}

fn after(rows: &[Row], epoch: u64) -> Vec<Row> {
    rows.iter().filter(|row| row.epoch > epoch).cloned().collect()
}

fn until(rows: &[Row], epoch: u64) -> Vec<Row> {
    rows.iter().filter(|row| row.epoch <= epoch).cloned().collect()
}

fn insert_only(mut parts: Vec<Part>) -> Vec<Part> {
    for part in &mut parts {
        part.weighted = false;
        part.rows.iter_mut().for_each(|row| row.weight = 1);
    }
    parts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn gather_finds_rows_in_all_chunks(
        parts in parts(), picks in prop::collection::vec(any::<prop::sample::Index>(), 1..60),
    ) {
        let (store, rows) = filled(&parts, true);
        prop_assert_eq!(&rows_of(&store), &rows);
        if !rows.is_empty() {
            let picks: Vec<u32> = picks.iter().map(|pick| pick.index(rows.len()) as u32).collect();
            let expected: Vec<_> = picks.iter().map(|row| &rows[*row as usize]).collect();
            let expected: Vec<_> = expected.into_iter().map(|row| (row.value, row.text.clone())).collect();
            prop_assert_eq!(values_of(&store, &picks), expected);
        }
    }

    #[test]
    fn roll_back_forgets_later_epochs(parts in parts(), epoch in 0_u64..7, retracts: bool) {
        let parts = if retracts { parts } else { insert_only(parts) };
        let (mut store, rows) = filled(&parts, retracts);
        store.roll_back(Epoch(epoch)).unwrap();
        let kept = until(&rows, epoch);
        prop_assert_eq!(&rows_of(&store), &kept);
        // It can be filled again.
        for part in parts.iter().filter(|part| part.rows[0].epoch > epoch) {
            store.append(&frame(part)).unwrap();
        }
        let again: Vec<Row> = kept.into_iter().chain(after(&rows, epoch)).collect();
        prop_assert_eq!(rows_of(&store), again);
    }

    #[test]
    fn fold_sums_what_is_committed(parts in parts(), epoch in 0_u64..7, next in 0_u64..3) {
        let (mut store, rows) = filled(&parts, true);
        let mut committed = epoch;
        for _ in 0..2 {
            store.fold(Epoch(committed)).unwrap();
            let folded = rows_of(&store);
            prop_assert_eq!(after(&folded, committed), after(&rows, committed));
            let base = until(&folded, committed);
            let expected = consolidated(until(&rows, committed).iter());
            prop_assert_eq!(base.len(), expected.len(), "a row of the base is there once");
            prop_assert_eq!(consolidated(base.iter()), expected);
            committed += next;
        }
        committed -= next;
        store.roll_back(Epoch(committed)).unwrap();
        let expected = consolidated(until(&rows, committed).iter());
        prop_assert_eq!(consolidated(rows_of(&store).iter()), expected);
    }
}
