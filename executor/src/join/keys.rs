//! The keys by which cells find candidate pairs: a hash of the equality keys and a number whose
//! order is the order of the range key.
//!
//! Keys only ever *narrow* the search: the whole condition is evaluated on what they find. So a
//! value that the arithmetic here cannot represent (NaN, infinities, numbers beyond i64, angles
//! out of range) is *wild*: it is a candidate for everything.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, SchemaRef, TimeUnit};
use datafusion_physical_expr::PhysicalExpr;
use thetis_planner::physical::{Join, Side};
use thetis_planner::theta::{Bounds, IndexKey, Range, SURE, Said};

use super::stripes::{Stripes, stripe_prefix};
use crate::error::ExecError;
use crate::exact::{canonical_floats, float_of, float_order, with_exact_values};
use crate::route::hash_rows;
use crate::steps::{compile_all, evaluate};

/// Ranges that an index knows at most; it drives its search by the first, or the first two, and
/// filters by the others.
pub const KNOWN_RANGES: usize = 3;

/// The keys of a frame's rows, as one side computes them.
#[derive(Debug, Default)]
pub struct Keys {
    /// Rows.
    pub rows: usize,
    /// Hash of the equality keys; rows can only match rows with the same. Absent: all
    /// rows have the same.
    pub prefixes: Option<Vec<u64>>,
    /// Keys of each range that the index knows.
    pub ranges: Vec<Ranges>,
    /// Rows with a NULL key match nothing. Empty if there is none.
    pub null: Vec<bool>,
    /// Rows with a key that has no place in the order. Empty if there is none.
    pub wild: Vec<bool>,
    /// For sorted indexes: the rows that are neither NULL nor wild, by prefix and first range key.
    pub order: Vec<u32>,
    /// For sorted indexes: columns of eight bytes that they carry along, so that matches stand side by
    /// side with their values; a column with a NULL is empty.
    pub carried: Vec<Vec<u64>>,
    /// All keys are whole and at most [`SURE`]: tight ranges say all of them.
    pub sure: bool,
}

/// Range keys of rows; those of NULL and wild rows mean nothing.
#[derive(Debug)]
pub enum Ranges {
    /// Whole numbers.
    Exact(Vec<i64>),
    /// Finite floats, each known to within the error.
    Float(Vec<f64>, f64),
    /// Numbers in the order of the values, perhaps the same for different values.
    Ordered(Vec<i64>),
}

impl Keys {
    /// The prefix of a row.
    pub fn prefix(&self, row: usize) -> u64 {
        self.prefixes.as_ref().map_or(0, |prefixes| prefixes[row])
    }

    /// Takes the stripes of the second key for prefixes.
    pub fn stripe(&mut self, stripes: Stripes) {
        let Some(range) = self.ranges.get(1) else { return };
        self.prefixes = Some((0..self.rows).map(|row| stripe_prefix(stripes.stripe(range.order(row)))).collect());
    }

    /// Finds [`Self::order`].
    pub fn sort(&mut self) {
        let Some(range) = self.ranges.first() else { return };
        let rows = (0..self.rows).filter(|row| !self.is_null(*row) && !self.is_wild(*row));
        self.order = match &self.prefixes {
            None => {
                let mut keyed: Vec<(i64, u32)> = rows.map(|row| (range.order(row), row as u32)).collect();
                keyed.sort_unstable();
                keyed.into_iter().map(|(_, row)| row).collect()
            }
            Some(prefixes) => {
                let mut keyed: Vec<_> = rows.map(|row| (prefixes[row], range.order(row), row as u32)).collect();
                keyed.sort_unstable();
                keyed.into_iter().map(|(.., row)| row).collect()
            }
        };
    }

    /// Whether a row has a NULL key.
    pub fn is_null(&self, row: usize) -> bool {
        self.null.get(row).is_some_and(|null| *null)
    }

    /// Whether a row is wild.
    pub fn is_wild(&self, row: usize) -> bool {
        self.wild.get(row).is_some_and(|wild| *wild)
    }
}

impl Ranges {
    /// The number that stands for a row in an index.
    pub fn order(&self, row: usize) -> i64 {
        match self {
            Self::Exact(keys) | Self::Ordered(keys) => keys[row],
            Self::Float(keys, _) => float_order(keys[row]),
        }
    }

    /// Bound on the error of every key.
    pub fn error(&self) -> f64 {
        if let Self::Float(_, error) = self { *error } else { 0.0 }
    }
}

/// Rows that are marked, in a list that stays empty while none is.
fn set(marks: &mut Vec<bool>, rows: usize, row: usize) {
    if marks.is_empty() {
        marks.resize(rows, false);
    }
    marks[row] = true;
}

/// What rounding can do to a key of this size, in the condition's own arithmetic and in this one.
pub fn slack(key: f64, offset: f64) -> f64 {
    8.0 * f64::EPSILON * (key + offset) + f64::MIN_POSITIVE
}

/// What a row that is not wild can meet on the other side: an inclusive range of index numbers.
///
/// `stored` is the side that is looked into, `error` the bound on the error of its keys.
pub fn reach(keys: &Ranges, row: usize, bounds: &Bounds, stored: Side, error: f64) -> (i64, i64) {
    reach_of(keys.order(row), bounds, stored, keys.error() + error)
}

/// The same for the index number of a key, with the errors of both sides.
pub(crate) fn reach_of(order: i64, bounds: &Bounds, stored: Side, error: f64) -> (i64, i64) {
    match bounds {
        Bounds::Exact { lower, upper } => match stored {
            // L in [R + lower, R + upper]
            Side::Left => (
                lower.map_or(i64::MIN, |lower| order.saturating_add(lower)),
                upper.map_or(i64::MAX, |upper| order.saturating_add(upper)),
            ),
            // R in [L - upper, L - lower]
            Side::Right => (
                upper.map_or(i64::MIN, |upper| order.saturating_sub(upper)),
                lower.map_or(i64::MAX, |lower| order.saturating_sub(lower)),
            ),
        },
        Bounds::Float { lower, upper } => float_reach(float_of(order), (*lower, *upper), stored, error, false),
        Bounds::Ordered { lower, upper } => {
            let (at_least, at_most) = match stored {
                Side::Left => (*lower, *upper),
                Side::Right => (*upper, *lower),
            };
            (if at_least { order } else { i64::MIN }, if at_most { order } else { i64::MAX })
        }
    }
}

/// What it meets for sure, if the bounds are those of the condition: of floats, less than it can
/// meet.
pub(crate) fn sure_reach_of(order: i64, bounds: &Bounds, stored: Side, error: f64) -> (i64, i64) {
    match bounds {
        Bounds::Float { lower, upper } => float_reach(float_of(order), (*lower, *upper), stored, error, true),
        _ => reach_of(order, bounds, stored, error),
    }
}

fn float_reach(
    key: f64,
    (lower, upper): (Option<f64>, Option<f64>),
    stored: Side,
    error: f64,
    sure: bool,
) -> (i64, i64) {
    let (low, high) = match stored {
        Side::Left => (lower.map(|lower| key + lower), upper.map(|upper| key + upper)),
        Side::Right => (upper.map(|upper| key - upper), lower.map(|lower| key - lower)),
    };
    let offset = lower.unwrap_or(0.0).abs().max(upper.unwrap_or(0.0).abs());
    let slack = slack(key.abs(), offset) + error;
    let slack = if sure { -slack } else { slack };
    let finite = |bound: Option<f64>| bound.filter(|bound| bound.is_finite());
    let low_order = finite(low.map(|low| low - slack)).map(float_order);
    let high_order = finite(high.map(|high| high + slack)).map(float_order);
    // A bound that is there and cannot be computed admits all, or nothing for sure.
    let (least, most) = if sure { (i64::MAX, i64::MIN) } else { (i64::MIN, i64::MAX) };
    (
        low_order.unwrap_or(if low.is_none() { i64::MIN } else { least }),
        high_order.unwrap_or(if high.is_none() { i64::MAX } else { most }),
    )
}

/// Computes the keys of one side's rows.
#[derive(Debug)]
pub struct KeyMaker {
    equality: Vec<Arc<dyn PhysicalExpr>>,
    ranges: Vec<(RangeKey, Bounds)>,
    /// Columns for [`Keys::carried`].
    carried: Vec<u32>,
    stripes: Option<Stripes>,
}

impl KeyMaker {
    /// For one side of a join.
    ///
    /// # Errors
    /// Keys that this build cannot compute.
    pub fn new(join: &Join, side: Side) -> Result<Self, ExecError> {
        let known = &join.ranges[..join.ranges.len().min(KNOWN_RANGES)];
        let schema = &join.inputs[side.index()];
        let equality: Vec<_> = join
            .equality
            .iter()
            .map(|(left, right)| if side == Side::Left { left.clone() } else { right.clone() })
            .collect();
        let ranges = known.iter().map(|Range { left, right, bounds, .. }| {
            let key = if side == Side::Left { left } else { right };
            let terms = (left.terms.len() + right.terms.len()) as i64;
            Ok::<_, ExecError>((
                RangeKey { sure: (2 * SURE / terms).min(SURE), ..RangeKey::new(key, schema)? },
                *bounds,
            ))
        });
        Ok(Self {
            equality: compile_all(&equality, schema)?,
            ranges: ranges.collect::<Result<_, _>>()?,
            carried: carried_columns(join, side),
            stripes: Stripes::of(join),
        })
    }

    /// What sorted indexes need beside the keys.
    pub(crate) fn arrange(&self, batch: &RecordBatch, keys: &mut Keys) {
        if let Some(stripes) = self.stripes {
            keys.stripe(stripes);
        }
        keys.sort();
        let words = |column: &u32| {
            let data = batch.column(*column as usize).to_data();
            if data.null_count() > 0 {
                return Vec::new();
            }
            data.buffers()[0].typed_data::<u64>()[data.offset()..][..data.len()].to_vec()
        };
        keys.carried = self.carried.iter().map(words).collect();
    }

    /// The keys of the rows of `batch`.
    ///
    /// # Errors
    /// A key cannot be computed for some row.
    pub fn keys(&self, batch: &RecordBatch) -> Result<Keys, ExecError> {
        let rows = batch.num_rows();
        let mut keys = Keys { rows, sure: true, ..Keys::default() };
        let equality = self.equality(batch)?;
        for key in equality.iter().filter(|key| key.null_count() > 0) {
            (0..rows).filter(|row| key.is_null(*row)).for_each(|row| set(&mut keys.null, rows, row));
        }
        keys.prefixes = (!equality.is_empty()).then(|| hash_rows(&equality, rows)).transpose()?;
        for (number, (key, bounds)) in self.ranges.iter().enumerate() {
            let range = match bounds {
                Bounds::Exact { .. } => Ranges::Exact(key.exact_or_wild(batch, &mut keys)?),
                Bounds::Float { .. } => {
                    keys.sure = false;
                    // Errors must not be as large as stripes are wide.
                    let most = self.stripes.filter(|_| number == 1).map_or(f64::INFINITY, Stripes::limit);
                    let (values, error) = key.float(batch, most, &mut keys)?;
                    Ranges::Float(values, error)
                }
                Bounds::Ordered { .. } => {
                    keys.sure = false;
                    Ranges::Ordered(key.ordered(batch, &mut keys)?)
                }
            };
            keys.ranges.push(range);
        }
        Ok(keys)
    }

    /// The values of the equality keys: those that are equal are the same.
    ///
    /// # Errors
    /// A key cannot be computed for some row.
    pub(crate) fn equality(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, ExecError> {
        Ok(self.equality.iter().map(|key| evaluate(key, batch).map(canonical_floats)).collect::<Result<_, _>>()?)
    }
}

/// Most columns that an index carries.
const MOST_CARRIED: usize = 4;

/// The columns of a side that its sorted index carries along: those of eight bytes that the output
/// reads, or the condition where the index does not say all.
pub(crate) fn carried_columns(join: &Join, side: Side) -> Vec<u32> {
    if !join.local_index().is_sorted() {
        return Vec::new();
    }
    let left_columns = join.inputs[0].fields().len() as u32;
    let mut read = join.output.clone();
    for (conjunct, said) in join.condition.iter().zip(&join.said) {
        if *said != Said::ByRanges {
            conjunct.for_each_column(&mut |column| read.push(column));
        }
    }
    let of_side = read.into_iter().filter_map(|column| match side {
        Side::Left => (column < left_columns).then_some(column),
        Side::Right => column.checked_sub(left_columns),
    });
    let schema = &join.inputs[side.index()];
    let mut columns: Vec<u32> =
        of_side.filter(|column| schema.field(*column as usize).data_type().primitive_width() == Some(8)).collect();
    columns.sort_unstable();
    columns.dedup();
    columns.truncate(MOST_CARRIED);
    columns
}

/// A compiled [`IndexKey`].
#[derive(Debug)]
pub struct RangeKey {
    terms: Vec<(i64, Arc<dyn PhysicalExpr>)>,
    limit: Option<f64>,
    /// The condition computes in single precision.
    single: bool,
    /// Terms beyond this are not sure.
    sure: i64,
}

impl RangeKey {
    /// Compiles `key` over the columns of one side.
    ///
    /// # Errors
    /// Keys that this build cannot compute.
    pub fn new(key: &IndexKey, schema: &SchemaRef) -> Result<Self, ExecError> {
        let exprs: Vec<_> = key.terms.iter().map(|term| term.expr.clone()).collect();
        let terms = key.terms.iter().map(|term| term.factor).zip(compile_all(&exprs, schema)?);
        Ok(Self { terms: terms.collect(), limit: key.limit, single: key.single, sure: SURE })
    }

    /// The values, if the key is a column of 64-bit integers without NULLs.
    ///
    /// # Errors
    /// The key cannot be computed for some row.
    pub(crate) fn plain(&self, batch: &RecordBatch) -> Result<Option<Int64Array>, ExecError> {
        let [(1, term)] = self.terms.as_slice() else { return Ok(None) };
        let array = evaluate(term, batch)?;
        let whole = matches!(array.data_type(), DataType::Int64 | DataType::Timestamp(TimeUnit::Nanosecond, _));
        if !whole || array.null_count() > 0 {
            return Ok(None);
        }
        let data = array.to_data().into_builder().data_type(DataType::Int64).build()?;
        Ok(Some(Int64Array::from(data)))
    }

    /// The factors and terms.
    pub(crate) fn terms(&self) -> &[(i64, Arc<dyn PhysicalExpr>)] {
        &self.terms
    }

    /// The largest key that the plan allows.
    pub(crate) fn limit(&self) -> f64 {
        self.limit.unwrap_or(SURE as f64)
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

    fn exact_or_wild(&self, batch: &RecordBatch, keys: &mut Keys) -> Result<Vec<i64>, ExecError> {
        if let (None, Some(values)) = (self.limit, self.plain(batch)?) {
            keys.sure &= values.values().iter().all(|value| (-self.sure..=self.sure).contains(value));
            return Ok(values.values().to_vec());
        }
        let rows = batch.num_rows();
        let mut sums = vec![0_i128; rows];
        for (factor, term) in &self.terms {
            let array = evaluate(term, batch)?;
            if array.null_count() > 0 {
                (0..rows).filter(|row| array.is_null(*row)).for_each(|row| set(&mut keys.null, rows, row));
            }
            let (factor, sure) = (i128::from(*factor), i128::from(self.sure));
            with_exact_values(&array, |value| {
                for (row, sum) in sums.iter_mut().enumerate() {
                    if array.is_valid(row) {
                        let term = value(row).saturating_mul(factor);
                        keys.sure &= (-sure..=sure).contains(&term);
                        *sum = sum.saturating_add(term);
                    }
                }
            })?;
        }
        let fits = |sum: i128| {
            let key = i64::try_from(sum).ok()?;
            self.limit.is_none_or(|limit| (key as f64).abs() <= limit).then_some(key)
        };
        let key = |(row, sum)| {
            fits(sum).unwrap_or_else(|| {
                set(&mut keys.wild, rows, row);
                keys.sure = false;
                0
            })
        };
        Ok(sums.into_iter().enumerate().map(key).collect())
    }

    /// The value of every row, as a float, of a key of one term.
    ///
    /// # Errors
    /// The term cannot be computed for some row.
    pub(crate) fn values(&self, batch: &RecordBatch) -> Result<Float64Array, ExecError> {
        let [(_, term)] = self.terms.as_slice() else {
            return Err(ExecError::Internal("a key of a grid of floats has one term".to_owned()));
        };
        Ok(cast(&evaluate(term, batch)?, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
    }

    /// The values, and a bound on their errors. Rows with a term beyond `most` are wild.
    fn float(&self, batch: &RecordBatch, most: f64, keys: &mut Keys) -> Result<(Vec<f64>, f64), ExecError> {
        let rows = batch.num_rows();
        let mut sums = vec![0.0_f64; batch.num_rows()];
        let mut magnitude = 0.0_f64;
        for (factor, term) in &self.terms {
            let array = cast(&evaluate(term, batch)?, &DataType::Float64)?;
            let values = array.as_primitive::<Float64Type>();
            if values.null_count() > 0 {
                (0..rows).filter(|row| values.is_null(*row)).for_each(|row| set(&mut keys.null, rows, row));
            }
            for (row, sum) in sums.iter_mut().enumerate() {
                let value = values.value(row);
                if value.is_finite() && value.abs() <= most {
                    magnitude = magnitude.max(value.abs());
                    *sum += *factor as f64 * value;
                } else {
                    *sum = f64::NAN;
                }
            }
        }
        // One term is the value itself: what the rounding of whole numbers makes of it, any partner allows for.
        let error = match (self.single, self.terms.len()) {
            (false, 1) => 0.0,
            (false, terms) => 4.0 * f64::EPSILON * magnitude * terms as f64,
            (true, terms) => 4.0 * f64::from(f32::EPSILON) * magnitude * terms as f64,
        };
        let keep = |sum: f64| sum.is_finite() && self.limit.is_none_or(|limit| sum.abs() <= limit);
        for (row, sum) in sums.iter_mut().enumerate() {
            if !keep(*sum) {
                *sum = 0.0;
                set(&mut keys.wild, rows, row);
            }
        }
        Ok((sums, error))
    }

    fn ordered(&self, batch: &RecordBatch, keys: &mut Keys) -> Result<Vec<i64>, ExecError> {
        let [(_, term)] = self.terms.as_slice() else {
            return Err(ExecError::Internal("an ordered key has one term".to_owned()));
        };
        let array = evaluate(term, batch)?;
        let rows = batch.num_rows();
        (0..rows).filter(|row| array.is_null(*row)).for_each(|row| set(&mut keys.null, rows, row));
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
