//! The client library under load: many statements at once, cancelling, timeouts, batches, parameters.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use thetis::{Connection, DataSource, ErrorKind, Event, Response};
use thetis_tests::block_on;
use tokio::time::{Instant, timeout};

/// Far longer than anything here may take: a test that reaches it hangs.
const HANGS: Duration = Duration::from_secs(60);

async fn engine() -> DataSource {
    let engine = DataSource::embedded().unwrap();
    let connection = engine.connect();
    for sql in [
        "CREATE STREAM slow (id BIGINT) WITH (connector = 'generator', rows_per_second = 1, column.id = 'sequence(1)')",
        "CREATE STREAM flood (id BIGINT) WITH (connector = 'generator', column.id = 'sequence(1)')",
        "CREATE STREAM many (id BIGINT, v DOUBLE, s VARCHAR)
         WITH (connector = 'generator', rows = 1000000, column.id = 'sequence(1)')",
        "CREATE TABLE t (x BIGINT)",
        "INSERT INTO t VALUES (1), (2), (3), (4), (5)",
    ] {
        connection.statement().execute(sql).await.unwrap();
    }
    engine
}

async fn one(connection: &Connection, sql: &str) -> i64 {
    let mut statement = connection.statement();
    let mut rows = statement.query(sql).await.unwrap();
    let value = rows.next_row().await.unwrap().unwrap().at(0).unwrap();
    assert!(rows.next_row().await.unwrap().is_none());
    value
}

#[test]
fn fifty_statements_on_ten_connections() {
    block_on(async {
        let engine = engine().await;
        let mut running = Vec::new();
        for number in 0..10 {
            let connection = engine.connect();
            connection.statement().execute(&format!("SET parallelism = {}", 1 + number % 3)).await.unwrap();
            for query in 0..5 {
                let connection = connection.clone();
                running.push(tokio::spawn(async move {
                    match query {
                        0 => assert_eq!(one(&connection, "SELECT COUNT(*) FROM many").await, 1_000_000),
                        1 => assert_eq!(one(&connection, "SELECT SUM(x) FROM t").await, 15),
                        2 => {
                            let pairs = "SELECT COUNT(*) FROM t AS a JOIN t AS b ON a.x < b.x";
                            assert_eq!(one(&connection, pairs).await, 10);
                        }
                        3 => {
                            let insert = format!("INSERT INTO log VALUES ({number})");
                            let create = "CREATE TABLE IF NOT EXISTS log (x BIGINT)";
                            connection.statement().execute(create).await.unwrap();
                            connection.statement().execute(&insert).await.unwrap();
                        }
                        _ => {
                            let mut statement = connection.statement();
                            let mut rows = statement.query("SELECT id FROM flood").await.unwrap();
                            for expected in 1..=20_000 {
                                let row = rows.next_row().await.unwrap().unwrap();
                                assert_eq!(row.get::<i64>("id").unwrap(), expected);
                            }
                        }
                    }
                }));
            }
        }
        for task in running {
            timeout(HANGS, task).await.unwrap().unwrap();
        }
        assert_eq!(one(&engine.connect(), "SELECT COUNT(DISTINCT x) FROM log").await, 10);
    });
}

#[test]
fn cancelling_ends_idle_and_flooding_queries() {
    block_on(async {
        let engine = engine().await;
        let connection = engine.connect();
        for sql in [
            "SELECT id FROM slow WHERE id < 0",
            "SELECT id FROM flood",
            "SELECT a.id AS a, b.id AS b FROM flood AS a JOIN flood AS b ON a.id <> b.id",
        ] {
            let mut statement = connection.statement();
            let cancel = statement.cancel_handle();
            let mut rows = statement.query(sql).await.unwrap();
            let cancelled = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                cancel.cancel();
                Instant::now()
            });
            let error = timeout(HANGS, async {
                loop {
                    match rows.next_batch().await {
                        Ok(Some(_)) => {}
                        Ok(None) => panic!("{sql} never ends"),
                        Err(error) => break error,
                    }
                }
            });
            assert_eq!(error.await.unwrap().kind(), ErrorKind::Cancelled, "{sql}");
            println!("cancelled after {:?}: {sql}", cancelled.await.unwrap().elapsed());
            // The statement can be used again.
            drop(rows);
            assert!(statement.query("SELECT 1 AS x").await.unwrap().next_row().await.unwrap().is_some());
        }
    });
}

#[test]
fn a_timeout_ends_queries_and_changes() {
    block_on(async {
        let engine = engine().await;
        let mut statement = engine.connect().statement();
        statement.set_query_timeout(Some(Duration::from_millis(200)));
        let mut rows = statement.query("SELECT id FROM slow WHERE id < 0").await.unwrap();
        let error = timeout(HANGS, rows.next_row()).await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Timeout, "57014"));
        drop(rows);
        let sink = "CREATE SINK nowhere WITH (connector = 'blackhole')";
        statement.execute(sink).await.unwrap();
        let error = timeout(HANGS, statement.execute("INSERT INTO nowhere SELECT id FROM flood")).await.unwrap();
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Timeout);
        statement.set_query_timeout(None);
        assert_eq!(one(&engine.connect(), "SELECT SUM(x) FROM t").await, 15);
    });
}

#[test]
fn a_fetch_size_bounds_what_comes_at_once() {
    block_on(async {
        let engine = engine().await;
        let mut statement = engine.connect().statement();
        statement.set_fetch_size(Some(1_000));
        let mut rows = statement.query("SELECT id FROM many WHERE id <= 20000").await.unwrap();
        let mut count = 0;
        while let Some(batch) = rows.next_batch().await.unwrap() {
            assert!(batch.num_rows() <= 1_000);
            count += batch.num_rows();
        }
        assert_eq!(count, 20_000);
    });
}

#[test]
fn nobody_reads_and_the_source_stops() {
    block_on(async {
        let engine = engine().await;
        let mut statement = engine.connect().statement();
        let mut rows = statement.query("SELECT id FROM flood").await.unwrap();
        rows.next_row().await.unwrap().unwrap();
        // Back-pressure: what is read ahead is bounded by channels, however long nobody reads.
        let mut last = 0;
        let settled = async {
            loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let now = rows.progress().rows_in;
                if now == last {
                    break now;
                }
                last = now;
            }
        };
        let ahead = timeout(HANGS, settled).await.unwrap();
        assert!(ahead < 1_000_000, "{ahead} rows read ahead");
    });
}

#[test]
fn a_subscription_tells_when_an_epoch_is_whole() {
    block_on(async {
        let engine = engine().await;
        let mut sums = engine.connect().statement().subscribe("SELECT SUM(x) AS s FROM t").await.unwrap();
        let connection = engine.connect();
        let mut seen = 0;
        for step in 1..=20_i64 {
            connection.statement().execute(&format!("INSERT INTO t VALUES ({step})")).await.unwrap();
            seen += step;
        }
        let mut last = None;
        let reached = async {
            while last != Some(15 + seen) {
                match sums.next_event().await.unwrap().unwrap() {
                    Event::Changes(changes) => {
                        let inserted = changes.weights.iter().position(|weight| *weight > 0);
                        let column = changes.rows.column(0);
                        let values = column.as_primitive::<Int64Type>();
                        last = inserted.map(|row| values.value(row)).or(last);
                    }
                    Event::Finished(_) => {}
                }
            }
        };
        timeout(HANGS, reached).await.unwrap();
    });
}

#[test]
fn a_batch_stops_at_its_first_error() {
    block_on(async {
        let engine = engine().await;
        let mut statement = engine.connect().statement();
        let batch = ["INSERT INTO t VALUES (6), (7)", "DELETE FROM t WHERE x = 1", "INSERT INTO nowhere VALUES (1)"];
        let failed = statement.execute_batch(&batch).await.unwrap_err();
        assert_eq!(failed.done.iter().map(|done| done.rows).collect::<Vec<_>>(), [Some(2), Some(1)]);
        assert_eq!(failed.error.sqlstate(), "42P01");
        assert_eq!(one(&engine.connect(), "SELECT COUNT(*) FROM t").await, 6);
    });
}

#[test]
fn parameters_are_typed_and_follow_the_catalogue() {
    block_on(async {
        let engine = engine().await;
        let connection = engine.connect();
        let mut near = connection.prepare("SELECT COUNT(*) FROM t WHERE x BETWEEN ? AND ?").unwrap();
        assert_eq!(near.parameters(), 2);
        assert_eq!(near.query().await.unwrap_err().kind(), ErrorKind::Usage);
        near.bind(1, &2_i64).unwrap().bind(2, &4_i64).unwrap();
        let count = |response: Response| async {
            let Response::Rows(mut rows) = response else { panic!("no rows") };
            rows.next_row().await.unwrap().unwrap().at::<i64>(0).unwrap()
        };
        assert_eq!(count(near.execute().await.unwrap()).await, 3);
        near.bind(2, &2.5).unwrap();
        assert_eq!(count(near.execute().await.unwrap()).await, 1);
        near.bind(2, &None::<i64>).unwrap();
        assert_eq!(count(near.execute().await.unwrap()).await, 0);
        assert!(near.bind(3, &1_i64).is_err());
        // Another table takes the name: the statement means the new one.
        connection.statement().execute("DROP TABLE t").await.unwrap();
        connection.statement().execute("CREATE TABLE t (x INTEGER)").await.unwrap();
        near.bind(1, &1_i64).unwrap().bind(2, &9_i64).unwrap();
        assert_eq!(count(near.execute().await.unwrap()).await, 0);
        let mut insert = connection.prepare("INSERT INTO t VALUES ($1 + $1)").unwrap();
        for x in 0..1_000_i32 {
            insert.bind(1, &x).unwrap();
            insert.add_batch().unwrap();
        }
        assert_eq!(insert.execute_batch().await.unwrap().len(), 1_000);
        assert_eq!(one(&connection, "SELECT SUM(x) FROM t").await, 999_000);
    });
}
