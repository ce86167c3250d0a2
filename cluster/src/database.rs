//! What all sessions of an engine share: the catalogue, the stored tables, and the materialized views
//! that keep some of them.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use thetis_executor::table::{Change, Tables};
use thetis_executor::task::Delivery;
use thetis_parser::ast::Ident;
use thetis_planner::catalog::{Added, Conflict, Relation, Table, fold};
use thetis_planner::connector::{SourceSpec, TableId};
use thetis_planner::physical::{Dag, OperatorKind};
use thetis_planner::{Catalog, Output, Plan, Settings, plan};
use tokio::runtime::Handle;
use tracing::warn;

use crate::analyze::Analysis;
use crate::coordinator::Coordinator;
use crate::error::{StartError, StatementError};
use crate::link::Running;
use crate::materialized::Materialized;
use crate::store::{Store, entry_of, relation_of};
use crate::sync::locked;
use crate::work::{Completion, Work};

/// Catalogue, stored tables and materialized views.
#[derive(Debug)]
pub struct Database {
    runtime: Handle,
    coordinator: Coordinator,
    tables: Arc<Tables>,
    catalog: RwLock<Catalog>,
    materialized: Mutex<BTreeMap<TableId, Arc<Materialized>>>,
    store: Arc<dyn Store>,
    /// Tables of materialized views that were kept, and do not have their rows again yet.
    unfilled: Mutex<BTreeSet<TableId>>,
    /// Held by a statement that takes rows away: no two of them may take the same row.
    pub(crate) deleting: tokio::sync::Mutex<()>,
}

impl Database {
    /// An empty database whose queries `coordinator` starts, and whose definitions `store` keeps. `tables` are
    /// those of the coordinator's process.
    pub fn new(runtime: Handle, coordinator: Coordinator, tables: Arc<Tables>, store: Arc<dyn Store>) -> Self {
        Self {
            runtime,
            coordinator,
            tables,
            catalog: RwLock::default(),
            materialized: Mutex::default(),
            store,
            unfilled: Mutex::default(),
            deleting: tokio::sync::Mutex::new(()),
        }
    }

    /// The catalogue, to read.
    pub fn catalog(&self) -> RwLockReadGuard<'_, Catalog> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a relation to the catalogue, for good.
    ///
    /// # Errors
    /// As for [`Catalog::add`], or it cannot be kept.
    pub(crate) fn add(&self, name: &Ident, relation: Relation, conflict: Conflict) -> Result<(), StatementError> {
        let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = catalog.clone();
        let entry = entry_of(&relation)?;
        let unused = match next.add(name, relation, conflict)? {
            Added::New => None,
            Added::Replaced(relation) => Some(relation),
            Added::Kept(relation) => {
                drop(catalog);
                self.forget_rows(&relation);
                return Ok(());
            }
        };
        self.store.put(&fold(name), Some(&entry))?;
        *catalog = next;
        drop(catalog);
        if let Some(unused) = unused {
            self.forget_rows(&unused);
        }
        Ok(())
    }

    /// Removes a relation of this kind from the catalogue, for good.
    ///
    /// # Errors
    /// As for [`Catalog::remove`], or what is left cannot be kept.
    pub(crate) fn remove(&self, name: &Ident, kind: &str) -> Result<(), StatementError> {
        let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = catalog.clone();
        let removed = next.remove(name, kind)?;
        self.store.put(&fold(name), None)?;
        *catalog = next;
        drop(catalog);
        self.forget_rows(&removed);
        Ok(())
    }

    fn forget_rows(&self, relation: &Relation) {
        if let Relation::Table(table) = relation {
            self.forget(table.id);
        }
    }

    /// Brings back what the store has kept. Materialized views are filled anew, as soon as there is somebody to
    /// do it.
    ///
    /// # Errors
    /// An entry that cannot be read.
    pub fn restore(self: &Arc<Self>) -> Result<(), StatementError> {
        let mut views = Vec::new();
        let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        for (name, entry) in self.store.load()? {
            let relation = relation_of(&name, &entry, |schema| self.tables.create(schema))?;
            if let Relation::Table(table) = &relation
                && table.definition.is_some()
            {
                views.push(Arc::clone(table));
            }
            catalog.restore(name, relation);
        }
        drop(catalog);
        let waiting = views.iter().map(|view| view.id);
        locked(&self.unfilled).extend(waiting);
        for view in views {
            let database = Arc::downgrade(self);
            self.runtime.spawn(refill(database, view));
        }
        Ok(())
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
        Ok(self.coordinator.start(&plan.dag).await?)
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
            if locked(&self.unfilled).contains(&id) {
                return Err(StartError::NoWorkers.into());
            }
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
        locked(&self.materialized).get(&id).cloned()
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
    pub(crate) async fn materialize(&self, name: &str, plan: &Plan, id: TableId) -> Result<(), StatementError> {
        let running = self.coordinator.start(&plan.dag).await?;
        let view = Materialized::start(&self.runtime, name, &plan.dag, running, Arc::clone(&self.tables), id);
        locked(&self.materialized).insert(id, Arc::new(view));
        Ok(())
    }

    /// Forgets a table, and ends the query that kept it.
    pub(crate) fn forget(&self, id: TableId) {
        locked(&self.materialized).remove(&id);
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

/// Between two attempts to fill a materialized view after a restart.
const PAUSE: Duration = Duration::from_millis(200);

/// Fills the table of a materialized view again, once those that it reads are filled and there are workers.
async fn refill(database: Weak<Database>, view: Arc<Table>) {
    loop {
        let Some(database) = database.upgrade() else { return };
        match database.try_refill(&view).await {
            Ok(true) => {
                locked(&database.unfilled).remove(&view.id);
                return;
            }
            Ok(false) | Err(StatementError::Start(StartError::NoWorkers)) => {}
            Err(error) => warn!(view = view.name, %error, "the view cannot be filled; trying again"),
        }
        drop(database);
        tokio::time::sleep(PAUSE).await;
    }
}

impl Database {
    async fn try_refill(&self, view: &Table) -> Result<bool, StatementError> {
        let Some(definition) = &view.definition else { return Ok(true) };
        let planned = {
            let catalog = self.catalog();
            // Dropped meanwhile.
            if !matches!(catalog.get(&view.name), Some(Relation::Table(table)) if table.id == view.id) {
                return Ok(true);
            }
            plan(&definition.query, &catalog, &self.settings(), Output::Changes)?
        };
        let waits = {
            let unfilled = locked(&self.unfilled);
            tables_of(&planned.dag).iter().any(|id| unfilled.contains(id))
        };
        if waits {
            return Ok(false);
        }
        self.materialize(&view.name, &planned, view.id).await?;
        Ok(true)
    }

    /// The settings of a session that has set nothing: a task of each operator for each core, or in a cluster for
    /// each slot.
    pub(crate) fn settings(&self) -> Settings {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut settings = Settings::new(self.coordinator.slots().map_or_else(cores, |slots| slots as usize));
        settings.spread_sources = self.coordinator.registry().is_some();
        settings
    }

    /// Who starts the queries.
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
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
