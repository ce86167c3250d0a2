//! EXPLAIN: a plan as data (`describe`), which each format writes in its own way.
//!
//! ```text
//! Plan, Measured --describe--> Description --> text | json | dot
//! ```

mod describe;
mod display;
mod dot;
mod json;
mod measured;
mod range;
mod text;

use thetis_parser::ExplainFormat;

pub use measured::{EdgeMeasured, JoinMeasured, Measured, SourceMeasured, TaskMeasured};

use crate::Plan;

/// What EXPLAIN shows of a plan, and of a run of it if it is `measured`.
pub(crate) fn explain(plan: &Plan, verbose: bool, format: ExplainFormat, measured: Option<&Measured>) -> String {
    let description = describe::describe(plan, verbose, measured);
    match format {
        ExplainFormat::Text => text::render(&description),
        ExplainFormat::Json => json::render(&description),
        ExplainFormat::Dot => dot::render(&description),
    }
}

#[cfg(test)]
mod tests;
