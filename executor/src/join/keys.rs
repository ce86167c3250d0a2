//! The keys by which cells find candidate pairs: a hash of the equality keys and a number whose
//! order is the order of the range key.
//!
//! Keys only ever *narrow* the search: the whole condition is evaluated on what they find. So a
//! value that the arithmetic here cannot represent (NaN, infinities, numbers beyond i64, angles
//! out of range) is *wild*: it is a candidate for everything.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, SchemaRef};
use datafusion_physical_expr::PhysicalExpr;
use thetis_planner::physical::{Join, Side};
use thetis_planner::theta::{Bounds, IndexKey, Range};

use crate::error::ExecError;
use crate::exact::with_exact_values;
use crate::route::hash_rows;
use crate::steps::{compile_all, evaluate};

/// The keys of a frame's rows, as one side computes them.
#[derive(Debug, Default)]
pub struct Keys {
    /// Rows.
    pub rows: usize,
    /// Hash of bucket and equality keys; rows can only match rows with the same. Absent: all
    /// rows have the same.
    pub prefixes: Option<Vec<u64>>,
    /// Range keys, if the join has a range.
    pub ranges: Option<Ranges>,
    /// Rows with a NULL key match nothing.
    pub null: Vec<bool>,
}

/// Range keys of rows.
#[derive(Debug)]
pub enum Ranges {
    /// Whole numbers; `None` is wild.
    Exact(Vec<Option<i64>>),
    /// Finite floats, each known to within the error; `None` is wild.
    Float(Vec<Option<f64>>, f64),
    /// Numbers in the order of the values, perhaps the same for different values.
    Ordered(Vec<i64>),
}

impl Keys {
    /// The prefix of a row.
    pub fn prefix(&self, row: usize) -> u64 {
        self.prefixes.as_ref().map_or(0, |prefixes| prefixes[row])
    }
}

impl Ranges {
    /// The number that stands for a row in an index; `None` is wild.
    pub fn order(&self, row: usize) -> Option<i64> {
        match self {
            Self::Exact(keys) => keys[row],
            Self::Float(keys, _) => keys[row].map(float_order),
            Self::Ordered(keys) => Some(keys[row]),
        }
    }

    /// Bound on the error of every key.
    pub fn error(&self) -> f64 {
        if let Self::Float(_, error) = self { *error } else { 0.0 }
    }
}

/// Total order of floats as integers.
pub fn float_order(value: f64) -> i64 {
    let bits = value.to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// What rows of one side can meet on the other: an inclusive range of index numbers.
///
/// `stored` is the side that is looked into, `error` the bound on the error of its keys.
pub fn reach(keys: &Ranges, row: usize, bounds: &Bounds, stored: Side, error: f64) -> (i64, i64) {
    const ALL: (i64, i64) = (i64::MIN, i64::MAX);
    match (keys, bounds) {
        (Ranges::Exact(keys), Bounds::Exact { lower, upper }) => {
            let Some(key) = keys[row] else { return ALL };
            match stored {
                // L in [R + lower, R + upper]
                Side::Left => (
                    lower.map_or(i64::MIN, |lower| key.saturating_add(lower)),
                    upper.map_or(i64::MAX, |upper| key.saturating_add(upper)),
                ),
                // R in [L - upper, L - lower]
                Side::Right => (
                    upper.map_or(i64::MIN, |upper| key.saturating_sub(upper)),
                    lower.map_or(i64::MAX, |lower| key.saturating_sub(lower)),
                ),
            }
        }
        (Ranges::Float(keys, own_error), Bounds::Float { lower, upper }) => {
            let Some(key) = keys[row] else { return ALL };
            let (low, high) = match stored {
                Side::Left => (lower.map(|lower| key + lower), upper.map(|upper| key + upper)),
                Side::Right => (upper.map(|upper| key - upper), lower.map(|lower| key - lower)),
            };
            let offset = lower.unwrap_or(0.0).abs().max(upper.unwrap_or(0.0).abs());
            // Rounding of the condition's own arithmetic and of this one.
            let slack = 8.0 * f64::EPSILON * (key.abs() + offset) + f64::MIN_POSITIVE + own_error + error;
            let finite = |bound: Option<f64>| bound.filter(|bound| bound.is_finite());
            (
                finite(low.map(|low| low - slack)).map_or(i64::MIN, float_order),
                finite(high.map(|high| high + slack)).map_or(i64::MAX, float_order),
            )
        }
        (Ranges::Ordered(keys), Bounds::Ordered { lower, upper }) => {
            let key = keys[row];
            let (at_least, at_most) = match stored {
                Side::Left => (*lower, *upper),
                Side::Right => (*upper, *lower),
            };
            (if at_least { key } else { i64::MIN }, if at_most { key } else { i64::MAX })
        }
        _ => ALL,
    }
}

/// Computes the keys of one side's rows.
#[derive(Debug)]
pub struct KeyMaker {
    equality: Vec<Arc<dyn PhysicalExpr>>,
    range: Option<(RangeKey, Bounds)>,
    bucketed: bool,
}

impl KeyMaker {
    /// For one side of a join.
    ///
    /// # Errors
    /// Keys that this build cannot compute.
    pub fn new(join: &Join, side: Side) -> Result<Self, ExecError> {
        let schema = &join.inputs[side.index()];
        let equality: Vec<_> = join
            .equality
            .iter()
            .map(|(left, right)| if side == Side::Left { left.clone() } else { right.clone() })
            .collect();
        let range = join.range.as_ref().map(|Range { left, right, bounds }| {
            let key = if side == Side::Left { left } else { right };
            Ok::<_, ExecError>((RangeKey::new(key, schema)?, *bounds))
        });
        Ok(Self {
            equality: compile_all(&equality, schema)?,
            range: range.transpose()?,
            bucketed: join.layout.bucket_regions.len() > 1,
        })
    }

    /// The keys of the rows of `batch`, which are in `buckets`.
    ///
    /// # Errors
    /// A key cannot be computed for some row.
    pub fn keys(&self, batch: &RecordBatch, buckets: &[u32]) -> Result<Keys, ExecError> {
        let rows = batch.num_rows();
        let mut null = vec![false; rows];
        let equality = self.equality.iter().map(|key| evaluate(key, batch)).collect::<Result<Vec<_>, _>>()?;
        for key in equality.iter().filter(|key| key.null_count() > 0) {
            null.iter_mut().enumerate().for_each(|(row, null)| *null |= key.is_null(row));
        }
        let mut prefixes = (!equality.is_empty()).then(|| hash_rows(&equality, rows)).transpose()?;
        if self.bucketed {
            // The hash decides the bucket of a `key` partitioning, but not that of a grid.
            let mixed = prefixes.get_or_insert_with(|| vec![0; rows]);
            for (prefix, bucket) in mixed.iter_mut().zip(buckets) {
                *prefix = prefix.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(*bucket));
            }
        }
        let ranges = match &self.range {
            None => None,
            Some((key, Bounds::Exact { .. })) => {
                let keys = key.exact_or_wild(batch, &mut null)?;
                Some(Ranges::Exact(keys))
            }
            Some((key, Bounds::Float { .. })) => {
                let (keys, error) = key.float(batch, &mut null)?;
                Some(Ranges::Float(keys, error))
            }
            Some((key, Bounds::Ordered { .. })) => Some(Ranges::Ordered(key.ordered(batch, &mut null)?)),
        };
        Ok(Keys { rows, prefixes, ranges, null })
    }
}

/// A compiled [`IndexKey`].
#[derive(Debug)]
pub struct RangeKey {
    terms: Vec<(i64, Arc<dyn PhysicalExpr>)>,
    limit: Option<f64>,
}

impl RangeKey {
    /// Compiles `key` over the columns of one side.
    ///
    /// # Errors
    /// Keys that this build cannot compute.
    pub fn new(key: &IndexKey, schema: &SchemaRef) -> Result<Self, ExecError> {
        let exprs: Vec<_> = key.terms.iter().map(|term| term.expr.clone()).collect();
        let terms = key.terms.iter().map(|term| term.factor).zip(compile_all(&exprs, schema)?);
        Ok(Self { terms: terms.collect(), limit: key.limit })
    }

    /// The exact value of every row; `None` for NULL.
    ///
    /// # Errors
    /// A term cannot be computed for some row.
    pub fn exact(&self, batch: &RecordBatch) -> Result<Vec<Option<i128>>, ExecError> {
        let mut sums: Vec<Option<i128>> = vec![Some(0); batch.num_rows()];
        for (factor, term) in &self.terms {
            let array = evaluate(term, batch)?;
            add_exact(&mut sums, &array, i128::from(*factor))?;
        }
        Ok(sums)
    }

    fn exact_or_wild(&self, batch: &RecordBatch, null: &mut [bool]) -> Result<Vec<Option<i64>>, ExecError> {
        let sums = self.exact(batch)?;
        Ok(sums
            .into_iter()
            .zip(null)
            .map(|(sum, null)| {
                *null |= sum.is_none();
                let key = i64::try_from(sum?).ok()?;
                self.limit.is_none_or(|limit| (key as f64).abs() <= limit).then_some(key)
            })
            .collect())
    }

    fn float(&self, batch: &RecordBatch, null: &mut [bool]) -> Result<(Vec<Option<f64>>, f64), ExecError> {
        let mut sums = vec![0.0_f64; batch.num_rows()];
        let mut magnitude = 0.0_f64;
        for (factor, term) in &self.terms {
            let array = cast(&evaluate(term, batch)?, &DataType::Float64)?;
            let values = array.as_primitive::<Float64Type>();
            for (row, sum) in sums.iter_mut().enumerate() {
                null[row] |= values.is_null(row);
                let value = values.value(row);
                if value.is_finite() {
                    magnitude = magnitude.max(value.abs());
                }
                *sum += *factor as f64 * value;
            }
        }
        // One term is the value itself, but for the rounding of integers.
        let error = 4.0 * f64::EPSILON * magnitude * self.terms.len() as f64;
        let keep = |sum: &f64| sum.is_finite() && self.limit.is_none_or(|limit| sum.abs() <= limit);
        Ok((sums.into_iter().map(|sum| Some(sum).filter(keep)).collect(), error))
    }

    fn ordered(&self, batch: &RecordBatch, null: &mut [bool]) -> Result<Vec<i64>, ExecError> {
        let [(_, term)] = self.terms.as_slice() else {
            return Err(ExecError::Internal("an ordered key has one term".to_owned()));
        };
        let array = evaluate(term, batch)?;
        null.iter_mut().enumerate().for_each(|(row, null)| *null |= array.is_null(row));
        Ok(match array.data_type() {
            DataType::Boolean => (0..array.len()).map(|row| i64::from(array.as_boolean().value(row))).collect(),
            DataType::Time32(_) => {
                let values = cast(&cast(&array, &DataType::Int32)?, &DataType::Int64)?;
                values.as_primitive::<Int64Type>().values().to_vec()
            }
            DataType::Time64(_) => cast(&array, &DataType::Int64)?.as_primitive::<Int64Type>().values().to_vec(),
            _ => {
                let bytes = cast(&array, &DataType::LargeBinary)?;
                let bytes = bytes.as_binary::<i64>();
                (0..array.len()).map(|row| bytes_order(bytes.value(row))).collect()
            }
        })
    }
}

/// Order of the first eight bytes.
fn bytes_order(bytes: &[u8]) -> i64 {
    let mut first = [0; 8];
    let length = bytes.len().min(8);
    first[..length].copy_from_slice(&bytes[..length]);
    (u64::from_be_bytes(first) ^ (1 << 63)) as i64
}

fn add_exact(sums: &mut [Option<i128>], array: &ArrayRef, factor: i128) -> Result<(), ExecError> {
    with_exact_values(array, |value| {
        for (row, sum) in sums.iter_mut().enumerate() {
            *sum = if array.is_null(row) {
                None
            } else {
                sum.map(|sum| sum.saturating_add(value(row).saturating_mul(factor)))
            };
        }
    })
}
