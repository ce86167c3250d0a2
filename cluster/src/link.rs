//! A running query, as those see it who want its result.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thetis_executor::ExecError;
use thetis_executor::counters::{QueryCounters, Snapshot};
use thetis_executor::frame::Epoch;
use thetis_executor::query::Process;
use thetis_executor::task::Delivery;
use thetis_planner::physical::OperatorId;
use tokio::sync::{mpsc, watch};

use crate::sync::locked;

/// How a query ended; `None` while it runs.
pub type Outcome = Option<Result<(), ExecError>>;

/// The last counts of a query that has ended come within this time.
const LAST_COUNTS: Duration = Duration::from_secs(2);

/// What the tasks of a query count, wherever they are.
#[derive(Debug)]
pub struct Counters {
    /// Of this process, if it has any.
    here: Option<Arc<QueryCounters>>,
    /// What the others said last.
    elsewhere: Mutex<BTreeMap<Process, Snapshot>>,
    /// Processes whose last word is to come.
    open: watch::Sender<usize>,
}

impl Counters {
    pub(crate) fn new(here: Arc<QueryCounters>, elsewhere: usize) -> Self {
        Self { here: Some(here), elsewhere: Mutex::default(), open: watch::channel(elsewhere).0 }
    }

    /// Of a query that another process looks after, whose counts come from there.
    pub(crate) fn remote() -> Self {
        Self { here: None, elsewhere: Mutex::default(), open: watch::channel(1).0 }
    }

    /// A process has counted this.
    pub(crate) fn on_counted(&self, process: Process, snapshot: Snapshot) {
        locked(&self.elsewhere).insert(process, snapshot);
    }

    /// A process will say no more.
    pub(crate) fn on_last(&self) {
        self.open.send_modify(|open| *open = open.saturating_sub(1));
    }

    /// The last commit of a stored table that is in the epochs up to `epoch`, as its spring `operator` says.
    pub(crate) fn covered(&self, operator: OperatorId, epoch: Epoch) -> Option<u64> {
        let mut sources = self.here.iter().flat_map(|here| &here.sources);
        sources.find(|(id, _)| *id == operator).and_then(|(_, source)| source.covered(epoch))
    }

    /// What has been counted until now.
    pub fn snapshot(&self) -> Snapshot {
        let mut all = self.here.as_ref().map_or_else(Snapshot::default, |here| here.snapshot());
        for snapshot in locked(&self.elsewhere).values() {
            all.merge(snapshot.clone());
        }
        all
    }

    /// What has been counted when the query has ended.
    pub async fn last(&self) -> Snapshot {
        let mut open = self.open.subscribe();
        // Without the last word of a process that is lost there is what it said before.
        let _ = tokio::time::timeout(LAST_COUNTS, open.wait_for(|open| *open == 0)).await;
        self.snapshot()
    }
}

/// A query that runs.
#[derive(Debug)]
pub struct Running {
    pub(crate) results: mpsc::Receiver<Delivery>,
    /// What its tasks count.
    pub counters: Arc<Counters>,
    /// How it ends.
    pub(crate) outcome: watch::Receiver<Outcome>,
    /// Everything is delivered.
    pub(crate) complete: bool,
    /// Ends it when it is sent `true`, or dropped.
    pub stop: watch::Sender<bool>,
}

impl Running {
    /// The next delivery; `None` when the result is complete. May be dropped while it waits, and called
    /// again.
    ///
    /// # Errors
    /// Whatever went wrong, or it was cancelled.
    pub async fn next(&mut self) -> Result<Option<Delivery>, ExecError> {
        if self.complete {
            return Ok(None);
        }
        if let Some(delivery) = self.results.recv().await {
            if matches!(delivery, Delivery::Progress(Epoch::END)) {
                // Tasks before a sink that wants no more rows may still be at work: they are told.
                self.complete = true;
                self.stop.send_replace(true);
            }
            return Ok(Some(delivery));
        }
        // Only now: the caller may drop this future while it waits, and call again.
        let outcome = self.outcome.wait_for(Option::is_some).await.map(|outcome| outcome.clone());
        self.complete = true;
        match outcome {
            Ok(outcome) => outcome.unwrap_or(Ok(())).map(|()| None),
            Err(_) => Err(ExecError::Internal("the engine is gone".to_owned())),
        }
    }
}
