//! EXPLAIN ANALYZE: what it counts is exact, its errors are those of the query, and it can be
//! cancelled.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::time::Duration;

use thetis::{Connection, Driver, ErrorKind};
use thetis_cluster::{Engine, Reply};
use thetis_parser::parse_statement;
use thetis_planner::Output;
use thetis_planner::explain::{Measured, TaskMeasured};
use thetis_tests::{Value, block_on, query, run_all};

/// `l` has 1 to 1000, `r` has 10, 20 to 500, and each two records that are no numbers.
fn definitions(folder: &Path) -> Vec<String> {
    let define = |name: &str, numbers: &mut dyn Iterator<Item = i32>| {
        let path = folder.join(format!("{name}.csv"));
        let lines: String = numbers.map(|n| format!("{n}\n")).collect();
        std::fs::write(&path, format!("n\nx\n{lines}y\n")).unwrap();
        format!("CREATE STREAM {name} (n BIGINT) WITH (path = '{}', on_error = 'skip')", path.display())
    };
    vec![define("l", &mut (1..=1_000)), define("r", &mut (1..=50).map(|n| 10 * n))]
}

/// Runs and measures a query in the engine itself.
fn measure(definitions: &[String], settings: &[&str], sql: &str, output: Output) -> Measured {
    let engine = Engine::start().unwrap();
    let session = engine.session();
    for sql in definitions.iter().map(String::as_str).chain(settings.iter().copied()) {
        session.handle(&parse_statement(sql).unwrap(), Output::Result).unwrap();
    }
    let statement = parse_statement(&format!("EXPLAIN (ANALYZE) {sql}")).unwrap();
    let Reply::Analyze(explained) = session.handle(&statement, output).unwrap() else { panic!("not a query: {sql}") };
    block_on(async { engine.database().analyze(&explained.plan).await.unwrap().measured().await.unwrap() })
}

/// All tasks of an operator.
fn total(measured: &Measured, operator: usize) -> TaskMeasured {
    measured.tasks[operator].iter().copied().sum()
}

/// The text of EXPLAIN ANALYZE.
async fn analyze(connection: &Connection, sql: &str) -> Result<String, thetis::Error> {
    let mut lines = String::new();
    for row in query(connection, &format!("EXPLAIN ANALYZE {sql}")).await? {
        let [Value::Text(line)] = row.as_slice() else { panic!("one text: {row:?}") };
        lines += &format!("{line}\n");
    }
    Ok(lines)
}

#[test]
fn a_join_counts_its_rows_and_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let definitions = definitions(folder.path());
    // A row of r meets itself and two on each side.
    let sql = "SELECT l.n AS a, r.n AS b FROM l JOIN r ON l.n BETWEEN r.n - 2 AND r.n + 2";
    for (settings, cells) in [
        (vec!["SET parallelism = 1"], 1),
        (vec!["SET parallelism = 3"], 3),
        (vec!["SET matrix = '3x2'", "SET epoch_rows = 100"], 6),
    ] {
        let measured = measure(&definitions, &settings, sql, Output::Result);
        let [l, r, join, sink] = [0, 1, 2, 3].map(|operator| total(&measured, operator));
        for (source, rows) in [(l, 1_000), (r, 50)] {
            assert_eq!((source.rows_in, source.rows_out, source.source.unwrap().skipped), (rows, rows, 2));
        }
        assert_eq!(l.source.unwrap().bytes, std::fs::metadata(folder.path().join("l.csv")).unwrap().len());
        assert_eq!(measured.tasks[2].len(), cells);
        let delivered = [0, 1].map(|edge| measured.edges[edge].delivered);
        assert_eq!([0, 1].map(|edge| measured.edges[edge].routed), [1_000, 50]);
        let pairs = join.join.unwrap();
        assert_eq!(pairs.stored, delivered);
        assert_eq!(join.rows_in, delivered[0] + delivered[1]);
        assert_eq!((pairs.kept, join.rows_out), (250, 250));
        // The index of a band of whole numbers proposes no pair in vain.
        assert_eq!(pairs.examined, 250);
        assert_eq!((sink.rows_in, sink.rows_out, measured.rows_out), (250, 250, 250));
        if settings.len() == 2 {
            assert_eq!((delivered, measured.epochs), ([2_000, 150], 10));
        }
        assert!(measured.wall > Duration::ZERO && l.busy > Duration::ZERO && join.busy > Duration::ZERO);
    }
}

#[test]
fn a_scan_examines_every_pair() {
    let folder = tempfile::tempdir().unwrap();
    let definitions = definitions(folder.path());
    let sql = "SELECT COUNT(*) AS n FROM l JOIN r ON (l.n * r.n) % 7 = 1";
    let expected = (1..=1_000).map(|l| (1..=50).filter(|r| l * r * 10 % 7 == 1).count() as u64).sum::<u64>();
    for settings in [["SET parallelism = 1"], ["SET parallelism = 3"], ["SET matrix = '2x3'"]] {
        let measured = measure(&definitions, &settings, sql, Output::Changes);
        let pairs = total(&measured, 2).join.unwrap();
        assert_eq!((pairs.examined, pairs.kept), (50_000, expected), "{settings:?}");
        // Cells count their pairs: what goes on is one row of each per epoch.
        let counts = total(&measured, 2).rows_out;
        assert!((1..=6).contains(&counts), "{counts} rows");
        assert_eq!((total(&measured, 3).rows_in, measured.rows_out), (counts, total(&measured, 4).rows_out));
    }
}

#[test]
fn every_format_comes_with_the_run() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let connection = Driver::open("thetis:").unwrap();
        run_all(&connection, &definitions(folder.path())).await;
        run_all(&connection, &["SET parallelism = 3", "SET epoch_rows = 1000"].map(str::to_owned)).await;
        let sql = "SELECT l.n FROM l JOIN r ON l.n = r.n WHERE r.n > 250";
        let text = analyze(&connection, sql).await.unwrap();
        for part in [
            "  measured: 1,000 rows read (3,899 bytes, 2 records skipped), 1,000 rows out (1 frame); busy ",
            "25 pairs examined, 25 kept; stored ",
            "    task 2: ",
            " copies of each, ",
            "\nmeasured: ",
            ", 1 epoch, 25 rows out\n",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        for (format, rows, part) in [("JSON", 1, "\"rows_out\":25"), ("DOT", 12, "25 pairs examined, 25 kept")] {
            let found = query(&connection, &format!("EXPLAIN (ANALYZE, FORMAT {format}) {sql}")).await.unwrap();
            assert!(if rows == 1 { found.len() == 1 } else { found.len() >= rows }, "{found:?}");
            assert!(format!("{found:?}").contains(&part.replace('"', "\\\"")), "{part} is not in {found:?}");
        }
    });
}

#[test]
fn a_limit_ends_it_and_an_error_is_the_querys() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let connection = Driver::open("thetis:").unwrap();
        run_all(&connection, &definitions(folder.path())).await;
        let text = analyze(&connection, "SELECT a.n AS x, b.n AS y FROM l AS a JOIN l AS b ON true LIMIT 3").await;
        let text = text.unwrap();
        assert!(text.lines().last().unwrap().ends_with(", 3 rows out"), "{text}");
        let error = analyze(&connection, "SELECT 1 / (n - 700) AS x FROM l").await.unwrap_err();
        assert_eq!((error.sqlstate(), error.kind()), ("22012", ErrorKind::Data));
        assert!(error.message().contains("stream l, row 700"), "{error}");
        let path = folder.path().join("l.csv");
        std::fs::remove_file(path).unwrap();
        assert_eq!(analyze(&connection, "SELECT n FROM l").await.unwrap_err().sqlstate(), "58030");
    });
}

#[test]
fn it_is_cancelled_as_a_query_is() {
    const ENDLESS: &str = "EXPLAIN ANALYZE SELECT a.x FROM (SELECT UNNEST(range(0, 5000)) AS x) AS a
        JOIN (SELECT UNNEST(range(0, 5000)) AS x) AS b ON true JOIN (SELECT UNNEST(range(0, 5000)) AS x) AS c ON true";
    block_on(async {
        let connection = Driver::open("thetis:").unwrap();
        let mut statement = connection.statement();
        let cancel = statement.cancel_handle();
        let mut result = statement.query(ENDLESS).await.unwrap();
        assert_eq!(result.schema().field(0).name(), "plan");
        // A call that is dropped while it waits loses nothing.
        assert!(tokio::time::timeout(Duration::from_millis(50), result.next_batch()).await.is_err());
        assert_eq!(result.progress().rows_in, 3);
        std::thread::Builder::new().spawn(move || cancel.cancel()).unwrap().join().unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(10), result.next_batch()).await.unwrap();
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Cancelled);
        assert!(result.next_batch().await.unwrap().is_none());
    });
}
