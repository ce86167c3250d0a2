//! The coordinator: starts queries on workers and runs their epochs.

use std::sync::Arc;

use thetis_executor::frame::Epoch;
use thetis_planner::physical::Dag;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::analyze::Analysis;
use crate::epochs::Epochs;
use crate::link::{Link, Running, StartError};
use crate::wire;

/// Starts queries and runs their epochs.
#[derive(Debug, Clone)]
pub struct Coordinator {
    runtime: Handle,
    worker: Arc<dyn Link>,
}

impl Coordinator {
    /// A coordinator of one worker.
    pub fn new(runtime: Handle, worker: Arc<dyn Link>) -> Self {
        Self { runtime, worker }
    }

    /// Starts a query.
    ///
    /// # Errors
    /// The plan cannot be run, a source cannot be opened.
    pub fn start(&self, dag: &Dag) -> Result<Running, StartError> {
        let plan = wire::encode(dag)?;
        let mut epochs = Epochs::new();
        let (announce, announced) = watch::channel(epochs.announcement());
        let (finished, mut progress) = watch::channel(Epoch::NONE);
        let running = self.worker.deploy(plan, announced, finished)?;
        self.runtime.spawn(async move {
            while progress.changed().await.is_ok() {
                let epoch = *progress.borrow_and_update();
                if let Some(next) = epochs.on_sink_progress(epoch) {
                    announce.send_replace(next);
                }
            }
        });
        Ok(running)
    }

    /// Starts a query that is only measured.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn analyze(&self, dag: &Dag) -> Result<Analysis, StartError> {
        Ok(Analysis::of(self.start(dag)?, &self.runtime))
    }
}
