use std::collections::BTreeSet;

use arrow::array::{AsArray, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
use proptest::prelude::*;
use thetis_planner::expr::ScalarExpr;
use thetis_planner::physical::{AggregateCall, AggregateFunction};

use super::*;

/// Key, integer, float. Finite floats are quarters, so that the naive sum is exact.
type Row = (Option<i64>, Option<i64>, Option<f64>);

/// An insert of some equal rows, or a delete of a row that is there.
#[derive(Debug, Clone)]
struct Change {
    row: Row,
    copies: i64,
    delete: Option<prop::sample::Index>,
}

fn changes() -> impl Strategy<Value = Vec<Vec<Change>>> {
    let large = (1_i64 << 59) as f64;
    let float = prop_oneof![
        8 => (-12_i32..12).prop_map(|quarters| f64::from(quarters) / 4.0),
        // The small ones are rounded away in a plain sum.
        1 => prop_oneof![Just(large), Just(-large)],
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY)],
    ];
    let integer = prop::option::weighted(0.8, -4_i64..5);
    let row = (prop::option::weighted(0.9, 0_i64..3), integer, prop::option::weighted(0.8, float));
    let delete = prop::option::weighted(0.45, any::<prop::sample::Index>());
    let change = (row, 1_i64..3, delete).prop_map(|(row, copies, delete)| Change { row, copies, delete });
    prop::collection::vec(prop::collection::vec(change, 0..10), 1..6)
}

/// Weighted rows of each epoch, and the rows that are there at its end.
type Epochs = Vec<(Vec<(Row, i64)>, Vec<Row>)>;

fn epochs_of(changes: &[Vec<Change>], retracts: bool) -> Epochs {
    let mut live: Vec<Row> = Vec::new();
    let mut epochs = Epochs::new();
    for changes in changes {
        let mut rows = Vec::new();
        for change in changes {
            match change.delete {
                Some(pick) if retracts && !live.is_empty() => {
                    rows.push((live.swap_remove(pick.index(live.len())), -1));
                }
                _ => {
                    let copies = if retracts { change.copies } else { 1 };
                    live.extend((0..copies).map(|_| change.row));
                    rows.push((change.row, copies));
                }
            }
        }
        epochs.push((rows, live.clone()));
    }
    epochs
}

fn calls() -> Vec<AggregateCall> {
    use AggregateFunction::{Avg, Count, Max, Min, Sum};
    let (int, float) = (DataType::Int64, DataType::Float64);
    let of_ints = [(Count, false), (Sum, false), (Min, false), (Max, false), (Count, true), (Sum, true)];
    let of_ints = of_ints.map(|(function, distinct)| (function, Some(1), distinct, &int));
    let of_floats = [(Avg, 1), (Sum, 2), (Avg, 2), (Min, 2), (Max, 2)];
    let of_floats = of_floats.map(|(function, column)| (function, Some(column), false, &float));
    let all = [(Count, None, false, &int)].into_iter().chain(of_ints).chain(of_floats);
    all.map(|(function, column, distinct, output)| {
        let argument = column.map(ScalarExpr::Column);
        AggregateCall { function, argument, distinct, filter: None, output: output.clone() }
    })
    .collect()
}

fn operator(grouped: bool, retracts: bool) -> Aggregation {
    let field = |name: &str, data_type: &DataType| Field::new(name, data_type.clone(), true);
    let (int, float) = (DataType::Int64, DataType::Float64);
    let input = Arc::new(Schema::new(vec![field("k", &int), field("x", &int), field("f", &float)]));
    let mut output: Vec<Field> = grouped.then(|| field("k", &int)).into_iter().collect();
    output.extend(calls().iter().map(|call| field("a", &call.output)));
    let groups = if grouped { vec![ScalarExpr::Column(0)] } else { Vec::new() };
    let spec = Aggregate { input, groups, aggregates: calls(), input_retracts: retracts };
    Aggregation::new(Arc::new(spec), Arc::new(Schema::new(output))).unwrap()
}

fn frame(rows: &[(Row, i64)], epoch: u64, operator: &Aggregation) -> Frame {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|(row, _)| row.0).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|(row, _)| row.1).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|(row, _)| row.2).collect::<Float64Array>()),
    ];
    let batch = RecordBatch::try_new(Arc::clone(&operator.spec.input), columns).unwrap();
    let plain = rows.iter().all(|(_, weight)| *weight == 1);
    let weights = (!plain).then(|| rows.iter().map(|(_, weight)| *weight).collect());
    Frame { weights, ..Frame::inserts(batch, Epoch(epoch)) }
}

fn text<T: std::fmt::Debug>(value: Option<T>) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| format!("{value:?}"))
}

fn output_row(frame: &Frame, row: usize) -> Vec<String> {
    let value = |column: &ArrayRef| match column.data_type() {
        DataType::Int64 => text(column.is_valid(row).then(|| column.as_primitive::<Int64Type>().value(row))),
        _ => text(column.is_valid(row).then(|| column.as_primitive::<Float64Type>().value(row))),
    };
    frame.batch.columns().iter().map(value).collect()
}

fn naive_row(rows: &[Row]) -> Vec<String> {
    let ints: Vec<i64> = rows.iter().filter_map(|row| row.1).collect();
    let floats: Vec<f64> = rows.iter().filter_map(|row| row.2).collect();
    let distinct: BTreeSet<i64> = ints.iter().copied().collect();
    let total = ints.iter().copied().reduce(|a, b| a + b);
    let exact = floats.iter().map(|f| (f * 4.0) as i128).fold(0, i128::saturating_add) as f64 / 4.0;
    let plain: f64 = floats.iter().sum();
    let sum = (!floats.is_empty()).then_some(if plain.is_finite() { exact } else { plain });
    vec![
        rows.len().to_string(),
        ints.len().to_string(),
        text(total),
        text(distinct.first()),
        text(distinct.last()),
        distinct.len().to_string(),
        text(distinct.iter().copied().reduce(|a, b| a + b)),
        text(total.map(|total| total as f64 / ints.len() as f64)),
        text(sum),
        text(sum.map(|sum| sum / floats.len() as f64)),
        text(floats.iter().copied().min_by(f64::total_cmp)),
        text(floats.iter().copied().max_by(f64::total_cmp)),
    ]
}

type Changelog = BTreeMap<Vec<String>, i64>;

fn naive(rows: &[Row], grouped: bool) -> Changelog {
    if !grouped {
        return Changelog::from([(naive_row(rows), 1)]);
    }
    let keys: BTreeSet<Option<i64>> = rows.iter().map(|row| row.0).collect();
    let group = |key: Option<i64>| {
        let members: Vec<Row> = rows.iter().filter(|row| row.0 == key).copied().collect();
        ([text(key)].into_iter().chain(naive_row(&members)).collect::<Vec<String>>(), 1)
    };
    keys.into_iter().map(group).collect()
}

proptest! {
    /// Frames come in any order; an epoch closes when it is complete, or with a later one.
    #[test]
    fn changelog_follows_the_naive_result(
        changes in changes(), grouped: bool, retracts: bool, length in 1_usize..5,
        priorities in prop::collection::vec(any::<u32>(), 1..30), eager in any::<[bool; 6]>(),
    ) {
        let epochs = epochs_of(&changes, retracts);
        let mut operator = operator(grouped, retracts);
        let mut frames: Vec<Frame> = Vec::new();
        for (epoch, (rows, _)) in (1_u64..).zip(&epochs) {
            frames.extend(rows.chunks(length).map(|rows| frame(rows, epoch, &operator)));
        }
        let mut order: Vec<usize> = (0..frames.len()).collect();
        order.sort_by_key(|i| priorities[i % priorities.len()].wrapping_mul(1 + *i as u32));
        let mut out = Vec::new();
        let last = epochs.len() as u64;
        let mut closed = 0;
        for delivered in 0..=order.len() {
            let pending = order[delivered..].iter().map(|i| frames[*i].epoch.0).min().unwrap_or(last + 1);
            while closed + 1 < pending {
                closed += 1;
                if closed == last || eager[closed as usize] {
                    operator.on_progress(Epoch(closed)).unwrap();
                    while operator.resume(&mut out).unwrap() == Step::Full {}
                    prop_assert!(out.iter().all(|frame| frame.epoch.0 <= closed));
                }
            }
            if let Some(i) = order.get(delivered) {
                operator.on_frame(0, frames[*i].clone()).unwrap();
                prop_assert_eq!(operator.resume(&mut out).unwrap(), Step::Idle);
            }
        }

        let mut result = Changelog::new();
        let mut emitted = out.iter().peekable();
        for (epoch, (_, live)) in (1_u64..).zip(&epochs) {
            while let Some(frame) = emitted.next_if(|frame| frame.epoch.0 == epoch) {
                for row in 0..frame.rows() {
                    let count = result.entry(output_row(frame, row)).or_default();
                    *count += frame.weight(row);
                    prop_assert!(*count >= 0, "a delete of what is not there");
                }
            }
            result.retain(|_, count| *count != 0);
            prop_assert_eq!(&result, &naive(live, grouped), "after epoch {}", epoch);
        }
        prop_assert!(emitted.next().is_none());
    }
}
