//! Who may do what: each right with somebody who has it and somebody who has not.

use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thetis::Driver;
use thetis_cluster::front::protocol::Request;
use thetis_cluster::net::framing::{Parcel, VERSION, framed};
use thetis_cluster::net::identity::{Authority, Identity};
use thetis_cluster::net::quic::Quic;
use thetis_cluster::net::transport::{Connection, NetError, Peer, Role, Transport};
use thetis_cluster::protocol::{EdgeHead, Generation, Greeting, Hello, QueryId};
use thetis_executor::query::Process as Number;
use thetis_planner::Output;

use crate::processes::{Cluster, Process, thetis};

/// Runs a test in a runtime that endpoints can live in.
fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test)
}

fn identity(data: &Path, role: Role, name: &str) -> Identity {
    let authority = Authority::load(data).unwrap();
    let pems = authority.issue(&Peer::new(role, name)).unwrap();
    Identity::of(&pems, data).unwrap()
}

async fn connect(identity: Identity, peer: &Peer, address: &str) -> Result<Arc<dyn Connection>, NetError> {
    let transport = Quic::client(identity)?;
    let connection = transport.connect(peer, address).await?;
    // The endpoint lives as long as the test.
    std::mem::forget(transport);
    Ok(connection)
}

/// What comes back when somebody says `greeting` (and an empty message): a message, or nothing.
async fn answered(connection: &Arc<dyn Connection>, greeting: &Greeting) -> bool {
    let Ok(stream) = connection.open().await else { return false };
    let (mut sender, mut receiver) = framed(stream);
    let said = async {
        sender.greet(Parcel::new(greeting)?).await?;
        sender.send(Parcel::new(&())?).await?;
        receiver.receive().await
    };
    matches!(tokio::time::timeout(Duration::from_secs(5), said).await, Ok(Ok(Some(_))))
}

fn select_one() -> Greeting {
    Greeting::Request(Box::new(Request::Execute("SELECT 1 AS one".to_owned(), Output::Result)))
}

fn hello() -> Greeting {
    Greeting::Control(Hello { boot: 1, slots: 1, address: "127.0.0.1:1".to_owned(), resumes: None })
}

fn edge() -> Greeting {
    Greeting::Edge(EdgeHead { query: QueryId(1), edge: 0, from: Number(1), generation: Generation(1) })
}

#[test]
fn another_authority_is_not_trusted_in_either_direction() {
    let cluster = Cluster::start(0);
    let other = tempfile::tempdir().unwrap();
    Authority::open(other.path()).unwrap();
    let stranger = Authority::load(other.path()).unwrap().issue(&Peer::new(Role::Client, "local")).unwrap();
    stranger.save(&other.path().join("id")).unwrap();
    let error = Driver::connect(&cluster.address, Some(&other.path().join("id"))).unwrap_err();
    assert!(error.message().contains("refuses") || error.message().contains("lost"), "{error}");
    // With the right authority for the server, and a certificate of the wrong one.
    let mut mixed = stranger;
    mixed.authority = Authority::load(cluster.data.path()).unwrap().certificate().to_owned();
    mixed.save(&other.path().join("mixed")).unwrap();
    assert!(Driver::connect(&cluster.address, Some(&other.path().join("mixed"))).is_err());
    assert!(Driver::connect(&cluster.address, Some(&cluster.identity())).is_ok());
}

#[test]
fn an_expired_certificate_gets_nothing() {
    let cluster = Cluster::start(0);
    let authority = Authority::load(cluster.data.path()).unwrap();
    let ends = |hours: i64| {
        let end = time::OffsetDateTime::now_utc() + time::Duration::hours(hours);
        let folder = cluster.data.path().join(format!("ends{hours}"));
        authority.issue_until(&Peer::new(Role::Client, "late"), end).unwrap().save(&folder).unwrap();
        Driver::connect(&cluster.address, Some(&folder))
    };
    assert!(ends(1).is_ok());
    let error = ends(-1).unwrap_err();
    assert_eq!(error.sqlstate(), "08006");
}

#[test]
fn a_role_is_what_a_certificate_says() {
    let cluster = Cluster::start(1);
    let worker_address = cluster.status().workers[0].address.clone();
    run(async {
        let data = cluster.data.path();
        let coordinator = Peer::coordinator();
        let client = connect(identity(data, Role::Client, "c"), &coordinator, &cluster.address).await.unwrap();
        assert!(answered(&client, &select_one()).await);
        assert!(!answered(&client, &hello()).await);
        assert!(!answered(&client, &edge()).await);
        let worker = connect(identity(data, Role::Worker, "w9"), &coordinator, &cluster.address).await.unwrap();
        assert!(!answered(&worker, &select_one()).await);
        assert!(answered(&worker, &hello()).await);
        // A client cannot reach a worker at all, and nobody takes a worker for a coordinator.
        let w1 = Peer::new(Role::Worker, "w1");
        let to_worker = connect(identity(data, Role::Client, "c"), &w1, &worker_address).await;
        if let Ok(connection) = to_worker {
            assert!(!answered(&connection, &edge()).await);
            assert!(!answered(&connection, &select_one()).await);
        }
        assert!(connect(identity(data, Role::Worker, "w9"), &coordinator, &worker_address).await.is_err());
        assert!(connect(identity(data, Role::Worker, "w9"), &w1, &worker_address).await.is_ok());
    });
    // The command says so, too.
    let worker = cluster.data.path().join("workers/w1");
    let error = Driver::connect(&cluster.address, Some(&worker)).unwrap_err();
    assert!(error.message().contains("is the identity of worker w1, not of a client"), "{error}");
}

#[test]
fn a_token_lets_one_worker_in() {
    let cluster = Cluster::start(0);
    let made = thetis().args(["cert", "token", "--data"]).arg(cluster.data.path()).output().unwrap();
    let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let join = |name: &str, token: &str| {
        let home = cluster.data.path().join(format!("home-{name}"));
        let mut command = thetis();
        command.args(["worker", "--coordinator", &cluster.address, "--name", name, "--slots", "1", "--data"]);
        command.arg(&home).env("THETIS_WORKER_TOKEN", token).env("THETIS_DATA", &home);
        command
    };
    let (_in, _) = Process::start(&mut join("far", &token));
    cluster.wait_for(|status| status.workers.len() == 1 && status.workers[0].name == "far");
    let wrong_authority =
        format!("{}{}", &token[..token.len() - 4], if token.ends_with("0000") { "1111" } else { "0000" });
    let never_made = token.replacen(&token[7..39], &"0".repeat(32), 1);
    for (name, token, says) in [
        ("again", token.as_str(), "the token was used before"),
        ("forged", never_made.as_str(), "never made"),
        ("misled", wrong_authority.as_str(), "refuses the connection"),
        ("odd", "thetis-x", "no join token"),
    ] {
        let refused = join(name, token).output().unwrap();
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && error.contains(says), "{name}: {error}");
        assert!(!error.contains(&token[..token.len().min(39)]), "the token is in the log: {error}");
    }
    assert_eq!(cluster.status().workers.len(), 1);
}

/// The coordinator survives what is sent on a stream, and ends the stream.
async fn survives(connection: &Arc<dyn Connection>, bytes: Vec<u8>) {
    let stream = connection.open().await.unwrap();
    let (mut send, mut receive) = (stream.send, stream.receive);
    let sent = async {
        let _ = send.send(&mut [Bytes::from(bytes)]).await;
        send.finish();
        receive.receive(1 << 10).await
    };
    let answer = tokio::time::timeout(Duration::from_secs(8), sent).await.expect("the stream is left open");
    assert!(!matches!(answer, Ok(Some(_))), "an answer to garbage");
}

#[test]
fn versions_lengths_and_garbage() {
    let cluster = Cluster::start(1);
    let worker_address = cluster.status().workers[0].address.clone();
    run(async {
        let data = cluster.data.path();
        let mut random = 7_u64;
        let mut garbage = || {
            let byte = || {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 56) as u8
            };
            std::iter::repeat_with(byte).take(100_000).collect::<Vec<_>>()
        };
        let greeting = |version: u16, lengths: [u32; 2], rest: &[u8]| {
            let lengths = lengths.map(u32::to_le_bytes).concat();
            [b"THTS", version.to_le_bytes().as_slice(), &lengths, rest].concat()
        };
        let client = connect(identity(data, Role::Client, "c"), &Peer::coordinator(), &cluster.address).await.unwrap();
        let worker = connect(identity(data, Role::Worker, "w8"), &Peer::new(Role::Worker, "w1"), &worker_address).await;
        let before = cluster.coordinator.resident();
        for connection in [client.clone(), worker.unwrap()] {
            survives(&connection, garbage()).await;
            survives(&connection, greeting(VERSION + 1, [4, 0], b"abcd")).await;
            survives(&connection, greeting(VERSION, [1 << 30, 0], b"abcd")).await;
            survives(&connection, greeting(VERSION, [4, 1 << 30], b"abcd")).await;
            survives(&connection, greeting(VERSION, [100_000, 0], &garbage())).await;
            survives(&connection, greeting(VERSION, [60, 0], &garbage()[..60])).await;
            survives(&connection, greeting(VERSION, [60, 0], b"cut off")).await;
            survives(&connection, Vec::new()).await;
        }
        // A gigabyte of string length inside of a message that is short.
        let mut head = vec![2, 0, 253];
        head.extend((1_u64 << 30).to_le_bytes());
        survives(&client, greeting(VERSION, [head.len() as u32, 0], &head)).await;
        assert!(cluster.coordinator.resident() < before + (64 << 20));
        assert!(answered(&client, &select_one()).await);
    });
    assert_eq!(cluster.csv("SELECT 1 AS one"), "one\n1\n");
}

#[test]
fn ten_thousand_half_open_connections_cost_little() {
    let cluster = Cluster::start(1);
    let before = cluster.coordinator.resident();
    let coordinator = cluster.address.clone();
    // First packets of real handshakes, caught on their way and handed on; their answers go nowhere.
    run(async {
        let trap = UdpSocket::bind("127.0.0.1:0").unwrap();
        trap.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let there = trap.local_addr().unwrap().to_string();
        let identity = identity(cluster.data.path(), Role::Client, "flood");
        let catcher = tokio::task::spawn_blocking(move || {
            let out = UdpSocket::bind("127.0.0.1:0").unwrap();
            let (mut handed, mut packet) = (0, [0; 2048]);
            while handed < 10_000 {
                let Ok(length) = trap.recv(&mut packet) else { continue };
                out.send_to(&packet[..length], &coordinator).unwrap();
                handed += 1;
            }
        });
        let transport = Arc::new(Quic::client(identity).unwrap());
        let mut attempts = tokio::task::JoinSet::new();
        while !catcher.is_finished() {
            let (transport, there) = (Arc::clone(&transport), there.clone());
            attempts.spawn(async move {
                let connect = transport.connect(&Peer::coordinator(), &there).await;
                drop(connect);
            });
            if attempts.len() > 500 {
                attempts.abort_all();
                while attempts.join_next().await.is_some() {}
            }
            tokio::task::yield_now().await;
        }
        attempts.abort_all();
    });
    assert_eq!(cluster.csv("SELECT 1 AS one"), "one\n1\n");
    let grown = cluster.coordinator.resident().saturating_sub(before);
    assert!(grown < 128 << 20, "{} MB more", grown >> 20);
}
