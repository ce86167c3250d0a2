//! The same million rows as Arrow batches and row by row, and a cancel.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use thetis::{Connection, Driver};
use tokio::runtime::{Builder, Runtime};

const ROWS: u64 = 1_000_000;

fn engine(runtime: &Runtime) -> Connection {
    let connection = Driver::open("thetis:").unwrap();
    let define = format!(
        "CREATE STREAM g (id BIGINT, v DOUBLE, s VARCHAR) WITH (connector = 'generator', rows = {ROWS},
         column.id = 'sequence(1)', column.s = 'choice(a, b, c)')"
    );
    runtime.block_on(connection.statement().execute(&define)).unwrap();
    connection
}

async fn batches(connection: &Connection) -> u64 {
    let mut statement = connection.statement();
    let mut result = statement.query("SELECT id, v, s FROM g").await.unwrap();
    let mut rows = 0;
    while let Some(batch) = result.next_batch().await.unwrap() {
        rows += batch.num_rows() as u64;
    }
    rows
}

async fn rows(connection: &Connection) -> (u64, f64, usize) {
    let mut statement = connection.statement();
    let mut result = statement.query("SELECT id, v, s FROM g").await.unwrap();
    let mut sums = (0, 0.0, 0);
    while let Some(row) = result.next_row().await.unwrap() {
        sums.0 += row.at::<u64>(0).unwrap();
        sums.1 += row.at::<f64>(1).unwrap();
        sums.2 += row.at::<String>(2).unwrap().len();
    }
    sums
}

fn client(c: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let connection = engine(&runtime);
    let mut group = c.benchmark_group("client");
    group.throughput(Throughput::Elements(ROWS)).sample_size(10);
    group.bench_function("batches", |b| b.iter(|| assert_eq!(runtime.block_on(batches(&connection)), ROWS)));
    group.bench_function("rows", |b| b.iter(|| assert_eq!(runtime.block_on(rows(&connection)).2, ROWS as usize)));
    group.finish();
}

criterion_group!(benches, client);
criterion_main!(benches);
