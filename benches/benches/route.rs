//! One frame to the cells of a join.

use std::hint::black_box;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use criterion::{Criterion, Throughput};
use thetis_executor::frame::{Epoch, FRAME_ROWS, Frame};
use thetis_executor::route::{Receivers, route_for};
use thetis_planner::expr::ScalarExpr;
use thetis_planner::layout::{Layout, Partitioning};
use thetis_planner::physical::{Exchange, Side};
use thetis_planner::sizing::Shape;

fn frame() -> Frame {
    let rows = FRAME_ROWS as i64;
    let keys: Int64Array = (0..rows).map(|row| row * 7_919 % 10_007).collect::<Vec<_>>().into();
    let values: Float64Array = (0..rows).map(|row| row as f64 / 3.0).collect::<Vec<_>>().into();
    let columns: [(&str, ArrayRef); 2] = [("k", Arc::new(keys)), ("x", Arc::new(values))];
    let batch = RecordBatch::try_from_iter(columns).expect("the columns have one length");
    Frame::inserts(batch, Epoch::FIRST)
}

fn main() {
    let frame = frame();
    let schema = frame.batch.schema();
    let matrix = Layout::any(Shape { rows: 2, columns: 3 });
    let key = || vec![ScalarExpr::Column(0)];
    let hashed = Layout::bucketed(Partitioning::Key { left: key(), right: key() }, 6);
    let cases = [
        ("matrix 2x3, left, counted slices", &matrix, Side::Left, false),
        ("matrix 2x3, right, counted slices", &matrix, Side::Right, false),
        ("matrix 2x3, left, hashed slices", &matrix, Side::Left, true),
        ("key, 6 cells", &hashed, Side::Left, false),
    ];
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("route a frame");
    group.throughput(Throughput::Elements(frame.rows() as u64));
    for (name, layout, side, retracts) in cases {
        let exchange = Exchange::Matrix(side);
        let receivers = Receivers { tasks: layout.cells(), nearby: vec![0], layout: Some(layout) };
        let mut route = route_for(&exchange, receivers, &schema, retracts, 0).expect("the layout fits the schema");
        let mut out = Vec::new();
        group.bench_function(name, |b| {
            b.iter(|| {
                out.clear();
                route.route(black_box(&frame).clone(), &mut out).expect("every key can be computed");
                out.len()
            });
        });
    }
    group.finish();
    criterion.final_summary();
}
