//! What is left of a statement when it is planned: rows to store, or to send to a sink.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use thetis_executor::ExecError;
use thetis_executor::changes::{ChangeRows, changes_schema};
use thetis_executor::export::Export;
use thetis_executor::frame::Frame;
use thetis_executor::table::Change;
use thetis_executor::task::Delivery;
use thetis_executor::threads::in_place;
use thetis_parser::ast::Ident;
use thetis_planner::Plan;
use thetis_planner::catalog::{Conflict, Definition, Relation, Table, fold};
use thetis_planner::connector::{SinkSpec, TableId};
use thetis_planner::physical::SinkMode;

use crate::database::Database;
use crate::error::StatementError;
use crate::link::Running;

/// What a statement has done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// The SQL command, as in `CREATE TABLE`.
    pub command: Cow<'static, str>,
    /// Rows that it has changed, if it is a statement that changes rows.
    pub rows: Option<u64>,
}

impl Completion {
    pub(crate) fn of(command: &'static str) -> Self {
        Self { command: Cow::Borrowed(command), rows: None }
    }
}

impl std::fmt::Display for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.command)?;
        self.rows.map_or(Ok(()), |rows| write!(f, " {rows}"))
    }
}

/// Ready when a statement is to end early.
pub(crate) type Stopped<'a> = Pin<&'a mut (dyn Future<Output = ()> + Send)>;

/// Work on rows.
#[derive(Debug)]
pub struct Work {
    /// The query that gives the rows.
    pub(crate) plan: Plan,
    pub(crate) target: Target,
}

/// What is done with the rows.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// They are added to a table.
    Insert(TableId),
    /// They are taken away from a table.
    Delete(TableId),
    /// Their first half is taken away from a table, their second half added.
    Update(TableId),
    /// They are the first rows of a new table.
    NewTable { name: Ident, schema: SchemaRef, conflict: Conflict },
    /// They are kept from now on.
    View { name: Ident, definition: Definition, conflict: Conflict },
    /// They go to a sink.
    Sink(SinkSpec),
}

impl Work {
    /// What the user should be told about the query.
    pub fn notices(&self) -> &[String] {
        &self.plan.notices
    }

    /// Makes what the work would make, without its rows.
    ///
    /// # Errors
    /// The name of a new relation is taken.
    pub fn define(self, database: &Database) -> Result<(), StatementError> {
        let made = match self.target {
            Target::NewTable { name, schema, conflict } => {
                NewTable { name, columns: schema, definition: None, conflict }
            }
            Target::View { name, definition, conflict } => {
                let columns = kept_columns(&self.plan);
                NewTable { name, columns, definition: Some(definition), conflict }
            }
            _ => return Ok(()),
        };
        let (id, rows) = made.create(database);
        made.publish(database, (id, rows), Ok(()))
    }

    pub(crate) async fn perform(self, database: &Database, stopped: Stopped<'_>) -> Result<Completion, StatementError> {
        if let Target::Sink(spec) = &self.target {
            let rows = export(database, &self.plan, spec, stopped).await?;
            return Ok(Completion { rows: Some(rows), ..Completion::of("INSERT") });
        }
        tokio::select! {
            biased;
            done = self.store(database) => done,
            () = stopped => Err(ExecError::Cancelled.into()),
        }
    }

    async fn store(self, database: &Database) -> Result<Completion, StatementError> {
        let Self { plan, target } = self;
        let completion = |command, rows: u64| Completion { rows: Some(rows), ..Completion::of(command) };
        match target {
            Target::Insert(id) => {
                let rows = database.collect(&plan).await?;
                let count = count(&rows);
                database.tables().commit(id, rows)?;
                Ok(completion("INSERT", count))
            }
            Target::Delete(id) => {
                let _alone = database.deleting.lock().await;
                let rows = database.collect(&plan).await?;
                let count = count(&rows);
                database.tables().commit(id, rows.into_iter().map(|change| Change::deletes(change.rows)).collect())?;
                Ok(completion("DELETE", count))
            }
            Target::Update(id) => {
                let _alone = database.deleting.lock().await;
                let rows = database.collect(&plan).await?;
                let count = count(&rows);
                let changes = rows.iter().map(|change| halves(&change.rows)).collect::<Result<Vec<_>, _>>()?;
                database.tables().commit(id, changes.into_iter().flatten().collect())?;
                Ok(completion("UPDATE", count))
            }
            Target::NewTable { name, schema, conflict } => {
                database.catalog().check_free(&name, "table", conflict)?;
                let rows = database.collect(&plan).await?;
                let count = count(&rows);
                let table = NewTable { name, columns: schema, definition: None, conflict };
                let (id, counter) = table.create(database);
                let filled = database.tables().commit(id, rows).map(|_| ()).map_err(StatementError::from);
                table.publish(database, (id, counter), filled)?;
                Ok(completion("CREATE TABLE", count))
            }
            Target::View { name, definition, conflict } => {
                let columns = kept_columns(&plan);
                let view = NewTable { name: name.clone(), columns, definition: Some(definition), conflict };
                let (id, counter) = view.create(database);
                let filled = database.materialize(&fold(&name), &plan, id).await;
                view.publish(database, (id, counter), filled)?;
                Ok(Completion::of("CREATE MATERIALIZED VIEW"))
            }
            Target::Sink(_) => Err(ExecError::Internal("a sink stores nothing".to_owned()).into()),
        }
    }
}

/// The columns of a table that keeps the result of a query.
pub(crate) fn kept_columns(plan: &Plan) -> SchemaRef {
    let fields = plan.dag.sink().schema.fields().iter();
    let fields = fields.map(|field| Field::new(field.name(), field.data_type().clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A table to be.
pub(crate) struct NewTable {
    pub(crate) name: Ident,
    pub(crate) columns: SchemaRef,
    pub(crate) definition: Option<Definition>,
    pub(crate) conflict: Conflict,
}

impl NewTable {
    /// Makes a place for its rows, which is seen once it is published.
    pub(crate) fn create(&self, database: &Database) -> (TableId, Arc<AtomicU64>) {
        database.tables().create(Arc::clone(&self.columns))
    }

    /// Adds the table to the catalogue, if all went well with its rows.
    pub(crate) fn publish(
        self,
        database: &Database,
        (id, rows): (TableId, Arc<AtomicU64>),
        filled: Result<(), StatementError>,
    ) -> Result<(), StatementError> {
        let Self { name, columns, definition, conflict } = self;
        let table = Relation::Table(Arc::new(Table { name: fold(&name), columns, id, rows, definition }));
        match filled.and_then(|()| database.add(&name, table, conflict)) {
            Ok(()) => Ok(()),
            Err(error) => {
                database.forget(id);
                Err(error)
            }
        }
    }
}

fn count(rows: &[Change]) -> u64 {
    rows.iter().map(|change| change.rows.num_rows() as u64).sum()
}

/// The old rows as deletes and the new ones as inserts.
fn halves(rows: &RecordBatch) -> Result<[Change; 2], StatementError> {
    let columns = rows.num_columns() / 2;
    let half = |from: usize| {
        let positions: Vec<usize> = (from..from + columns).collect();
        rows.project(&positions).map_err(ExecError::from)
    };
    Ok([Change::deletes(half(0)?), Change::inserts(half(columns)?)])
}

/// Writes what a query delivers until it ends; the number of rows. What came before an error or a
/// stop is written.
async fn export(
    database: &Database,
    plan: &Plan,
    spec: &SinkSpec,
    mut stopped: Stopped<'_>,
) -> Result<u64, StatementError> {
    let is_changelog = is_changelog(plan);
    let result = Arc::new(Schema::new(plan.dag.sink().schema.fields().clone()));
    let schema = if is_changelog { changes_schema(&result) } else { result };
    let (running, sink) = tokio::select! {
        biased;
        started = start(database, plan, spec, &schema) => started?,
        () = &mut stopped => return Err(ExecError::Cancelled.into()),
    };
    // The task outlives a caller that no longer waits: it ends the file as it should be.
    let stop = StopOnDrop(running.stop.clone());
    let mut written = database.runtime().spawn(write(running, sink, is_changelog.then_some(schema)));
    let written = tokio::select! {
        biased;
        written = &mut written => written,
        () = stopped => {
            drop(stop);
            written.await
        }
    };
    written.map_err(task_failed)?
}

fn task_failed(error: tokio::task::JoinError) -> ExecError {
    ExecError::Internal(format!("the sink's task failed: {error}"))
}

/// Starts the query and opens the sink. Opening may block, as on a pipe without a reader.
async fn start(
    database: &Database,
    plan: &Plan,
    spec: &SinkSpec,
    schema: &SchemaRef,
) -> Result<(Running, Export), StatementError> {
    let running = database.start(plan).await?;
    let (spec, schema) = (spec.clone(), Arc::clone(schema));
    let opened = database.runtime().spawn_blocking(move || Export::open(&spec, &schema));
    let sink = opened.await.map_err(task_failed)??;
    Ok((running, sink))
}

struct StopOnDrop(tokio::sync::watch::Sender<bool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

async fn write(mut running: Running, mut sink: Export, changes: Option<SchemaRef>) -> Result<u64, StatementError> {
    let mut rows = 0;
    let ended = loop {
        let written = match running.next().await {
            Ok(Some(Delivery::Frame(frame))) => write_frame(&mut sink, frame, changes.as_ref(), &mut rows),
            // What is finished can be read by others.
            Ok(Some(Delivery::Progress(_))) => in_place(|| sink.flush()),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        if let Err(error) = written {
            break Err(error);
        }
    };
    // A result that was ended from outside is whole as far as it goes.
    let whole = matches!(ended, Ok(()) | Err(ExecError::Cancelled));
    let finished = in_place(|| sink.finish(whole));
    ended?;
    finished?;
    Ok(rows)
}

fn write_frame(sink: &mut Export, frame: Frame, changes: Option<&SchemaRef>, rows: &mut u64) -> Result<(), ExecError> {
    in_place(|| {
        let Some(schema) = changes else {
            *rows += frame.rows() as u64;
            return sink.write(&frame.batch);
        };
        let mut pieces = ChangeRows::new(frame, Arc::clone(schema));
        while let Some(batch) = pieces.next_batch()? {
            *rows += batch.num_rows() as u64;
            sink.write(&batch)?;
        }
        Ok(())
    })
}

/// Whether rows of a plan's result carry epoch and sign.
pub fn is_changelog(plan: &Plan) -> bool {
    use thetis_planner::physical::OperatorKind;
    matches!(&plan.dag.sink().kind, OperatorKind::Sink(sink) if sink.mode == SinkMode::Changelog)
}
