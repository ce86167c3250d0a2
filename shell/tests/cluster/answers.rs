//! The same answers as in one process, whatever the number of workers; what happens when one is lost.

use std::time::Duration;

use thetis::ErrorKind;
use thetis_tests::{answer, block_on, cases, difference, query, run_all, statements};

use crate::processes::{Cluster, Process, thetis, worker};

/// All cases on so many workers.
fn cases_on(workers: usize) {
    let cluster = Cluster::start(workers);
    block_on(async {
        for case in cases() {
            let (definitions, sql) = statements(&case);
            // A connection of its own: the catalogue is shared, so names are made free again.
            let connection = cluster.connect();
            run_all(&connection, &definitions).await;
            let found = query(&connection, &sql).await;
            let wrong = difference(found.unwrap(), answer(&case));
            assert_eq!(wrong, None, "{} on {workers} workers", case.display());
            let mut drops: Vec<String> = connection
                .metadata()
                .unwrap()
                .relations()
                .iter()
                .map(|known| format!("DROP {} \"{}\"", known.kind.name().to_uppercase(), known.name))
                .collect();
            // Views before what they use.
            drops.sort_by_key(|drop| !drop.starts_with("DROP VIEW"));
            run_all(&connection, &drops).await;
        }
    });
}

#[test]
fn cases_on_one_worker() {
    cases_on(1);
}

#[test]
fn cases_on_two_workers() {
    cases_on(2);
}

#[test]
fn cases_on_three_workers() {
    cases_on(3);
}

#[test]
fn cases_on_five_workers() {
    cases_on(5);
}

const STREAMS: &str = "CREATE STREAM r (k BIGINT, v BIGINT) WITH (connector = 'generator', rows = 20000, seed = 1, column.k = 'uniform(0, 100000)', column.v = 'sequence(1)');
    CREATE STREAM s (k BIGINT, v BIGINT) WITH (connector = 'generator', rows = 20000, seed = 2, column.k = 'uniform(0, 100000)', column.v = 'sequence(1)');";

#[test]
fn rows_go_between_workers_and_explain_counts_their_bytes() {
    let cluster = Cluster::start(3);
    let join = "SELECT COUNT(*) AS n, SUM(r.v) AS v FROM r JOIN s ON r.k BETWEEN s.k - 50 AND s.k + 50";
    let here = thetis().args(["--format", "csv", "-c", &format!("{STREAMS} {join}")]).output().unwrap();
    let there = cluster.csv(&format!("{STREAMS} SET matrix = '2x2'; {join}"));
    assert_eq!(there, String::from_utf8(here.stdout).unwrap());
    let plan = cluster.csv(&format!("SET matrix = '2x2'; EXPLAIN (ANALYZE, FORMAT JSON) {join}"));
    // Two edges into the join, one out of it; only edges that have sent something say how much.
    assert!(plan.matches("sent_bytes").count() >= 3, "{plan}");
}

#[test]
fn a_lost_worker_fails_its_queries_by_name_and_a_leaving_one_waits_for_them() {
    let mut cluster = Cluster::with(2, &["--worker-timeout", "2s"]);
    let endless = "CREATE STREAM t (x BIGINT) WITH (connector = 'generator', rows_per_second = 100);
        SET matrix = '1x2'; SELECT a.x FROM t AS a JOIN t AS b ON a.x < b.x - 1000000000";
    let mut client = thetis();
    client.args(["-c", endless, "--format", "csv"]).env("THETIS_DATA", cluster.data.path());
    client.env("THETIS_CONNECT", &cluster.address).stderr(std::process::Stdio::piped());
    let mut running = client.stdout(std::process::Stdio::null()).spawn().unwrap();
    cluster.wait_for(|status| status.queries.len() == 1 && status.workers.iter().all(|worker| worker.tasks > 0));
    // SIGTERM: it is seen to leave, and waits.
    cluster.workers[1].signal("-TERM");
    cluster.wait_for(|status| status.workers.iter().any(|worker| worker.state == "leaving"));
    assert!(cluster.workers[1].child.try_wait().unwrap().is_none());
    cluster.workers[0].child.kill().unwrap();
    let failed = running.wait_with_output_of_stderr();
    assert!(failed.contains("worker 'w1' is lost"), "{failed}");
    assert_eq!(cluster.workers[1].ended(Duration::from_secs(10)), Some(0));
    cluster.wait_for(|status| status.workers.is_empty() && status.queries.is_empty());
    let refused = cluster.connect();
    let error = block_on(query(&refused, "SELECT COUNT(*) AS n FROM t")).unwrap_err();
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Connection, "08006"));
    // Small things need no worker.
    assert_eq!(
        cluster.csv("CREATE TABLE few (x BIGINT); INSERT INTO few VALUES (1), (2); SELECT SUM(x) AS s FROM few"),
        "s\n3\n"
    );
    // A new process under an old name is welcome.
    cluster.workers.push(worker(cluster.data.path(), &cluster.address, "w1", &[]));
    cluster.wait_for(|status| status.workers.len() == 1);
}

trait StandardError {
    fn wait_with_output_of_stderr(&mut self) -> String;
}

impl StandardError for std::process::Child {
    fn wait_with_output_of_stderr(&mut self) -> String {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.stderr.take().unwrap(), &mut text).unwrap();
        self.wait().unwrap();
        text
    }
}

#[test]
fn a_file_that_a_worker_cannot_read_is_named_with_the_worker() {
    // The worker runs in another folder: a relative path leads it elsewhere.
    let data = tempfile::tempdir().unwrap();
    let (_coordinator, address) = {
        let mut command = thetis();
        command.args(["coordinator", "--listen", "127.0.0.1:0", "--data"]).arg(data.path()).current_dir(data.path());
        Process::start(&mut command)
    };
    std::fs::write(data.path().join("here.csv"), "x\n1\n").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let mut command = thetis();
    command.args(["worker", "--coordinator", &address, "--name", "far"]).env("THETIS_DATA", data.path());
    let _worker = Process::start(command.current_dir(elsewhere.path()));
    let connection = thetis::Driver::connect(&address, Some(&data.path().join("identities/client-local"))).unwrap();
    while connection.status().unwrap().workers.is_empty() {
        std::thread::sleep(Duration::from_millis(50));
    }
    block_on(run_all(&connection, &["CREATE STREAM here (x BIGINT) WITH (path = 'here.csv')".to_owned()]));
    let error = block_on(query(&connection, "SELECT x FROM here")).unwrap_err();
    assert_eq!(error.message(), "here.csv: no such file (on worker 'far')");
}

#[test]
fn memory_stays_bounded_behind_a_slow_reader() {
    let cluster = Cluster::start(2);
    block_on(async {
        let connection = cluster.connect();
        let define = "CREATE STREAM fast (x BIGINT, t VARCHAR) WITH (connector = 'generator', column.x = 'sequence(1)', column.t = 'text(100)')";
        run_all(&connection, &[define.to_owned()]).await;
        let mut statement = connection.statement();
        statement.set_fetch_size(Some(100));
        let mut rows = statement
            .query("SELECT a.x, a.t FROM fast AS a JOIN (VALUES (1), (2)) AS v(n) ON a.x > v.n")
            .await
            .unwrap();
        let mut peak = 0;
        // A minute of a thousand rows a second.
        for _ in 0..600 {
            rows.next_batch().await.unwrap().unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
            let processes = cluster.workers.iter().chain([&cluster.coordinator]);
            peak = processes.map(Process::resident).max().unwrap().max(peak);
        }
        assert!(peak < 400 << 20, "{} MB", peak >> 20);
    });
}

/// Some values go on over line ends and have quotes: splits begin in the middle of anything.
fn text_of(n: usize) -> String {
    if n.is_multiple_of(7) { format!("a,\n{n}\"b") } else { format!("plain {n}") }
}

fn csv_line(n: usize) -> String {
    let text = text_of(n);
    if text.contains('"') { format!("{n},\"{}\"\n", text.replace('"', "\"\"")) } else { format!("{n},{text}\n") }
}

#[test]
fn large_files_are_read_in_splits_by_all_workers() {
    let cluster = Cluster::start(3);
    let (csv, json) = (cluster.data.path().join("big.csv"), cluster.data.path().join("big.ndjson"));
    let all = 0..250_000;
    std::fs::write(&csv, format!("k,t\n{}", all.clone().map(csv_line).collect::<String>())).unwrap();
    let json_line = |n: usize| format!("{{\"k\": {n}, \"t\": {:?}}}\n", text_of(n));
    std::fs::write(&json, all.clone().map(json_line).collect::<String>()).unwrap();
    let length: usize = all.clone().map(|n| text_of(n).len()).sum();
    let expected = format!("n,k,d,l\n250000,{},250000,{length}\n", all.sum::<usize>());
    for (name, path) in [("c", &csv), ("j", &json)] {
        cluster.csv(&format!("CREATE STREAM {name} (k BIGINT, t VARCHAR) WITH (path = '{}')", path.display()));
        let query =
            format!("SELECT COUNT(*) AS n, SUM(k) AS k, COUNT(DISTINCT k) AS d, SUM(length(t)) AS l FROM {name}");
        let plan = cluster.csv(&format!("EXPLAIN ANALYZE {query}"));
        assert!(plan.contains("(3 tasks, about") && plan.contains("250,000 rows read"), "{plan}");
        assert_eq!(cluster.csv(&query), expected);
    }
}
