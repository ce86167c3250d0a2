//! From typed statements to physical plans.
//!
//! ```text
//! query --logical--> LogicalPlan --lower (theta analysis, layouts)--> Dag --explain--> text, JSON, DOT
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
pub mod explain;
pub mod expr;
mod fold;
mod functions;
mod grid;
mod join_order;
pub mod layout;
pub mod logical;
mod lower;
mod names;
pub mod physical;
mod sample;
mod set_ops;
mod settings;
pub mod sizing;
mod subqueries;
pub mod theta;
mod types;
pub mod write;

use thetis_parser::{ExplainFormat, ast};

pub use catalog::Catalog;
pub use compile::compile;
pub use error::{PlanError, PlanErrorKind};
pub use functions::function_names;
pub use lower::Output;
pub use settings::{SettingRow, Settings, parse_duration};
pub use types::sql_name;

use explain::Measured;
use logical::{Logical, Resolved};
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
    logical::resolve(query, catalog, &[]).and_then(|resolved| plan_resolved(resolved, settings, output))
}

/// Plans a query whose names are resolved and whose parameters have values.
///
/// # Errors
/// Whatever is wrong with the query or not supported.
pub fn plan_resolved(resolved: Resolved, settings: &Settings, output: Output) -> Result<Plan, PlanError> {
    let logical = resolved.optimize()?;
    lower::check_scalar_subqueries(&logical.analyzed)?;
    let lowered = lower::lower(&logical.optimized, settings, output)?;
    Ok(Plan { dag: lowered.dag, logical, notices: lowered.notices })
}

impl Plan {
    /// What EXPLAIN shows; `verbose` adds the logical plan, `measured` what happened in a run.
    pub fn explain(&self, verbose: bool, format: ExplainFormat, measured: Option<&Measured>) -> String {
        explain::explain(self, verbose, format, measured)
    }

    /// Refuses a query that never ends by itself: to be asked before it is run to its end.
    ///
    /// # Errors
    /// There is an input without end, and no LIMIT that ends the query before it.
    pub fn check_ends(&self) -> Result<(), PlanError> {
        if self.dag.ends() {
            return Ok(());
        }
        Err(PlanError::unsupported(
            "EXPLAIN ANALYZE needs a query that ends",
            "add LIMIT, if the query's rows come as they are found, or read a bounded source",
        ))
    }
}
