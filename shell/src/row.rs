//! Rows with typed values.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, RecordBatch,
    StringArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
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

/// The value of a whole number of any type; `None` for other types and for NULL.
fn whole(array: &ArrayRef, row: usize) -> Option<i128> {
    macro_rules! read {
        ($($variant:ident => $array:ty),*) => {
            match array.data_type() {
                $(DataType::$variant => exact::<$array>(array, row).map(|array| i128::from(array.value(row))),)*
                _ => None,
            }
        };
    }
    read!(Int64 => Int64Array, Int32 => Int32Array, Int16 => Int16Array, Int8 => Int8Array,
        UInt64 => UInt64Array, UInt32 => UInt32Array, UInt16 => UInt16Array, UInt8 => UInt8Array)
}

macro_rules! from_whole {
    ($($rust:ty => $sql:ident),*) => {
        $(impl FromValue for $rust {
            fn from_value(array: &ArrayRef, row: usize) -> Result<Self, Error> {
                match whole(array, row) {
                    Some(value) => Self::try_from(value)
                        .map_err(|_| Error::usage(format!("{value} does not fit a {}", stringify!($rust)))),
                    None => Err(mismatch(array, row, &DataType::$sql)),
                }
            }
        })*
    };
}

from_whole!(i64 => Int64, i32 => Int32, i16 => Int16, i8 => Int8, u64 => UInt64, u32 => UInt32);

/// Why the value is not one of the type that was asked for.
fn mismatch(array: &ArrayRef, row: usize, asked: &DataType) -> Error {
    match not_null(array, row) {
        Err(error) => error,
        Ok(()) => Error::usage(format!("a {} is not a {}", sql_name(array.data_type()), sql_name(asked))),
    }
}

impl FromValue for f64 {
    fn from_value(array: &ArrayRef, row: usize) -> Result<Self, Error> {
        if let Some(array) = exact::<Float64Array>(array, row) {
            return Ok(array.value(row));
        }
        if !array.data_type().is_numeric() || array.is_null(row) {
            return Err(mismatch(array, row, &DataType::Float64));
        }
        let value = cast(&array.slice(row, 1), &DataType::Float64);
        let value = value.map_err(|_| mismatch(array, row, &DataType::Float64))?;
        Ok(value.as_primitive::<Float64Type>().value(0))
    }
}

impl FromValue for bool {
    fn from_value(array: &ArrayRef, row: usize) -> Result<Self, Error> {
        let value = exact::<BooleanArray>(array, row).map(|array| array.value(row));
        value.ok_or_else(|| mismatch(array, row, &DataType::Boolean))
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
