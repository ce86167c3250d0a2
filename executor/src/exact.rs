//! Whole numbers of any type as 128-bit integers: integers, decimals (unscaled), dates, times and
//! durations (in their units); and values as numbers in the same order.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int32Array, Int64Array, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type, Int64Type, UInt64Type,
};

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

/// Floats that are equal become the same: -0.0 is 0.0, and there is one NaN.
pub(crate) fn canonical_floats(array: ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Float64 => {
            let canonical = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
            Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(canonical))
        }
        DataType::Float32 => {
            let canonical = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(canonical))
        }
        _ => array,
    }
}

/// Total order of floats as integers.
pub(crate) fn float_order(value: f64) -> i64 {
    let bits = value.to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// The float that [`float_order`] gives this number.
pub(crate) fn float_of(order: i64) -> f64 {
    f64::from_bits((order ^ (((order >> 63) as u64) >> 1) as i64) as u64)
}

/// A number for every row, in the order of the values, different for different ones; those of NULL mean
/// nothing. For types that [`thetis_planner::physical::has_codes`].
pub(crate) fn codes(array: &ArrayRef) -> Result<Vec<i128>, ExecError> {
    if array.data_type().is_floating() {
        let floats = cast(array, &DataType::Float64)?;
        return Ok(floats.as_primitive::<Float64Type>().values().iter().map(|v| float_order(*v).into()).collect());
    }
    let mut codes = Vec::new();
    with_exact_values(array, |value| codes = (0..array.len()).map(value).collect())?;
    Ok(codes)
}

/// The values of codes; `None` is NULL.
pub(crate) fn values_of(
    codes: impl Iterator<Item = Option<i128>>,
    data_type: &DataType,
) -> Result<ArrayRef, ExecError> {
    let values: ArrayRef = match data_type {
        DataType::Decimal128(precision, scale) => {
            Arc::new(codes.collect::<Decimal128Array>().with_precision_and_scale(*precision, *scale)?)
        }
        DataType::UInt64 => Arc::new(codes.map(|code| code.map(|code| code as u64)).collect::<UInt64Array>()),
        DataType::Date32 => Arc::new(codes.map(|code| code.map(|code| code as i32)).collect::<Int32Array>()),
        DataType::Float32 | DataType::Float64 => {
            Arc::new(codes.map(|code| code.map(|code| float_of(code as i64))).collect::<Float64Array>())
        }
        _ => Arc::new(codes.map(|code| code.map(|code| code as i64)).collect::<Int64Array>()),
    };
    Ok(cast(&values, data_type)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float32Array, TimestampMillisecondArray, UInt8Array};

    use thetis_planner::physical::has_codes;

    use super::*;

    #[test]
    fn codes_are_in_the_order_of_the_values_and_lead_back_to_them() {
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![Some(i64::MIN), Some(-1), None, Some(0), Some(i64::MAX)])),
            Arc::new(UInt64Array::from(vec![0, 1, 1 << 63, u64::MAX])),
            Arc::new(UInt8Array::from(vec![Some(0), None, Some(255)])),
            Arc::new(Float64Array::from(vec![
                f64::NEG_INFINITY,
                -1e300,
                -0.5,
                0.0,
                1e-300,
                2.0,
                f64::INFINITY,
                f64::NAN,
            ])),
            Arc::new(Float32Array::from(vec![Some(-1.5), None, Some(0.1), Some(f32::MAX)])),
            Arc::new(arrow::array::Date32Array::from(vec![i32::MIN, -1, 0, 20_000])),
            Arc::new(TimestampMillisecondArray::from(vec![-5, 0, 1 << 40]).with_timezone("UTC")),
            Arc::new(Decimal128Array::from(vec![-(10_i128.pow(37)), 0, 7]).with_precision_and_scale(38, 2).unwrap()),
        ];
        for array in arrays {
            assert!(has_codes(array.data_type()));
            let codes = codes(&array).unwrap();
            let present: Vec<i128> =
                (0..array.len()).filter(|row| array.is_valid(*row)).map(|row| codes[row]).collect();
            assert!(present.is_sorted_by(|a, b| a < b), "{array:?}");
            let back = (0..array.len()).map(|row| array.is_valid(row).then(|| codes[row]));
            assert_eq!(&values_of(back, array.data_type()).unwrap(), &array);
        }
    }
}
