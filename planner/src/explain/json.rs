//! FORMAT JSON: one document on one line, so that a row of the result holds it.

use super::describe::Description;

/// The JSON of a plan.
pub(super) fn render(plan: &Description) -> String {
    serde_json::to_string(plan).expect("invariant: the description has no maps whose keys are not text")
}
