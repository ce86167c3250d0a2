use std::cmp::Ordering;
use std::collections::BTreeSet;

use arrow::array::{AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, i256};
use proptest::prelude::*;
use thetis_planner::expr::{ScalarExpr, Unary};
use thetis_planner::physical::{AggregateCall, AggregateFunction, SortKey};

use super::accumulator::naive_variance;
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
    let large = (1_i64 << 53) as f64;
    let float = prop_oneof![
        8 => (-12_i32..12).prop_map(|quarters| f64::from(quarters) / 4.0),
        // The small ones are rounded away in a plain sum.
        1 => prop_oneof![Just(large), Just(-large), Just(-0.0)],
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

/// Positions in the input.
const KEY: u32 = 0;
const INT: u32 = 1;
const FLOAT: u32 = 2;
const BOOLEAN: u32 = 3;
const TEXT: u32 = 4;

fn call(function: AggregateFunction, arguments: &[u32], output: DataType) -> AggregateCall {
    let arguments = arguments.iter().copied().map(ScalarExpr::Column).collect();
    AggregateCall { function, arguments, distinct: false, order: Vec::new(), delimiter: None, filter: None, output }
}

fn distinct(call: AggregateCall) -> AggregateCall {
    AggregateCall { distinct: true, ..call }
}

fn with_float(call: AggregateCall) -> AggregateCall {
    let filter = ScalarExpr::Unary(Unary::IsNotNull, Box::new(ScalarExpr::Column(FLOAT)));
    AggregateCall { filter: Some(filter), ..call }
}

fn joined(order: Option<u32>, delimiter: &str) -> AggregateCall {
    let key = |column| SortKey { expr: ScalarExpr::Column(column), descending: true, nulls_first: false };
    let order = order.into_iter().map(key).collect();
    let call = call(AggregateFunction::StringAgg, &[TEXT], DataType::LargeUtf8);
    AggregateCall { order, delimiter: Some(delimiter.to_owned()), ..call }
}

/// The calls, in the order in which [`naive_row`] has their results.
fn calls() -> Vec<AggregateCall> {
    use AggregateFunction as F;
    let int = |function| call(function, &[INT], DataType::Int64);
    let double = |function, column| call(function, &[column], DataType::Float64);
    vec![
        call(F::Count, &[], DataType::Int64),
        int(F::Count),
        int(F::Sum),
        int(F::Min),
        int(F::Max),
        distinct(int(F::Count)),
        distinct(int(F::Sum)),
        double(F::Avg, INT),
        double(F::Sum, FLOAT),
        double(F::Avg, FLOAT),
        double(F::Min, FLOAT),
        double(F::Max, FLOAT),
        distinct(call(F::Count, &[INT, FLOAT], DataType::Int64)),
        double(F::VarSamp, INT),
        double(F::StddevPop, FLOAT),
        with_float(double(F::StddevSamp, INT)),
        distinct(double(F::VarPop, INT)),
        call(F::BoolAnd, &[BOOLEAN], DataType::Boolean),
        with_float(call(F::BoolOr, &[BOOLEAN], DataType::Boolean)),
        joined(None, ", "),
        joined(Some(FLOAT), ""),
        with_float(distinct(joined(Some(TEXT), ";"))),
    ]
}

fn operator(grouped: bool, retracts: bool) -> Aggregation {
    let field = |name: &str, data_type: &DataType| Field::new(name, data_type.clone(), true);
    let types = [DataType::Int64, DataType::Int64, DataType::Float64, DataType::Boolean, DataType::Utf8];
    let input = Arc::new(Schema::new(types.iter().map(|data_type| field("c", data_type)).collect::<Vec<_>>()));
    let mut output: Vec<Field> = grouped.then(|| field("k", &DataType::Int64)).into_iter().collect();
    output.extend(calls().iter().map(|call| field("a", &call.output)));
    let groups = if grouped { vec![ScalarExpr::Column(KEY)] } else { Vec::new() };
    let spec =
        Aggregate { input, groups, aggregates: calls(), input_retracts: retracts, phase: Phase::Whole, at_end: false };
    Aggregation::new(Arc::new(spec), Arc::new(Schema::new(output))).unwrap()
}

fn boolean(row: &Row) -> Option<bool> {
    row.1.map(|value| value > 0)
}

fn name(row: &Row) -> Option<String> {
    row.1.map(|value| "é'".repeat(value.unsigned_abs() as usize))
}

fn frame(rows: &[(Row, i64)], epoch: u64, operator: &Aggregation) -> Frame {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|(row, _)| row.0).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|(row, _)| row.1).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|(row, _)| row.2).collect::<Float64Array>()),
        Arc::new(rows.iter().map(|(row, _)| boolean(row)).collect::<BooleanArray>()),
        Arc::new(rows.iter().map(|(row, _)| name(row)).collect::<StringArray>()),
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
        DataType::Boolean => text(column.is_valid(row).then(|| column.as_boolean().value(row))),
        DataType::LargeUtf8 => text(column.is_valid(row).then(|| column.as_string::<i64>().value(row))),
        _ => text(column.is_valid(row).then(|| column.as_primitive::<Float64Type>().value(row))),
    };
    frame.batch.columns().iter().map(value).collect()
}

fn naive_row(rows: &[Row]) -> Vec<String> {
    let ints: Vec<i64> = rows.iter().filter_map(|row| row.1).collect();
    let floats: Vec<f64> = rows.iter().filter_map(|row| row.2).map(|float| float + 0.0).collect();
    let with_float: Vec<Row> = rows.iter().filter(|row| row.2.is_some()).copied().collect();
    let distinct: BTreeSet<i64> = ints.iter().copied().collect();
    let total = ints.iter().copied().reduce(|a, b| a + b);
    let exact = floats.iter().map(|f| (f * 4.0) as i128).fold(0, i128::saturating_add) as f64 / 4.0;
    let plain: f64 = floats.iter().sum();
    let sum = (!floats.is_empty()).then_some(if plain.is_finite() { exact } else { plain });
    let pairs: BTreeSet<_> = with_float.iter().filter_map(|row| Some((row.1?, (row.2? + 0.0).to_bits()))).collect();
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
        pairs.len().to_string(),
        text(variance(AggregateFunction::VarSamp, rows)),
        text(if plain.is_finite() || floats.is_empty() {
            let quarters: Vec<i256> = floats.iter().map(|f| i256::from_i128((f * 4.0) as i128)).collect();
            naive_variance(AggregateFunction::StddevPop, &quarters, 0).map(|deviation| deviation / 4.0)
        } else {
            Some(f64::NAN)
        }),
        text(variance(AggregateFunction::StddevSamp, &with_float)),
        text({
            let ints: Vec<i256> = distinct.iter().map(|value| i256::from_i128(i128::from(*value))).collect();
            naive_variance(AggregateFunction::VarPop, &ints, 0)
        }),
        text(rows.iter().filter_map(boolean).reduce(|a, b| a && b)),
        text(with_float.iter().filter_map(boolean).reduce(|a, b| a || b)),
        text(naive_join(rows, ", ", false)),
        text(naive_join(rows, "", true)),
        text({
            let names: BTreeSet<String> = with_float.iter().filter_map(name).collect();
            (!names.is_empty()).then(|| names.into_iter().rev().collect::<Vec<_>>().join(";"))
        }),
    ]
}

fn variance(function: AggregateFunction, rows: &[Row]) -> Option<f64> {
    let ints: Vec<i256> = rows.iter().filter_map(|row| row.1).map(|value| i256::from_i128(i128::from(value))).collect();
    naive_variance(function, &ints, 0)
}

/// The names, or ordered by the float, the greatest first and NULL last.
fn naive_join(rows: &[Row], delimiter: &str, by_float: bool) -> Option<String> {
    let mut rows: Vec<(Option<f64>, String)> = rows.iter().filter_map(|row| Some((row.2, name(row)?))).collect();
    rows.sort_by(|(a, one), (b, other)| {
        let order = match (a, b) {
            _ if !by_float => Ordering::Equal,
            (Some(a), Some(b)) => (b + 0.0).total_cmp(&(a + 0.0)),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        order.then_with(|| one.cmp(other))
    });
    (!rows.is_empty()).then(|| rows.into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(delimiter))
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

#[test]
fn a_string_that_is_too_long_is_an_error() {
    let mut operator = operator(false, true);
    let row = (Some(1), Some(4), None);
    let mut rows = vec![(row, 1 << 40)];
    operator.on_frame(0, frame(&rows, 1, &operator)).unwrap();
    operator.on_progress(Epoch(1)).unwrap();
    let error = operator.resume(&mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("STRING_AGG"), "{error}");
    rows[0].1 = 3;
    let mut out = Vec::new();
    let mut operator = self::operator(false, true);
    operator.on_frame(0, frame(&rows, 1, &operator)).unwrap();
    operator.on_progress(Epoch(1)).unwrap();
    operator.resume(&mut out).unwrap();
    assert!(output_row(&out[0], 0).contains(&format!("{:?}", ["é'é'é'é'"; 3].join(", "))));
}
