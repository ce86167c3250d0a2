//! From typed statements to physical plans.
//!
//! ```text
//! query --logical--> LogicalPlan --lower (theta analysis, layouts)--> Dag --explain--> text
//! ```
//!
//! Names, types, coercion and rewriting come from the DataFusion sub-crates; what is Thetis' own
//! is the [theta analysis](theta), the [layout] of joins and the [DAG](physical).

pub mod catalog;
mod choose;
mod compile;
pub mod connector;
mod error;
mod estimate;
mod explain;
pub mod expr;
mod fold;
mod functions;
mod join_order;
pub mod layout;
pub mod logical;
mod lower;
pub mod physical;
mod set_ops;
mod settings;
pub mod sizing;
mod subqueries;
pub mod theta;
mod types;

use thetis_parser::ast;

pub use catalog::Catalog;
pub use compile::compile;
pub use error::{PlanError, PlanErrorKind};
pub use lower::Output;
pub use settings::{SettingRow, Settings};
pub use types::sql_name;

use logical::Logical;
use physical::Dag;

/// A query that is ready to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What runs.
    pub dag: Dag,
    /// The logical plans it came from.
    pub logical: Logical,
    /// What the user should be told about it.
    pub notices: Vec<String>,
}

/// Plans a query.
///
/// # Errors
/// Whatever is wrong with the query or not supported, with a position where one is known.
pub fn plan(query: &ast::Query, catalog: &Catalog, settings: &Settings, output: Output) -> Result<Plan, PlanError> {
    let logical = logical::plan_query(query, catalog)?;
    lower::check_scalar_subqueries(&logical.analyzed)?;
    let lowered = lower::lower(&logical.optimized, settings, output)?;
    Ok(Plan { dag: lowered.dag, logical, notices: lowered.notices })
}

impl Plan {
    /// The plan as text for people; `verbose` adds the logical plan and every expression.
    pub fn explain(&self, verbose: bool) -> String {
        explain::explain(self, verbose)
    }
}
