//! Random rows, column by column. Rows are drawn in blocks, each column of each block from a random
//! stream of its own (seed, column, block): a row depends on its number alone, not on the size of
//! batches, the columns that are read, or the speed.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, Float32Array, Float64Array, PrimitiveArray, RecordBatch,
    StringArray, UInt32Array,
};
use arrow::buffer::{BooleanBuffer, Buffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast_with_options, nullif, take};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type, SchemaRef, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use rand::distr::uniform::SampleUniform;
use rand::distr::{Distribution as _, Uniform};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Normal, Zipf};
use thetis_planner::connector::{Distribution, GeneratorSpec, Series, whole_limits};
use thetis_planner::physical::Source;
use thetis_planner::sql_name;

use super::{Fetched, Reader};
use crate::error::ExecError;
use crate::frame::FRAME_ROWS;
use crate::steps::batch_of;

/// Rows that are drawn together. Another number makes other rows of the same seed.
const BLOCK: u64 = 8192;
/// A paced generator gives out rows no more often than this.
const TICK: Duration = Duration::from_millis(20);

/// Gives out the rows of a generator.
#[derive(Debug)]
pub(super) struct Generator {
    columns: Vec<Column>,
    output: SchemaRef,
    seed: u64,
    rows: Option<u64>,
    pace: Option<Pace>,
    /// Number of the next row, from 0.
    next: u64,
    /// The block that was drawn last, with its number.
    block: Option<(u64, RecordBatch)>,
}

impl Generator {
    pub(super) fn new(source: &Source, spec: &GeneratorSpec) -> Result<Self, ExecError> {
        let columns = source.projection.iter().map(|position| {
            let field = source.columns.field(*position as usize);
            let column = spec.columns.get(*position as usize);
            let column = column.ok_or_else(|| ExecError::Internal("a column has a distribution".to_owned()))?;
            let choices = match &column.values {
                Distribution::Choice(texts) => Some(choices(texts, field.data_type())?),
                _ => None,
            };
            Ok(Column {
                position: *position,
                name: field.name().clone(),
                data_type: field.data_type().clone(),
                values: column.values.clone(),
                choices,
                nulls: column.nulls,
            })
        });
        Ok(Self {
            columns: columns.collect::<Result<_, ExecError>>()?,
            output: source.schema(),
            seed: spec.seed,
            rows: spec.rows,
            pace: spec.rows_per_second.map(|rate| Pace { rate, start: None }),
            next: 0,
            block: None,
        })
    }

    /// A block of rows; the last one may be shorter.
    fn block(&mut self, number: u64) -> Result<&RecordBatch, ExecError> {
        if self.block.as_ref().is_none_or(|(drawn, _)| *drawn != number) {
            let first = number * BLOCK;
            let rows = self.rows.map_or(BLOCK, |rows| BLOCK.min(rows - first)) as usize;
            let columns = self.columns.iter().map(|column| column.draw(self.seed, number, rows));
            let batch = batch_of(&self.output, columns.collect::<Result<_, _>>()?, rows)?;
            self.block = Some((number, batch));
        }
        let block = self.block.as_ref().map(|(_, batch)| batch);
        block.ok_or_else(|| ExecError::Internal("a block was drawn".to_owned()))
    }
}

impl Reader for Generator {
    fn next(&mut self, now: Duration) -> Result<Fetched, ExecError> {
        let left = self.rows.map_or(u64::MAX - self.next, |rows| rows - self.next);
        if left == 0 {
            return Ok(Fetched::End);
        }
        let mut length = left.min(FRAME_ROWS as u64);
        if let Some(pace) = &mut self.pace {
            length = length.min(pace.due(now).saturating_sub(self.next));
            if length == 0 {
                return Ok(Fetched::Wait(pace.until(self.next, now)));
            }
        }
        let at = self.next % BLOCK;
        length = length.min(BLOCK - at);
        let batch = self.block(self.next / BLOCK)?.slice(at as usize, length as usize);
        self.next += length;
        Ok(Fetched::Rows(batch))
    }
}

/// Row i is due i / rate seconds after the start.
#[derive(Debug)]
struct Pace {
    /// Rows per second.
    rate: f64,
    /// When the first row was asked for.
    start: Option<Duration>,
}

impl Pace {
    /// How many rows are due in all.
    fn due(&mut self, now: Duration) -> u64 {
        let start = *self.start.get_or_insert(now);
        ((now.saturating_sub(start).as_secs_f64() * self.rate) as u64).saturating_add(1)
    }

    /// How long to wait for row `next`, and for those that come within a tick of it.
    fn until(&self, next: u64, now: Duration) -> Duration {
        let after = Duration::try_from_secs_f64(next as f64 / self.rate).unwrap_or(Duration::MAX);
        self.start.unwrap_or(now).saturating_add(after).saturating_sub(now).max(TICK)
    }
}

/// What the numbers of a random stream are for.
#[derive(Debug, Clone, Copy)]
enum Use {
    Values = 0,
    Nulls = 1,
}

#[derive(Debug)]
struct Column {
    /// Among the columns of the stream.
    position: u32,
    name: String,
    data_type: DataType,
    values: Distribution,
    choices: Option<ArrayRef>,
    nulls: f64,
}

impl Column {
    fn random(&self, seed: u64, block: u64, of: Use) -> ChaCha8Rng {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..12].copy_from_slice(&self.position.to_le_bytes());
        key[12] = of as u8;
        let mut random = ChaCha8Rng::from_seed(key);
        random.set_stream(block);
        random
    }

    /// The first `rows` values of a block. Values are drawn one after the other, so that fewer rows
    /// are a prefix of more.
    fn draw(&self, seed: u64, block: u64, rows: usize) -> Result<ArrayRef, ExecError> {
        let random = &mut self.random(seed, block, Use::Values);
        let values = match &self.values {
            Distribution::Whole(Series::Sequence { start, step, jitter }) => {
                let first = self.sequence_start(block * BLOCK, rows, (*start, *step, *jitter))?;
                let line = (0..rows as i128).map(|row| first + row * step);
                match u128::try_from(*jitter) {
                    Ok(jitter @ 1..) => self.wholes(line.zip(offsets(random, jitter)?).map(|(at, more)| at + more)),
                    _ => self.wholes(line),
                }
            }
            Distribution::Whole(Series::Uniform { low, high }) => {
                // Two's complement: right also where the difference does not fit.
                let span = high.wrapping_sub(*low) as u128;
                self.wholes(offsets(random, span)?.take(rows).map(|more| low.wrapping_add(more)))
            }
            Distribution::Float(Series::Sequence { start, step, .. }) => {
                let first = block * BLOCK;
                self.floats((0..rows as u64).map(|row| start + (first + row) as f64 * step))
            }
            Distribution::Float(Series::Uniform { low, high }) => {
                self.floats((0..rows).map(|_| low + (high - low) * random.random::<f64>()))
            }
            Distribution::Zipf { exponent, n } => {
                let zipf = Zipf::new(*n, *exponent).map_err(|error| ExecError::Internal(error.to_string()))?;
                self.numbers((0..rows).map(|_| zipf.sample(random).min(*n)))
            }
            Distribution::Normal { mean, deviation } => {
                let normal = Normal::new(*mean, *deviation).map_err(|error| ExecError::Internal(error.to_string()))?;
                self.numbers((0..rows).map(|_| normal.sample(random)))
            }
            Distribution::Choice(_) => self.chosen(random, rows),
            Distribution::Text { min, max } => letters(random, rows, (*min, *max)),
            Distribution::Coin => Ok(coins(random, rows)),
        }?;
        if self.nulls <= 0.0 {
            return Ok(values);
        }
        let random = &mut self.random(seed, block, Use::Nulls);
        let absent: BooleanArray = (0..rows).map(|_| Some(random.random::<f64>() < self.nulls)).collect();
        Ok(nullif(&values, &absent)?)
    }

    /// The value of row `first`, if this row and those after it fit the type.
    fn sequence_start(
        &self,
        first: u64,
        rows: usize,
        (start, step, jitter): (i128, i128, i128),
    ) -> Result<i128, ExecError> {
        let (least, greatest) = whole_limits(&self.data_type).unwrap_or((0, 0));
        let at = |row: u64| {
            let value = i128::from(row).checked_mul(step)?.checked_add(start)?;
            (least..=greatest.saturating_sub(jitter)).contains(&value).then_some(value)
        };
        let last = at(first.saturating_add(rows.saturating_sub(1) as u64));
        at(first).filter(|_| last.is_some()).ok_or_else(|| {
            let type_name = sql_name(&self.data_type);
            ExecError::out_of_range(format!("column {}: the sequence leaves the range of {type_name}", self.name))
                .at(|| format!("rows {} to {}", first + 1, first + rows as u64))
        })
    }

    fn chosen(&self, random: &mut ChaCha8Rng, rows: usize) -> Result<ArrayRef, ExecError> {
        let choices = self.choices.as_ref();
        let choices = choices.ok_or_else(|| ExecError::Internal("a choice has values".to_owned()))?;
        let last = u32::try_from(choices.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let places = uniform(0..=last)?.sample_iter(random).take(rows);
        Ok(take(choices, &UInt32Array::from_iter_values(places), None)?)
    }

    /// Numbers of any type: rounded and cut to its range for whole ones.
    fn numbers(&self, values: impl Iterator<Item = f64>) -> Result<ArrayRef, ExecError> {
        match whole_limits(&self.data_type) {
            Some((least, greatest)) => self.wholes(values.map(|value| (value.round() as i128).clamp(least, greatest))),
            None => self.floats(values),
        }
    }

    fn floats(&self, values: impl Iterator<Item = f64>) -> Result<ArrayRef, ExecError> {
        Ok(match self.data_type {
            DataType::Float32 => Arc::new(Float32Array::from_iter_values(values.map(|value| value as f32))),
            _ => Arc::new(Float64Array::from_iter_values(values)),
        })
    }

    /// Values in the type's own unit, all in its range.
    fn wholes(&self, values: impl Iterator<Item = i128>) -> Result<ArrayRef, ExecError> {
        let values: Vec<i128> = values.collect();
        let data_type = &self.data_type;
        Ok(match data_type {
            DataType::Int8 => array::<Int8Type>(data_type, &values),
            DataType::Int16 => array::<Int16Type>(data_type, &values),
            DataType::Int32 => array::<Int32Type>(data_type, &values),
            DataType::Int64 => array::<Int64Type>(data_type, &values),
            DataType::UInt8 => array::<UInt8Type>(data_type, &values),
            DataType::UInt16 => array::<UInt16Type>(data_type, &values),
            DataType::UInt32 => array::<UInt32Type>(data_type, &values),
            DataType::UInt64 => array::<UInt64Type>(data_type, &values),
            DataType::Date32 => array::<Date32Type>(data_type, &values),
            DataType::Time32(TimeUnit::Second) => array::<Time32SecondType>(data_type, &values),
            DataType::Time32(_) => array::<Time32MillisecondType>(data_type, &values),
            DataType::Time64(TimeUnit::Microsecond) => array::<Time64MicrosecondType>(data_type, &values),
            DataType::Time64(_) => array::<Time64NanosecondType>(data_type, &values),
            DataType::Timestamp(TimeUnit::Second, _) => array::<TimestampSecondType>(data_type, &values),
            DataType::Timestamp(TimeUnit::Millisecond, _) => array::<TimestampMillisecondType>(data_type, &values),
            DataType::Timestamp(TimeUnit::Microsecond, _) => array::<TimestampMicrosecondType>(data_type, &values),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => array::<TimestampNanosecondType>(data_type, &values),
            DataType::Decimal128(..) => array::<Decimal128Type>(data_type, &values),
            other => return Err(ExecError::Internal(format!("{other} has no whole values"))),
        })
    }
}

fn array<T: ArrowPrimitiveType>(data_type: &DataType, values: &[i128]) -> ArrayRef
where
    T::Native: TryFrom<i128>,
{
    let values = values.iter().map(|value| T::Native::try_from(*value).unwrap_or_default());
    Arc::new(PrimitiveArray::<T>::from_iter_values(values).with_data_type(data_type.clone()))
}

fn choices(texts: &[String], data_type: &DataType) -> Result<ArrayRef, ExecError> {
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let options = CastOptions { safe: false, ..CastOptions::default() };
    Ok(cast_with_options(&texts, data_type, &options)?)
}

fn uniform<T: SampleUniform>(range: std::ops::RangeInclusive<T>) -> Result<Uniform<T>, ExecError> {
    Uniform::try_from(range).map_err(|error| ExecError::Internal(error.to_string()))
}

/// Numbers from 0 to `span`, without end.
fn offsets(random: &mut ChaCha8Rng, span: u128) -> Result<impl Iterator<Item = i128>, ExecError> {
    // 64 bits are drawn faster than 128.
    let narrow = u64::try_from(span).ok().map(|span| uniform(0..=span)).transpose()?;
    let wide = uniform(0..=span)?;
    Ok(std::iter::repeat_with(move || match &narrow {
        Some(narrow) => i128::from(narrow.sample(random)),
        None => wide.sample(random) as i128,
    }))
}

/// Texts of lower-case letters.
fn letters(random: &mut ChaCha8Rng, rows: usize, (min, max): (u32, u32)) -> Result<ArrayRef, ExecError> {
    let lengths = uniform(min..=max)?;
    let mut bytes = Vec::with_capacity(rows * max as usize);
    let mut offsets = Vec::with_capacity(rows);
    for _ in 0..rows {
        let length = if min == max { min } else { lengths.sample(random) } as usize;
        let start = bytes.len();
        bytes.resize(start + length, 0);
        random.fill_bytes(&mut bytes[start..]);
        offsets.push(length);
    }
    for byte in &mut bytes {
        *byte = b'a' + ((u16::from(*byte) * 26) >> 8) as u8;
    }
    let offsets = OffsetBuffer::from_lengths(offsets);
    Ok(Arc::new(StringArray::try_new(offsets, Buffer::from_vec(bytes), None)?))
}

fn coins(random: &mut ChaCha8Rng, rows: usize) -> ArrayRef {
    let mut bytes = vec![0; rows.div_ceil(8)];
    random.fill_bytes(&mut bytes);
    Arc::new(BooleanArray::new(BooleanBuffer::new(Buffer::from_vec(bytes), 0, rows), None))
}

#[cfg(test)]
mod tests;
