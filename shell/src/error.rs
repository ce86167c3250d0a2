//! The one error of the library.

use std::fmt;
use std::sync::Arc;

use thetis_cluster::front::client::ClientError;
use thetis_cluster::{StartError, StatementError};
use thetis_executor::ExecError;
use thetis_parser::{Position, SqlError};
use thetis_planner::{PlanError, PlanErrorKind};

/// What the caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Mend the SQL text.
    Sql,
    /// Use something else: this is not supported.
    Unsupported,
    /// Mend the data, or read it with `on_error = 'skip'`.
    Data,
    /// Mend how the library is called.
    Usage,
    /// See to the cluster: the coordinator or a worker cannot be reached, or is lost.
    Connection,
    /// The query was cancelled.
    Cancelled,
    /// The query took longer than its timeout.
    Timeout,
    /// Report it: this is a defect of Thetis.
    Internal,
}

/// An error with its SQLSTATE, place and hint.
#[derive(Debug, Clone)]
pub struct Error(Box<Details>);

// Boxed: results that are no errors, such as rows, are many, and stay small.
#[derive(Debug, Clone)]
struct Details {
    kind: ErrorKind,
    sqlstate: &'static str,
    message: String,
    position: Option<Position>,
    hint: Option<String>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, "22023", message.into())
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, "XX000", message.into())
    }

    pub(crate) fn connection(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Connection, "08006", message.into())
    }

    pub(crate) fn cancelled() -> Self {
        ExecError::Cancelled.into()
    }

    pub(crate) fn timeout() -> Self {
        Self::new(ErrorKind::Timeout, "57014", "the query was cancelled: it took longer than its timeout".to_owned())
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self(Box::new(Details { hint: Some(hint.into()), ..*self.0 }))
    }

    fn new(kind: ErrorKind, sqlstate: &'static str, message: String) -> Self {
        Self(Box::new(Details { kind, sqlstate, message, position: None, hint: None, source: None }))
    }

    fn caused_by(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self(Box::new(Details { source: Some(Arc::new(source)), ..*self.0 }))
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The five characters of the SQL standard, as PostgreSQL uses them.
    pub fn sqlstate(&self) -> &'static str {
        self.0.sqlstate
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Where in the statement's text.
    pub fn position(&self) -> Option<Position> {
        self.0.position
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The error for people: message, the line of `text` with a caret, hint. `start` is where the
    /// statement starts in `text`.
    pub fn render(&self, text: &str, start: Position) -> String {
        let mut out = format!("ERROR {}: {}", self.0.sqlstate, self.0.message);
        if let Some(position) = self.0.position
            && let Some(excerpt) = SqlError::excerpt(text, position.within(start))
        {
            out += &format!("\n{excerpt}");
        }
        if let Some(hint) = &self.0.hint {
            out += &format!("\nHINT: {hint}");
        }
        out
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

impl From<SqlError> for Error {
    fn from(error: SqlError) -> Self {
        PlanError::from(error).into()
    }
}

impl From<PlanError> for Error {
    fn from(error: PlanError) -> Self {
        let (kind, sqlstate) = match error.kind {
            PlanErrorKind::Syntax => (ErrorKind::Sql, "42601"),
            PlanErrorKind::UndefinedTable => (ErrorKind::Sql, "42P01"),
            PlanErrorKind::UndefinedColumn => (ErrorKind::Sql, "42703"),
            PlanErrorKind::UndefinedFunction => (ErrorKind::Sql, "42883"),
            PlanErrorKind::Duplicate => (ErrorKind::Sql, "42710"),
            PlanErrorKind::Type => (ErrorKind::Sql, "42804"),
            PlanErrorKind::Setting => (ErrorKind::Sql, "22023"),
            PlanErrorKind::Unsupported => (ErrorKind::Unsupported, "0A000"),
            PlanErrorKind::Source => (ErrorKind::Data, "58030"),
            PlanErrorKind::Arithmetic => (ErrorKind::Sql, "22003"),
            _ => (ErrorKind::Sql, "42000"),
        };
        let (message, position, hint) = (error.message.clone(), error.position, error.hint.clone());
        Self(Box::new(Details { kind, sqlstate, message, position, hint, source: Some(Arc::new(error)) }))
    }
}

impl From<StatementError> for Error {
    fn from(error: StatementError) -> Self {
        match error {
            StatementError::Plan(error) => error.into(),
            StatementError::Start(error) => error.into(),
            StatementError::Run(error) => error.into(),
            StatementError::View { view, source } => {
                let message = format!("materialized view '{view}' has failed: {source}");
                let hint = Some(format!("drop it and create it again: DROP MATERIALIZED VIEW {view}"));
                Self(Box::new(Details { message, hint, ..*Self::from(source).0 }))
            }
            other => Self::internal("the statement cannot be run").caused_by(other),
        }
    }
}

impl From<ClientError> for Error {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Statement(error) => error.into(),
            other => Self::connection(other.to_string()).caused_by(other),
        }
    }
}

impl From<StartError> for Error {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Tasks(error) => error.into(),
            StartError::NoWorkers => Self::connection("the cluster has no workers")
                .with_hint("start one: thetis worker --coordinator HOST:PORT; `thetis status` shows who is there"),
            other => Self::internal("the query cannot be started").caused_by(other),
        }
    }
}

impl From<ExecError> for Error {
    fn from(error: ExecError) -> Self {
        let (kind, sqlstate) = match &error {
            ExecError::Record { .. } => (ErrorKind::Data, "22P04"),
            ExecError::Source { .. } | ExecError::Sink { .. } => (ErrorKind::Data, "58030"),
            ExecError::Constraint { .. } => (ErrorKind::Data, "23502"),
            ExecError::Table { .. } => (ErrorKind::Data, "42P01"),
            ExecError::Evaluate { message, .. } if message == "division by zero" => (ErrorKind::Data, "22012"),
            ExecError::OutOfRange { .. } => (ErrorKind::Data, "22003"),
            ExecError::Evaluate { message, .. } if message.starts_with("overflow") => (ErrorKind::Data, "22003"),
            ExecError::Evaluate { .. } => (ErrorKind::Data, "22000"),
            ExecError::Lost { .. } => (ErrorKind::Connection, "08006"),
            ExecError::Cancelled => (ErrorKind::Cancelled, "57014"),
            _ => (ErrorKind::Internal, "XX000"),
        };
        let hint = match &error {
            ExecError::Record { .. } => Some("with on_error = 'skip' such records are counted and left out".to_owned()),
            _ => None,
        };
        let message = error.to_string();
        Self(Box::new(Details { kind, sqlstate, message, position: None, hint, source: Some(Arc::new(error)) }))
    }
}
