//! The statements that Thetis knows, as plain data.

use sqlparser::ast;

use crate::error::Position;

/// One statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// `CREATE STREAM name (columns) WITH (options)`.
    CreateStream(Box<CreateStream>),
    /// `CREATE VIEW name AS query`.
    CreateView(Box<CreateView>),
    /// `SELECT`, `WITH`, `VALUES` or a parenthesised query.
    Query(Box<ast::Query>),
    /// `EXPLAIN query`, with options.
    Explain(Explain),
    /// `SHOW STREAMS | VIEWS | SETTINGS | name`.
    Show(Show),
    /// `DESCRIBE name`.
    Describe {
        /// A stream or a view.
        name: ast::Ident,
    },
    /// `SET name = value`.
    Set {
        /// The setting.
        name: ast::Ident,
        /// The value as text, without quotes; `None` for `DEFAULT` and for `RESET name`.
        value: Option<String>,
        /// Where the value stands.
        position: Option<Position>,
    },
    /// `DROP STREAM | VIEW [IF EXISTS] name`.
    Drop {
        /// What is dropped.
        kind: DropKind,
        /// Its name.
        name: ast::Ident,
        /// No error when there is none.
        if_exists: bool,
    },
}

/// `CREATE [OR REPLACE] STREAM [IF NOT EXISTS] name (columns [, WATERMARK ...]) WITH (...)`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateStream {
    /// Name of the stream.
    pub name: ast::Ident,
    /// Replace a stream of the same name.
    pub or_replace: bool,
    /// No error when the stream is there.
    pub if_not_exists: bool,
    /// Declared columns; empty when they are to be inferred from the file.
    pub columns: Vec<StreamColumn>,
    /// The event-time column and its watermark.
    pub watermark: Option<Watermark>,
    /// `WITH (key = value, ...)`.
    pub options: Vec<StreamOption>,
}

/// A declared column.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamColumn {
    /// Name.
    pub name: ast::Ident,
    /// SQL type.
    pub data_type: ast::DataType,
    /// `NOT NULL` was said.
    pub not_null: bool,
    /// Where the column's type stands.
    pub position: Option<Position>,
}

/// `WATERMARK FOR column AS expression`.
#[derive(Debug, Clone, PartialEq)]
pub struct Watermark {
    /// The event-time column.
    pub column: ast::Ident,
    /// Event time is at least this, once the row has been seen.
    pub expression: ast::Expr,
}

/// One `key = value` of a `WITH` list.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamOption {
    /// Key, as written.
    pub key: ast::Ident,
    /// Value as text, without quotes.
    pub value: String,
    /// Where the value stands.
    pub position: Option<Position>,
}

/// `CREATE [OR REPLACE] VIEW name [(columns)] AS query`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateView {
    /// Name of the view.
    pub name: ast::Ident,
    /// Replace a view of the same name.
    pub or_replace: bool,
    /// No error when the view is there.
    pub if_not_exists: bool,
    /// New names for the query's columns; empty to keep them.
    pub columns: Vec<ast::Ident>,
    /// The view's query.
    pub query: Box<ast::Query>,
}

/// `EXPLAIN [ANALYZE] [VERBOSE] query`, or `EXPLAIN (option [value], ...) query`.
#[derive(Debug, Clone, PartialEq)]
pub struct Explain {
    /// Run the query to its end, and show what happened.
    pub analyze: bool,
    /// With the logical plan.
    pub verbose: bool,
    /// How the plan is written.
    pub format: ExplainFormat,
    /// The query to explain.
    pub query: Box<ast::Query>,
}

/// How `EXPLAIN` writes a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExplainFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// A digraph for Graphviz.
    Dot,
}

impl ExplainFormat {
    /// All of them, with their names in SQL.
    pub const ALL: [(&str, Self); 3] = [("TEXT", Self::Text), ("JSON", Self::Json), ("DOT", Self::Dot)];
}

/// What `SHOW` shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Show {
    /// All streams.
    Streams,
    /// All views.
    Views,
    /// All settings with their values and meanings.
    Settings,
    /// One setting.
    Setting(ast::Ident),
}

/// What `DROP` drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropKind {
    /// A stream.
    Stream,
    /// A view.
    View,
}
