//! Whole clusters in one thread, under virtual time and on a simulated network: coordinator, workers and client
//! are the ones that run in production, only network, clock, randomness and store are others.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cluster;

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use thetis_tests::{answer, cases, difference, statements};

use self::cluster::{Cluster, simulate};

/// Seeds in a normal run; `SIMULATION_SEEDS` says how many others.
const SEEDS: u64 = 50;

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str, default| std::env::var(name).ok().map_or(default, |text| text.parse().unwrap());
    let first = number("SIMULATION_FIRST", 0);
    first..first + number("SIMULATION_SEEDS", SEEDS)
}

/// Runs a case on a cluster that the seed chooses, while the network is cut now and then.
async fn run_case(seed: u64) -> Vec<String> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let all = cases();
    let case = &all[seed as usize % all.len()];
    let workers = random.random_range(1..=5);
    let cluster = Cluster::start(seed, workers).await;
    let client = cluster.client().await;
    let (definitions, sql) = statements(case);
    let mut settings = vec![format!("SET parallelism = {}", random.random_range(1..=6))];
    match random.random_range(0..3) {
        0 => settings.push("SET epoch_rows = 100".to_owned()),
        1 => settings.push(format!("SET matrix = '{}x{}'", random.random_range(1..=3), random.random_range(1..=3))),
        _ => {}
    }
    for statement in settings.iter().chain(&definitions) {
        cluster::done(&client, statement).await;
    }
    let cuts = cluster.cut_now_and_then(random.random());
    let found = cluster::rows(&client, &sql).await;
    cuts.abort();
    let wrong = difference(found, answer(case));
    assert_eq!(wrong, None, "seed {seed}: {} on {workers} workers with {settings:?}", case.display());
    cluster.network.trace()
}

#[test]
fn cases_have_their_answers_whatever_the_network_does() {
    for seed in seeds() {
        simulate(run_case(seed));
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [3, 8] {
        let [first, second] = [(); 2].map(|()| simulate(run_case(seed)));
        assert!(first.len() > 40, "only {} events", first.len());
        let differs = first.iter().zip(&second).position(|(a, b)| a != b);
        assert_eq!((differs, first.len()), (None, second.len()), "{:?}", differs.map(|at| (&first[at], &second[at])));
    }
    let [one, other] = [3, 4].map(|seed| simulate(run_case(seed)));
    assert_ne!(one, other);
}

#[test]
fn a_worker_that_is_cut_off_for_too_long_fails_its_queries_and_is_named() {
    simulate(async {
        let cluster = Cluster::start(7, 2).await;
        let client = cluster.client().await;
        cluster::done(&client, "CREATE STREAM t (x BIGINT) WITH (connector = 'generator', rows_per_second = 100)")
            .await;
        let endless =
            tokio::spawn(cluster::outcome(client, "SELECT a.x FROM t AS a JOIN t AS b ON a.x < b.x - 1000000"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        cluster.network.cut("w1", "c", Duration::from_secs(60));
        let error = endless.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("worker 'w1' is lost"), "{error}");
        // The one that is left takes new queries.
        let client = cluster.client().await;
        cluster::done(&client, "CREATE STREAM few (x BIGINT) WITH (connector = 'generator', rows = 10)").await;
        let rows =
            cluster::rows(&client, "SELECT COUNT(*) AS n FROM few AS a JOIN few AS b ON a.x <= b.x OR a.x > b.x").await;
        assert_eq!(format!("{rows:?}"), "[[Text(\"100\")]]");
        // The lost one comes back, under a new registration.
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert_eq!(cluster.client().await.status().await.unwrap().workers.len(), 2);
    });
}

#[test]
fn a_short_cut_heals_without_a_trace_in_the_result() {
    simulate(async {
        let cluster = Cluster::start(11, 3).await;
        let client = cluster.client().await;
        cluster::done(&client, "CREATE STREAM a (x BIGINT) WITH (connector = 'generator', rows = 4000, rows_per_second = 1000, column.x = 'sequence(1)')").await;
        cluster::done(&client, "SET matrix = '3x1'").await;
        // Longer than a connection lives, shorter than a worker may be silent.
        for (from, to) in [("w1", "w2"), ("w2", "c"), ("w3", "w1")] {
            let network = cluster.network.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(700)).await;
                network.cut(from, to, Duration::from_secs(6));
            });
        }
        let counted =
            cluster::rows(&client, "SELECT COUNT(*) AS n FROM a AS r JOIN a AS s ON r.x <= s.x AND r.x % 7 <> s.x % 5")
                .await;
        let expected: i64 = (1..=4000_i64).map(|s| (1..=s).filter(|r| r % 7 != s % 5).count() as i64).sum();
        assert_eq!(format!("{counted:?}"), format!("[[Text(\"{expected}\")]]"));
    });
}
