//! SUM and AVG of whole numbers and decimals: 256 bits inside, checked against the result's type
//! when they are read.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Decimal256Array, Float64Array, Int64Array, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, DecimalType, Int64Type, i256};

use super::{Accumulator, Update, same};
use crate::error::ExecError;
use crate::exact::with_exact_values;

/// SUM and AVG of integers and decimals.
#[derive(Debug)]
pub(super) struct ExactSum {
    mean: bool,
    input: DataType,
    output: DataType,
    groups: Vec<(i256, i64)>,
}

impl ExactSum {
    pub(super) fn new(mean: bool, input: DataType, output: DataType) -> Self {
        Self { mean, input, output, groups: Vec::new() }
    }

    fn value(&self, group: u32) -> Result<Option<i256>, ExecError> {
        let (sum, count) = self.groups[group as usize];
        if count == 0 {
            return Ok(None);
        }
        if !self.mean {
            return Ok(Some(sum));
        }
        // The mean has more digits after the point than its argument.
        let scale = |data_type: &DataType| match data_type {
            DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => i32::from(*scale),
            _ => 0,
        };
        let more = scale(&self.output) - scale(&self.input);
        let factor = i256::from_i128(10).checked_pow(u32::try_from(more).unwrap_or(0));
        let scaled = factor.and_then(|factor| sum.checked_mul(factor));
        let mean = scaled.and_then(|scaled| scaled.checked_div(i256::from_i128(i128::from(count))));
        mean.map(Some).ok_or_else(|| ExecError::out_of_range("overflow: AVG does not fit its type"))
    }

    /// The mean of whole numbers as a float: of the exact sum, rounded once and divided.
    fn mean(&self, group: u32) -> Option<f64> {
        let (sum, count) = self.groups[group as usize];
        (count != 0).then(|| sum.as_i128() as f64 / count as f64)
    }

    fn too_large(&self) -> ExecError {
        let name = if self.mean { "AVG" } else { "SUM" };
        ExecError::out_of_range(format!("overflow: {name} does not fit {}", thetis_planner::sql_name(&self.output)))
    }
}

impl Accumulator for ExactSum {
    fn resize(&mut self, groups: usize) {
        self.groups.resize(groups, (i256::ZERO, 0));
    }

    fn update(&mut self, update: &Update<'_>) -> Result<(), ExecError> {
        let argument = update.argument()?;
        let groups = &mut self.groups;
        let mut add = |(group, weight, _): (usize, i64, usize), value: i256| {
            let (sum, count) = &mut groups[group];
            *sum = sum.wrapping_add(value.wrapping_mul(i256::from_i128(i128::from(weight))));
            *count += weight;
        };
        if let DataType::Decimal256(..) = argument.data_type() {
            let values = argument.as_primitive::<Decimal256Type>().values();
            update.each().for_each(|each| add(each, values[each.2]));
            return Ok(());
        }
        if let (None, DataType::Int64) = (update.groups, argument.data_type()) {
            let values = argument.as_primitive::<Int64Type>().values();
            let product = |(_, weight, row): (usize, i64, usize)| i128::from(values[row]) * i128::from(weight);
            let sum = i256::from_i128(update.each().map(product).sum());
            let (total, count) = &mut groups[0];
            *total = total.wrapping_add(sum);
            *count += update.each().map(|(_, weight, _)| weight).sum::<i64>();
            return Ok(());
        }
        with_exact_values(argument, |value| {
            update.each().for_each(|each| add(each, i256::from_i128(value(each.2))));
        })
    }

    fn merge(&mut self, other: &dyn Accumulator, map: &[u32]) -> Result<(), ExecError> {
        let other: &Self = same(other);
        for (group, (sum, count)) in map.iter().zip(&other.groups) {
            let own = &mut self.groups[*group as usize];
            *own = (own.0.wrapping_add(*sum), own.1 + count);
        }
        Ok(())
    }

    fn state(&self) -> Result<Vec<ArrayRef>, ExecError> {
        let sums = Decimal256Array::from_iter_values(self.groups.iter().map(|(sum, _)| *sum));
        let counts = Int64Array::from_iter_values(self.groups.iter().map(|(_, count)| *count));
        Ok(vec![Arc::new(sums.with_precision_and_scale(76, 0)?), Arc::new(counts)])
    }

    fn state_columns(&self) -> usize {
        2
    }

    fn merge_state(&mut self, state: &[ArrayRef], groups: &[u32]) -> Result<(), ExecError> {
        let sums = state[0].as_primitive::<Decimal256Type>().values();
        let counts = state[1].as_primitive::<Int64Type>().values();
        for (group, (sum, count)) in groups.iter().zip(sums.iter().zip(counts)) {
            let own = &mut self.groups[*group as usize];
            *own = (own.0.wrapping_add(*sum), own.1 + count);
        }
        Ok(())
    }

    fn values(&self, groups: &[u32]) -> Result<ArrayRef, ExecError> {
        if self.output == DataType::Float64 {
            return Ok(Arc::new(groups.iter().map(|group| self.mean(*group)).collect::<Float64Array>()));
        }
        let sums = groups.iter().map(|group| self.value(*group)).collect::<Result<Vec<_>, _>>()?;
        let narrow = |sum: &Option<i256>| match sum {
            Some(sum) => sum.to_i128().map(Some).ok_or_else(|| self.too_large()),
            None => Ok(None),
        };
        let narrow = |sums: &[Option<i256>]| sums.iter().map(narrow).collect::<Result<Vec<_>, _>>();
        Ok(match &self.output {
            DataType::Decimal128(precision, scale) => {
                let fits = |sum: &i128| Decimal128Type::validate_decimal_precision(*sum, *precision, *scale).is_ok();
                let sums = narrow(&sums)?;
                if sums.iter().flatten().any(|sum| !fits(sum)) {
                    return Err(self.too_large());
                }
                Arc::new(Decimal128Array::from(sums).with_precision_and_scale(*precision, *scale)?)
            }
            DataType::Decimal256(precision, scale) => {
                let fits = |sum: &i256| Decimal256Type::validate_decimal_precision(*sum, *precision, *scale).is_ok();
                if sums.iter().flatten().any(|sum| !fits(sum)) {
                    return Err(self.too_large());
                }
                Arc::new(Decimal256Array::from(sums).with_precision_and_scale(*precision, *scale)?)
            }
            DataType::UInt64 => {
                let fit =
                    |sum: Option<i128>| sum.map(|sum| u64::try_from(sum).map_err(|_| self.too_large())).transpose();
                let sums = narrow(&sums)?.into_iter().map(fit).collect::<Result<Vec<_>, _>>()?;
                Arc::new(UInt64Array::from(sums))
            }
            output => {
                let fit =
                    |sum: Option<i128>| sum.map(|sum| i64::try_from(sum).map_err(|_| self.too_large())).transpose();
                let sums = narrow(&sums)?.into_iter().map(fit).collect::<Result<Vec<_>, _>>()?;
                cast(&Int64Array::from(sums), output)?
            }
        })
    }

    fn reset(&mut self, group: u32) {
        self.groups[group as usize] = (i256::ZERO, 0);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
