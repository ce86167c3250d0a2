//! Plain expressions to physical ones. Integer `+ - *` are checked: overflow is an error. Comparisons know
//! one NaN.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Schema, SchemaRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, DataFusionError};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{ColumnarValue, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion_physical_expr::expressions::{BinaryExpr, Literal};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr, create_physical_expr};

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
    checked(physical, schema.as_arrow())
}

/// `expr` over `schema` with every `+ - *` failing on overflow, and one NaN in every comparison.
pub(crate) fn checked(expr: Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    expr.transform_up(|node| {
        let Some(binary) = node.downcast_ref::<BinaryExpr>() else {
            return Ok(Transformed::no(node));
        };
        let op = *binary.op();
        if matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply) {
            let checked = binary.clone().with_fail_on_overflow(true);
            return Ok(Transformed::yes(Arc::new(checked)));
        }
        // Comparisons do.
        if !op.supports_propagation() {
            return Ok(Transformed::no(node));
        }
        let [left, right] = [binary.left(), binary.right()].map(|side| with_one_nan(side, schema));
        Ok(Transformed::yes(Arc::new(BinaryExpr::new(left?, op, right?))))
    })
    .map(|transformed| transformed.data)
}

/// An operand of a comparison.
fn with_one_nan(operand: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    if !operand.data_type(schema)?.is_floating() || operand.downcast_ref::<Literal>().is_some() {
        return Ok(Arc::clone(operand));
    }
    let (function, config) = (Arc::clone(&ONE_NAN), Arc::new(ConfigOptions::default()));
    let call = ScalarFunctionExpr::try_new(function, vec![Arc::clone(operand)], schema, config)?;
    Ok(Arc::new(call))
}

static ONE_NAN: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(OneNan(Signature::any(1, Volatility::Immutable)).into()));

/// Floats in which every NaN is the same one, greater than all numbers. Arrow compares floats by their
/// bits, and the NaN that some arithmetic makes has a sign: it would be less than all numbers.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OneNan(Signature);

impl ScalarUDFImpl for OneNan {
    fn name(&self) -> &'static str {
        "one_nan"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType, DataFusionError> {
        Ok(arguments[0].clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let ColumnarValue::Array(array) = &arguments.args[0] else {
            return Ok(arguments.args[0].clone());
        };
        // The bits of a negative NaN are more than those of negative infinity.
        Ok(ColumnarValue::Array(match array.data_type() {
            DataType::Float64 => {
                one_nan::<Float64Type>(array, f64::NAN, f64::is_nan, |v| v.to_bits() > f64::NEG_INFINITY.to_bits())
            }
            DataType::Float32 => {
                one_nan::<Float32Type>(array, f32::NAN, f32::is_nan, |v| v.to_bits() > f32::NEG_INFINITY.to_bits())
            }
            _ => Arc::clone(array),
        }))
    }
}

fn one_nan<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    nan: T::Native,
    is_nan: impl Fn(T::Native) -> bool,
    is_odd: impl Fn(T::Native) -> bool,
) -> ArrayRef {
    let floats = array.as_primitive::<T>();
    // No branch: almost always none is.
    if !floats.values().iter().fold(false, |odd, value| odd | is_odd(*value)) {
        return Arc::clone(array);
    }
    Arc::new(floats.unary::<_, T>(|value| if is_nan(value) { nan } else { value }))
}
