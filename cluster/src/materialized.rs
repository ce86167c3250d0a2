//! A materialized view: a continuous query whose result is kept in a stored table.

use std::sync::Arc;

use thetis_executor::ExecError;
use thetis_executor::frame::{Epoch, Frame};
use thetis_executor::table::{Change, Tables};
use thetis_executor::task::Delivery;
use thetis_planner::connector::{SourceSpec, TableId};
use thetis_planner::physical::{Dag, OperatorId, OperatorKind};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::database::tables_of;
use crate::error::StatementError;
use crate::link::{Counters, Running};

/// A materialized view at work. Dropping it ends its query.
#[derive(Debug)]
pub(crate) struct Materialized {
    name: String,
    inputs: Vec<TableId>,
    /// Sources that the view must have read before its result means something: tables as far as they
    /// were committed, files to their end. One that never ends is read as far as it is.
    awaited: Vec<OperatorId>,
    counters: Arc<Counters>,
    /// The last epoch that the table holds, or why there will be no other.
    kept: watch::Receiver<Result<Epoch, ExecError>>,
    stop: watch::Sender<bool>,
}

impl Materialized {
    /// Keeps what `running` delivers in the table `id`.
    pub(crate) fn start(
        runtime: &Handle,
        name: &str,
        dag: &Dag,
        running: Running,
        tables: Arc<Tables>,
        id: TableId,
    ) -> Self {
        let awaited = (0..).map(OperatorId).zip(&dag.operators).filter_map(|(id, operator)| match &operator.kind {
            OperatorKind::Source(source) => {
                (source.bounded || matches!(source.spec, SourceSpec::Table(_))).then_some(id)
            }
            _ => None,
        });
        let (sender, kept) = watch::channel(Ok(Epoch::NONE));
        let view = Self {
            name: name.to_owned(),
            inputs: tables_of(dag),
            awaited: awaited.collect(),
            counters: Arc::clone(&running.counters),
            kept,
            stop: running.stop.clone(),
        };
        runtime.spawn(keep(running, tables, id, sender));
        view
    }

    /// The stored tables that it reads.
    pub(crate) fn inputs(&self) -> &[TableId] {
        &self.inputs
    }

    /// Waits until the table holds all that was committed up to `version`.
    pub(crate) async fn caught_up(&self, version: u64) -> Result<(), StatementError> {
        let mut kept = self.kept.clone();
        let reached = kept.wait_for(|kept| kept.as_ref().map_or(true, |epoch| self.holds(*epoch, version))).await;
        let source = match reached.as_deref() {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error.clone(),
            Err(_) => ExecError::Internal("its query has ended".to_owned()),
        };
        Err(StatementError::View { view: self.name.clone(), source })
    }

    /// Whether epochs up to `epoch` have all commits up to `version`, and all rows of bounded sources.
    fn holds(&self, epoch: Epoch, version: u64) -> bool {
        let counted = self.counters.snapshot();
        let all = self.awaited.iter().all(|id| {
            let mut tasks = counted.sources.iter().filter(|source| source.operator == *id).peekable();
            let any = tasks.peek().is_some();
            let read = any && tasks.all(|source| source.last_epoch > 0 && Epoch(source.last_epoch) <= epoch);
            read || self.counters.covered(*id, epoch).is_some_and(|covered| covered >= version)
        });
        // Whatever it reads, there is a first result to wait for.
        epoch == Epoch::END || epoch >= Epoch::FIRST && all
    }
}

impl Drop for Materialized {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// Commits each finished epoch of a query's changes to a table, in one step.
async fn keep(mut running: Running, tables: Arc<Tables>, id: TableId, kept: watch::Sender<Result<Epoch, ExecError>>) {
    let mut open: Vec<Frame> = Vec::new();
    let failed = loop {
        match running.next().await {
            Ok(Some(Delivery::Frame(frame))) => open.push(frame),
            Ok(Some(Delivery::Progress(epoch))) => {
                let (finished, later): (Vec<Frame>, _) = open.into_iter().partition(|frame| frame.epoch <= epoch);
                open = later;
                let changes: Vec<Change> =
                    finished.into_iter().map(|frame| Change { rows: frame.batch, weights: frame.weights }).collect();
                let committed = if changes.is_empty() { Ok(0) } else { tables.commit(id, changes) };
                if let Err(error) = committed {
                    break Some(error);
                }
                let _ = kept.send_replace(Ok(epoch));
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    if let Some(error) = failed {
        let _ = kept.send_replace(Err(error));
    }
    // The senders live as long as somebody may ask.
    kept.closed().await;
}
