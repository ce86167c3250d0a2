//! The local indexes of a cell: inserts, and probes with one frame.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use thetis_executor::frame::FRAME_ROWS;
use thetis_executor::join::index::{Candidates, Cursor, HashIndex, LocalIndex, Probe, SortedIndex};
use thetis_executor::join::keys::{Keys, Ranges};
use thetis_planner::physical::Side;
use thetis_planner::theta::Bounds;

const ROWS: usize = 100_000;

/// A spread of keys without a pattern that an index could use.
fn scatter(row: usize) -> u64 {
    (row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44
}

/// Keys of the rows `first ..` of a join on a band.
fn band_keys(first: usize, rows: usize) -> Keys {
    let keys = (first..first + rows).map(|row| scatter(row) as i64).collect();
    let mut keys = Keys { rows, ranges: vec![Ranges::Exact(keys)], sure: true, ..Keys::default() };
    keys.sort();
    keys
}

/// Keys of the rows `first ..` of a join on an equality.
fn equality_keys(first: usize, rows: usize) -> Keys {
    let prefixes = (first..first + rows).map(scatter).collect();
    Keys { rows, prefixes: Some(prefixes), ..Keys::default() }
}

/// All rows, frame by frame: (first row, keys).
fn frames(keys: fn(usize, usize) -> Keys) -> Vec<(u32, Keys)> {
    (0..ROWS).step_by(FRAME_ROWS).map(|first| (first as u32, keys(first, FRAME_ROWS.min(ROWS - first)))).collect()
}

fn fill<I: LocalIndex>(mut index: I, frames: &[(u32, Keys)]) -> I {
    for (first, keys) in frames {
        index.insert(keys, *first);
    }
    index
}

fn probe_all(index: &impl LocalIndex, keys: &Keys) -> usize {
    let mut cursor = Cursor::default();
    let mut found = 0;
    loop {
        let mut out = Candidates::default();
        let probe = index.probe(keys, &mut cursor, FRAME_ROWS, &mut out);
        found += out.len();
        if probe == Probe::Done {
            return found;
        }
    }
}

fn bench<I: LocalIndex>(
    criterion: &mut Criterion,
    name: &str,
    empty: impl Fn() -> I + Copy,
    keys: fn(usize, usize) -> Keys,
) {
    let frames = frames(keys);
    let mut group = criterion.benchmark_group(name);
    group.sample_size(20);
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("insert 100k rows", |b| {
        b.iter_batched(empty, |index| fill(index, black_box(&frames)), BatchSize::LargeInput);
    });
    let index = fill(empty(), &frames);
    // Half of the probing rows have the keys of stored ones.
    let probing = keys(ROWS - FRAME_ROWS / 2, FRAME_ROWS);
    group.throughput(Throughput::Elements(FRAME_ROWS as u64));
    group.bench_function("probe with a frame", |b| b.iter(|| probe_all(&index, black_box(&probing))));
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let band = Bounds::Exact { lower: Some(-5), upper: Some(5) };
    let sorted = move || SortedIndex::new(Side::Left, &[band], None);
    bench(&mut criterion, "sorted index", sorted, band_keys);
    bench(&mut criterion, "hash index", HashIndex::default, equality_keys);
    criterion.final_summary();
}
