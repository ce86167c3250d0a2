//! The catalogue: streams and views by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use thetis_parser::Position;
use thetis_parser::ast::{Ident, Query};

use crate::connector::SourceSpec;
use crate::error::{PlanError, PlanErrorKind};

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
}

/// A stream.
#[derive(Debug, Clone, PartialEq)]
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
    /// Streams and views that the query names.
    pub uses: Vec<String>,
}

/// A stream or a view.
#[derive(Debug, Clone)]
pub enum Relation {
    /// A stream.
    Stream(Arc<Stream>),
    /// A view.
    View(Arc<View>),
}

impl Relation {
    /// Columns.
    pub fn schema(&self) -> &SchemaRef {
        match self {
            Self::Stream(stream) => &stream.columns,
            Self::View(view) => &view.schema,
        }
    }

    /// `stream` or `view`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stream(_) => "stream",
            Self::View(_) => "view",
        }
    }
}

/// Streams and views by name. Names are folded to lower case unless they were quoted.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    relations: BTreeMap<String, Relation>,
}

/// The catalogue's key for an identifier.
pub fn fold(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

impl Catalog {
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
        let error = PlanError::new(PlanErrorKind::UndefinedTable, format!("there is no stream or view '{name}'"));
        let error = if self.relations.is_empty() {
            error.hint("create one with CREATE STREAM name (columns) WITH (connector = 'file', path = '...')")
        } else {
            error.hint("SHOW STREAMS and SHOW VIEWS list what is there")
        };
        error.suggest(name, self.relations.keys().map(String::as_str))
    }

    /// Adds a relation.
    ///
    /// # Errors
    /// The name is taken and `replace` is not said, or it is taken by a relation of the other kind.
    pub fn add(&mut self, name: &Ident, relation: Relation, replace: bool) -> Result<(), PlanError> {
        let key = fold(name);
        if let Some(present) = self.relations.get(&key)
            && (!replace || present.kind() != relation.kind())
        {
            let hint = if replace {
                format!("drop it first: DROP {} {key}", present.kind().to_uppercase())
            } else {
                "write CREATE OR REPLACE, or IF NOT EXISTS, or drop it first".to_owned()
            };
            return Err(PlanError::new(
                PlanErrorKind::Duplicate,
                format!("there is a {} '{key}' already", present.kind()),
            )
            .at(Position::of_span(name.span))
            .hint(hint));
        }
        self.relations.insert(key, relation);
        Ok(())
    }

    /// Removes a relation of this kind (`stream` or `view`).
    ///
    /// # Errors
    /// No such relation, one of the other kind, or views that use it.
    pub fn remove(&mut self, name: &Ident, kind: &str) -> Result<(), PlanError> {
        let key = fold(name);
        let position = Position::of_span(name.span);
        let relation = self.resolve(name)?;
        if relation.kind() != kind {
            let found = relation.kind();
            return Err(PlanError::new(PlanErrorKind::Semantic, format!("'{key}' is a {found}, not a {kind}"))
                .at(position)
                .hint(format!("write DROP {} {key}", found.to_uppercase())));
        }
        if let Some(user) = self.views().find(|view| view.uses.contains(&key)) {
            return Err(PlanError::new(PlanErrorKind::Semantic, format!("view '{}' uses {kind} '{key}'", user.name))
                .at(position)
                .hint(format!("drop the view first: DROP VIEW {}", user.name)));
        }
        self.relations.remove(&key);
        Ok(())
    }

    /// All streams, by name.
    pub fn streams(&self) -> impl Iterator<Item = &Arc<Stream>> {
        self.relations.values().filter_map(|relation| match relation {
            Relation::Stream(stream) => Some(stream),
            Relation::View(_) => None,
        })
    }

    /// All views, by name.
    pub fn views(&self) -> impl Iterator<Item = &Arc<View>> {
        self.relations.values().filter_map(|relation| match relation {
            Relation::View(view) => Some(view),
            Relation::Stream(_) => None,
        })
    }
}
