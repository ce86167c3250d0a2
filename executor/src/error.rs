//! What can go wrong while a query runs.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion_common::DataFusionError;

/// An error of a running query.
#[derive(Debug, Clone, thiserror::Error)]
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
    /// The query was cancelled.
    #[error("the query was cancelled")]
    Cancelled,
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
