//! SQL text to typed statements.
//!
//! ```text
//! text -> [variables] -> split -> parse -> Statement
//! ```
//!
//! The grammar is sqlparser's; this crate adds the statements that it lacks (`CREATE STREAM`,
//! `WATERMARK FOR`), one statement splitter for files and prompts, and errors that point at
//! the text. It knows nothing of catalogues or types.

mod error;
mod parse;
mod scan;
mod split;
mod statement;
mod suggest;
mod variables;

pub use error::{Position, SqlError};
pub use parse::{GRAMMAR, parse_parameterized, parse_statement};
pub use split::{Open, Piece, Splitter, split};
pub use statement::{
    CreateSink, CreateStream, CreateTable, CreateView, Delete, DropKind, Explain, ExplainFormat, Insert, Show,
    Statement, StreamColumn, StreamOption, TableName, Update, Watermark,
};
pub use suggest::closest;
pub use variables::substitute;

/// The SQL grammar's own types, so that other crates need no second version of them.
pub use sqlparser::ast;
