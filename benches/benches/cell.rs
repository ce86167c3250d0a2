//! Frames into a join cell: stored, indexed, probed, judged.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use thetis_benches::{drain, frame, operator};
use thetis_planner::physical::OperatorKind;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("a frame into each side of a cell");
    let frames = [frame(0, 1_000_000), frame(500_000, 1_000_000)];
    group.throughput(Throughput::Elements(frames.iter().map(|frame| frame.rows() as u64).sum()));
    for (name, condition) in [
        ("equality", "r.k = s.k"),
        ("band", "r.k BETWEEN s.k - 50 AND s.k + 50"),
        ("band and residual", "r.k BETWEEN s.k - 50 AND s.k + 50 AND (r.v * s.v) % 7 <> 3"),
    ] {
        let sql = format!("SELECT r.v, s.v AS w FROM r JOIN s ON {condition}");
        let cell = operator(&sql, |kind| matches!(kind, OperatorKind::Join(_)));
        group.bench_function(name, |b| {
            b.iter_batched(
                &cell,
                |mut cell| {
                    let mut pairs = 0;
                    for (port, frame) in (0..).zip(&frames) {
                        cell.on_frame(port, black_box(frame).clone()).expect("nothing overflows");
                        pairs += drain(cell.as_mut());
                    }
                    pairs
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
    criterion.final_summary();
}
