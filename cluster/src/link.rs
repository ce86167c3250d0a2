//! Between coordinator and worker.

use std::sync::Arc;

use thetis_executor::ExecError;
use thetis_executor::counters::QueryCounters;
use thetis_executor::frame::Epoch;
use thetis_executor::task::Delivery;
use tokio::sync::{mpsc, watch};

use crate::epochs::Announcement;
use crate::wire::WireError;

/// How a query ended; `None` while it runs.
pub type Outcome = Option<Result<(), ExecError>>;

/// Why a query does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its plan cannot be sent.
    #[error("the plan cannot be sent to the worker")]
    Wire(#[from] WireError),
    /// Its tasks cannot be made.
    #[error(transparent)]
    Tasks(#[from] ExecError),
}

/// A query that runs on a worker.
#[derive(Debug)]
pub struct Running {
    pub(crate) results: mpsc::Receiver<Delivery>,
    /// What its tasks count.
    pub counters: Arc<QueryCounters>,
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

/// The way to a worker: the embedded engine calls it, a network would send.
pub trait Link: Send + Sync + std::fmt::Debug {
    /// Starts the query whose DAG is in `plan` (see [`crate::wire`]). The worker follows
    /// `announced` and reports the sink's progress through `finished`.
    ///
    /// # Errors
    /// The plan cannot be decoded or run, a source cannot be opened.
    fn deploy(
        &self,
        plan: Vec<u8>,
        announced: watch::Receiver<Announcement>,
        finished: watch::Sender<Epoch>,
    ) -> Result<Running, StartError>;
}
