use std::collections::BTreeMap;

use arrow::array::{AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, Int64Type};
use proptest::prelude::*;
use thetis_planner::layout::Layout;
use thetis_planner::physical::{Exchange, JoinReport};
use thetis_planner::sizing::Shape;
use thetis_planner::theta::{Bounds, ConditionClass, IndexKey, Range, Term};

use super::*;
use crate::route::route_for;

fn one_column(name: &str) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(name, DataType::Int64, true)]))
}

/// `l < r`, found by a sorted index or by scans.
fn join(shape: Shape, indexed: bool) -> Join {
    let key = |column| IndexKey { terms: vec![Term { factor: 1, expr: ScalarExpr::Column(column) }], limit: None };
    let bounds = Bounds::Exact { lower: None, upper: Some(0) };
    Join {
        inputs: [one_column("l"), one_column("r")],
        retracts: [true, true],
        condition: vec![ScalarExpr::Binary {
            op: "<".to_owned(),
            left: Box::new(ScalarExpr::Column(0)),
            right: Box::new(ScalarExpr::Column(1)),
        }],
        equality: Vec::new(),
        range: indexed.then(|| Range { left: key(0), right: key(0), bounds }),
        output: vec![0, 1],
        layout: Layout::any(shape),
        report: JoinReport {
            class: ConditionClass(Vec::new()),
            rows: [None, None],
            row_bytes: [8.0, 8.0],
            unbounded: [false, false],
            alternatives: Vec::new(),
            reason: String::new(),
        },
    }
}

/// One frame: side, epoch, rows with weights.
type Input = (bool, u64, Vec<(i64, i64)>);

/// Weights by (epoch, left, right).
type Pairs = BTreeMap<(u64, i64, i64), i64>;

fn add(pairs: &mut Pairs, key: (u64, i64, i64), weight: i64) {
    let sum = pairs.entry(key).or_insert(0);
    *sum += weight;
    if *sum == 0 {
        pairs.remove(&key);
    }
}

fn naive(inputs: &[Input]) -> Pairs {
    let mut pairs = Pairs::new();
    let rows = |left: bool| {
        let of_side = inputs.iter().filter(move |input| input.0 == left);
        of_side.flat_map(|(_, epoch, rows)| rows.iter().map(move |(value, weight)| (*epoch, *value, *weight)))
    };
    for (e, l, v) in rows(true) {
        for (f, r, w) in rows(false).filter(|row| l < row.1) {
            add(&mut pairs, (e.max(f), l, r), v * w);
        }
    }
    pairs
}

fn run(inputs: &[Input], shape: Shape, indexed: bool, committed: u64) -> Pairs {
    let spec = Arc::new(join(shape, indexed));
    let output: SchemaRef =
        Arc::new(Schema::new(vec![Field::new("l", DataType::Int64, true), Field::new("r", DataType::Int64, true)]));
    let cells = (0..shape.cells()).map(|_| Cell::new(Arc::clone(&spec), Arc::clone(&output)).unwrap());
    let mut cells: Vec<Cell> = cells.collect();
    let route = |side: Side| {
        let schema = &spec.inputs[side.index()];
        route_for(&Exchange::Matrix(side), shape.cells(), schema, Some(&spec.layout), true, 0).unwrap()
    };
    let mut routes = [route(Side::Left), route(Side::Right)];
    let mut pairs = Pairs::new();
    for (left, epoch, rows) in inputs {
        let side = if *left { Side::Left } else { Side::Right };
        let values = Int64Array::from_iter_values(rows.iter().map(|row| row.0));
        let batch = RecordBatch::try_new(Arc::clone(&spec.inputs[side.index()]), vec![Arc::new(values)]).unwrap();
        let mut frame = Frame::inserts(batch, Epoch(*epoch));
        frame.weights = Some(rows.iter().map(|row| row.1).collect());
        let mut routed = Vec::new();
        routes[side.index()].route(frame, &mut routed).unwrap();
        for (task, frame) in routed {
            let cell = &mut cells[task as usize];
            cell.on_commit(Epoch(committed));
            cell.on_frame(side.index() as u8, frame).unwrap();
            let mut out = Vec::new();
            while cell.resume(&mut out).unwrap() == Step::Full {}
            for frame in out {
                let column = |i: usize| frame.batch.column(i).as_primitive::<Int64Type>().clone();
                let (l, r) = (column(0), column(1));
                (0..frame.rows())
                    .for_each(|i| add(&mut pairs, (frame.epoch.0, l.value(i), r.value(i)), frame.weight(i)));
            }
        }
    }
    pairs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_matrix_is_the_naive_join(
        inputs in prop::collection::vec(
            (any::<bool>(), 1_u64..5, prop::collection::vec((-8_i64..8, prop_oneof![Just(1_i64), Just(-1), Just(3)]), 1..20)),
            0..14,
        ),
        rows in 1_u32..5, columns in 1_u32..5, indexed: bool,
    ) {
        prop_assert_eq!(run(&inputs, Shape { rows, columns }, indexed, 0), naive(&inputs));
    }
}

#[test]
fn a_cell_that_rolled_back_goes_on_as_if_nothing_later_had_been() {
    let spec = Arc::new(join(Shape::ONE, true));
    let output: SchemaRef = pair_schema(&spec);
    let mut cell = Cell::new(Arc::clone(&spec), output).unwrap();
    let mut send = |cell: &mut Cell, side: Side, epoch: u64, value: i64| {
        let schema = &spec.inputs[side.index()];
        let batch = RecordBatch::try_new(Arc::clone(schema), vec![Arc::new(Int64Array::from(vec![value]))]).unwrap();
        let mut frame = Frame::inserts(batch, Epoch(epoch));
        frame.units = Some(crate::frame::Units { buckets: vec![0].into(), slices: vec![0].into() });
        cell.on_frame(side.index() as u8, frame).unwrap();
        let mut out = Vec::new();
        while cell.resume(&mut out).unwrap() == Step::Full {}
        out.iter().map(Frame::rows).sum::<usize>()
    };
    assert_eq!(send(&mut cell, Side::Left, 1, 1), 0);
    assert_eq!(send(&mut cell, Side::Left, 2, 2), 0);
    assert_eq!(send(&mut cell, Side::Right, 2, 9), 2);
    cell.roll_back(Epoch(1)).unwrap();
    assert_eq!(send(&mut cell, Side::Right, 2, 9), 1);
    assert_eq!(send(&mut cell, Side::Left, 2, 3), 1);
}
