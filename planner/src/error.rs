//! Why a statement cannot be planned, with the place in the SQL text where one is known.

use datafusion_common::DataFusionError;
use serde::{Deserialize, Serialize};
use thetis_parser::{Position, SqlError};

/// What kind of mistake it is; each has its SQLSTATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PlanErrorKind {
    /// The text is no statement.
    Syntax,
    /// A stream or view that is not there.
    UndefinedTable,
    /// A column that is not there.
    UndefinedColumn,
    /// A function that is not there.
    UndefinedFunction,
    /// A name that is taken.
    Duplicate,
    /// Types that do not go together, or a type that is not there.
    Type,
    /// A setting or an option, or its value.
    Setting,
    /// Understood, but not supported.
    Unsupported,
    /// A source that cannot be looked at: no such file, no such column in it.
    Source,
    /// Constant expressions that overflow or divide by zero.
    Arithmetic,
    /// Anything else that is wrong with the statement.
    Semantic,
}

/// A planning error. `source` keeps the error below, if there is one.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct PlanError {
    /// What kind of mistake.
    pub kind: PlanErrorKind,
    /// What is wrong.
    pub message: String,
    /// Where in the statement.
    pub position: Option<Position>,
    /// What to do about it.
    pub hint: Option<String>,
    /// The error below.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl PlanError {
    /// An error without position, hint or source.
    pub fn new(kind: PlanErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), position: None, hint: None, source: None }
    }

    /// Understood, but not supported; `hint` names what works instead.
    pub fn unsupported(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(PlanErrorKind::Unsupported, message).hint(hint)
    }

    /// The same error at a place.
    #[must_use]
    pub fn at(mut self, position: Option<Position>) -> Self {
        self.position = position.or(self.position);
        self
    }

    /// The same error with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same error with the error below it.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same error with a "did you mean" if a known name is close.
    #[must_use]
    pub fn suggest<'a>(self, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        match thetis_parser::closest(name, known) {
            Some(near) => self.hint(format!("did you mean {near}?")),
            None => self,
        }
    }
}

impl From<SqlError> for PlanError {
    fn from(error: SqlError) -> Self {
        let kind = if error.unsupported { PlanErrorKind::Unsupported } else { PlanErrorKind::Syntax };
        Self { kind, message: error.message, position: error.position, hint: error.hint, source: None }
    }
}

impl From<DataFusionError> for PlanError {
    fn from(error: DataFusionError) -> Self {
        let position = error.diagnostic().and_then(|diagnostic| diagnostic.span).and_then(|span| {
            Some(Position { line: span.start.line, column: span.start.column }).filter(|position| position.line > 0)
        });
        let (kind, message) = describe(error.find_root());
        let hint = (kind == PlanErrorKind::Unsupported).then(|| "the README lists the SQL that works".to_owned());
        Self { kind, message, position, hint, source: None }.caused_by(error)
    }
}

fn describe(error: &DataFusionError) -> (PlanErrorKind, String) {
    use PlanErrorKind as Kind;
    match error {
        DataFusionError::SchemaError(schema, _) => {
            let message = schema.to_string();
            let message = message.trim_start_matches("Schema error: ");
            (Kind::UndefinedColumn, first_sentence(message))
        }
        DataFusionError::NotImplemented(message) => (Kind::Unsupported, clean(message)),
        DataFusionError::ArrowError(arrow, _) => {
            let message = arrow.to_string();
            let kind =
                if message.contains("Overflow") || message.contains("overflow") || message.contains("Divide by zero") {
                    Kind::Arithmetic
                } else {
                    Kind::Semantic
                };
            (kind, clean(&message))
        }
        DataFusionError::Plan(message) | DataFusionError::Execution(message) => {
            let kind = if message.contains("Invalid function") {
                Kind::UndefinedFunction
            } else if message.contains("coerc") || message.contains("types") || message.contains("type ") {
                Kind::Type
            } else {
                Kind::Semantic
            };
            (kind, clean(message))
        }
        other => (Kind::Semantic, clean(&other.strip_backtrace())),
    }
}

/// The message without the name of the library's error classes and its notes to its developers.
fn clean(message: &str) -> String {
    let prefixes = ["Error during planning: ", "Execution error: ", "Arrow error: ", "Arithmetic overflow: "];
    let mut message = message.trim();
    while let Some(rest) = prefixes.iter().find_map(|prefix| message.strip_prefix(prefix)) {
        message = rest;
    }
    let end = message
        .find("\n\nbacktrace")
        .or_else(|| message.find(".\nThis issue was likely caused by a bug"))
        .unwrap_or(message.len());
    message[..end].trim_end_matches('.').to_owned()
}

fn first_sentence(message: &str) -> String {
    let cleaned = clean(message);
    cleaned.split(". Valid fields").next().unwrap_or_default().trim_end_matches('.').to_owned()
}
