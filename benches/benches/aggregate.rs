//! A frame into an aggregate, and the close of its epoch.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use thetis_benches::{drain, frame, operator};
use thetis_executor::frame::Epoch;
use thetis_planner::physical::OperatorKind;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("a frame into an aggregate");
    let sql = "SELECT k, COUNT(*), SUM(v), MAX(v) FROM r GROUP BY k";
    let aggregate = operator(sql, |kind| matches!(kind, OperatorKind::Aggregate(_)));
    for groups in [10, 1_000, 1_000_000] {
        let frame = frame(0, groups);
        group.throughput(Throughput::Elements(frame.rows() as u64));
        group.bench_function(format!("keys of {groups}"), |b| {
            b.iter_batched(
                &aggregate,
                |mut aggregate| {
                    aggregate.on_frame(0, black_box(&frame).clone()).expect("nothing overflows");
                    aggregate.on_progress(Epoch::FIRST).expect("nothing overflows");
                    drain(aggregate.as_mut())
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
    criterion.final_summary();
}
