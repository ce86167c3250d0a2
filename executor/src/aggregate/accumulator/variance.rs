//! Variances and standard deviations, from exact sums.
//!
//! A group keeps the sums of x and of x² without any rounding, be x a whole number, a decimal or a
//! float; so the order of rows does not matter, and a delete takes away what its insert added. The
//! result is the quotient of two exact numbers, n Σx² - (Σx)² over n (n - 1) (or n²), which is
//! never negative. It is computed to 100 bits and then rounded to DOUBLE: its error is half a unit
//! in the last place, give or take 2^-45 of one (below 2^-1022, a unit).

use std::any::Any;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal256Type, Float64Type};
use thetis_planner::physical::AggregateFunction;

use super::wide::{Double, Magnitude, Term, Wide};
use super::{Accumulator, Update, same};
use crate::error::ExecError;
use crate::exact::with_exact_values;

/// The variances and standard deviations.
#[derive(Debug)]
pub(super) struct Variance {
    sample: bool,
    root: bool,
    /// Digits after the point of a decimal.
    scale: i32,
    groups: Vec<Moments>,
}

/// What is known of a group.
#[derive(Debug, Default, Clone)]
struct Moments {
    count: i64,
    /// How many of them are NaN or infinite: those are not in the sums.
    not_finite: i64,
    sum: Wide,
    squares: Wide,
}

impl Moments {
    fn add(&mut self, term: &Term, weight: i64) {
        self.count += weight;
        self.sum.add(term, weight);
        self.squares.add_square(term, weight);
    }

    fn add_float(&mut self, value: f64, weight: i64) {
        if value.is_finite() {
            self.add(&Term::float(value), weight);
        } else {
            self.count += weight;
            self.not_finite += weight;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.not_finite += other.not_finite;
        self.sum.merge(&other.sum);
        self.squares.merge(&other.squares);
    }
}

impl Variance {
    pub(super) fn new(function: AggregateFunction, argument: &DataType) -> Self {
        use AggregateFunction as F;
        let scale = match argument {
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale) => i32::from(*scale),
            _ => 0,
        };
        Self {
            sample: matches!(function, F::VarSamp | F::StddevSamp),
            root: matches!(function, F::StddevSamp | F::StddevPop),
            scale,
            groups: Vec::new(),
        }
    }

    fn value(&self, group: u32) -> Option<f64> {
        let moments = &self.groups[group as usize];
        let count = u64::try_from(moments.count).ok()?;
        let degrees = if self.sample { count.saturating_sub(1) } else { count };
        if degrees == 0 {
            return None;
        }
        if moments.not_finite != 0 {
            return Some(f64::NAN);
        }
        let sum = moments.sum.magnitude();
        let squares = moments.squares.magnitude();
        let spread = squares.times(&Magnitude::whole(u128::from(count))).minus(&sum.times(&sum));
        let (spread, place) = spread.to_double();
        let variance = self.unscaled(spread.over(Double::of(count).times(Double::of(degrees))));
        Some(if self.root { variance.root().rounded(32 * place) } else { variance.rounded(64 * place) })
    }

    /// The variance of decimals from that of their digits.
    fn unscaled(&self, variance: Double) -> Double {
        // Exact up to 10^31.
        let factor = (0..self.scale.unsigned_abs()).fold(Double::of(1), |power, _| power.times(Double::of(100)));
        if self.scale > 0 { variance.over(factor) } else { variance.times(factor) }
    }
}

impl Accumulator for Variance {
    fn resize(&mut self, groups: usize) {
        self.groups.resize(groups, Moments::default());
    }

    fn update(&mut self, update: &Update<'_>) -> Result<(), ExecError> {
        let argument = update.argument()?;
        let groups = &mut self.groups;
        match argument.data_type() {
            DataType::Float16 | DataType::Float32 | DataType::Float64 => {
                let values = cast(argument, &DataType::Float64)?;
                let values = values.as_primitive::<Float64Type>().values();
                update.each().for_each(|(group, weight, row)| groups[group].add_float(values[row], weight));
            }
            DataType::Decimal256(..) => {
                let values = argument.as_primitive::<Decimal256Type>().values();
                for (group, weight, row) in update.each() {
                    let (low, high) = values[row].wrapping_abs().to_parts();
                    groups[group].add(&Term::whole(values[row].is_negative(), [low, high as u128]), weight);
                }
            }
            _ => with_exact_values(argument, |value| {
                for (group, weight, row) in update.each() {
                    let value = value(row);
                    groups[group].add(&Term::whole(value < 0, [value.unsigned_abs(), 0]), weight);
                }
            })?,
        }
        Ok(())
    }

    fn merge(&mut self, other: &dyn Accumulator, map: &[u32]) -> Result<(), ExecError> {
        let other: &Self = same(other);
        map.iter().zip(&other.groups).for_each(|(group, moments)| self.groups[*group as usize].merge(moments));
        Ok(())
    }

    fn values(&self, groups: &[u32]) -> Result<ArrayRef, ExecError> {
        Ok(Arc::new(groups.iter().map(|group| self.value(*group)).collect::<Float64Array>()))
    }

    fn reset(&mut self, group: u32) {
        self.groups[group as usize] = Moments::default();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
pub(in crate::aggregate) mod tests;
