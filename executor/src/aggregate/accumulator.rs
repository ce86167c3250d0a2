//! Aggregate functions over changes: each can add and take away, and be merged.
//!
//! Sums of integers and decimals are exact (128 and 256 bits inside, checked against the result's
//! type when they are read). Sums of floats are compensated (Neumaier 1974), with NaN and
//! infinities counted apart, so that a delete takes away what its insert added. MIN and MAX keep
//! their values with multiplicities when deletes can come.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Decimal256Array, Float64Array, Int64Array, UInt64Array, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, DecimalType, Float64Type, SchemaRef, i256};
use arrow::row::{RowConverter, SortField};
use hashbrown::HashMap;
use thetis_planner::physical::{AggregateCall, AggregateFunction};

use crate::error::ExecError;
use crate::exact::with_exact_values;
use crate::steps::compile_all;

/// Rows for an accumulator.
pub(super) struct Update<'a> {
    /// The argument; absent for `COUNT(*)`.
    pub(super) values: Option<&'a ArrayRef>,
    /// The rows that count: those with a value, and for which the filter holds.
    pub(super) rows: &'a [u32],
    /// The group of every row.
    pub(super) groups: &'a [u32],
    /// The weight of every row; absent means 1.
    pub(super) weights: Option<&'a [i64]>,
}

impl Update<'_> {
    /// Group, weight and position of the rows that count.
    fn each(&self) -> impl Iterator<Item = (usize, i64, usize)> + '_ {
        self.rows.iter().map(|row| {
            let row = *row as usize;
            (self.groups[row] as usize, self.weights.map_or(1, |weights| weights[row]), row)
        })
    }

    fn argument(&self) -> Result<&ArrayRef, ExecError> {
        self.values.ok_or_else(|| ExecError::Internal("an aggregate without its argument".to_owned()))
    }
}

/// The state of one aggregate function for all groups of a table.
pub(super) trait Accumulator: Send + Debug {
    /// Makes room for so many groups.
    fn resize(&mut self, groups: usize);
    /// Adds rows.
    fn update(&mut self, update: &Update<'_>) -> Result<(), ExecError>;
    /// Adds the groups of another accumulator of the same kind; `map` gives their numbers here.
    fn merge(&mut self, other: &dyn Accumulator, map: &[u32]) -> Result<(), ExecError>;
    /// The results of some groups.
    fn values(&self, groups: &[u32]) -> Result<ArrayRef, ExecError>;
    /// Empties a group.
    fn reset(&mut self, group: u32);
    /// For merging.
    fn as_any(&self) -> &dyn Any;
}

/// The accumulator of a call. `retracts` says that its input can have deletes.
pub(super) fn accumulator_for(
    call: &AggregateCall,
    input: &SchemaRef,
    retracts: bool,
) -> Result<Box<dyn Accumulator>, ExecError> {
    let argument = match &call.argument {
        Some(argument) => {
            let compiled = compile_all(std::slice::from_ref(argument), input)?;
            Some(compiled[0].data_type(&thetis_planner::expr::plain_schema(input))?)
        }
        None => None,
    };
    let inner: Box<dyn Accumulator> = match (call.function, &call.output) {
        (AggregateFunction::Count, _) => Box::new(Count::default()),
        (AggregateFunction::Min | AggregateFunction::Max, output) => {
            Box::new(Extreme::new(call.function == AggregateFunction::Max, output.clone(), retracts)?)
        }
        (_, DataType::Float64) => {
            Box::new(FloatSum { mean: call.function == AggregateFunction::Avg, groups: Vec::new() })
        }
        (_, output) => Box::new(ExactSum {
            mean: call.function == AggregateFunction::Avg,
            input: argument.clone().unwrap_or(DataType::Int64),
            output: output.clone(),
            groups: Vec::new(),
        }),
    };
    Ok(match (call.distinct, argument) {
        (true, Some(argument)) => Box::new(Distinct::new(inner, argument)?),
        _ => inner,
    })
}

fn same<T: 'static>(other: &dyn Accumulator) -> &T {
    other.as_any().downcast_ref().expect("invariant: tables of one aggregate have the same accumulators")
}

/// COUNT.
#[derive(Debug, Default)]
struct Count {
    counts: Vec<i64>,
}

impl Accumulator for Count {
    fn resize(&mut self, groups: usize) {
        self.counts.resize(groups, 0);
    }

    fn update(&mut self, update: &Update<'_>) -> Result<(), ExecError> {
        update.each().for_each(|(group, weight, _)| self.counts[group] += weight);
        Ok(())
    }

    fn merge(&mut self, other: &dyn Accumulator, map: &[u32]) -> Result<(), ExecError> {
        let other: &Self = same(other);
        map.iter().zip(&other.counts).for_each(|(group, count)| self.counts[*group as usize] += count);
        Ok(())
    }

    fn values(&self, groups: &[u32]) -> Result<ArrayRef, ExecError> {
        Ok(Arc::new(Int64Array::from_iter_values(groups.iter().map(|group| self.counts[*group as usize]))))
    }

    fn reset(&mut self, group: u32) {
        self.counts[group as usize] = 0;
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// SUM and AVG of integers and decimals.
#[derive(Debug)]
struct ExactSum {
    mean: bool,
    input: DataType,
    output: DataType,
    groups: Vec<(i256, i64)>,
}

impl ExactSum {
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

    fn values(&self, groups: &[u32]) -> Result<ArrayRef, ExecError> {
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

/// SUM and AVG of floats.
#[derive(Debug)]
struct FloatSum {
    mean: bool,
    groups: Vec<Compensated>,
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

/// MIN and MAX over row bytes, whose order is the order of the values.
#[derive(Debug)]
struct Extreme {
    greatest: bool,
    output: DataType,
    converter: RowConverter,
    /// All values with their multiplicities are needed only if some can be deleted.
    retracts: bool,
    groups: Vec<BTreeMap<Box<[u8]>, i64>>,
}

impl Extreme {
    fn new(greatest: bool, output: DataType, retracts: bool) -> Result<Self, ExecError> {
        let converter = RowConverter::new(vec![SortField::new(output.clone())])?;
        Ok(Self { greatest, output, converter, retracts, groups: Vec::new() })
    }

    fn best(&self, group: usize) -> Option<&[u8]> {
        let values = &self.groups[group];
        let best = if self.greatest { values.last_key_value() } else { values.first_key_value() };
        best.map(|(bytes, _)| bytes.as_ref())
    }

    fn add(&mut self, group: usize, bytes: &[u8], weight: i64) {
        if !self.retracts {
            let better = self.best(group).is_none_or(|best| if self.greatest { bytes > best } else { bytes < best });
            if better {
                self.groups[group].clear();
                self.groups[group].insert(bytes.into(), 1);
            }
            return;
        }
        let values = &mut self.groups[group];
        match values.get_mut(bytes) {
            Some(count) if *count + weight == 0 => {
                values.remove(bytes);
            }
            Some(count) => *count += weight,
            None => {
                values.insert(bytes.into(), weight);
            }
        }
    }
}

impl Accumulator for Extreme {
    fn resize(&mut self, groups: usize) {
        self.groups.resize(groups, BTreeMap::new());
    }

    fn update(&mut self, update: &Update<'_>) -> Result<(), ExecError> {
        let rows = self.converter.convert_columns(std::slice::from_ref(update.argument()?))?;
        update.each().for_each(|(group, weight, row)| self.add(group, rows.row(row).data(), weight));
        Ok(())
    }

    fn merge(&mut self, other: &dyn Accumulator, map: &[u32]) -> Result<(), ExecError> {
        let other: &Self = same(other);
        for (group, values) in map.iter().zip(&other.groups) {
            values.iter().for_each(|(bytes, weight)| self.add(*group as usize, bytes, *weight));
        }
        Ok(())
    }

    fn values(&self, groups: &[u32]) -> Result<ArrayRef, ExecError> {
        let nothing = self.converter.convert_columns(&[new_null_array(&self.output, 1)])?;
        let parser = self.converter.parser();
        let rows = groups.iter().map(|group| match self.best(*group as usize) {
            Some(bytes) => parser.parse(bytes),
            None => nothing.row(0),
        });
        Ok(self.converter.convert_rows(rows)?.remove(0))
    }

    fn reset(&mut self, group: u32) {
        self.groups[group as usize].clear();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// An aggregate of distinct values: a value reaches the inner one when it appears, and leaves it
/// when its last row is gone.
#[derive(Debug)]
struct Distinct {
    inner: Box<dyn Accumulator>,
    converter: RowConverter,
    groups: Vec<HashMap<Box<[u8]>, i64>>,
}

impl Distinct {
    fn new(inner: Box<dyn Accumulator>, argument: DataType) -> Result<Self, ExecError> {
        Ok(Self { inner, converter: RowConverter::new(vec![SortField::new(argument)])?, groups: Vec::new() })
    }
}

impl Accumulator for Distinct {
    fn resize(&mut self, groups: usize) {
        self.groups.resize(groups, HashMap::new());
        self.inner.resize(groups);
    }

    fn update(&mut self, update: &Update<'_>) -> Result<(), ExecError> {
        // Only multiplicities here: which values are distinct is known once tables are merged.
        let rows = self.converter.convert_columns(std::slice::from_ref(update.argument()?))?;
        for (group, weight, row) in update.each() {
            add_weight(&mut self.groups[group], rows.row(row).data(), weight);
        }
        Ok(())
    }

    fn merge(&mut self, other: &dyn Accumulator, map: &[u32]) -> Result<(), ExecError> {
        let other: &Self = same(other);
        let (mut changed, mut groups, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for (group, values) in map.iter().zip(&other.groups) {
            let own = &mut self.groups[*group as usize];
            for (bytes, weight) in values {
                let change = add_weight(own, bytes, *weight);
                if change != 0 {
                    changed.push(bytes);
                    groups.push(*group);
                    weights.push(change);
                }
            }
        }
        let parser = self.converter.parser();
        let values = self.converter.convert_rows(changed.iter().map(|bytes| parser.parse(bytes)))?.remove(0);
        let rows: Vec<u32> = (0..groups.len() as u32).collect();
        self.inner.update(&Update { values: Some(&values), rows: &rows, groups: &groups, weights: Some(&weights) })
    }

    fn values(&self, groups: &[u32]) -> Result<ArrayRef, ExecError> {
        self.inner.values(groups)
    }

    fn reset(&mut self, group: u32) {
        self.groups[group as usize].clear();
        self.inner.reset(group);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Adds to a multiplicity; +1 when the value appears by that, -1 when it disappears.
fn add_weight(values: &mut HashMap<Box<[u8]>, i64>, bytes: &[u8], weight: i64) -> i64 {
    let before = values.get(bytes).copied().unwrap_or(0);
    let after = before + weight;
    if after == 0 {
        values.remove(bytes);
    } else {
        values.insert(bytes.into(), after);
    }
    i64::from(after > 0) - i64::from(before > 0)
}
