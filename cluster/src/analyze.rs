//! EXPLAIN and EXPLAIN ANALYZE: how a plan is to be shown, and a run of it that is only measured.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use thetis_executor::ExecError;
use thetis_executor::frame::Epoch;
use thetis_executor::task::Delivery;
use thetis_parser::ExplainFormat;
use thetis_planner::explain::Measured;
use thetis_planner::{Plan, PlanError, PlanErrorKind};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use crate::link::{Counters, Running};

/// A plan, and how it is to be shown.
#[derive(Debug)]
pub struct Explained {
    /// The plan.
    pub plan: Plan,
    /// With the logical plan.
    pub verbose: bool,
    /// How it is written.
    pub format: ExplainFormat,
}

impl Explained {
    /// The one column: `plan`.
    pub fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("plan", DataType::Utf8, false)]))
    }

    /// The plan, and what happened if it was run. Text and DOT have a row for each line, JSON is one
    /// row, for programs to read as a whole.
    ///
    /// # Errors
    /// None in practice: the columns are those of the schema.
    pub fn table(&self, measured: Option<&Measured>) -> Result<RecordBatch, PlanError> {
        let text = self.plan.explain(self.verbose, self.format, measured);
        let lines = match self.format {
            ExplainFormat::Json => StringArray::from(vec![text]),
            ExplainFormat::Text | ExplainFormat::Dot => StringArray::from(text.lines().collect::<Vec<_>>()),
        };
        RecordBatch::try_new(Self::schema(), vec![Arc::new(lines) as ArrayRef])
            .map_err(|error| PlanError::new(PlanErrorKind::Semantic, "the plan cannot be shown").caused_by(error))
    }
}

/// A query that runs to its end by itself and is measured; its rows are thrown away. Dropping
/// this ends it.
#[derive(Debug)]
pub struct Analysis {
    /// What its tasks count.
    pub counters: Arc<Counters>,
    /// Ends it when it is sent `true`.
    pub stop: watch::Sender<bool>,
    measured: oneshot::Receiver<Result<Measured, ExecError>>,
}

impl Analysis {
    /// Measures a query that has just been started.
    pub(crate) fn of(running: Running, runtime: &Handle) -> Self {
        let (counters, stop) = (Arc::clone(&running.counters), running.stop.clone());
        let (sender, measured) = oneshot::channel();
        // Whoever waits for the result may wait slowly, or not at all: that must not be measured.
        runtime.spawn(async move {
            // Nobody waits for it any more: so be it.
            let _ = sender.send(drain(running).await);
        });
        Self { counters, stop, measured }
    }

    /// What happened, when the query has ended. A call may be dropped while it waits; there is one
    /// answer.
    ///
    /// # Errors
    /// Whatever went wrong in the query, or it was stopped.
    pub async fn measured(&mut self) -> Result<Measured, ExecError> {
        let gone = |_| Err(ExecError::Internal("the engine is gone".to_owned()));
        (&mut self.measured).await.unwrap_or_else(gone)
    }
}

impl Drop for Analysis {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// Takes all that the query delivers.
async fn drain(mut running: Running) -> Result<Measured, ExecError> {
    let mut rows_out = 0;
    while let Some(delivery) = running.next().await? {
        match delivery {
            Delivery::Frame(frame) => rows_out += frame.changes(),
            // Tasks count before they send their progress: now everything is counted. Only when the
            // sink wanted no more rows are some still at work.
            Delivery::Progress(Epoch::END) => {
                return Ok(Measured { rows_out, ..running.counters.last().await.measured() });
            }
            Delivery::Progress(_) => {}
        }
    }
    Err(ExecError::Internal("the query ended before its result was complete".to_owned()))
}
