//! A cluster on three hosts with a bad network between them: network namespaces of the test's own, joined
//! by a relay of the test's own that loses one packet in a hundred and delays the others. Needs root and
//! `ip`, as the gate has them.

use std::process::Command;
use std::time::Duration;

use thetis::{Connection, Driver};
use thetis_tests::{answer, block_on, cases, difference, query, run_all, statements};

use crate::processes::Process;
use crate::relay::Relay;

/// Hosts 1 (the coordinator), 2 and 3 (workers).
const HOSTS: std::ops::RangeInclusive<u8> = 1..=3;
const PORT: u16 = 7171;

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output().expect("iproute2 is installed");
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Namespaces, and the address by which each host is known to the others: the relay's.
struct Hosts;

fn name(host: u8) -> String {
    format!("thetis{host}")
}

impl Hosts {
    fn new() -> Self {
        drop(Self);
        for host in HOSTS {
            let (space, outer, inner) = (name(host), format!("tho{host}"), format!("thi{host}"));
            ip(&format!("netns add {space}"));
            ip(&format!("link add {outer} type veth peer name {inner}"));
            ip(&format!("link set {inner} netns {space}"));
            ip(&format!("addr add 10.77.{host}.254/24 dev {outer}"));
            ip(&format!("link set {outer} up"));
            ip(&format!("-n {space} addr add 10.77.{host}.1/24 dev {inner}"));
            ip(&format!("-n {space} link set {inner} up"));
            ip(&format!("-n {space} link set lo up"));
            ip(&format!("-n {space} route add default via 10.77.{host}.254"));
            ip(&format!("addr add 10.77.200.{host}/32 dev lo"));
        }
        Self
    }
}

impl Drop for Hosts {
    /// Takes away what is there, also of a run that was killed.
    fn drop(&mut self) {
        for host in HOSTS {
            for arguments in [
                format!("netns del {}", name(host)),
                format!("link del tho{host}"),
                format!("addr del 10.77.200.{host}/32 dev lo"),
            ] {
                let _ = Command::new("ip").args(arguments.split(' ')).output();
            }
        }
    }
}

/// The command, run on a host.
fn on(host: u8) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &name(host), env!("CARGO_BIN_EXE_thetis")]);
    command
}

struct Network {
    _processes: Vec<Process>,
    relay: Relay,
    connection: Connection,
    _data: tempfile::TempDir,
    _hosts: Hosts,
}

fn start() -> Network {
    let hosts = Hosts::new();
    let data = tempfile::tempdir().unwrap();
    let relay =
        Relay::start(HOSTS.map(|host| (format!("10.77.200.{host}:{PORT}"), format!("10.77.{host}.1:{PORT}"))), 42);
    let mut command = on(1);
    command.args(["coordinator", "--listen", &format!("10.77.1.1:{PORT}"), "--data"]).arg(data.path());
    let mut processes = vec![Process::start(&mut command).0];
    for host in [2, 3] {
        let mut command = on(host);
        let (listen, advertise) = (format!("10.77.{host}.1:{PORT}"), format!("10.77.200.{host}:{PORT}"));
        command.args(["worker", "--coordinator", &format!("10.77.200.1:{PORT}"), "--listen", &listen]);
        command.args(["--advertise", &advertise, "--name", &format!("w{host}"), "--slots", "1"]);
        processes.push(Process::start(command.env("THETIS_DATA", data.path())).0);
    }
    let identity = data.path().join("identities/client-local");
    let connection = Driver::connect(&format!("10.77.200.1:{PORT}"), Some(&identity)).unwrap();
    for _ in 0..100 {
        if connection.status().unwrap().workers.len() == 2 {
            return Network { _processes: processes, relay, connection, _data: data, _hosts: hosts };
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("the workers do not find their coordinator");
}

#[test]
fn answers_are_the_same_over_a_bad_network_and_a_partition_heals() {
    let network = start();
    let connection = &network.connection;
    block_on(async {
        for case in cases().iter().step_by(6) {
            let (definitions, sql) = statements(case);
            run_all(connection, &definitions).await;
            let wrong = difference(query(connection, &sql).await.unwrap(), answer(case));
            assert_eq!(wrong, None, "{}", case.display());
            let drops = connection.metadata().unwrap();
            let drops = drops.relations().iter();
            let drops: Vec<String> =
                drops.map(|known| format!("DROP {} \"{}\"", known.kind.name().to_uppercase(), known.name)).collect();
            run_all(connection, &drops).await;
        }
        // Rows come for three seconds; meanwhile a worker can reach nobody for two.
        let rows = |name: &str, seed: u8| {
            format!(
                "CREATE STREAM {name} (k BIGINT, v BIGINT) WITH (connector = 'generator', rows = 6000, rows_per_second = 2000,
                 seed = {seed}, column.k = 'uniform(0, 20000)', column.v = 'sequence(1)')"
            )
        };
        let definitions = ["SET matrix = '2x2'".to_owned(), rows("r", 1), rows("s", 2)];
        let sql = "SELECT r.v AS r, s.v AS s FROM r JOIN s ON r.k BETWEEN s.k - 3 AND s.k + 3";
        let embedded = Driver::open("thetis:").unwrap();
        run_all(&embedded, &definitions).await;
        let expected = query(&embedded, sql).await.unwrap();
        run_all(connection, &definitions).await;
        let partition = network.relay.partition("10.77.3.1", Duration::from_secs(1), Duration::from_secs(2));
        let found = query(connection, sql).await.unwrap();
        assert!(partition.lost() > 0, "nothing was sent to or by the host that was cut off");
        assert_eq!(difference(found, expected), None);
        let lost = network.relay.lost();
        assert!(lost > 10, "only {lost} packets were lost");
    });
}
