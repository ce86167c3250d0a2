//! SUM and AVG of floats: compensated (Neumaier 1974), with NaN and infinities counted apart, so
//! that a delete takes away what its insert added.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};

use super::{Accumulator, Update, same};
use crate::error::ExecError;

/// SUM and AVG of floats.
#[derive(Debug)]
pub(super) struct FloatSum {
    mean: bool,
    groups: Vec<Compensated>,
}

impl FloatSum {
    pub(super) fn new(mean: bool) -> Self {
        Self { mean, groups: Vec::new() }
    }
}

impl Accumulator for FloatSum {
    fn resize(&mut self, groups: usize) {
        self.groups.resize(groups, Compensated::default());
    }

    fn update(&mut self, update: &Update<'_>) -> Result<(), ExecError> {
        let values = cast(update.argument()?, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>().values();
        update.each().for_each(|(group, weight, row)| self.groups[group].add(values[row], weight));
        Ok(())
    }

    fn merge(&mut self, other: &dyn Accumulator, map: &[u32]) -> Result<(), ExecError> {
        let other: &Self = same(other);
        map.iter().zip(&other.groups).for_each(|(group, sum)| self.groups[*group as usize].merge(sum));
        Ok(())
    }

    fn values(&self, groups: &[u32]) -> Result<ArrayRef, ExecError> {
        let value = |group: &u32| {
            let sum = &self.groups[*group as usize];
            sum.value().map(|value| if self.mean { value / sum.count as f64 } else { value })
        };
        Ok(Arc::new(groups.iter().map(value).collect::<Float64Array>()))
    }

    fn reset(&mut self, group: u32) {
        self.groups[group as usize] = Compensated::default();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A sum of floats with its rounding errors beside it.
#[derive(Debug, Default, Clone, Copy)]
struct Compensated {
    sum: f64,
    error: f64,
    count: i64,
    nan: i64,
    infinite: i64,
    negative_infinite: i64,
}

impl Compensated {
    fn add(&mut self, value: f64, weight: i64) {
        self.count += weight;
        if value.is_nan() {
            self.nan += weight;
        } else if value == f64::INFINITY {
            self.infinite += weight;
        } else if value == f64::NEG_INFINITY {
            self.negative_infinite += weight;
        } else {
            self.add_finite(value * weight as f64);
        }
    }

    fn add_finite(&mut self, value: f64) {
        let sum = self.sum + value;
        self.error += if self.sum.abs() >= value.abs() { (self.sum - sum) + value } else { (value - sum) + self.sum };
        self.sum = sum;
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.nan += other.nan;
        self.infinite += other.infinite;
        self.negative_infinite += other.negative_infinite;
        self.add_finite(other.sum);
        self.add_finite(other.error);
        self.forget_errors();
    }

    /// With nothing left, nothing of the rounding is left either. Only for the base: in the table of an
    /// epoch, as many inserts as deletes do not make a sum of zero.
    fn forget_errors(&mut self) {
        if self.count == self.nan + self.infinite + self.negative_infinite {
            self.sum = 0.0;
            self.error = 0.0;
        }
    }

    fn value(&self) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        Some(match (self.nan > 0, self.infinite > 0, self.negative_infinite > 0) {
            (true, _, _) | (_, true, true) => f64::NAN,
            (_, true, _) => f64::INFINITY,
            (_, _, true) => f64::NEG_INFINITY,
            _ => {
                let value = self.sum + self.error;
                // An overflow to infinity makes the error NaN.
                if value.is_nan() { self.sum } else { value }
            }
        })
    }
}
