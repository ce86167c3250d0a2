//! Constant integer arithmetic is folded here, checked, before the optimiser folds it unchecked.

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, DataFusionError};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion_physical_expr::create_physical_expr;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::Schema;
use std::sync::Arc;

use crate::compile::checked;

/// `plan` with its constant `+ - *` replaced by their values.
///
/// # Errors
/// Overflow.
pub(crate) fn fold_constants(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    let folded = plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expr| {
            if !expr.exists(|part| Ok(is_foldable(part)))? {
                return Ok(Transformed::no(expr));
            }
            // The outermost name of a result column stays what it was.
            let name = expr.schema_name().to_string();
            let folded = expr.transform_up(fold)?;
            Ok(folded.update_data(|e| if e.schema_name().to_string() == name { e } else { e.alias(name.clone()) }))
        })
    })?;
    folded.data.recompute_schema()
}

fn fold(expr: Expr) -> Result<Transformed<Expr>, DataFusionError> {
    if !is_foldable(&expr) {
        return Ok(Transformed::no(expr));
    }
    let schema = DFSchema::empty();
    let physical = create_physical_expr(&expr, &schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())?;
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?;
    let array = checked(physical, schema.as_arrow())?.evaluate(&batch)?.into_array(1)?;
    let value = datafusion_common::ScalarValue::try_from_array(&array, 0)?;
    Ok(Transformed::yes(Expr::Literal(value, None)))
}

/// Arithmetic that can overflow, of two constants.
fn is_foldable(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus | Operator::Minus | Operator::Multiply, right })
        if is_constant(left) && is_constant(right))
}

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) => true,
        Expr::Cast(cast) => is_constant(&cast.expr),
        Expr::Negative(expr) => is_constant(expr),
        _ => false,
    }
}
