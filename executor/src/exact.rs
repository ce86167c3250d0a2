//! Whole numbers of any type as 128-bit integers: integers, decimals (unscaled), dates, times and
//! durations (in their units).

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal32Type, Decimal64Type, Decimal128Type, Int64Type, UInt64Type};

use crate::error::ExecError;

/// Calls `with` with a function that gives the value of a row; the value of a NULL means nothing.
pub(crate) fn with_exact_values(array: &ArrayRef, with: impl FnOnce(&dyn Fn(usize) -> i128)) -> Result<(), ExecError> {
    match array.data_type() {
        DataType::UInt64 => {
            let values = array.as_primitive::<UInt64Type>().values();
            with(&|row| i128::from(values[row]));
        }
        DataType::Decimal32(..) => {
            let values = array.as_primitive::<Decimal32Type>().values();
            with(&|row| i128::from(values[row]));
        }
        DataType::Decimal64(..) => {
            let values = array.as_primitive::<Decimal64Type>().values();
            with(&|row| i128::from(values[row]));
        }
        DataType::Decimal128(..) => {
            let values = array.as_primitive::<Decimal128Type>().values();
            with(&|row| values[row]);
        }
        // Arrow casts days to 64 bits by way of 32.
        DataType::Date32 => return with_exact_values(&cast(array, &DataType::Int32)?, with),
        _ => {
            let values = cast(array, &DataType::Int64)?;
            let values = values.as_primitive::<Int64Type>().values();
            with(&|row| i128::from(values[row]));
        }
    }
    Ok(())
}
