//! Epochs that are cut by the clock: virtual time, and a coordinator that is the test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::Duration;

use thetis_cluster::{Engine, Reply};
use thetis_executor::clock::VirtualClock;
use thetis_executor::frame::Epoch;
use thetis_executor::query::instantiate;
use thetis_executor::table::Tables;
use thetis_executor::task::{Control, Delivery};
use thetis_parser::parse_statement;
use thetis_planner::{Output, Plan};
use tokio::sync::watch;

fn plan(rows: usize, folder: &std::path::Path) -> Plan {
    let path = folder.join("n.csv");
    let numbers: String = (0..rows).map(|n| format!("{n}\n")).collect();
    std::fs::write(&path, format!("n\n{numbers}")).unwrap();
    let engine = Engine::start().unwrap();
    let session = engine.session();
    let define = format!("CREATE STREAM t (n BIGINT) WITH (path = '{}')", path.display());
    for sql in [define.as_str(), "SET epoch_interval = '100ms'", "SET parallelism = 2"] {
        session.handle(&parse_statement(sql).unwrap(), Output::Changes).unwrap();
    }
    let query = parse_statement("SELECT n % 3 AS g, COUNT(*) AS c FROM t GROUP BY n % 3").unwrap();
    match session.handle(&query, Output::Changes).unwrap() {
        Reply::Query(plan) => *plan,
        other => panic!("not a query: {other:?}"),
    }
}

/// Runs the plan with the clock at `now` and grants up to `granted`: the epochs of its changes, and
/// the progress that the client sees.
fn run(plan: &Plan, now: Duration, granted: u64) -> (Vec<u64>, Vec<Epoch>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let clock = VirtualClock::default();
    clock.advance(now);
    let (_grant, granted) = watch::channel(Epoch(granted));
    let (_commit, committed) = watch::channel(Epoch::NONE);
    let (finished, sink_progress) = watch::channel(Epoch::NONE);
    let control = Control { granted, committed, finished: Arc::new(finished), clock: Arc::new(clock) };
    let mut instance = instantiate(&plan.dag, &control, &Tables::new()).unwrap();
    let tasks: Vec<_> = instance.tasks.into_iter().map(|task| runtime.spawn(task)).collect();
    let (mut epochs, mut progress) = (Vec::new(), Vec::new());
    while progress.last() != Some(&Epoch::END) {
        match instance.results.blocking_recv().unwrap() {
            Delivery::Frame(frame) => epochs.extend(std::iter::repeat_n(frame.epoch.0, frame.rows())),
            Delivery::Progress(epoch) => progress.push(epoch),
        }
    }
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap().unwrap());
    assert_eq!(*sink_progress.borrow(), Epoch::END);
    (epochs, progress)
}

#[test]
fn a_spring_stamps_the_epoch_of_its_clock() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(1_000, folder.path());
    let (epochs, progress) = run(&plan, Duration::ZERO, 32);
    assert_eq!((epochs, progress), (vec![1; 3], vec![Epoch::END]));
    // 350 ms: the fourth epoch of 100 ms; the three before it are closed first.
    let (epochs, progress) = run(&plan, Duration::from_millis(350), 32);
    assert_eq!((epochs, progress), (vec![4; 3], vec![Epoch(3), Epoch::END]));
}

#[test]
fn a_spring_at_the_end_of_its_grant_goes_on_with_the_last_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(50_000, folder.path());
    let (epochs, progress) = run(&plan, Duration::from_secs(60), 2);
    assert_eq!((epochs, progress), (vec![2; 3], vec![Epoch(1), Epoch::END]));
}
