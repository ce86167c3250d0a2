//! Plain expressions to physical ones. Integer `+ - *` are checked: overflow is an error.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, DataFusionError};
use datafusion_expr::Operator;
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_physical_expr::expressions::BinaryExpr;
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr};

use crate::expr::{ScalarExpr, plain_schema};

/// The physical expression of `expr` over the columns of `schema`.
///
/// # Errors
/// A plan that this build cannot run (see [`ScalarExpr::to_datafusion`]).
pub fn compile(expr: &ScalarExpr, schema: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    let schema = DFSchema::try_from(plain_schema(schema))?;
    let logical = expr.to_datafusion()?;
    let physical =
        create_physical_expr(&logical, &schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())?;
    checked(physical)
}

/// `expr` with every `+ - *` failing on overflow.
pub(crate) fn checked(expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    expr.transform_up(|node| {
        let Some(binary) = node.downcast_ref::<BinaryExpr>() else {
            return Ok(Transformed::no(node));
        };
        if !matches!(binary.op(), Operator::Plus | Operator::Minus | Operator::Multiply) {
            return Ok(Transformed::no(node));
        }
        let checked = binary.clone().with_fail_on_overflow(true);
        Ok(Transformed::yes(Arc::new(checked) as Arc<dyn PhysicalExpr>))
    })
    .map(|transformed| transformed.data)
}
