use std::collections::BTreeSet;

use arrow::array::{AsArray, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
use proptest::prelude::*;
use thetis_planner::expr::ScalarExpr;
use thetis_planner::physical::{AggregateCall, AggregateFunction};

use super::*;

/// Finite floats are quarters, so that the naive sum is exact.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Float {
    Quarters(i64),
    Special(f64),
}

impl Float {
    fn value(self) -> f64 {
        match self {
            Self::Quarters(quarters) => quarters as f64 / 4.0,
            Self::Special(value) => value,
        }
    }
}

/// Key, integer, float.
type Row = (Option<i64>, Option<i64>, Option<Float>);

/// An insert of some equal rows, or a delete of a row that is there.
#[derive(Debug, Clone)]
struct Change {
    row: Row,
    copies: i64,
    delete: Option<prop::sample::Index>,
}

fn changes() -> impl Strategy<Value = Vec<Vec<Change>>> {
    let float = prop_oneof![
        8 => (-12_i64..12).prop_map(Float::Quarters),
        // So large that the small ones are rounded away.
        1 => prop_oneof![Just(1_i64 << 61), Just(-(1_i64 << 61))].prop_map(Float::Quarters),
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY)].prop_map(Float::Special),
    ];
    let row = (
        prop::option::weighted(0.9, 0_i64..3),
        prop::option::weighted(0.8, -4_i64..5),
        prop::option::weighted(0.8, float),
    );
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
                    (0..copies).for_each(|_| live.push(change.row));
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
    [
        (Count, None, false, &int),
        (Count, Some(1), false, &int),
        (Sum, Some(1), false, &int),
        (Min, Some(1), false, &int),
        (Max, Some(1), false, &int),
        (Count, Some(1), true, &int),
        (Sum, Some(1), true, &int),
        (Avg, Some(1), false, &float),
        (Sum, Some(2), false, &float),
        (Avg, Some(2), false, &float),
        (Min, Some(2), false, &float),
        (Max, Some(2), false, &float),
    ]
    .map(|(function, column, distinct, output)| AggregateCall {
        function,
        argument: column.map(ScalarExpr::Column),
        distinct,
        filter: None,
        output: output.clone(),
    })
    .into()
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
        Arc::new(rows.iter().map(|(row, _)| row.2.map(Float::value)).collect::<Float64Array>()),
    ];
    let batch = RecordBatch::try_new(Arc::clone(&operator.spec.input), columns).unwrap();
    let plain = rows.iter().all(|(_, weight)| *weight == 1);
    let weights = (!plain).then(|| rows.iter().map(|(_, weight)| *weight).collect());
    Frame { weights, ..Frame::inserts(batch, Epoch(epoch)) }
}

fn text<T: std::fmt::Debug>(value: Option<T>) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| format!("{value:?}"))
}

/// An output row as text.
fn output_row(frame: &Frame, row: usize) -> Vec<String> {
    let value = |column: &ArrayRef| match column.data_type() {
        DataType::Int64 => text(column.is_valid(row).then(|| column.as_primitive::<Int64Type>().value(row))),
        _ => text(column.is_valid(row).then(|| column.as_primitive::<Float64Type>().value(row))),
    };
    frame.batch.columns().iter().map(value).collect()
}

fn naive_sum(floats: &[Float]) -> Option<f64> {
    let special: Vec<f64> =
        floats.iter().filter_map(|f| if let Float::Special(value) = f { Some(*value) } else { None }).collect();
    let quarters = |f: &Float| if let Float::Quarters(quarters) = f { i128::from(*quarters) } else { 0 };
    let finite = floats.iter().map(quarters).sum::<i128>() as f64 / 4.0;
    let sum = if special.is_empty() { finite } else { special.iter().sum() };
    (!floats.is_empty()).then_some(sum)
}

fn naive_row(rows: &[Row]) -> Vec<String> {
    let ints: Vec<i64> = rows.iter().filter_map(|row| row.1).collect();
    let floats: Vec<Float> = rows.iter().filter_map(|row| row.2).collect();
    let values: Vec<f64> = floats.iter().map(|f| f.value()).collect();
    let distinct: BTreeSet<i64> = ints.iter().copied().collect();
    let sum = |mut values: Box<dyn Iterator<Item = i64> + '_>| {
        let first = values.next()?;
        Some(first + values.sum::<i64>())
    };
    let total = sum(Box::new(ints.iter().copied()));
    vec![
        text(Some(rows.len() as i64)),
        text(Some(ints.len() as i64)),
        text(total),
        text(ints.iter().min()),
        text(ints.iter().max()),
        text(Some(distinct.len() as i64)),
        text(sum(Box::new(distinct.iter().copied()))),
        text(total.map(|total| total as f64 / ints.len() as f64)),
        text(naive_sum(&floats)),
        text(naive_sum(&floats).map(|sum| sum / floats.len() as f64)),
        text(values.iter().copied().min_by(f64::total_cmp)),
        text(values.iter().copied().max_by(f64::total_cmp)),
    ]
}

type Result_ = BTreeMap<Vec<String>, i64>;

fn naive(rows: &[Row], grouped: bool) -> Result_ {
    if !grouped {
        return Result_::from([(naive_row(rows), 1)]);
    }
    let keys: BTreeSet<Option<i64>> = rows.iter().map(|row| row.0).collect();
    let group = |key: Option<i64>| {
        let members: Vec<Row> = rows.iter().filter(|row| row.0 == key).copied().collect();
        ([text(key)].into_iter().chain(naive_row(&members)).collect(), 1)
    };
    keys.into_iter().map(group).collect()
}

proptest! {
    /// Frames come in the order of `priorities`, whatever their epochs; an epoch is closed when
    /// its frames and those of the earlier ones are there, or together with a later one.
    #[test]
    fn changelog_follows_the_naive_result(
        changes in changes(), grouped: bool, retracts: bool, length in 1_usize..5,
        priorities in prop::collection::vec(any::<u32>(), 1..30), eager in any::<[bool; 6]>(),
    ) {
        let epochs = epochs_of(&changes, retracts);
        let mut operator = operator(grouped, retracts);
        let mut frames = Vec::new();
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
                while operator.resume(&mut out).unwrap() == Step::Full {}
            }
        }

        let mut result = Result_::new();
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
