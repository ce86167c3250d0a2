//! The catalogue: streams, stored tables, views and sinks by name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use thetis_parser::Position;
use thetis_parser::ast::{Ident, Query};

use crate::connector::{SinkSpec, SourceSpec, TableId};
use crate::error::{PlanError, PlanErrorKind};
pub use crate::sample::Sample;

/// What is known of a source before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Volume {
    /// Rows, counted or estimated.
    pub rows: Option<f64>,
    /// Bytes, of all files.
    pub bytes: Option<u64>,
}

/// Looks at sources on behalf of the planner, which itself reads nothing.
pub trait SourceProbe {
    /// The columns that the source has.
    ///
    /// # Errors
    /// No such file, or not of this format.
    fn infer_schema(&self, spec: &SourceSpec) -> Result<SchemaRef, PlanError>;

    /// Checks that the declared columns are there.
    ///
    /// # Errors
    /// No such file, no such column in it.
    fn check(&self, spec: &SourceSpec, columns: &SchemaRef) -> Result<(), PlanError>;

    /// How much there is to read; nothing when that is not known.
    fn volume(&self, spec: &SourceSpec) -> Volume;

    /// Some rows, with these columns; `None` if looking at them would take them away, or there are none.
    fn sample(&self, spec: &SourceSpec, columns: &SchemaRef) -> Option<RecordBatch>;
}

/// A stream.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Name.
    pub name: String,
    /// Columns.
    pub columns: SchemaRef,
    /// Event-time column and its watermark expression as SQL text.
    pub watermark: Option<(String, String)>,
    /// Where its rows come from.
    pub spec: SourceSpec,
    /// How much there is to read.
    pub volume: Volume,
    /// Some of its rows.
    pub sample: Sample,
}

/// A named query.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Name.
    pub name: String,
    /// New names for the query's columns; empty to keep them.
    pub columns: Vec<String>,
    /// The query.
    pub query: Box<Query>,
    /// Columns of its result.
    pub schema: SchemaRef,
    /// Relations that the query names.
    pub uses: Vec<String>,
}

/// A table whose rows are stored: what statements put there, or the result of a query.
#[derive(Debug)]
pub struct Table {
    /// Name.
    pub name: String,
    /// Columns.
    pub columns: SchemaRef,
    /// Where its rows are.
    pub id: TableId,
    /// How many there are now, kept by who stores them.
    pub rows: Arc<AtomicU64>,
    /// The query whose result it is, for a materialized view.
    pub definition: Option<Definition>,
}

/// What a materialized view keeps.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// The query.
    pub query: Box<Query>,
    /// Relations that the query names.
    pub uses: Vec<String>,
}

impl Table {
    /// The table as something to read.
    pub fn stream(&self) -> Stream {
        Stream {
            name: self.name.clone(),
            columns: Arc::clone(&self.columns),
            watermark: None,
            spec: SourceSpec::Table(self.id),
            volume: Volume { rows: Some(self.rows.load(Ordering::Relaxed) as f64), bytes: None },
            sample: Sample::default(),
        }
    }
}

/// Where `INSERT INTO` sends the rows of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Sink {
    /// Name.
    pub name: String,
    /// What it is.
    pub spec: SinkSpec,
}

/// What a name in the catalogue means.
#[derive(Debug, Clone)]
pub enum Relation {
    /// A stream.
    Stream(Arc<Stream>),
    /// A stored table, or a view whose result is kept.
    Table(Arc<Table>),
    /// A view.
    View(Arc<View>),
    /// A sink, which cannot be read.
    Sink(Arc<Sink>),
}

impl Relation {
    /// Columns; a sink has none of its own.
    pub fn schema(&self) -> SchemaRef {
        match self {
            Self::Stream(stream) => Arc::clone(&stream.columns),
            Self::Table(table) => Arc::clone(&table.columns),
            Self::View(view) => Arc::clone(&view.schema),
            Self::Sink(_) => Arc::new(arrow::datatypes::Schema::empty()),
        }
    }

    /// As in `DROP kind name`, in lower case.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stream(_) => "stream",
            Self::Table(table) if table.definition.is_some() => "materialized view",
            Self::Table(_) => "table",
            Self::View(_) => "view",
            Self::Sink(_) => "sink",
        }
    }

    /// Names that its query uses.
    fn uses(&self) -> &[String] {
        match self {
            Self::View(view) => &view.uses,
            Self::Table(table) => table.definition.as_ref().map_or(&[], |definition| &definition.uses),
            Self::Stream(_) | Self::Sink(_) => &[],
        }
    }
}

/// What to do when a name is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// It is an error.
    Fail,
    /// `OR REPLACE`: the new relation takes the place of one of its kind.
    Replace,
    /// `IF NOT EXISTS`: the one that is there stays.
    Keep,
}

impl Conflict {
    /// What a statement says.
    pub fn of(or_replace: bool, if_not_exists: bool) -> Self {
        match (or_replace, if_not_exists) {
            (_, true) => Self::Keep,
            (true, false) => Self::Replace,
            (false, false) => Self::Fail,
        }
    }
}

/// What became of a relation that was to be added.
#[derive(Debug)]
pub enum Added {
    /// It is there now.
    New,
    /// It is there now, instead of this one.
    Replaced(Relation),
    /// The name was taken, and this one was not added.
    Kept(Relation),
}

/// Relations by name. Names are folded to lower case unless they were quoted.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    relations: BTreeMap<String, Relation>,
    version: u64,
}

/// The catalogue's key for an identifier.
pub fn fold(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

impl Catalog {
    /// Counts its changes: what was resolved before one may mean something else after it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The relation of this (folded) name.
    pub fn get(&self, name: &str) -> Option<&Relation> {
        self.relations.get(name)
    }

    /// The relation that `name` means.
    ///
    /// # Errors
    /// No such relation, with a suggestion.
    pub fn resolve(&self, name: &Ident) -> Result<&Relation, PlanError> {
        self.get(&fold(name)).ok_or_else(|| self.unknown(&fold(name)).at(Position::of_span(name.span)))
    }

    /// The error for a name that is not there.
    pub fn unknown(&self, name: &str) -> PlanError {
        let error =
            PlanError::new(PlanErrorKind::UndefinedTable, format!("there is no stream, table or view '{name}'"));
        let error = if self.relations.is_empty() {
            error.hint(
                "create one with CREATE TABLE name (columns), or CREATE STREAM name (columns) WITH (path = '...')",
            )
        } else {
            error.hint("SHOW STREAMS, SHOW TABLES and SHOW VIEWS list what is there")
        };
        error.suggest(name, self.relations.keys().map(String::as_str))
    }

    /// Adds a relation, in one step: what it uses must be there, and what stands in its way is dealt with
    /// as `conflict` says.
    ///
    /// # Errors
    /// As for [`Self::check_free`], or a relation that it uses is gone.
    pub fn add(&mut self, name: &Ident, relation: Relation, conflict: Conflict) -> Result<Added, PlanError> {
        let key = fold(name);
        if conflict == Conflict::Keep && self.relations.contains_key(&key) {
            return Ok(Added::Kept(relation));
        }
        self.check_free(name, relation.kind(), conflict)?;
        if let Some(gone) = relation.uses().iter().find(|used| !self.relations.contains_key(*used)) {
            return Err(self.unknown(gone).at(Position::of_span(name.span)));
        }
        self.version += 1;
        Ok(match self.relations.insert(key, relation) {
            Some(replaced) => Added::Replaced(replaced),
            None => Added::New,
        })
    }

    /// Puts a relation back that was in a catalogue before.
    pub fn restore(&mut self, name: String, relation: Relation) {
        self.version += 1;
        self.relations.insert(name, relation);
    }

    /// Whether a relation of this kind can be added.
    ///
    /// # Errors
    /// The name is taken, and by a relation of another kind or one that is not to be replaced; or a
    /// materialized view follows the relation that would be replaced.
    pub fn check_free(&self, name: &Ident, kind: &str, conflict: Conflict) -> Result<(), PlanError> {
        let key = fold(name);
        let Some(present) = self.relations.get(&key).filter(|_| conflict != Conflict::Keep) else { return Ok(()) };
        let replace = conflict == Conflict::Replace;
        if !replace || present.kind() != kind {
            let hint = if replace {
                format!("drop it first: DROP {} {key}", present.kind().to_uppercase())
            } else {
                "write CREATE OR REPLACE, or IF NOT EXISTS, or drop it first".to_owned()
            };
            let message = format!("there is a {} '{key}' already", present.kind());
            return Err(PlanError::new(PlanErrorKind::Duplicate, message).at(Position::of_span(name.span)).hint(hint));
        }
        if let Some((user, _)) = self.users_of(&key).find(|(_, relation)| matches!(relation, Relation::Table(_))) {
            let message = format!("materialized view '{user}' follows {kind} '{key}'");
            return Err(PlanError::new(PlanErrorKind::Semantic, message)
                .at(Position::of_span(name.span))
                .hint(format!("drop that first: DROP MATERIALIZED VIEW {user}")));
        }
        Ok(())
    }

    /// Removes a relation of this kind, as in [`Relation::kind`].
    ///
    /// # Errors
    /// No such relation, one of the other kind, or views that use it.
    pub fn remove(&mut self, name: &Ident, kind: &str) -> Result<Relation, PlanError> {
        let key = fold(name);
        let position = Position::of_span(name.span);
        let relation = self.resolve(name)?;
        if relation.kind() != kind {
            let found = relation.kind();
            return Err(PlanError::new(PlanErrorKind::Semantic, format!("'{key}' is a {found}, not a {kind}"))
                .at(position)
                .hint(format!("write DROP {} {key}", found.to_uppercase())));
        }
        if let Some((user, relation)) = self.users_of(&key).next() {
            let uses = relation.kind();
            return Err(PlanError::new(PlanErrorKind::Semantic, format!("{uses} '{user}' uses {kind} '{key}'"))
                .at(position)
                .hint(format!("drop that first: DROP {} {user}", uses.to_uppercase())));
        }
        self.version += 1;
        self.relations.remove(&key).ok_or_else(|| self.unknown(&key))
    }

    /// Views that use the relation of this name.
    fn users_of(&self, key: &str) -> impl Iterator<Item = (&str, &Relation)> {
        self.relations().filter(move |(_, relation)| relation.uses().iter().any(|used| used == key))
    }

    /// All relations, by name.
    pub fn relations(&self) -> impl Iterator<Item = (&str, &Relation)> {
        self.relations.iter().map(|(name, relation)| (name.as_str(), relation))
    }
}
