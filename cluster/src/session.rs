//! A session: catalogue, settings, and what each statement does to them.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use thetis_executor::source::FileProbe;
use thetis_parser::ast::Ident;
use thetis_parser::{CreateStream, CreateView, DropKind, Explain, Position, Show, Statement};
use thetis_planner::catalog::{Catalog, Relation, SourceProbe, Stream, View, fold};
use thetis_planner::connector::SourceSpec;
use thetis_planner::logical::{data_type, plan_query};
use thetis_planner::{Output, Plan, PlanError, PlanErrorKind, Settings, plan, sql_name};

use crate::analyze::Explained;

/// What a statement comes to.
#[derive(Debug)]
pub enum Reply {
    /// It is done; the tag says what.
    Done(&'static str),
    /// A small table.
    Table(RecordBatch),
    /// A query to be run.
    Query(Box<Plan>),
    /// A query to be run and measured, and how that is shown.
    Analyze(Box<Explained>),
}

/// Catalogue and settings of one user.
#[derive(Debug)]
pub struct Session {
    catalog: Catalog,
    settings: Settings,
    probe: FileProbe,
}

impl Session {
    /// An empty catalogue and the defaults of this machine.
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { catalog: Catalog::default(), settings: Settings::new(cores), probe: FileProbe }
    }

    /// The catalogue.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Does what a statement says, or plans it.
    ///
    /// # Errors
    /// Whatever is wrong with the statement.
    pub fn handle(&mut self, statement: &Statement, output: Output) -> Result<Reply, PlanError> {
        match statement {
            Statement::CreateStream(stream) => self.create_stream(stream),
            Statement::CreateView(view) => self.create_view(view),
            Statement::Query(query) => Ok(Reply::Query(Box::new(plan(query, &self.catalog, &self.settings, output)?))),
            Statement::Explain(explain) => self.explain(explain, output),
            Statement::Show(show) => self.show(show),
            Statement::Describe { name } => self.describe(name),
            Statement::Set { name, value, position } => {
                self.settings.set(&name.value, value.as_deref(), *position).map_err(|error| PlanError {
                    position: error.position.or(Position::of_span(name.span)),
                    ..error
                })?;
                Ok(Reply::Done("SET"))
            }
            Statement::Drop { kind, name, if_exists } => self.drop_relation(*kind, name, *if_exists),
        }
    }

    fn explain(&self, explain: &Explain, output: Output) -> Result<Reply, PlanError> {
        let plan = plan(&explain.query, &self.catalog, &self.settings, output)?;
        if explain.analyze {
            plan.check_ends()?;
        }
        let explained = Explained { plan, verbose: explain.verbose, format: explain.format };
        match explain.analyze {
            true => Ok(Reply::Analyze(Box::new(explained))),
            false => explained.table(None).map(Reply::Table),
        }
    }

    fn create_stream(&mut self, create: &CreateStream) -> Result<Reply, PlanError> {
        if create.if_not_exists && self.catalog.get(&fold(&create.name)).is_some() {
            return Ok(Reply::Done("CREATE STREAM"));
        }
        let spec = SourceSpec::of(create)?;
        let at_path = |error: PlanError| {
            let path = create.options.iter().find(|option| option.key.value.eq_ignore_ascii_case("path"));
            error.at(path.and_then(|option| option.position))
        };
        let columns = if create.columns.is_empty() {
            self.probe.infer_schema(&spec).map_err(at_path)?
        } else {
            let columns = declared(create)?;
            self.probe.check(&spec, &columns).map_err(at_path)?;
            columns
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
        let stream = Stream { name: fold(&create.name), columns, watermark: watermark.transpose()?, spec, volume };
        self.catalog.add(&create.name, Relation::Stream(Arc::new(stream)), create.or_replace)?;
        Ok(Reply::Done("CREATE STREAM"))
    }

    fn create_view(&mut self, create: &CreateView) -> Result<Reply, PlanError> {
        if create.if_not_exists && self.catalog.get(&fold(&create.name)).is_some() {
            return Ok(Reply::Done("CREATE VIEW"));
        }
        let logical = plan_query(&create.query, &self.catalog)?;
        let schema = Arc::clone(logical.analyzed.schema().inner());
        let columns: Vec<String> = create.columns.iter().map(fold).collect();
        if !columns.is_empty() && columns.len() != schema.fields().len() {
            let message = format!(
                "view {} names {} columns, its query has {}",
                create.name,
                columns.len(),
                schema.fields().len()
            );
            return Err(PlanError::new(PlanErrorKind::Semantic, message).at(Position::of_span(create.name.span)));
        }
        if logical.uses.contains(&fold(&create.name)) {
            return Err(PlanError::new(PlanErrorKind::Semantic, format!("view {} would use itself", create.name))
                .at(Position::of_span(create.name.span)));
        }
        let fields = schema.fields().iter().enumerate().map(|(i, field)| {
            let name = columns.get(i).unwrap_or(field.name());
            Field::new(name, field.data_type().clone(), true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let view = View { name: fold(&create.name), columns, query: create.query.clone(), schema, uses: logical.uses };
        self.catalog.add(&create.name, Relation::View(Arc::new(view)), create.or_replace)?;
        Ok(Reply::Done("CREATE VIEW"))
    }

    fn drop_relation(&mut self, kind: DropKind, name: &Ident, if_exists: bool) -> Result<Reply, PlanError> {
        let (word, tag) = match kind {
            DropKind::Stream => ("stream", "DROP STREAM"),
            DropKind::View => ("view", "DROP VIEW"),
        };
        if !(if_exists && self.catalog.get(&fold(name)).is_none()) {
            self.catalog.remove(name, word)?;
        }
        Ok(Reply::Done(tag))
    }

    fn show(&self, show: &Show) -> Result<Reply, PlanError> {
        let setting = |row: thetis_planner::SettingRow| [row.name.to_owned(), row.value, row.meaning.to_owned()];
        match show {
            Show::Streams => table(
                &["name", "columns", "source", "rows"],
                self.catalog.streams().map(|stream| {
                    let rows =
                        stream.volume.rows.map_or_else(|| "unknown".to_owned(), |rows| format!("about {rows:.0}"));
                    [stream.name.clone(), stream.columns.fields().len().to_string(), source_name(&stream.spec), rows]
                }),
            ),
            Show::Views => {
                table(&["name", "query"], self.catalog.views().map(|view| [view.name.clone(), view.query.to_string()]))
            }
            Show::Settings => table(&["name", "value", "meaning"], self.settings.rows().into_iter().map(setting)),
            Show::Setting(name) => {
                let row = self.settings.show(&name.value).map_err(|error| error.at(Position::of_span(name.span)))?;
                table(&["name", "value", "meaning"], std::iter::once(setting(row)))
            }
        }
    }

    fn describe(&self, name: &Ident) -> Result<Reply, PlanError> {
        let fields = self.catalog.resolve(name)?.schema().fields().iter();
        table(&["column", "type"], fields.map(|field| [field.name().clone(), sql_name(field.data_type())]))
    }
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

fn source_name(spec: &SourceSpec) -> String {
    match spec {
        SourceSpec::File(file) => format!("{} {}", file.format.name(), file.path),
        SourceSpec::Values(_) => "values".to_owned(),
    }
}

fn declared(create: &CreateStream) -> Result<Arc<Schema>, PlanError> {
    let mut fields: Vec<Field> = Vec::new();
    for column in &create.columns {
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

fn unknown_type(column: &thetis_parser::StreamColumn, error: PlanError) -> PlanError {
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
