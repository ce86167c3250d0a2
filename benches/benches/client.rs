//! A million rows as Arrow batches and row by row: of a file, a table and a generator, which costs next
//! to nothing.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use thetis::{Connection, Driver};
use tokio::runtime::{Builder, Runtime};

const ROWS: u64 = 1_000_000;

fn engine(runtime: &Runtime, folder: &std::path::Path) -> Connection {
    let connection = Driver::open("thetis:").unwrap();
    let path = folder.join("g.csv");
    for sql in [
        format!(
            "CREATE STREAM generated (id BIGINT, v DOUBLE, s VARCHAR) WITH (connector = 'generator', rows = {ROWS},
             column.id = 'sequence(1)', column.s = 'choice(a, b, c)')"
        ),
        "CREATE TABLE stored AS SELECT id, v, s FROM generated".to_owned(),
        format!("CREATE SINK written WITH (path = '{}')", path.display()),
        "INSERT INTO written SELECT id, v, s FROM generated".to_owned(),
        format!("CREATE STREAM file (id BIGINT, v DOUBLE, s VARCHAR) WITH (path = '{}')", path.display()),
    ] {
        runtime.block_on(connection.statement().execute(&sql)).unwrap();
    }
    connection
}

async fn batches(connection: &Connection, sql: &str) -> u64 {
    let mut statement = connection.statement();
    let mut result = statement.query(sql).await.unwrap();
    let mut rows = 0;
    while let Some(batch) = result.next_batch().await.unwrap() {
        rows += batch.num_rows() as u64;
    }
    rows
}

async fn rows(connection: &Connection, sql: &str) -> (i64, f64, u64) {
    let mut statement = connection.statement();
    let mut result = statement.query(sql).await.unwrap();
    let mut sums = (0, 0.0, 0);
    while let Some(row) = result.next_row().await.unwrap() {
        sums.0 += row.at::<i64>(0).unwrap();
        sums.1 += row.at::<f64>(1).unwrap();
        sums.2 += row.at::<String>(2).unwrap().len() as u64;
    }
    sums
}

fn client(c: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let connection = engine(&runtime, folder.path());
    for source in ["file", "stored", "generated"] {
        let sql = format!("SELECT id, v, s FROM {source}");
        let mut group = c.benchmark_group(source);
        group.throughput(Throughput::Elements(ROWS)).sample_size(10);
        group.bench_function("batches", |b| b.iter(|| assert_eq!(runtime.block_on(batches(&connection, &sql)), ROWS)));
        group.bench_function("rows", |b| b.iter(|| assert_eq!(runtime.block_on(rows(&connection, &sql)).2, ROWS)));
        group.finish();
    }
}

criterion_group!(benches, client);
criterion_main!(benches);
