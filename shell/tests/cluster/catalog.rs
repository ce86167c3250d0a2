//! What is defined survives `kill -9` of the coordinator.

use std::time::Duration;

use crate::processes::{Cluster, coordinator};

const SHOWN: &str = "SHOW STREAMS; SHOW VIEWS; SHOW SINKS; DESCRIBE kept; DESCRIBE big; DESCRIBE pairs";

#[test]
fn a_killed_coordinator_comes_back_with_its_whole_catalogue() {
    let mut cluster = Cluster::start(1);
    let path = cluster.data.path().join("n.csv");
    std::fs::write(&path, "x\n1\n2\n3\n").unwrap();
    cluster.csv(&format!(
        "CREATE STREAM n (x BIGINT) WITH (path = '{}');
         CREATE VIEW big AS SELECT x FROM n WHERE x > 1;
         CREATE TABLE kept (a BIGINT NOT NULL, \"B\" VARCHAR);
         CREATE SINK out WITH (connector = 'blackhole');
         CREATE VIEW gone AS SELECT 1 AS one;
         DROP VIEW gone;
         CREATE MATERIALIZED VIEW pairs AS SELECT COUNT(*) AS c FROM big AS p JOIN n AS q ON p.x > q.x;",
        path.display()
    ));
    assert_eq!(cluster.csv("SELECT c FROM pairs"), "c\n3\n");
    let before = cluster.csv(SHOWN);
    // While definitions come, it dies: every one that was confirmed is there afterwards.
    let mut made = Vec::new();
    let address = cluster.address.clone();
    let mut defining = crate::processes::thetis();
    let many: String =
        (0..2000).map(|i| format!("CREATE VIEW v{i} AS SELECT {i} AS x;\nSHOW parallelism;\n")).collect();
    let file = cluster.data.path().join("many.sql");
    std::fs::write(&file, many).unwrap();
    defining.args(["submit", "--format", "csv", file.to_str().unwrap()]).env("THETIS_DATA", cluster.data.path());
    let mut defining = defining.env("THETIS_CONNECT", &address).stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    cluster.coordinator.child.kill().unwrap();
    cluster.coordinator.child.wait().unwrap();
    let mut out = String::new();
    std::io::Read::read_to_string(&mut defining.stdout.take().unwrap(), &mut out).unwrap();
    defining.wait().unwrap();
    made.extend((0..out.matches("parallelism,").count()).map(|i| format!("v{i}")));
    assert!(!made.is_empty(), "nothing was defined before the end");
    let (restarted, again) = coordinator(cluster.data.path(), &address, &[]);
    assert_eq!(again, address);
    cluster.coordinator = restarted;
    // The worker finds it by itself, and the materialized view is filled again.
    cluster.wait_for(|status| status.workers.len() == 1);
    let mut pairs = cluster.client(&["-c", "SELECT c FROM pairs", "--format", "csv"]);
    for _ in 0..50 {
        if pairs.status.success() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        pairs = cluster.client(&["-c", "SELECT c FROM pairs", "--format", "csv"]);
    }
    assert_eq!(String::from_utf8(pairs.stdout).unwrap(), "c\n3\n");
    let names: Vec<String> =
        cluster.connect().metadata().unwrap().relations().iter().map(|known| known.name.clone()).collect();
    assert!(made.iter().all(|name| names.contains(name)), "{} of {} are there", names.len(), made.len());
    let drops: String =
        names.iter().filter(|name| name.starts_with('v')).map(|name| format!("DROP VIEW {name};")).collect();
    if !drops.is_empty() {
        cluster.csv(&drops);
    }
    assert_eq!(cluster.csv(SHOWN), before);
    assert_eq!(cluster.csv("SELECT x FROM big ORDER BY x"), "x\n2\n3\n");
}
