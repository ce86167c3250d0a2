use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type};
use proptest::prelude::*;
use thetis_planner::expr::ScalarExpr;
use thetis_planner::layout::Layout;
use thetis_planner::physical::{Exchange, JoinReport};
use thetis_planner::sizing::Shape;
use thetis_planner::theta::{Bounds, ConditionClass, IndexKey, Mixed, Range, Said, Term};

use super::*;
use crate::route::{Receivers, route_for};

/// Key, payload, weight.
type Row = (Option<i64>, i64, i64);

/// Rows of one side and epoch.
#[derive(Debug, Clone)]
struct Part {
    side: Side,
    epoch: u64,
    rows: Vec<Row>,
}

/// The columns of a pair, its epoch and its weight.
type Pair = (Vec<Option<i64>>, u64, i64);

#[derive(Debug, Clone)]
struct Setup {
    shape: Shape,
    retracts: [bool; 2],
    /// The inequality is a range of the index.
    ranged: bool,
    /// Payloads must be equal too.
    equal: bool,
}

fn setups() -> impl Strategy<Value = Setup> {
    (1_u32..5, 1_u32..5, any::<[bool; 2]>(), any::<bool>(), prop::bool::weighted(0.3)).prop_map(
        |(rows, columns, retracts, ranged, equal)| Setup { shape: Shape { rows, columns }, retracts, ranged, equal },
    )
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let weight = prop_oneof![4 => Just(1_i64), 3 => Just(-1_i64), 1 => Just(2_i64)];
    let row = (prop::option::weighted(0.9, -4_i64..5), 0_i64..3, weight);
    let part = (any::<bool>(), 1_u64..5, prop::collection::vec(row, 1..10));
    let part = part.prop_map(|(left, epoch, rows)| {
        let side = if left { Side::Left } else { Side::Right };
        Part { side, epoch, rows }
    });
    prop::collection::vec(part, 0..10)
}

fn schema(names: &[&str]) -> SchemaRef {
    let fields = names.iter().map(|name| Field::new(*name, DataType::Int64, true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn binary(op: &str, left: u32, right: u32) -> ScalarExpr {
    let column = |index| Box::new(ScalarExpr::Column(index));
    ScalarExpr::Binary { op: op.to_owned(), left: column(left), right: column(right) }
}

/// `l.a < r.b [AND l.id = r.id]`.
fn join(setup: &Setup) -> Arc<Join> {
    let key = || IndexKey { terms: vec![Term { factor: 1, expr: ScalarExpr::Column(0) }], limit: None, single: false };
    let mut condition = vec![binary("<", 0, 2)];
    let mut equality = Vec::new();
    if setup.equal {
        condition.push(binary("=", 1, 3));
        equality.push((ScalarExpr::Column(1), ScalarExpr::Column(1)));
    }
    let bounds = Bounds::Exact { lower: None, upper: Some(0) };
    Arc::new(Join {
        inputs: [schema(&["a", "id"]), schema(&["b", "id"])],
        retracts: setup.retracts,
        condition,
        equality,
        ranges: setup
            .ranged
            .then(|| Range { left: key(), right: key(), bounds, tight: false, mixed: Mixed::ANY })
            .into_iter()
            .collect(),
        said: vec![Said::ByItself; 1 + usize::from(setup.equal)],
        output: vec![0, 1, 2, 3],
        aggregate: None,
        layout: Layout::any(setup.shape),
        report: JoinReport {
            class: ConditionClass(Vec::new()),
            rows: [None, None],
            row_bytes: [16.0, 16.0],
            unbounded: [false, false],
            alternatives: Vec::new(),
            reason: String::new(),
        },
    })
}

fn cells(join: &Arc<Join>) -> Vec<Cell> {
    let cell = |_| Cell::new(Arc::clone(join), schema(&["a", "id", "b", "other_id"])).unwrap();
    (0..join.layout.cells()).map(cell).collect()
}

fn frame(part: &Part, schema: &SchemaRef, retracts: bool) -> Frame {
    let keys: ArrayRef = Arc::new(part.rows.iter().map(|row| row.0).collect::<Int64Array>());
    let payloads: ArrayRef = Arc::new(part.rows.iter().map(|row| Some(row.1)).collect::<Int64Array>());
    let batch = RecordBatch::try_new(Arc::clone(schema), vec![keys, payloads]).unwrap();
    let weights = retracts.then(|| part.rows.iter().map(|row| row.2).collect());
    Frame { weights, ..Frame::inserts(batch, Epoch(part.epoch)) }
}

/// Routes the parts, delivers their frames in the order of `priorities`, and reads the pairs.
fn run(join: &Join, cells: &mut [Cell], parts: &[Part], priorities: &[u32]) -> Vec<Pair> {
    let mut routes = Side::BOTH.map(|side| {
        let schema = &join.inputs[side.index()];
        let retracts = join.retracts[side.index()];
        {
            let receivers = Receivers { tasks: join.layout.cells(), nearby: vec![0], layout: Some(&join.layout) };
            route_for(&Exchange::Matrix(side), receivers, schema, retracts, 7).unwrap()
        }
    });
    let mut deliveries: Vec<(u32, u8, Frame)> = Vec::new();
    for part in parts {
        let side = part.side.index();
        let mut routed = Vec::new();
        routes[side].route(frame(part, &join.inputs[side], join.retracts[side]), &mut routed).unwrap();
        deliveries.extend(routed.into_iter().map(|(cell, frame)| (cell, side as u8, frame)));
    }
    let mut order: Vec<usize> = (0..deliveries.len()).collect();
    order.sort_by_key(|i| priorities[i % priorities.len()].wrapping_mul(1 + *i as u32));
    let mut out = Vec::new();
    for (cell, port, frame) in order.into_iter().map(|i| deliveries[i].clone()) {
        let cell = &mut cells[cell as usize];
        cell.on_frame(port, frame).unwrap();
        while cell.resume(&mut out).unwrap() == Step::Full {}
    }
    let mut pairs: Vec<Pair> = out.iter().flat_map(pairs_of).collect();
    pairs.sort();
    pairs
}

fn pairs_of(frame: &Frame) -> Vec<Pair> {
    let columns: Vec<Vec<Option<i64>>> =
        frame.batch.columns().iter().map(|column| column.as_primitive::<Int64Type>().iter().collect()).collect();
    (0..frame.rows())
        .map(|row| (columns.iter().map(|column| column[row]).collect(), frame.epoch.0, frame.weight(row)))
        .collect()
}

/// Every pair of rows that matches: the product of the weights, the later of the epochs.
fn naive(setup: &Setup, parts: &[Part]) -> Vec<Pair> {
    let rows = |side: Side| {
        parts
            .iter()
            .filter(|part| part.side == side)
            .flat_map(|part| part.rows.iter().map(move |row| (part.epoch, *row)))
            .map(|(epoch, (key, id, weight))| (epoch, key, id, if setup.retracts[side.index()] { weight } else { 1 }))
            .collect::<Vec<_>>()
    };
    let right = rows(Side::Right);
    let mut pairs = Vec::new();
    for (l_epoch, a, l_id, l_weight) in rows(Side::Left) {
        for (r_epoch, b, r_id, r_weight) in &right {
            let less = a.zip(*b).is_some_and(|(a, b)| a < b);
            if less && (!setup.equal || l_id == *r_id) {
                pairs.push((vec![a, Some(l_id), *b, Some(*r_id)], l_epoch.max(*r_epoch), l_weight * r_weight));
            }
        }
    }
    pairs.sort();
    pairs
}

proptest! {
    #[test]
    fn cells_find_every_pair_once(
        setup in setups(), parts in parts(), priorities in prop::collection::vec(any::<u32>(), 1..40),
    ) {
        let join = join(&setup);
        let found = run(&join, &mut cells(&join), &parts, &priorities);
        prop_assert_eq!(found, naive(&setup, &parts));
    }

    /// After a return to `committed`, the later epochs come again, perhaps in another order.
    #[test]
    fn cells_return_to_a_committed_epoch(
        setup in setups(), parts in parts(), committed in 0_u64..5,
        priorities in prop::collection::vec(any::<u32>(), 1..40),
        again in prop::collection::vec(any::<u32>(), 1..40),
    ) {
        let join = join(&setup);
        let mut cells = cells(&join);
        run(&join, &mut cells, &parts, &priorities);
        for cell in &mut cells {
            cell.on_commit(Epoch(committed));
            cell.roll_back(Epoch(committed)).unwrap();
        }
        let later: Vec<Part> = parts.iter().filter(|part| part.epoch > committed).cloned().collect();
        let found = run(&join, &mut cells, &later, &again);
        let mut expected = naive(&setup, &parts);
        expected.retain(|(_, epoch, _)| *epoch > committed);
        prop_assert_eq!(found, expected);
    }
}
