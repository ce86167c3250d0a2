//! Aggregates that a cell folds or computes from its pairs, against all pairs: random rows with
//! deletes, epochs out of order, NULLs, and values at which the fold must give up.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Decimal256Type, Field, Int64Type, Schema};
use proptest::prelude::*;
use thetis::Driver;
use thetis_executor::frame::{Epoch, Frame, Units};
use thetis_executor::operator::{Operator, Step};
use thetis_executor::query::operator_for;
use thetis_parser::{Statement, ast, parse_statement};
use thetis_planner::catalog::{Conflict, Relation, Sample, Stream, Volume};
use thetis_planner::connector::SourceSpec;
use thetis_planner::physical::{OperatorId, OperatorKind};
use thetis_planner::{Catalog, Output, Settings, plan};
use thetis_tests::{Value, block_on, query, run_all};

/// A whole key and a float.
type Key = (i64, f64);

/// Key, value, weight.
type Row = (Option<Key>, Option<i64>, i64);

#[derive(Debug, Clone)]
struct Part {
    port: u8,
    epoch: u64,
    rows: Vec<Row>,
}

/// A condition, the same for two keys, and whether it is folded.
type Condition = (&'static str, fn(Key, Key) -> bool, bool);

const CONDITIONS: [Condition; 13] = [
    ("l.k = r.k", |l, r| l.0 == r.0, true),
    ("l.k BETWEEN r.k - 2 AND r.k + 3", |l, r| (-2..=3).contains(&(l.0 - r.0)), true),
    ("l.k < r.k", |l, r| l.0 < r.0, true),
    ("r.k + 1 <= l.k", |l, r| r.0 < l.0, true),
    ("l.k - r.k >= 3 AND l.k - r.k <= -3", |_, _| false, true),
    ("l.k >= r.k - 9000000000 AND l.k <= r.k + 9000000000", |_, _| true, true),
    ("l.k BETWEEN r.k - 2 AND r.k + 3 AND (l.k - r.k) % 2 = 0", |l, r| [-2, 0, 2].contains(&(l.0 - r.0)), false),
    ("l.k <> r.k", |l, r| l.0 != r.0, false),
    ("l.x BETWEEN r.x - 0.2 AND r.x + 0.3", |l, r| at_most(r.1 - 0.2, l.1) && at_most(l.1, r.1 + 0.3), true),
    ("l.x - r.x <= 0.1 AND l.x + 0.1 >= r.x", |l, r| at_most(l.1 - r.1, 0.1) && at_most(r.1, l.1 + 0.1), true),
    ("l.x > r.x", |l, r| !at_most(l.1, r.1), true),
    ("r.x <= l.x", |l, r| at_most(r.1, l.1), true),
    (
        "l.x - r.x <= r.k + 0.1 AND l.x - r.x >= r.k - 0.3",
        |l, r| at_most(l.1 - r.1, r.0 as f64 + 0.1) && at_most(r.0 as f64 - 0.3, l.1 - r.1),
        true,
    ),
];

/// The order of floats in SQL: zeros are equal, NaN is greater than all, whatever its sign.
fn at_most(a: f64, b: f64) -> bool {
    let [a, b] = [a, b].map(|value| if value.is_nan() { f64::NAN } else { value });
    a == b || a.total_cmp(&b).is_le()
}

/// Too large to be summed without a look.
const LARGE: i64 = 4_000_000_000_000_000_000;

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let float = prop_oneof![
        20 => (-6_i32..6).prop_map(|n| f64::from(n) * 0.1),
        10 => (-6_i32..6).prop_map(|n| f64::from(n) / 10.0),
        3 => Just(-0.0),
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, f64::MIN_POSITIVE]),
    ];
    let key = prop::option::weighted(0.9, (-6_i64..6, float));
    let value = prop_oneof![8 => (-50_i64..50).prop_map(Some), 1 => Just(None), 1 => Just(Some(LARGE))];
    let weight = prop_oneof![4 => Just(1_i64), 2 => Just(-1_i64), 1 => Just(3_i64)];
    let rows = prop::collection::vec((key, value, weight), 1..12);
    let part = (0_u8..2, 1_u64..5, rows).prop_map(|(port, epoch, mut rows)| {
        if port == 1 {
            // Two large ones would not fit into a sum.
            rows.iter_mut().for_each(|row| row.1 = row.1.filter(|value| *value != LARGE));
        }
        Part { port, epoch, rows }
    });
    prop::collection::vec(part, 0..12)
}

fn catalog() -> Catalog {
    let columns = [("k", DataType::Int64), ("v", DataType::Int64), ("x", DataType::Float64)];
    let columns = columns.map(|(name, data_type)| Field::new(name, data_type, true));
    let columns = Arc::new(Schema::new(columns.to_vec()));
    let mut catalog = Catalog::default();
    for name in ["l", "r"] {
        let (spec, columns) = (SourceSpec::Values(Vec::new()), Arc::clone(&columns));
        let stream = Stream {
            name: name.to_owned(),
            columns,
            watermark: None,
            spec,
            volume: Volume::default(),
            sample: Sample::default(),
        };
        catalog.add(&ast::Ident::new(name), Relation::Stream(Arc::new(stream)), Conflict::Fail).unwrap();
    }
    catalog
}

/// The cell of a query whose inputs can have deletes.
fn cell(condition: Condition, grouped: bool) -> (Box<dyn Operator>, [Vec<String>; 2]) {
    let (group, by) = if grouped { ("l.k, ", " GROUP BY l.k") } else { ("", "") };
    let calls = "COUNT(*), COUNT(l.v), SUM(l.v + r.v), AVG(r.v - l.v), SUM(r.v)";
    let sql = format!("SELECT {group}{calls} FROM l JOIN r ON {}{by}", condition.0);
    // Groups of one side are folded in every epoch only when they are the key of an equality.
    let folds = condition.2 && (!grouped || condition.0.contains(" = r.k"));
    cell_of(&sql, Output::Changes, folds, !over_floats(condition))
}

/// The cell of the join of a query, and the columns that it reads of both sides.
fn cell_of(sql: &str, output: Output, folds: bool, retracts: bool) -> (Box<dyn Operator>, [Vec<String>; 2]) {
    let Statement::Query(query) = parse_statement(sql).unwrap() else { panic!("not a query: {sql}") };
    let mut dag = plan(&query, &catalog(), &Settings::new(1), output).unwrap().dag;
    let is_join = |kind: &OperatorKind| matches!(kind, OperatorKind::Join(_));
    let position = dag.operators.iter().position(|operator| is_join(&operator.kind)).unwrap();
    let OperatorKind::Join(join) = &mut dag.operators[position].kind else { unreachable!() };
    join.retracts = [retracts; 2];
    assert_eq!(join.aggregate.as_ref().unwrap().fold.is_some(), folds, "{sql}");
    let names = join.inputs.each_ref().map(|input| input.fields().iter().map(|field| field.name().clone()).collect());
    (operator_for(&dag, OperatorId(position as u32)).unwrap(), names)
}

/// Folds over floats take no deletes.
fn over_floats(condition: Condition) -> bool {
    condition.0.contains(".x")
}

fn frame(part: &Part, columns: &[String]) -> Frame {
    let keys: ArrayRef = Arc::new(part.rows.iter().map(|row| Some(row.0?.0)).collect::<Int64Array>());
    let floats: ArrayRef = Arc::new(part.rows.iter().map(|row| Some(row.0?.1)).collect::<Float64Array>());
    let values: ArrayRef = Arc::new(part.rows.iter().map(|row| row.1).collect::<Int64Array>());
    let all = [("k", keys), ("v", values), ("x", floats)];
    // Only what the query reads.
    let read = all.into_iter().filter(|(name, _)| columns.iter().any(|column| column == name));
    let batch = RecordBatch::try_from_iter(read).unwrap();
    let zeros = part.rows.len();
    let units = Units { buckets: vec![0; zeros].into(), slices: vec![0; zeros].into() };
    let weights = Some(part.rows.iter().map(|row| row.2).collect());
    Frame { weights, units: Some(units), ..Frame::inserts(batch, Epoch(part.epoch)) }
}

/// Of an epoch and group: pairs, pairs with a left value, and sum and count of the three others.
type Totals = BTreeMap<(u64, Option<i64>), [i128; 8]>;

fn emitted(frames: &[Frame], grouped: bool) -> Totals {
    let mut totals = Totals::new();
    for frame in frames {
        let mut columns = frame.batch.columns().iter();
        let groups = grouped.then(|| columns.next().unwrap().as_primitive::<Int64Type>().clone());
        let columns: Vec<&ArrayRef> = columns.collect();
        for row in 0..frame.rows() {
            let value = |column: &&ArrayRef| match column.data_type() {
                DataType::Int64 => i128::from(column.as_primitive::<Int64Type>().value(row)),
                _ => column.as_primitive::<Decimal256Type>().value(row).to_i128().unwrap(),
            };
            // The number of rows stands before the states, the first of which is COUNT(*).
            let values: Vec<i128> = columns.iter().map(value).collect();
            assert_eq!(values[0], values[1]);
            let total = totals.entry((frame.epoch.0, groups.as_ref().map(|groups| groups.value(row)))).or_default();
            total.iter_mut().zip(&values[1..]).for_each(|(total, value)| *total += value);
        }
    }
    totals.retain(|_, total| total.iter().any(|value| *value != 0));
    totals
}

fn naive(parts: &[Part], condition: Condition, grouped: bool) -> Totals {
    let rows = |port: u8| {
        let parts = parts.iter().filter(move |part| part.port == port);
        parts.flat_map(|part| part.rows.iter().map(|row| (part.epoch, *row))).collect::<Vec<_>>()
    };
    let mut totals = Totals::new();
    for (l_epoch, (l, l_value, l_weight)) in rows(0) {
        for (r_epoch, (r, r_value, r_weight)) in rows(1) {
            if !l.zip(r).is_some_and(|(l, r)| condition.1(l, r)) {
                continue;
            }
            let weight = i128::from(l_weight * r_weight);
            let [l_value, r_value] = [l_value, r_value].map(|value| value.map(i128::from));
            let sum = |value: Option<i128>| value.map_or([0, 0], |value| [value * weight, weight]);
            let both = l_value.zip(r_value);
            let sums = [both.map(|(l, r)| l + r), both.map(|(l, r)| r - l), r_value].map(sum);
            let total = totals.entry((l_epoch.max(r_epoch), grouped.then(|| l.map(|l| l.0)).flatten())).or_default();
            let counts = [weight, sum(l_value)[1]];
            total.iter_mut().zip(counts.into_iter().chain(sums.concat())).for_each(|(total, value)| *total += value);
        }
    }
    totals.retain(|_, total| total.iter().any(|value| *value != 0));
    totals
}

proptest! {
    #[test]
    fn cells_aggregate_all_pairs(
        mut parts in parts(), condition in prop::sample::select(CONDITIONS.to_vec()), grouped: bool, closes in prop::collection::vec(any::<bool>(), 12),
    ) {
        if over_floats(condition) {
            parts.iter_mut().flat_map(|part| &mut part.rows).for_each(|row| row.2 = 1);
        }
        let (mut cell, columns) = cell(condition, grouped);
        let mut out = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            cell.on_frame(part.port, frame(part, &columns[usize::from(part.port)])).unwrap();
            while cell.resume(&mut out).unwrap() == Step::Full {}
            // The epochs that nothing more comes of may close.
            let next = parts[number + 1..].iter().map(|part| part.epoch).min().unwrap_or(5);
            if closes[number] && next > 1 {
                cell.on_progress(Epoch(next - 1)).unwrap();
                while cell.resume(&mut out).unwrap() == Step::Full {}
            }
        }
        cell.on_progress(Epoch::END).unwrap();
        while cell.resume(&mut out).unwrap() == Step::Full {}
        prop_assert_eq!(emitted(&out, grouped), naive(&parts, condition, grouped), "{}", condition.0);
    }
}

/// Extremes of columns: how they are spelled, whose they are, and their value in a row.
type Extreme = (&'static str, u8, fn(&Row) -> Option<f64>);

const EXTREMES: [Extreme; 4] = [
    ("MIN(l.v)", 0, |row| row.1.map(|v| v as f64)),
    ("MAX(r.v)", 1, |row| row.1.map(|v| v as f64)),
    ("MIN(r.x)", 1, |row| row.0.map(|key| key.1)),
    ("MAX(l.x)", 0, |row| row.0.map(|key| key.1)),
];

/// The greater or lesser of two numbers by the order of SQL, in which zeros are equal.
fn extreme(name: &str, a: Option<f64>, b: Option<f64>) -> Option<f64> {
    let (Some(a), Some(b)) = (a, b) else { return a.or(b) };
    Some(if at_most(a, b) == name.starts_with("MIN") { a } else { b })
}

/// Group, number of pairs and extremes.
type Extremes = BTreeMap<Option<i64>, (i128, [Option<f64>; 4])>;

proptest! {
    /// Groups by the columns of a side, and extremes: the rows of that side wait for the end.
    #[test]
    fn cells_group_by_a_side_and_find_extremes(
        parts in parts(), condition in prop::sample::select(CONDITIONS.to_vec()), group in prop::sample::select(vec!["", "l.v", "r.v", "r.k"]),
    ) {
        // Rows come one by one, none is taken away.
        let mut parts = parts;
        parts.iter_mut().flat_map(|part| &mut part.rows).for_each(|row| row.2 = 1);
        let (comma, by) = if group.is_empty() { ("", "") } else { (", ", " GROUP BY ") };
        let calls = EXTREMES.map(|(name, ..)| name).join(", ");
        let sql = format!("SELECT {group}{comma}COUNT(*), {calls} FROM l JOIN r ON {}{by}{group}", condition.0);
        let (mut cell, columns) = cell_of(&sql, Output::Result, condition.2, false);
        let mut out = Vec::new();
        for part in &parts {
            cell.on_frame(part.port, frame(part, &columns[usize::from(part.port)])).unwrap();
            while cell.resume(&mut out).unwrap() == Step::Full {}
        }
        cell.on_progress(Epoch::END).unwrap();
        while cell.resume(&mut out).unwrap() == Step::Full {}

        let number = |column: &ArrayRef, row: usize| {
            let column = arrow::compute::cast(column, &DataType::Float64).unwrap();
            column.is_valid(row).then(|| column.as_primitive::<arrow::datatypes::Float64Type>().value(row))
        };
        let mut found = Extremes::new();
        for (frame, row) in out.iter().flat_map(|frame| (0..frame.rows()).map(move |row| (frame, row))) {
            let keys = usize::from(!group.is_empty());
            let key = (keys == 1).then(|| number(frame.batch.column(0), row).map(|key| key as i64)).flatten();
            let states = &frame.batch.columns()[keys..];
            let entry = found.entry(key).or_default();
            entry.0 += i128::from(states[1].as_primitive::<Int64Type>().value(row));
            for ((best, (name, ..)), state) in entry.1.iter_mut().zip(EXTREMES).zip(&states[2..]) {
                *best = extreme(name, *best, number(state, row));
            }
        }
        found.retain(|_, found| found.0 != 0);
        let mut expected = Extremes::new();
        let rows = |port: u8| parts.iter().filter(move |part| part.port == port).flat_map(|part| &part.rows);
        for l in rows(0) {
            for r in rows(1).filter(|r| l.0.zip(r.0).is_some_and(|(l, r)| condition.1(l, r))) {
                let key = match group {
                    "l.v" => l.1,
                    "r.v" => r.1,
                    "r.k" => r.0.map(|key| key.0),
                    _ => None,
                };
                let entry = expected.entry(key).or_default();
                entry.0 += i128::from(l.2 * r.2);
                for (best, (name, port, value)) in entry.1.iter_mut().zip(EXTREMES) {
                    *best = extreme(name, *best, value(if port == 0 { l } else { r }));
                }
            }
        }
        let shown = |extremes: &Extremes| format!("{extremes:?}").replace("-0.0)", "0.0)");
        prop_assert_eq!(shown(&found), shown(&expected), "{}", sql);
    }
}

/// A term is computed for every row of a side, an error is one only for rows that are in a pair.
#[test]
fn errors_of_rows_without_a_match_are_none() {
    block_on(async {
        let connection = Driver::open("thetis:").unwrap();
        let statements = [
            "CREATE TABLE l (k BIGINT, v BIGINT, w BIGINT)",
            "CREATE TABLE r (k BIGINT)",
            "INSERT INTO l VALUES (1, 8, 2), (2, 5, 0), (1, 9, 3)",
            "INSERT INTO r VALUES (1), (1)",
        ];
        for statement in statements {
            run_all(&connection, &[statement.to_owned()]).await;
        }
        for condition in ["l.k = r.k", "l.k BETWEEN r.k AND r.k", "l.k <= r.k"] {
            let sql = format!("SELECT SUM(l.v / l.w) AS s FROM l JOIN r ON {condition}");
            assert_eq!(query(&connection, &sql).await.unwrap(), [[Value::Text("14".to_owned())]], "{condition}");
        }
        assert!(query(&connection, "SELECT SUM(l.v / l.w) AS s FROM l JOIN r ON l.k >= r.k").await.is_err());
    });
}
