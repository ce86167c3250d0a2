//! Why a statement fails.

use thetis_executor::ExecError;
use thetis_planner::PlanError;

use crate::link::StartError;

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
}
