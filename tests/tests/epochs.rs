//! Epochs that are cut by the clock: virtual time, and a coordinator that is the test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::Duration;

use thetis_cluster::{Engine, Reply};
use thetis_executor::clock::VirtualClock;
use thetis_executor::frame::Epoch;
use thetis_executor::query::{Placement, Process, Share, instantiate};
use thetis_executor::table::Tables;
use thetis_executor::task::{Control, Delivery};
use thetis_parser::parse_statement;
use thetis_planner::{Output, Plan};
use tokio::sync::watch;

fn plan(rows: usize, folder: &std::path::Path) -> Plan {
    let path = folder.join("n.csv");
    let numbers: String = (0..rows).map(|n| format!("{n}\n")).collect();
    std::fs::write(&path, format!("n\n{numbers}")).unwrap();
    plan_over(&format!("path = '{}'", path.display()))
}

fn plan_over(options: &str) -> Plan {
    let engine = Engine::start().unwrap();
    let session = engine.session();
    let define = format!("CREATE STREAM t (n BIGINT) WITH ({options})");
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
    let placement = Placement::alone(&plan.dag, Process(0));
    let share = Share { dag: &plan.dag, placement: &placement, here: Process(0) };
    let mut instance = instantiate(&share, &control, &Tables::new()).unwrap();
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

#[test]
fn a_spring_without_rows_closes_its_epochs_within_the_grant() {
    // One row at once, and the next one after a quarter of an hour.
    let plan = plan_over("connector = 'generator', rows_per_second = 0.001, column.n = 'sequence(5)'");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let clock = Arc::new(VirtualClock::default());
    let (grant, granted) = watch::channel(Epoch(8));
    let (_commit, committed) = watch::channel(Epoch::NONE);
    let finished = Arc::new(watch::Sender::new(Epoch::NONE));
    let control = Control { granted, committed, finished, clock: Arc::clone(&clock) as _ };
    let placement = Placement::alone(&plan.dag, Process(0));
    let share = Share { dag: &plan.dag, placement: &placement, here: Process(0) };
    let mut instance = instantiate(&share, &control, &Tables::new()).unwrap();
    let tasks: Vec<_> = instance.tasks.into_iter().map(|task| runtime.spawn(task)).collect();
    let mut next = |within: Duration| {
        let next = runtime.block_on(async { tokio::time::timeout(within, instance.results.recv()).await });
        next.ok().map(|delivery| match delivery.unwrap() {
            Delivery::Frame(frame) => (frame.epoch, frame.rows()),
            Delivery::Progress(epoch) => (epoch, 0),
        })
    };
    let (soon, long) = (Duration::from_millis(500), Duration::from_secs(30));
    assert_eq!(next(soon), None);
    clock.advance(Duration::from_millis(100));
    assert_eq!((next(long), next(long)), (Some((Epoch(1), 1)), Some((Epoch(1), 0))));
    clock.advance(Duration::from_millis(200));
    assert_eq!(next(long), Some((Epoch(3), 0)));
    // Epoch 8 stays open: there is no grant for what follows it.
    clock.advance(Duration::from_secs(10));
    assert_eq!((next(long), next(soon)), (Some((Epoch(7), 0)), None));
    grant.send_replace(Epoch(20));
    assert_eq!(next(long), Some((Epoch(19), 0)));
    // The second row is due.
    grant.send_replace(Epoch::END);
    clock.advance(Duration::from_secs(1_000));
    let (mut last, mut rows) = (Epoch::NONE, 0);
    while last < Epoch(10_000) || rows == 0 {
        let (epoch, more) = next(long).unwrap();
        (last, rows) = (epoch, rows + more);
        clock.advance(Duration::from_millis(100));
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}
