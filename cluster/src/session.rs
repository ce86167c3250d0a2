//! A session: settings of its own, and what each statement does to the database.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_common::ScalarValue;
use thetis_executor::source::FileProbe;
use thetis_parser::ast::Ident;
use thetis_parser::{
    CreateSink, CreateStream, CreateTable, CreateView, DropKind, Explain, Insert, Position, Show, Statement,
    StreamColumn,
};
use thetis_planner::catalog::{Conflict, Definition, Relation, Sample, Sink, SourceProbe, Stream, View, fold};
use thetis_planner::connector::{SinkSpec, SourceSpec};
use thetis_planner::logical::{Resolved, data_type, plan_query, resolve};
use thetis_planner::{Catalog, Output, Plan, PlanError, PlanErrorKind, Settings, plan, plan_resolved, sql_name, write};

use crate::analyze::Explained;
use crate::database::Database;
use crate::error::StatementError;
use crate::front::protocol::Status;
use crate::status::status_of;
use crate::work::{Completion, NewTable, Target, Work, kept_columns};

/// What a statement comes to.
#[derive(Debug)]
pub enum Reply {
    /// It is done.
    Done(Completion),
    /// A small table.
    Table(RecordBatch),
    /// A query to be run.
    Query(Box<Plan>),
    /// Work to be done.
    Work(Box<Work>),
    /// A query to be run and measured, and how that is shown.
    Analyze(Box<Explained>),
}

/// A statement whose names are resolved, to be run with values for its parameters.
#[derive(Debug, Clone)]
pub struct Prepared {
    resolved: Resolved,
    target: Option<Target>,
    catalog: u64,
}

/// Settings of one user, and the database that they work on.
#[derive(Debug)]
pub struct Session {
    database: Arc<Database>,
    settings: Mutex<Settings>,
    probe: FileProbe,
}

impl Session {
    /// A session with the defaults of this machine.
    pub fn new(database: Arc<Database>) -> Self {
        let settings = database.settings();
        Self { database, settings: Mutex::new(settings), probe: FileProbe }
    }

    /// The database.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// The settings.
    pub fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what a statement says, or plans it. Looks at files, and takes a deep stack.
    ///
    /// # Errors
    /// Whatever is wrong with the statement.
    pub fn handle(&self, statement: &Statement, output: Output) -> Result<Reply, StatementError> {
        let done = match statement {
            Statement::Query(_) | Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => {
                let prepared = self.prepare(statement, &[])?;
                return self.bind(&prepared, &[], output);
            }
            Statement::CreateStream(stream) => self.create_stream(stream)?,
            Statement::CreateTable(table) => return self.create_table(table),
            Statement::CreateView(view) if view.materialized => return self.materialize(view),
            Statement::CreateView(view) => self.create_view(view)?,
            Statement::CreateSink(sink) => self.create_sink(sink)?,
            Statement::Explain(explain) => return Ok(self.explain(explain, output)?),
            Statement::Show(show) => return Ok(self.show(show)?),
            Statement::Describe { name } => return Ok(self.describe(name)?),
            Statement::Set { name, value, position } => {
                let outcome = self.settings().set(&name.value, value.as_deref(), *position);
                let at_name = Position::of_span(name.span);
                outcome.map_err(|error| PlanError { position: error.position.or(at_name), ..error })?;
                "SET"
            }
            Statement::Drop { kind, name, if_exists } => self.drop_relation(*kind, name, *if_exists)?,
        };
        Ok(Reply::Done(Completion::of(done)))
    }

    /// Resolves the names of a statement whose parameters `$1`, ... have these types.
    ///
    /// # Errors
    /// Whatever is wrong with it, or a statement that takes no parameters.
    pub fn prepare(&self, statement: &Statement, parameters: &[DataType]) -> Result<Prepared, StatementError> {
        let catalog = self.database.catalog();
        let (resolved, target) = match statement {
            Statement::Query(query) => (resolve(query, &catalog, parameters)?, None),
            Statement::Insert(insert) => match catalog.resolve(&insert.target)? {
                Relation::Sink(sink) => {
                    let query = into_sink(insert, &sink.name)?;
                    (resolve(query, &catalog, parameters)?, Some(Target::Sink(sink.spec.clone())))
                }
                _ => {
                    let table = write::stored_table(&catalog, &insert.target)?;
                    (write::insert(insert, table, &catalog, parameters)?, Some(Target::Insert(table.id)))
                }
            },
            Statement::Update(update) => {
                let table = write::stored_table(&catalog, &update.table.name)?;
                (write::update(update, table, &catalog, parameters)?, Some(Target::Update(table.id)))
            }
            Statement::Delete(delete) => {
                let table = write::stored_table(&catalog, &delete.table.name)?;
                (write::delete(delete, table, &catalog, parameters)?, Some(Target::Delete(table.id)))
            }
            _ => {
                return Err(PlanError::unsupported(
                    "only queries, INSERT, UPDATE and DELETE can be prepared",
                    "execute the statement without preparing it",
                )
                .into());
            }
        };
        Ok(Prepared { resolved, target, catalog: catalog.version() })
    }

    /// Whether a prepared statement still means what it meant: the catalogue has not changed.
    pub fn is_current(&self, prepared: &Prepared) -> bool {
        prepared.catalog == self.database.catalog().version()
    }

    /// Plans a prepared statement with values for its parameters.
    ///
    /// # Errors
    /// A parameter without a value, or whatever is wrong with the statement for these values.
    pub fn bind(&self, prepared: &Prepared, values: &[ScalarValue], output: Output) -> Result<Reply, StatementError> {
        let resolved = match values {
            [] => prepared.resolved.clone(),
            values => prepared.resolved.bind(values)?,
        };
        self.plan_bound(resolved, prepared, output)
    }

    /// Plans a prepared INSERT of constant rows once for several sets of values; `None` for any other
    /// statement.
    ///
    /// # Errors
    /// As for [`Self::bind`].
    pub fn bind_rows(&self, prepared: &Prepared, sets: &[Vec<ScalarValue>]) -> Result<Option<Reply>, StatementError> {
        let Some(Target::Insert(_)) = prepared.target else { return Ok(None) };
        let bound = prepared.resolved.bind_rows(sets)?;
        bound.map(|resolved| self.plan_bound(resolved, prepared, Output::Result)).transpose()
    }

    fn plan_bound(&self, resolved: Resolved, prepared: &Prepared, output: Output) -> Result<Reply, StatementError> {
        let Some(target) = prepared.target.clone() else {
            return Ok(Reply::Query(Box::new(plan_resolved(resolved, &self.settings(), output)?)));
        };
        let plan = plan_resolved(resolved, &self.settings(), Output::Result)?;
        if !matches!(target, Target::Sink(_)) {
            must_end(&plan)?;
        }
        Ok(Reply::Work(Box::new(Work { plan, target })))
    }

    fn explain(&self, explain: &Explain, output: Output) -> Result<Reply, PlanError> {
        let plan = plan(&explain.query, &self.database.catalog(), &self.settings(), output)?;
        if explain.analyze {
            plan.check_ends()?;
        }
        let explained = Explained { plan, verbose: explain.verbose, format: explain.format };
        match explain.analyze {
            true => Ok(Reply::Analyze(Box::new(explained))),
            false => explained.table(None).map(Reply::Table),
        }
    }

    /// `IF NOT EXISTS` was said, and it does.
    fn is_there(&self, name: &Ident, if_not_exists: bool) -> bool {
        if_not_exists && self.database.catalog().get(&fold(name)).is_some()
    }

    fn create_stream(&self, create: &CreateStream) -> Result<&'static str, StatementError> {
        if self.is_there(&create.name, create.if_not_exists) {
            return Ok("CREATE STREAM");
        }
        let declared = declared(&create.columns)?;
        let spec = SourceSpec::of(create, &declared)?;
        let at_path = |error: PlanError| {
            let path = create.options.iter().find(|option| option.key.value.eq_ignore_ascii_case("path"));
            error.at(path.and_then(|option| option.position))
        };
        let columns = if create.columns.is_empty() {
            self.probe.infer_schema(&spec).map_err(at_path)?
        } else {
            self.probe.check(&spec, &declared).map_err(at_path)?;
            declared
        };
        let watermark = create.watermark.as_ref().map(|watermark| {
            let column = fold(&watermark.column);
            if columns.index_of(&column).is_err() {
                let names = columns.fields().iter().map(|field| field.name().as_str());
                return Err(PlanError::new(PlanErrorKind::UndefinedColumn, format!("there is no column '{column}'"))
                    .suggest(&column, names)
                    .at(Position::of_span(watermark.column.span)));
            }
            Ok((column, watermark.expression.to_string()))
        });
        let volume = self.probe.volume(&spec);
        let sample = Sample::of(self.probe, &spec, &columns);
        let (name, watermark) = (fold(&create.name), watermark.transpose()?);
        let stream = Stream { name, columns, watermark, spec, volume, sample };
        self.database.add(
            &create.name,
            Relation::Stream(Arc::new(stream)),
            Conflict::of(create.or_replace, create.if_not_exists),
        )?;
        Ok("CREATE STREAM")
    }

    fn create_table(&self, create: &CreateTable) -> Result<Reply, StatementError> {
        let done = Reply::Done(Completion::of("CREATE TABLE"));
        if self.is_there(&create.name, create.if_not_exists) {
            return Ok(done);
        }
        let (name, conflict) = (create.name.clone(), Conflict::of(create.or_replace, create.if_not_exists));
        let Some(query) = &create.query else {
            let columns = declared(&create.columns)?;
            let table = NewTable { name, columns, definition: None, conflict };
            let place = table.create(&self.database);
            table.publish(&self.database, place, Ok(()))?;
            return Ok(done);
        };
        let resolved = resolve(query, &self.database.catalog(), &[])?;
        let plan = plan_resolved(write::renamed(resolved, &[], &create.name)?, &self.settings(), Output::Result)?;
        must_end(&plan)?;
        let target = Target::NewTable { name, schema: kept_columns(&plan), conflict };
        Ok(Reply::Work(Box::new(Work { plan, target })))
    }

    fn create_sink(&self, create: &CreateSink) -> Result<&'static str, StatementError> {
        if !self.is_there(&create.name, create.if_not_exists) {
            let sink = Sink { name: fold(&create.name), spec: SinkSpec::of(create)? };
            self.database.add(
                &create.name,
                Relation::Sink(Arc::new(sink)),
                Conflict::of(create.or_replace, create.if_not_exists),
            )?;
        }
        Ok("CREATE SINK")
    }

    /// Plans the view's query, which is to keep its result in a table.
    fn materialize(&self, create: &CreateView) -> Result<Reply, StatementError> {
        if self.is_there(&create.name, create.if_not_exists) {
            return Ok(Reply::Done(Completion::of("CREATE MATERIALIZED VIEW")));
        }
        let conflict = Conflict::of(create.or_replace, create.if_not_exists);
        self.database.catalog().check_free(&create.name, "materialized view", conflict)?;
        let resolved = resolve(&create.query, &self.database.catalog(), &[])?;
        let resolved = write::renamed(resolved, &create.columns, &create.name)?;
        let plan = plan_resolved(resolved, &self.settings(), Output::Changes)?;
        if plan.logical.uses.contains(&fold(&create.name)) {
            return Err(uses_itself(&create.name).into());
        }
        let definition = Definition { query: create.query.clone(), uses: plan.logical.uses.clone() };
        let target = Target::View { name: create.name.clone(), definition, conflict };
        Ok(Reply::Work(Box::new(Work { plan, target })))
    }

    fn create_view(&self, create: &CreateView) -> Result<&'static str, StatementError> {
        if self.is_there(&create.name, create.if_not_exists) {
            return Ok("CREATE VIEW");
        }
        let logical = plan_query(&create.query, &self.database.catalog())?;
        let schema = Arc::clone(logical.analyzed.schema().inner());
        let columns: Vec<String> = create.columns.iter().map(fold).collect();
        if !columns.is_empty() && columns.len() != schema.fields().len() {
            let message = format!(
                "view {} names {} columns, its query has {}",
                create.name,
                columns.len(),
                schema.fields().len()
            );
            let error = PlanError::new(PlanErrorKind::Semantic, message).at(Position::of_span(create.name.span));
            return Err(error.into());
        }
        if logical.uses.contains(&fold(&create.name)) {
            return Err(uses_itself(&create.name).into());
        }
        let fields = schema.fields().iter().enumerate().map(|(i, field)| {
            let name = columns.get(i).unwrap_or(field.name());
            Field::new(name, field.data_type().clone(), true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let view = View { name: fold(&create.name), columns, query: create.query.clone(), schema, uses: logical.uses };
        self.database.add(
            &create.name,
            Relation::View(Arc::new(view)),
            Conflict::of(create.or_replace, create.if_not_exists),
        )?;
        Ok("CREATE VIEW")
    }

    fn drop_relation(&self, kind: DropKind, name: &Ident, if_exists: bool) -> Result<&'static str, StatementError> {
        let (word, tag) = match kind {
            DropKind::Stream => ("stream", "DROP STREAM"),
            DropKind::Table => ("table", "DROP TABLE"),
            DropKind::View => ("view", "DROP VIEW"),
            DropKind::MaterializedView => ("materialized view", "DROP MATERIALIZED VIEW"),
            DropKind::Sink => ("sink", "DROP SINK"),
        };
        if !(if_exists && self.database.catalog().get(&fold(name)).is_none()) {
            self.database.remove(name, word)?;
        }
        Ok(tag)
    }

    fn show(&self, show: &Show) -> Result<Reply, PlanError> {
        let setting = |row: thetis_planner::SettingRow| [row.name.to_owned(), row.value, row.meaning.to_owned()];
        let catalog = self.database.catalog();
        match show {
            Show::Streams => table(&["name", "columns", "source", "rows"], streams(&catalog)),
            Show::Tables => table(&["name", "columns", "rows", "kind"], tables(&catalog)),
            Show::Views => table(&["name", "kind", "query"], views(&catalog)),
            Show::Sinks => table(&["name", "sink"], sinks(&catalog)),
            Show::Workers => {
                let names = ["worker", "address", "state", "slots", "tasks", "silence_ms"];
                let rows = self.status().workers.into_iter().map(|worker| {
                    let (slots, tasks) = (worker.slots.to_string(), worker.tasks.to_string());
                    [worker.name, worker.address, worker.state, slots, tasks, milliseconds(worker.silence)]
                });
                table(&names, rows)
            }
            Show::Queries => {
                let names = ["query", "runs_ms", "tasks", "rows_in", "rows_out", "epoch"];
                let rows = self.status().queries.into_iter().map(|query| {
                    let counts = [u64::from(query.tasks), query.rows_in, query.rows_out, query.epoch];
                    let [tasks, rows_in, rows_out, epoch] = counts.map(|count| count.to_string());
                    [query.id.to_string(), milliseconds(query.runs), tasks, rows_in, rows_out, epoch]
                });
                table(&names, rows)
            }
            Show::Tasks => {
                let names = [
                    "query",
                    "task",
                    "worker",
                    "rows_in",
                    "rows_out",
                    "bytes",
                    "queue",
                    "busy_ms",
                    "blocked_ms",
                    "idle_ms",
                ];
                let rows = self.status().tasks.into_iter().map(|task| {
                    let counts = [task.rows_in, task.rows_out, task.bytes, task.queue].map(|count| count.to_string());
                    let [rows_in, rows_out, bytes, queue] = counts;
                    let [busy, blocked, idle] = [task.busy, task.blocked, task.idle].map(milliseconds);
                    let query = task.query.to_string();
                    [query, task.task, task.worker, rows_in, rows_out, bytes, queue, busy, blocked, idle]
                });
                table(&names, rows)
            }
            Show::Settings => table(&["name", "value", "meaning"], self.settings().rows().into_iter().map(setting)),
            Show::Setting(name) => {
                let row = self.settings().show(&name.value).map_err(|error| error.at(Position::of_span(name.span)))?;
                table(&["name", "value", "meaning"], std::iter::once(setting(row)))
            }
        }
    }

    fn status(&self) -> Status {
        status_of(self.database.coordinator())
    }

    fn describe(&self, name: &Ident) -> Result<Reply, PlanError> {
        let schema = self.database.catalog().resolve(name)?.schema();
        let fields = schema.fields().iter();
        table(&["column", "type"], fields.map(|field| [field.name().clone(), sql_name(field.data_type())]))
    }
}

fn milliseconds(time: Duration) -> String {
    time.as_millis().to_string()
}

type Rows<'a, const N: usize> = Box<dyn Iterator<Item = [String; N]> + 'a>;

fn streams(catalog: &Catalog) -> Rows<'_, 4> {
    Box::new(catalog.relations().filter_map(|(name, relation)| {
        let Relation::Stream(stream) = relation else { return None };
        let rows = match stream.volume.rows {
            Some(rows) => format!("about {rows:.0}"),
            None if stream.spec.is_bounded() => "unknown".to_owned(),
            None => "without end".to_owned(),
        };
        Some([name.to_owned(), stream.columns.fields().len().to_string(), stream.spec.to_string(), rows])
    }))
}

fn tables(catalog: &Catalog) -> Rows<'_, 4> {
    Box::new(catalog.relations().filter_map(|(name, relation)| {
        let Relation::Table(table) = relation else { return None };
        let rows = table.rows.load(Ordering::Relaxed).to_string();
        Some([name.to_owned(), table.columns.fields().len().to_string(), rows, relation.kind().to_owned()])
    }))
}

fn views(catalog: &Catalog) -> Rows<'_, 3> {
    Box::new(catalog.relations().filter_map(|(name, relation)| {
        let query = match relation {
            Relation::View(view) => &view.query,
            Relation::Table(table) => &table.definition.as_ref()?.query,
            Relation::Stream(_) | Relation::Sink(_) => return None,
        };
        Some([name.to_owned(), relation.kind().to_owned(), query.to_string()])
    }))
}

fn sinks(catalog: &Catalog) -> Rows<'_, 2> {
    Box::new(catalog.relations().filter_map(|(name, relation)| {
        let Relation::Sink(sink) = relation else { return None };
        Some([name.to_owned(), sink.spec.describe()])
    }))
}

/// The query of an INSERT into a sink, which has no columns to name.
fn into_sink<'a>(insert: &'a Insert, sink: &str) -> Result<&'a thetis_parser::ast::Query, PlanError> {
    match insert.columns.first() {
        None => Ok(&insert.query),
        Some(column) => Err(PlanError::new(PlanErrorKind::Semantic, format!("sink '{sink}' has no columns to name"))
            .at(Position::of_span(column.span))
            .hint("its columns are those of the query: rename them there with AS")),
    }
}

fn must_end(plan: &Plan) -> Result<(), PlanError> {
    if plan.dag.ends() {
        return Ok(());
    }
    Err(PlanError::unsupported(
        "a table cannot be filled by a query that never ends",
        "write CREATE MATERIALIZED VIEW name AS SELECT ..., or add LIMIT",
    ))
}

fn uses_itself(view: &Ident) -> PlanError {
    PlanError::new(PlanErrorKind::Semantic, format!("view {view} would use itself")).at(Position::of_span(view.span))
}

fn declared(columns: &[StreamColumn]) -> Result<SchemaRef, PlanError> {
    let mut fields: Vec<Field> = Vec::new();
    for column in columns {
        let name = fold(&column.name);
        if fields.iter().any(|field| *field.name() == name) {
            return Err(PlanError::new(PlanErrorKind::Duplicate, format!("column '{name}' is declared twice"))
                .at(Position::of_span(column.name.span)));
        }
        let data_type = data_type(&column.data_type).map_err(|error| unknown_type(column, error))?;
        fields.push(Field::new(name, data_type, !column.not_null));
    }
    Ok(Arc::new(Schema::new(fields)))
}

fn unknown_type(column: &StreamColumn, error: PlanError) -> PlanError {
    const TYPES: [&str; 14] = [
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "REAL",
        "DOUBLE",
        "DECIMAL",
        "VARCHAR",
        "TEXT",
        "BYTEA",
        "DATE",
        "TIME",
        "TIMESTAMP",
    ];
    let name = column.data_type.to_string();
    let word = name.split(['(', ' ']).next().unwrap_or_default().to_owned();
    PlanError { kind: PlanErrorKind::Type, message: format!("type {name} is not known or not supported"), ..error }
        .hint(format!("types are {}", TYPES.join(", ")))
        .suggest(&word, TYPES)
        .at(column.position)
}

/// A table of texts.
fn table<const N: usize>(names: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> Result<Reply, PlanError> {
    let rows: Vec<[String; N]> = rows.collect();
    let fields = names.iter().map(|name| Field::new(*name, DataType::Utf8, false));
    let columns =
        (0..N).map(|column| Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row[column]))) as ArrayRef);
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns.collect());
    let batch =
        batch.map_err(|error| PlanError::new(PlanErrorKind::Semantic, "a table cannot be shown").caused_by(error))?;
    Ok(Reply::Table(batch))
}
