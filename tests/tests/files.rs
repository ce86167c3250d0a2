//! Parquet and globs: what is written comes back, columns are found by name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Decimal128Array, Float64Array, Int32Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
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

/// 2,000 rows in groups of 100; every tenth group has only NULLs.
fn write_groups(path: &Path) {
    let keys: Vec<Option<i32>> = (0..2_000).map(|row| (row / 100 % 10 != 9).then_some(row)).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("K", Arc::new(Int32Array::from(keys))),
        (
            "x",
            Arc::new(Float64Array::from_iter_values((0..2_000).map(|row| if row == 1_950 { f64::NAN } else { 0.5 }))),
        ),
        ("day", Arc::new(Date32Array::from_iter_values((0..2_000).map(|row| row / 500)))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(100)).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn row_groups_that_no_filter_needs_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("groups.parquet");
    write_groups(&path);
    // A condition, its rows, and how many rows are not read: nothing is known of the groups of NULLs.
    let cases = [
        ("k >= 1850", 50, 1_700),
        ("k BETWEEN 250 AND 349", 100, 1_600),
        ("k < 50 OR k = 1799", 51, 1_600),
        ("NOT k < 1700", 200, 1_600),
        ("day = DATE '1970-01-04' AND k + 1 > 1600", 300, 1_600),
        ("k IS NULL", 200, 0),
        ("x > 0.5", 1, 0),
        ("COALESCE(k, 7) = 7", 201, 0),
    ];
    block_on(async {
        let connection = Driver::open("thetis:").unwrap();
        let stream = format!("CREATE STREAM p (k BIGINT, x DOUBLE, day DATE) WITH (path = '{}')", path.display());
        run_all(&connection, &[stream]).await;
        for ((condition, rows, left_out), parallelism) in cases.iter().flat_map(|case| [(*case, 1), (*case, 3)]) {
            run_all(&connection, &[format!("SET parallelism = {parallelism}")]).await;
            let sql = format!("SELECT COUNT(*) FROM p WHERE {condition}");
            assert_eq!(query(&connection, &sql).await.unwrap(), [[Value::Text(rows.to_string())]], "{condition}");
            let lines = query(&connection, &format!("EXPLAIN ANALYZE {sql}")).await.unwrap();
            let text = format!("{lines:?}");
            let counted = text.split(" rows left out").next().filter(|_| text.contains("left out"));
            let counted =
                counted.and_then(|text| text.rsplit(", ").next()).map_or(0, |n| n.replace(',', "").parse().unwrap());
            assert_eq!(counted, left_out, "{condition}: {text}");
        }
        // Epochs are cut as if all rows were read: the last one is the 20th.
        run_all(&connection, &["SET epoch_rows = 100".to_owned()]).await;
        let lines = query(&connection, "EXPLAIN ANALYZE SELECT COUNT(*) FROM p WHERE k = 1750").await.unwrap();
        assert!(format!("{lines:?}").contains(" 20 epochs"), "{lines:?}");
        // Another reference to the stream needs everything.
        let both = "SELECT COUNT(*) FROM p JOIN p AS q ON p.k = q.k AND q.k > 1880 AND q.x < 1";
        assert_eq!(query(&connection, both).await.unwrap(), [[Value::Text("19".to_owned())]]);
    });
}

/// Blocks are decoded by several threads: the rows come in their order, and the first error is told.
#[test]
fn several_readers_keep_the_order_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let line =
        |n: u32| if n % 1_000 == 7 { format!("{n},\"a\n\"\"b\"\"\"\n") } else { format!("{n},{}\n", "x".repeat(20)) };
    let (good, bad) = (folder.path().join("good.csv"), folder.path().join("bad.csv"));
    let text: String = (0..100_000).map(line).collect();
    std::fs::write(&good, format!("n,t\n{text}")).unwrap();
    std::fs::write(&bad, format!("n,t\n{text}y,1\nz,2\n{text}w,3\n")).unwrap();
    block_on(async {
        let connection = Driver::open("thetis:").unwrap();
        run_all(&connection, &["SET parallelism = 4".to_owned()]).await;
        for (name, path, on_error) in [("good", &good, "fail"), ("bad", &bad, "fail"), ("skips", &bad, "skip")] {
            let (path, columns) = (path.display(), "n BIGINT, t VARCHAR");
            let stream = format!("CREATE STREAM {name} ({columns}) WITH (path = '{path}', on_error = '{on_error}')");
            run_all(&connection, &[stream]).await;
        }
        let rows = query(&connection, "SELECT n FROM good").await.unwrap();
        assert_eq!(rows.len(), 100_000);
        assert!((0..).zip(&rows).all(|(n, row)| row[0] == Value::Text(format!("{n}"))));
        let counts = "SELECT COUNT(*), SUM(n), COUNT(DISTINCT t) FROM skips";
        let expected = ["200000", "9999900000", "2"].map(|text| Value::Text(text.to_owned()));
        assert_eq!(query(&connection, counts).await.unwrap(), [expected]);
        let error = query(&connection, "SELECT COUNT(*) FROM bad").await.unwrap_err();
        assert!(error.message().contains("'y' is not a BIGINT"), "{error}");
        assert!(error.message().contains("line 100102"), "{error}");
    });
}
