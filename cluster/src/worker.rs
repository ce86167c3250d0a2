//! A worker: runs the tasks of queries.

use std::sync::Arc;

use thetis_executor::ExecError;
use thetis_executor::clock::{Clock, SystemClock};
use thetis_executor::frame::Epoch;
use thetis_executor::query::{TaskFuture, instantiate};
use thetis_executor::table::Tables;
use thetis_executor::task::Control;
use thetis_planner::physical::Dag;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::epochs::Announcement;
use crate::link::{Link, Outcome, Running, StartError};
use crate::wire;

/// Runs tasks on a runtime.
#[derive(Debug)]
pub struct Worker {
    runtime: Handle,
    tables: Arc<Tables>,
}

impl Worker {
    /// A worker whose tasks run on `runtime`, which must have several threads, and read `tables`.
    pub fn new(runtime: Handle, tables: Arc<Tables>) -> Self {
        Self { runtime, tables }
    }
}

impl Link for Worker {
    fn deploy(
        &self,
        plan: Vec<u8>,
        announced: watch::Receiver<Announcement>,
        finished: watch::Sender<Epoch>,
    ) -> Result<Running, StartError> {
        let dag: Dag = wire::decode(&plan)?;
        let first = *announced.borrow();
        let (granted, granted_receiver) = watch::channel(first.granted);
        let (committed, committed_receiver) = watch::channel(first.committed);
        let control = Control {
            granted: granted_receiver,
            committed: committed_receiver,
            finished: Arc::new(finished),
            clock: Arc::new(SystemClock::start()) as Arc<dyn Clock>,
        };
        let instance = instantiate(&dag, &control, &self.tables)?;
        let (outcome_sender, outcome) = watch::channel(None);
        let (stop, stopped) = watch::channel(false);
        self.runtime.spawn(follow(announced, granted, committed));
        self.runtime.spawn(supervise(instance.tasks, stopped, outcome_sender));
        Ok(Running { results: instance.results, counters: instance.counters, outcome, stop, complete: false })
    }
}

/// Passes what the coordinator announces to the tasks.
async fn follow(
    mut announced: watch::Receiver<Announcement>,
    granted: watch::Sender<Epoch>,
    committed: watch::Sender<Epoch>,
) {
    while announced.changed().await.is_ok() {
        let now = *announced.borrow_and_update();
        granted.send_replace(now.granted);
        committed.send_replace(now.committed);
    }
    // The senders live as long as anybody waits for a grant.
    granted.closed().await;
}

/// Runs the tasks to their end, to the first error, or until the query is stopped.
async fn supervise(tasks: Vec<TaskFuture>, mut stopped: watch::Receiver<bool>, outcome: watch::Sender<Outcome>) {
    let mut running: JoinSet<Result<(), ExecError>> = tasks.into_iter().collect();
    // A task whose receiver is gone says Cancelled; the receiver's own error is the reason.
    let mut cancelled = false;
    let result = loop {
        tokio::select! {
            joined = running.join_next() => match joined {
                None => break if cancelled { Err(ExecError::Cancelled) } else { Ok(()) },
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(ExecError::Cancelled))) => cancelled = true,
                Some(Ok(Err(error))) => break Err(error),
                Some(Err(error)) if error.is_panic() => {
                    break Err(ExecError::Internal(format!("a task panicked: {error}")));
                }
                Some(Err(_)) => cancelled = true,
            },
            _ = stopped.wait_for(|stopped| *stopped) => break Err(ExecError::Cancelled),
        }
    };
    outcome.send_replace(Some(result));
    running.abort_all();
}
