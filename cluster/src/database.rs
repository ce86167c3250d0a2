//! What all sessions of an engine share: the catalogue, the stored tables, and the materialized views
//! that keep some of them.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use thetis_executor::table::{Change, Tables};
use thetis_executor::task::Delivery;
use thetis_planner::connector::{SourceSpec, TableId};
use thetis_planner::physical::{Dag, OperatorKind};
use thetis_planner::{Catalog, Plan};
use tokio::runtime::Handle;

use crate::analyze::Analysis;
use crate::coordinator::Coordinator;
use crate::error::StatementError;
use crate::link::Running;
use crate::materialized::Materialized;
use crate::work::{Completion, Work};

/// Catalogue, stored tables and materialized views.
#[derive(Debug)]
pub struct Database {
    runtime: Handle,
    coordinator: Coordinator,
    tables: Arc<Tables>,
    catalog: RwLock<Catalog>,
    materialized: Mutex<BTreeMap<TableId, Arc<Materialized>>>,
    /// Held by a statement that takes rows away: no two of them may take the same row.
    pub(crate) deleting: tokio::sync::Mutex<()>,
}

impl Database {
    /// An empty database whose queries `coordinator` starts. Its workers read `tables`.
    pub fn new(runtime: Handle, coordinator: Coordinator, tables: Arc<Tables>) -> Self {
        Self {
            runtime,
            coordinator,
            tables,
            catalog: RwLock::default(),
            materialized: Mutex::default(),
            deleting: tokio::sync::Mutex::new(()),
        }
    }

    /// The catalogue, to read.
    pub fn catalog(&self) -> RwLockReadGuard<'_, Catalog> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn catalog_mut(&self) -> RwLockWriteGuard<'_, Catalog> {
        self.catalog.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Starts a query. It sees all that was committed before the call, in materialized views too.
    ///
    /// # Errors
    /// The plan cannot be run, a source cannot be opened, a materialized view has failed.
    pub async fn start(&self, plan: &Plan) -> Result<Running, StatementError> {
        self.caught_up(&plan.dag).await?;
        Ok(self.coordinator.start(&plan.dag)?)
    }

    /// Starts a query that is only measured.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub async fn analyze(&self, plan: &Plan) -> Result<Analysis, StatementError> {
        Ok(Analysis::of(self.start(plan).await?, &self.runtime))
    }

    /// Waits until the materialized views that a query reads hold all that was committed before.
    async fn caught_up(&self, dag: &Dag) -> Result<(), StatementError> {
        for id in tables_of(dag) {
            // A view of views waits for those first: their commits are its input.
            let Some(view) = self.view(id) else { continue };
            for input in self.views_below(&view) {
                input.caught_up(self.tables.version()).await?;
            }
            view.caught_up(self.tables.version()).await?;
        }
        Ok(())
    }

    fn view(&self, id: TableId) -> Option<Arc<Materialized>> {
        self.materialized.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// The materialized views that a view reads, directly or not: each once, after those that it reads.
    fn views_below(&self, view: &Materialized) -> Vec<Arc<Materialized>> {
        let mut found = Vec::new();
        self.add_views_below(view, &mut BTreeSet::new(), &mut found);
        found
    }

    fn add_views_below(&self, view: &Materialized, seen: &mut BTreeSet<TableId>, found: &mut Vec<Arc<Materialized>>) {
        for (id, input) in view.inputs().iter().filter_map(|id| Some((*id, self.view(*id)?))) {
            if seen.insert(id) {
                self.add_views_below(&input, seen, found);
                found.push(input);
            }
        }
    }

    /// Starts to keep the result of a query in a table.
    pub(crate) fn materialize(&self, name: &str, plan: &Plan, id: TableId) -> Result<(), StatementError> {
        let running = self.coordinator.start(&plan.dag)?;
        let view = Materialized::start(&self.runtime, name, &plan.dag, running, Arc::clone(&self.tables), id);
        self.materialized.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::new(view));
        Ok(())
    }

    /// Forgets a table, and ends the query that kept it.
    pub(crate) fn forget(&self, id: TableId) {
        self.materialized.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        self.tables.remove(id);
    }

    /// Does what is left of a statement. It ends early once `stopped` is ready; a sink's file is whole
    /// then, with the rows so far.
    ///
    /// # Errors
    /// Whatever goes wrong, or it was stopped; then no table was changed.
    pub async fn perform(
        &self,
        work: Work,
        stopped: impl Future<Output = ()> + Send,
    ) -> Result<Completion, StatementError> {
        work.perform(self, pin!(stopped)).await
    }

    /// Runs a query to its end; its rows with their weights.
    pub(crate) async fn collect(&self, plan: &Plan) -> Result<Vec<Change>, StatementError> {
        let mut running = self.start(plan).await?;
        let mut rows = Vec::new();
        while let Some(delivery) = running.next().await? {
            if let Delivery::Frame(frame) = delivery {
                rows.push(Change { rows: frame.batch, weights: frame.weights });
            }
        }
        Ok(rows)
    }
}

/// The stored tables that a query reads.
pub(crate) fn tables_of(dag: &Dag) -> Vec<TableId> {
    let tables = dag.operators.iter().filter_map(|operator| match &operator.kind {
        OperatorKind::Source(source) => match source.spec {
            SourceSpec::Table(id) => Some(id),
            _ => None,
        },
        _ => None,
    });
    tables.collect()
}
