//! The client library, the shell and the operator's view, on a cluster.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use thetis::{ErrorKind, Event, Response};
use thetis_tests::{Value, block_on, query, run_all};

use crate::processes::{Cluster, Process, thetis};

const ENDLESS: &str =
    "CREATE STREAM t (x BIGINT) WITH (connector = 'generator', rows_per_second = 1000, column.x = 'sequence(1)')";

#[test]
fn statements_are_prepared_batched_checked_and_cancelled() {
    let cluster = Cluster::start(1);
    block_on(async {
        let connection = cluster.connect();
        run_all(
            &connection,
            &["CREATE TABLE bikes (id BIGINT, km DOUBLE, what VARCHAR)".to_owned(), ENDLESS.to_owned()],
        )
        .await;
        let mut insert = connection.prepare("INSERT INTO bikes VALUES (?, ?, ?)").unwrap();
        for id in 0..100_i64 {
            insert.bind(1, &id).unwrap().bind(2, &(id as f64 / 10.0)).unwrap().bind(3, &format!("no {id}")).unwrap();
            insert.add_batch().unwrap();
        }
        assert_eq!(insert.execute_batch().await.unwrap().len(), 100);
        let mut near = connection.prepare("SELECT what FROM bikes WHERE km BETWEEN $1 - $2 AND $1 + $2").unwrap();
        let mut rows = near.bind(1, &5.0).unwrap().bind(2, &0.15).unwrap().query().await.unwrap();
        let mut found = Vec::new();
        while let Some(row) = rows.next_row().await.unwrap() {
            found.push(row.get::<String>("what").unwrap());
        }
        assert_eq!(found, ["no 49", "no 50", "no 51"]);
        let mut statement = connection.statement();
        assert_eq!(statement.update("DELETE FROM bikes WHERE id >= 50").await.unwrap(), 50);
        statement.check("SELECT id FROM bikes").await.unwrap();
        let error = statement.check("SELECT ids FROM bikes").await.unwrap_err();
        assert_eq!((error.sqlstate(), error.position().map(|at| at.column)), ("42703", Some(8)));
        assert!(error.hint().is_some_and(|hint| hint.contains("id")), "{error:?}");
        // A cancelled statement ends, and so does its query in the cluster.
        let mut endless = connection.statement();
        let cancel = endless.cancel_handle();
        let mut rows = endless.query("SELECT a.x FROM t AS a JOIN t AS b ON a.x <= b.x").await.unwrap();
        assert!(rows.next_batch().await.unwrap().is_some());
        assert_eq!(cluster.status().queries.len(), 1);
        cancel.cancel();
        let ended = loop {
            match rows.next_batch().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ends by itself"),
                Err(error) => break error,
            }
        };
        assert_eq!(ended.kind(), ErrorKind::Cancelled);
        cluster.wait_for(|status| status.queries.is_empty() && status.workers[0].tasks == 0);
        // So does one whose result is dropped, or that takes too long.
        drop(connection.statement().query("SELECT x FROM t").await.unwrap());
        let mut slow = connection.statement();
        slow.set_query_timeout(Some(Duration::from_millis(300)));
        let mut rows = slow.query("SELECT x FROM t WHERE x < 0").await.unwrap();
        assert_eq!(rows.next_batch().await.unwrap_err().kind(), ErrorKind::Timeout);
        cluster.wait_for(|status| status.queries.is_empty());
        let error = query(&connection, "SELECT 1 / (id - id) AS x FROM bikes").await.unwrap_err();
        assert_eq!(error.sqlstate(), "22012");
    });
}

#[test]
fn a_subscription_follows_a_view_and_settings_are_of_a_session() {
    let cluster = Cluster::start(2);
    block_on(async {
        let connection = cluster.connect();
        let tables = ["CREATE TABLE l (x BIGINT)", "CREATE TABLE r (x BIGINT)"].map(str::to_owned);
        run_all(&connection, &tables).await;
        let pairs = "CREATE MATERIALIZED VIEW pairs AS SELECT COUNT(*) AS n FROM l JOIN r ON l.x < r.x".to_owned();
        run_all(&connection, &[pairs, "SET parallelism = 4".to_owned()]).await;
        let mut follower = cluster.connect().statement();
        let mut changes = follower.subscribe("SELECT n FROM pairs").await.unwrap();
        let other = cluster.connect();
        run_all(&other, &["INSERT INTO l VALUES (1), (2)".to_owned(), "INSERT INTO r VALUES (2), (3)".to_owned()])
            .await;
        assert_eq!(query(&other, "SELECT n FROM pairs").await.unwrap(), [[Value::Text("3".to_owned())]]);
        let mut now = 0;
        while now != 3 {
            if let Some(Event::Changes(changes)) = changes.next_event().await.unwrap() {
                let values = thetis_tests::rows(&changes.rows, 0);
                for (row, weight) in values.iter().zip(changes.weights) {
                    let Value::Text(text) = &row[0] else { panic!("{row:?}") };
                    now += weight * text.parse::<i64>().unwrap();
                }
            }
        }
        let parallelism = |connection: &thetis::Connection| {
            let known = connection.metadata().unwrap();
            known.settings().iter().find(|row| row.name == "parallelism").unwrap().value.clone()
        };
        assert_eq!((parallelism(&connection), parallelism(&other)), ("4".to_owned(), "2".to_owned()));
        assert!(matches!(other.statement().execute("SHOW WORKERS").await, Ok(Response::Rows(_))));
    });
}

#[test]
fn operators_see_tasks_metrics_and_logs() {
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("thetis.toml");
    // The address of the metrics comes from the file, the one of the cluster from a flag.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    std::fs::write(&config, format!("[coordinator]\nmetrics = \"{free}\"\nlisten = \"127.0.0.1:1\"\n")).unwrap();
    let mut command = thetis();
    command.args(["coordinator", "--listen", "127.0.0.1:0", "--log-format", "json", "--config"]).arg(&config);
    command.env("THETIS_DATA", data.path()).stderr(Stdio::piped());
    let (mut coordinator, address) = Process::start(&mut command);
    let _worker = crate::processes::worker(data.path(), &address, "w1", &[]);
    let connection = thetis::Driver::connect(&address, Some(&data.path().join("identities/client-local"))).unwrap();
    while connection.status().unwrap().workers.is_empty() {
        std::thread::sleep(Duration::from_millis(50));
    }
    block_on(async {
        run_all(&connection, &[ENDLESS.to_owned()]).await;
        let mut statement = connection.statement();
        let mut rows = statement.query("SELECT a.x FROM t AS a JOIN t AS b ON a.x <= b.x").await.unwrap();
        for _ in 0..5 {
            rows.next_batch().await.unwrap();
        }
        // What workers have counted comes with their signs of life.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let tasks = query(&connection, "SHOW TASKS").await.unwrap();
        let text = format!("{tasks:?}");
        assert!(text.contains("source 0 t#0") && text.contains("join 1#0") && text.contains("w1"), "{text}");
        let mut stream = TcpStream::connect(free).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let read =
            answer.lines().find(|line| line.starts_with("thetis_task_rows_in_total{") && line.contains("source 0 t#0"));
        let read: f64 = read.and_then(|line| line.rsplit(' ').next()).expect("a sample").parse().unwrap();
        assert!(read > 0.0 && answer.contains("thetis_worker_slots{worker=\"w1\"} 1"), "{answer}");
    });
    coordinator.signal("-TERM");
    assert_eq!(coordinator.ended(Duration::from_secs(5)), Some(0));
    let mut log = String::new();
    coordinator.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    let registered = log.lines().find(|line| line.contains("\"message\":\"registered\"")).expect("a line of JSON");
    assert!(registered.starts_with('{') && registered.contains("\"worker\":\"w1\""), "{registered}");
}

#[test]
fn a_setting_that_is_not_there_is_refused_with_a_suggestion() {
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("thetis.toml");
    std::fs::write(&config, "[worker]\nslot = 3\n").unwrap();
    let output = thetis().args(["worker", "--config"]).arg(&config).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("there is no setting 'slot' in [worker]; did you mean slots?"), "{error}");
}
