//! Volatile functions, such as random(): a row and its delete would get other values, so they work only
//! on rows that stay and are computed once.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::{Expr, LogicalPlan};

use crate::error::PlanError;

/// Refuses volatile expressions over rows that can be deleted.
pub(super) fn check<'a>(exprs: impl IntoIterator<Item = &'a Expr>, retracts: bool) -> Result<(), PlanError> {
    let volatile = retracts.then(|| exprs.into_iter().find(|expr| expr.is_volatile())).flatten();
    volatile.map_or(Ok(()), |expr| Err(unsupported(expr)))
}

/// Refuses volatile expressions anywhere in `plan`, whose rows are computed more than once.
pub(super) fn check_plan(plan: &LogicalPlan) -> Result<(), PlanError> {
    let mut found = None;
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            if expr.is_volatile() {
                found = Some(unsupported(expr));
                return Ok(TreeNodeRecursion::Stop);
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    found.map_or(Ok(()), Err)
}

fn unsupported(expr: &Expr) -> PlanError {
    PlanError::unsupported(
        format!("{expr} over rows that can change is not supported: a row and its delete would differ"),
        "compute it once: INSERT INTO a table SELECT ..., and query that table",
    )
}
