//! Why a statement fails.

use serde::{Deserialize, Serialize};
use thetis_executor::ExecError;
use thetis_parser::Position;
use thetis_planner::{PlanError, PlanErrorKind};

use crate::wire::WireError;

/// Why a query does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its plan cannot be sent.
    #[error("the plan cannot be sent to the worker")]
    Wire(#[from] WireError),
    /// Its tasks cannot be made.
    #[error(transparent)]
    Tasks(#[from] ExecError),
    /// Nobody can run them.
    #[error("there are no workers")]
    NoWorkers,
}

impl StartError {
    /// As an error of the query.
    pub(crate) fn into_exec(self) -> ExecError {
        match self {
            Self::Tasks(error) => error,
            other => ExecError::Internal(chain(&other)),
        }
    }
}

/// Why a statement fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatementError {
    /// Something is wrong with it.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Its query does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Its query fails.
    #[error(transparent)]
    Run(#[from] ExecError),
    /// A materialized view that it reads has failed.
    #[error("materialized view '{view}' has failed: {source}")]
    View {
        /// The view.
        view: String,
        /// Why.
        source: ExecError,
    },
    /// The catalogue cannot be kept.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
}

/// A [`StatementError`] as it travels to a client: without the errors below it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Failure {
    /// Something is wrong with the statement.
    Plan {
        /// What kind of mistake.
        kind: PlanErrorKind,
        /// What is wrong.
        message: String,
        /// Where in the statement.
        position: Option<Position>,
        /// What to do about it.
        hint: Option<String>,
    },
    /// There are no workers.
    NoWorkers,
    /// Its query fails.
    Run(ExecError),
    /// A materialized view that it reads has failed.
    View(String, ExecError),
}

impl From<StatementError> for Failure {
    fn from(error: StatementError) -> Self {
        match error {
            StatementError::Plan(PlanError { kind, message, position, hint, source: _ }) => {
                Self::Plan { kind, message, position, hint }
            }
            StatementError::Start(StartError::NoWorkers) => Self::NoWorkers,
            StatementError::Start(error) => Self::Run(error.into_exec()),
            StatementError::Run(error) => Self::Run(error),
            StatementError::View { view, source } => Self::View(view, source),
            StatementError::Store(error) => Self::Run(ExecError::Internal(chain(&error))),
        }
    }
}

impl From<Failure> for StatementError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Plan { kind, message, position, hint } => {
                Self::Plan(PlanError { kind, message, position, hint, source: None })
            }
            Failure::NoWorkers => Self::Start(StartError::NoWorkers),
            Failure::Run(error) => Self::Run(error),
            Failure::View(view, source) => Self::View { view, source },
        }
    }
}

/// An error and those below it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
