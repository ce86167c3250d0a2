//! The statements that Thetis knows, as plain data.

use sqlparser::ast;

use crate::error::Position;

/// One statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// `CREATE STREAM name (columns) WITH (options)`.
    CreateStream(Box<CreateStream>),
    /// `CREATE VIEW name AS query`, `CREATE MATERIALIZED VIEW name AS query`.
    CreateView(Box<CreateView>),
    /// `CREATE TABLE name (columns)`, `CREATE TABLE name AS query`.
    CreateTable(Box<CreateTable>),
    /// `CREATE SINK name WITH (options)`.
    CreateSink(Box<CreateSink>),
    /// `INSERT INTO name [(columns)] query`.
    Insert(Box<Insert>),
    /// `UPDATE name SET column = value, ... [WHERE condition]`.
    Update(Box<Update>),
    /// `DELETE FROM name [WHERE condition]`.
    Delete(Box<Delete>),
    /// `SELECT`, `WITH`, `VALUES` or a parenthesised query.
    Query(Box<ast::Query>),
    /// `EXPLAIN query`, with options.
    Explain(Explain),
    /// `SHOW STREAMS | TABLES | VIEWS | SINKS | SETTINGS | name`.
    Show(Show),
    /// `DESCRIBE name`.
    Describe {
        /// A stream, a table or a view.
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
    /// `DROP STREAM | TABLE | [MATERIALIZED] VIEW | SINK [IF EXISTS] name`.
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

/// `CREATE [OR REPLACE] [MATERIALIZED] VIEW name [(columns)] AS query`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateView {
    /// Name of the view.
    pub name: ast::Ident,
    /// Replace a view of the same name.
    pub or_replace: bool,
    /// No error when the view is there.
    pub if_not_exists: bool,
    /// Its result is kept.
    pub materialized: bool,
    /// New names for the query's columns; empty to keep them.
    pub columns: Vec<ast::Ident>,
    /// The view's query.
    pub query: Box<ast::Query>,
}

/// `CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name (columns)` or `... name [(columns)] AS query`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateTable {
    /// Name of the table.
    pub name: ast::Ident,
    /// Replace a table of the same name.
    pub or_replace: bool,
    /// No error when the table is there.
    pub if_not_exists: bool,
    /// Declared columns; empty when the query gives them.
    pub columns: Vec<StreamColumn>,
    /// Gives the columns and the first rows.
    pub query: Option<Box<ast::Query>>,
}

/// `CREATE [OR REPLACE] SINK [IF NOT EXISTS] name WITH (...)`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateSink {
    /// Name of the sink.
    pub name: ast::Ident,
    /// Replace a sink of the same name.
    pub or_replace: bool,
    /// No error when the sink is there.
    pub if_not_exists: bool,
    /// `WITH (key = value, ...)`.
    pub options: Vec<StreamOption>,
}

/// `INSERT INTO name [(columns)] query`.
#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    /// A table or a sink.
    pub target: ast::Ident,
    /// The columns that get values; empty for all.
    pub columns: Vec<ast::Ident>,
    /// The rows.
    pub query: Box<ast::Query>,
}

/// `UPDATE name [AS alias] SET column = value, ... [WHERE condition]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// The table.
    pub table: TableName,
    /// Columns and their new values.
    pub assignments: Vec<(ast::Ident, ast::Expr)>,
    /// Which rows change; all without one.
    pub condition: Option<ast::Expr>,
}

/// `DELETE FROM name [AS alias] [WHERE condition]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Delete {
    /// The table.
    pub table: TableName,
    /// Which rows go; all without one.
    pub condition: Option<ast::Expr>,
}

/// A table that is changed, as the grammar has it in FROM (with its alias), and its plain name.
#[derive(Debug, Clone, PartialEq)]
pub struct TableName {
    /// The plain name.
    pub name: ast::Ident,
    /// As it stands in FROM.
    pub from: ast::TableWithJoins,
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
    /// All stored tables.
    Tables,
    /// All views, kept or not.
    Views,
    /// The workers of the cluster.
    Workers,
    /// The queries that run.
    Queries,
    /// The tasks of the queries that run.
    Tasks,
    /// All sinks.
    Sinks,
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
    /// A stored table.
    Table,
    /// A view.
    View,
    /// A view whose result is kept.
    MaterializedView,
    /// A sink.
    Sink,
}
