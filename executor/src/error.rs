//! What can go wrong while a query runs.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion_common::DataFusionError;
use serde::{Deserialize, Serialize};

/// An error of a running query.
#[derive(Debug, Clone, thiserror::Error, Serialize, Deserialize)]
#[serde(from = "Plain", into = "Plain")]
#[non_exhaustive]
pub enum ExecError {
    /// A record of a source cannot be read.
    #[error("{path}, line {line}: {message}", path = path.display())]
    Record {
        /// File.
        path: PathBuf,
        /// Line on which the record starts, from 1.
        line: u64,
        /// What is wrong with it.
        message: String,
    },
    /// A source cannot be read at all.
    #[error("{path}: {message}", path = path.display())]
    Source {
        /// File or glob.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
        /// The error below, if there is one.
        #[source]
        source: Option<Arc<io::Error>>,
    },
    /// An expression fails for some row: overflow, division by zero, a cast.
    #[error("{message} ({place})")]
    Evaluate {
        /// What is wrong.
        message: String,
        /// Operator and rows.
        place: String,
        /// The error below.
        #[source]
        source: Arc<DataFusionError>,
    },
    /// A value does not fit the type of a result.
    #[error("{message} ({place})")]
    OutOfRange {
        /// What is wrong.
        message: String,
        /// Operator.
        place: String,
    },
    /// A row that a table does not take.
    #[error("{message}")]
    Constraint {
        /// What is wrong with it.
        message: String,
    },
    /// A stored table that cannot be read or changed.
    #[error("{message}")]
    Table {
        /// Why.
        message: String,
    },
    /// A sink that cannot be written.
    #[error("{path}: {message}", path = path.display())]
    Sink {
        /// File.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
        /// The error below, if there is one.
        #[source]
        source: Option<Arc<io::Error>>,
    },
    /// The plan cannot be run by this build.
    #[error("the plan cannot be run: {0}")]
    Plan(Arc<DataFusionError>),
    /// An invariant of the engine does not hold.
    #[error("internal error: {0}")]
    Internal(String),
    /// A worker that has tasks of the query is gone.
    #[error("worker '{worker}' is lost: {reason}")]
    Lost {
        /// Its name.
        worker: String,
        /// What is known of it.
        reason: String,
    },
    /// The query was cancelled.
    #[error("the query was cancelled")]
    Cancelled,
}

/// An [`ExecError`] as it travels to other processes: without the errors below it.
#[derive(Serialize, Deserialize)]
enum Plain {
    Record { path: PathBuf, line: u64, message: String },
    Source { path: PathBuf, message: String },
    Evaluate { message: String, place: String },
    OutOfRange { message: String, place: String },
    Constraint { message: String },
    Table { message: String },
    Sink { path: PathBuf, message: String },
    Plan(String),
    Internal(String),
    Lost { worker: String, reason: String },
    Cancelled,
}

impl From<ExecError> for Plain {
    fn from(error: ExecError) -> Self {
        match error {
            ExecError::Record { path, line, message } => Self::Record { path, line, message },
            ExecError::Source { path, message, source: _ } => Self::Source { path, message },
            ExecError::Evaluate { message, place, source: _ } => Self::Evaluate { message, place },
            ExecError::OutOfRange { message, place } => Self::OutOfRange { message, place },
            ExecError::Constraint { message } => Self::Constraint { message },
            ExecError::Table { message } => Self::Table { message },
            ExecError::Sink { path, message, source: _ } => Self::Sink { path, message },
            ExecError::Plan(source) => Self::Plan(source.strip_backtrace()),
            ExecError::Internal(message) => Self::Internal(message),
            ExecError::Lost { worker, reason } => Self::Lost { worker, reason },
            ExecError::Cancelled => Self::Cancelled,
        }
    }
}

impl From<Plain> for ExecError {
    fn from(plain: Plain) -> Self {
        match plain {
            Plain::Record { path, line, message } => Self::Record { path, line, message },
            Plain::Source { path, message } => Self::Source { path, message, source: None },
            Plain::Evaluate { message, place } => {
                let source = Arc::new(DataFusionError::Execution(message.clone()));
                Self::Evaluate { message, place, source }
            }
            Plain::OutOfRange { message, place } => Self::OutOfRange { message, place },
            Plain::Constraint { message } => Self::Constraint { message },
            Plain::Table { message } => Self::Table { message },
            Plain::Sink { path, message } => Self::Sink { path, message, source: None },
            Plain::Plan(message) => Self::Plan(Arc::new(DataFusionError::Plan(message))),
            Plain::Internal(message) => Self::Internal(message),
            Plain::Lost { worker, reason } => Self::Lost { worker, reason },
            Plain::Cancelled => Self::Cancelled,
        }
    }
}

impl ExecError {
    /// An expression's error, with the place to be filled in by [`Self::at`].
    pub(crate) fn evaluate(error: DataFusionError) -> Self {
        Self::Evaluate { message: describe(&error), place: String::new(), source: Arc::new(error) }
    }

    /// A value that does not fit.
    pub(crate) fn out_of_range(message: impl Into<String>) -> Self {
        Self::OutOfRange { message: message.into(), place: String::new() }
    }

    /// Says on which worker it happened, where that can be the reason.
    #[must_use]
    pub fn on(mut self, worker: &str) -> Self {
        if let Self::Source { message, .. } | Self::Sink { message, .. } = &mut self {
            message.push_str(&format!(" (on worker '{worker}')"));
        }
        self
    }

    /// Says where it happened, if that is not said yet.
    pub(crate) fn at(mut self, here: impl FnOnce() -> String) -> Self {
        if let Self::Evaluate { place, .. } | Self::OutOfRange { place, .. } = &mut self
            && place.is_empty()
        {
            *place = here();
        }
        self
    }
}

impl From<DataFusionError> for ExecError {
    fn from(error: DataFusionError) -> Self {
        Self::evaluate(error)
    }
}

impl From<ArrowError> for ExecError {
    fn from(error: ArrowError) -> Self {
        Self::evaluate(DataFusionError::from(error))
    }
}

fn describe(error: &DataFusionError) -> String {
    match error.find_root() {
        DataFusionError::ArrowError(arrow, _) => match arrow.as_ref() {
            ArrowError::DivideByZero => "division by zero".to_owned(),
            ArrowError::ArithmeticOverflow(message) => {
                format!("overflow: {}", message.trim_start_matches("Overflow happened on: "))
            }
            ArrowError::CastError(message)
            | ArrowError::ComputeError(message)
            | ArrowError::ParseError(message)
            | ArrowError::InvalidArgumentError(message) => message.clone(),
            other => other.to_string(),
        },
        DataFusionError::Execution(message) => message.clone(),
        other => other.strip_backtrace(),
    }
}
