//! Parquet and globs: what is written comes back, columns are found by name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int32Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use thetis::Driver;
use thetis_tests::{Value, block_on, query, run_all};

fn write(path: &Path, from: i32) {
    let ids: Vec<i32> = (from..from + 10_000).collect();
    let prices: Vec<i128> = ids.iter().map(|id| i128::from(*id) * 25).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int32Array::from(ids.clone()))),
        ("x", Arc::new(Float64Array::from_iter(ids.iter().map(|id| (id % 7 != 0).then_some(f64::from(*id)))))),
        ("name", Arc::new(StringArray::from_iter_values(ids.iter().map(|id| format!("n{}", id % 3))))),
        ("price", Arc::new(Decimal128Array::from(prices).with_precision_and_scale(12, 2).unwrap())),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn parquet_files_are_read_by_glob_and_by_name() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), 0);
    write(&folder.path().join("b.parquet"), 10_000);
    let path = folder.path().join("*.parquet").display().to_string();
    block_on(async {
        let connection = Driver::open("thetis:").unwrap();
        let inferred = format!("CREATE STREAM p WITH (path = '{path}')");
        let declared = format!("CREATE STREAM q (price DECIMAL(12,2), id BIGINT) WITH (path = '{path}')");
        run_all(&connection, &[inferred, declared]).await;
        let sql = "SELECT COUNT(*), COUNT(x), SUM(id), SUM(price), COUNT(DISTINCT name) FROM p";
        let text = |text: &str| Value::Text(text.to_owned());
        let expected = vec![text("20000"), text("17142"), text("199990000"), text("49997500.00"), text("3")];
        assert_eq!(query(&connection, sql).await.unwrap(), vec![expected]);
        let sql = "SELECT COUNT(*) FROM p JOIN q ON p.price BETWEEN q.price - 0.25 AND q.price + 0.25 AND p.id <> q.id";
        assert_eq!(query(&connection, sql).await.unwrap(), vec![vec![text("39998")]]);
        let missing = format!("CREATE STREAM r (nosuch BIGINT) WITH (path = '{path}')");
        let error = connection.statement().execute(&missing).await.unwrap_err();
        assert!(error.message().contains("no column 'nosuch'"), "{error}");
    });
}
