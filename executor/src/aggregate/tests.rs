use std::collections::BTreeMap;

use arrow::array::{Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::display::array_value_to_string;
use proptest::prelude::*;
use thetis_planner::expr::ScalarExpr;
use thetis_planner::physical::{AggregateCall, AggregateFunction};

use super::*;

/// Group, whole number, float.
type Row = (i64, Option<i64>, f64);
/// Epoch, insert, row.
type Change = (u64, bool, Row);

fn input() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("g", DataType::Int64, true),
        Field::new("x", DataType::Int64, true),
        Field::new("f", DataType::Float64, true),
    ]))
}

fn operator(grouped: bool) -> Aggregation {
    use AggregateFunction::{Avg, Count, Max, Min, Sum};
    let call = |function, argument: Option<u32>, distinct, output: &DataType| AggregateCall {
        function,
        argument: argument.map(ScalarExpr::Column),
        distinct,
        filter: None,
        output: output.clone(),
    };
    let (int, float) = (&DataType::Int64, &DataType::Float64);
    let aggregates = vec![
        call(Count, None, false, int),
        call(Count, Some(1), false, int),
        call(Sum, Some(1), false, int),
        call(Min, Some(1), false, int),
        call(Max, Some(1), false, int),
        call(Count, Some(1), true, int),
        call(Sum, Some(1), true, int),
        call(Sum, Some(2), false, float),
        call(Avg, Some(2), false, float),
    ];
    let mut fields = if grouped { vec![Field::new("g", DataType::Int64, true)] } else { Vec::new() };
    fields
        .extend(aggregates.iter().enumerate().map(|(i, call)| Field::new(format!("a{i}"), call.output.clone(), true)));
    let groups = if grouped { vec![ScalarExpr::Column(0)] } else { Vec::new() };
    let spec = Aggregate { input: input(), groups, aggregates, input_retracts: true };
    Aggregation::new(Arc::new(spec), Arc::new(Schema::new(fields))).unwrap()
}

fn frame(epoch: u64, changes: &[&Change]) -> Frame {
    let batch = RecordBatch::try_new(
        input(),
        vec![
            Arc::new(Int64Array::from_iter_values(changes.iter().map(|change| change.2.0))),
            Arc::new(changes.iter().map(|change| change.2.1).collect::<Int64Array>()),
            Arc::new(Float64Array::from_iter_values(changes.iter().map(|change| change.2.2))),
        ],
    );
    let mut frame = Frame::inserts(batch.unwrap(), Epoch(epoch));
    frame.weights = Some(changes.iter().map(|change| if change.1 { 1 } else { -1 }).collect());
    frame
}

/// The answer in the plainest way.
fn naive(rows: &[Row], grouped: bool) -> Vec<String> {
    let mut groups: BTreeMap<i64, Vec<&Row>> = BTreeMap::new();
    if !grouped {
        groups.insert(0, Vec::new());
    }
    rows.iter().for_each(|row| groups.entry(if grouped { row.0 } else { 0 }).or_default().push(row));
    let show = |value: Option<i64>| value.map_or_else(String::new, |value| value.to_string());
    let mut lines: Vec<String> = groups
        .iter()
        .map(|(group, rows)| {
            let values: Vec<i64> = rows.iter().filter_map(|row| row.1).collect();
            let distinct: std::collections::BTreeSet<i64> = values.iter().copied().collect();
            let some = |sum: i64| (!values.is_empty()).then_some(sum);
            let sum: f64 = rows.iter().map(|row| row.2).sum();
            let float = |value: f64| if rows.is_empty() { String::new() } else { rounded(value) };
            let mut cells = if grouped { vec![group.to_string()] } else { Vec::new() };
            cells.extend([
                rows.len().to_string(),
                values.len().to_string(),
                show(some(values.iter().sum())),
                show(values.iter().copied().min()),
                show(values.iter().copied().max()),
                distinct.len().to_string(),
                show(some(distinct.iter().sum())),
                float(sum),
                float(sum / rows.len() as f64),
            ]);
            cells.join(",")
        })
        .collect();
    lines.sort();
    lines
}

fn rounded(value: f64) -> String {
    if value.is_nan() { "NaN".to_owned() } else { format!("{:.6}", value + 0.0).replace("-0.000000", "0.000000") }
}

fn lines(frame: &Frame) -> Vec<(String, i64)> {
    let cell = |column: &ArrayRef, row: usize| {
        let text = array_value_to_string(column, row).unwrap();
        if column.data_type() == &DataType::Float64 && !text.is_empty() { rounded(text.parse().unwrap()) } else { text }
    };
    let line = |row| frame.batch.columns().iter().map(|column| cell(column, row)).collect::<Vec<_>>().join(",");
    (0..frame.rows()).map(|row| (line(row), frame.weight(row))).collect()
}

/// Changes that never delete what is not there, with shuffled arrival of the epochs' frames.
fn changes() -> impl Strategy<Value = Vec<Change>> {
    let float = prop_oneof![6 => (-16_i32..16).prop_map(|quarters| f64::from(quarters) * 0.25), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => Just(f64::NEG_INFINITY), 1 => Just(1e9)];
    let row = (0_i64..3, prop::option::weighted(0.8, -3_i64..3), float);
    prop::collection::vec((1_u64..6, row, any::<prop::sample::Index>(), 0..3), 0..50).prop_map(|steps| {
        let mut steps = steps;
        steps.sort_by_key(|step| step.0);
        let mut live: Vec<Row> = Vec::new();
        let mut changes = Vec::new();
        for (epoch, row, index, kind) in steps {
            if kind == 0 && !live.is_empty() {
                changes.push((epoch, false, live.swap_remove(index.index(live.len()))));
            } else {
                live.push(row);
                changes.push((epoch, true, row));
            }
        }
        changes
    })
}

proptest! {
    #[test]
    fn every_epoch_is_the_naive_answer(changes in changes(), grouped: bool, ahead in 1_u64..4) {
        let mut operator = operator(grouped);
        let mut accumulated: BTreeMap<String, i64> = BTreeMap::new();
        let mut sent = 0;
        for epoch in 1..=6 {
            // Frames of later epochs come before this one closes, the latest first.
            for early in (sent + 1..=epoch + ahead).rev() {
                let of_epoch: Vec<&Change> = changes.iter().filter(|change| change.0 == early).collect();
                for part in of_epoch.chunks(3) {
                    operator.on_frame(0, frame(early, part)).unwrap();
                    prop_assert_eq!(operator.resume(&mut Vec::new()).unwrap(), Step::Idle);
                }
            }
            sent = sent.max(epoch + ahead);
            operator.on_progress(Epoch(epoch)).unwrap();
            let mut out = Vec::new();
            while operator.resume(&mut out).unwrap() == Step::Full {}
            for (line, weight) in out.iter().inspect(|frame| assert_eq!(frame.epoch, Epoch(epoch))).flat_map(lines) {
                *accumulated.entry(line).or_insert(0) += weight;
            }
            accumulated.retain(|_, weight| *weight != 0);
            let mut rows: Vec<Row> = Vec::new();
            for (_, insert, row) in changes.iter().filter(|change| change.0 <= epoch) {
                if *insert {
                    rows.push(*row);
                } else {
                    let same = |other: &Row| other.0 == row.0 && other.1 == row.1 && other.2.to_bits() == row.2.to_bits();
                    rows.swap_remove(rows.iter().position(same).unwrap());
                }
            }
            prop_assert!(accumulated.values().all(|weight| *weight == 1));
            prop_assert_eq!(accumulated.keys().cloned().collect::<Vec<_>>(), naive(&rows, grouped), "epoch {}", epoch);
        }
    }
}

#[test]
fn a_delete_takes_away_what_its_insert_added() {
    let mut operator = operator(false);
    let changes: [Change; 4] = [
        (1, true, (0, None, 1.25)),
        (1, true, (0, None, 1e17)),
        (1, true, (0, None, f64::NAN)),
        (1, true, (0, None, -1e17)),
    ];
    let deletes: [Change; 2] = [(2, false, (0, None, 1e17)), (2, false, (0, None, f64::NAN))];
    let more: [Change; 1] = [(2, false, (0, None, -1e17))];
    for (epoch, part) in [(1, &changes[..]), (2, &deletes[..]), (2, &more[..])] {
        operator.on_frame(0, frame(epoch, &part.iter().collect::<Vec<_>>())).unwrap();
    }
    operator.on_progress(Epoch::END).unwrap();
    let mut out = Vec::new();
    while operator.resume(&mut out).unwrap() == Step::Full {}
    let last = out.iter().flat_map(lines).rfind(|(_, weight)| *weight > 0).unwrap().0;
    assert_eq!(last, "1,0,,,,0,,1.250000,1.250000");
}
