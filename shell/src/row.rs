//! Rows with typed values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use arrow::util::display::array_value_to_string;
use thetis_planner::sql_name;

use crate::error::Error;

/// One row of a result.
#[derive(Debug, Clone)]
pub struct Row {
    batch: Arc<RecordBatch>,
    row: usize,
}

impl Row {
    pub(crate) fn new(batch: Arc<RecordBatch>, row: usize) -> Self {
        Self { batch, row }
    }

    /// The value of the column of this name.
    ///
    /// # Errors
    /// No such column, a NULL for a type without one, or a value that the type does not hold.
    pub fn get<T: FromValue>(&self, name: &str) -> Result<T, Error> {
        let column = self.batch.schema_ref().index_of(name).map_err(|_| {
            let names: Vec<_> = self.batch.schema_ref().fields().iter().map(|f| f.name().clone()).collect();
            Error::usage(format!("the result has no column '{name}'; it has {}", names.join(", ")))
        })?;
        self.at(column)
    }

    /// The value of the column at this position.
    ///
    /// # Errors
    /// As for [`Self::get`].
    pub fn at<T: FromValue>(&self, column: usize) -> Result<T, Error> {
        let array = self.batch.columns().get(column).ok_or_else(|| {
            Error::usage(format!("the result has {} columns, not {}", self.batch.num_columns(), column + 1))
        })?;
        T::from_value(array, self.row)
    }
}

/// A Rust type that a value can become.
pub trait FromValue: Sized {
    /// The value of `array` at `row`.
    ///
    /// # Errors
    /// A NULL for a type without one, or a value that the type does not hold.
    fn from_value(array: &ArrayRef, row: usize) -> Result<Self, Error>;
}

fn not_null(array: &ArrayRef, row: usize) -> Result<(), Error> {
    if array.is_null(row) {
        return Err(Error::usage("the value is NULL: ask for an Option"));
    }
    Ok(())
}

/// The value at `row`, if `array` is of this very type and it is not NULL: no cast, no allocation.
fn exact<A: Array + 'static>(array: &ArrayRef, row: usize) -> Option<&A> {
    array.as_any().downcast_ref::<A>().filter(|array| array.is_valid(row))
}

/// The value alone, cast to `to` without loss.
fn as_type(array: &ArrayRef, row: usize, to: &DataType) -> Result<ArrayRef, Error> {
    not_null(array, row)?;
    let wrong = || Error::usage(format!("a {} is not a {}", sql_name(array.data_type()), sql_name(to)));
    let fits = match to {
        DataType::Boolean => array.data_type() == to,
        DataType::Float64 => array.data_type().is_numeric(),
        _ => array.data_type().is_integer(),
    };
    if !fits {
        return Err(wrong());
    }
    let value = cast(&array.slice(row, 1), to).map_err(|_| wrong())?;
    if value.is_null(0) { Err(wrong()) } else { Ok(value) }
}

impl FromValue for i64 {
    fn from_value(array: &ArrayRef, row: usize) -> Result<Self, Error> {
        if let Some(array) = exact::<Int64Array>(array, row) {
            return Ok(array.value(row));
        }
        Ok(as_type(array, row, &DataType::Int64)?.as_primitive::<Int64Type>().value(0))
    }
}

impl FromValue for u64 {
    fn from_value(array: &ArrayRef, row: usize) -> Result<Self, Error> {
        Ok(as_type(array, row, &DataType::UInt64)?.as_primitive::<UInt64Type>().value(0))
    }
}

impl FromValue for i32 {
    fn from_value(array: &ArrayRef, row: usize) -> Result<Self, Error> {
        let value = i64::from_value(array, row)?;
        Self::try_from(value).map_err(|_| Error::usage(format!("{value} does not fit an i32")))
    }
}

impl FromValue for f64 {
    fn from_value(array: &ArrayRef, row: usize) -> Result<Self, Error> {
        if let Some(array) = exact::<Float64Array>(array, row) {
            return Ok(array.value(row));
        }
        Ok(as_type(array, row, &DataType::Float64)?.as_primitive::<Float64Type>().value(0))
    }
}

impl FromValue for bool {
    fn from_value(array: &ArrayRef, row: usize) -> Result<Self, Error> {
        if let Some(array) = exact::<BooleanArray>(array, row) {
            return Ok(array.value(row));
        }
        Ok(as_type(array, row, &DataType::Boolean)?.as_boolean().value(0))
    }
}

/// Any value as text.
impl FromValue for String {
    fn from_value(array: &ArrayRef, row: usize) -> Result<Self, Error> {
        if let Some(array) = exact::<StringArray>(array, row) {
            return Ok(array.value(row).to_owned());
        }
        not_null(array, row)?;
        array_value_to_string(array, row).map_err(|error| Error::usage(error.to_string()))
    }
}

/// NULL is `None`.
impl<T: FromValue> FromValue for Option<T> {
    fn from_value(array: &ArrayRef, row: usize) -> Result<Self, Error> {
        if array.is_null(row) { Ok(None) } else { T::from_value(array, row).map(Some) }
    }
}
