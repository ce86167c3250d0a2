//! A generator as a source: per column, a typed distribution. The texts of the options are read
//! and checked here, so that what goes to the worker only has to be drawn from.

mod parse;

use std::fmt;

use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};
use thetis_parser::{CreateStream, Position, StreamOption};

use crate::error::{PlanError, PlanErrorKind};
use crate::types::sql_name;

/// Random rows: the same seed makes the same rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GeneratorSpec {
    /// How many; `None` if they never end.
    pub rows: Option<u64>,
    /// How many in a second; `None` for as many as are taken.
    pub rows_per_second: Option<f64>,
    /// Chooses the rows.
    pub seed: u64,
    /// One per declared column of the stream.
    pub columns: Vec<GeneratedColumn>,
}

/// The values of a column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GeneratedColumn {
    /// How they are drawn.
    pub values: Distribution,
    /// Share of them that is NULL, from 0 to 1.
    pub nulls: f64,
}

/// How values are drawn. Whole numbers are in the type's own unit: days of a DATE, ticks of a
/// TIMESTAMP or a TIME, the unscaled value of a DECIMAL.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Distribution {
    /// Whole numbers.
    Whole(Series<i128>),
    /// Floating numbers.
    Float(Series<f64>),
    /// Zipf's law over 1 to `n`: k has a share in proportion to k^-exponent.
    Zipf {
        /// At least 0.
        exponent: f64,
        /// At least 1.
        n: f64,
    },
    /// The normal distribution, rounded and cut to the type's range for whole numbers.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation, at least 0.
        deviation: f64,
    },
    /// One of these texts, read as the column's type; each as often as the others.
    Choice(Vec<String>),
    /// Random lower-case letters.
    Text {
        /// Fewest.
        min: u32,
        /// Most.
        max: u32,
    },
    /// True or false.
    Coin,
}

/// Numbers of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Series<T> {
    /// Row i (from 0) has start + i * step, and up to `jitter` more.
    Sequence {
        /// Of the first row.
        start: T,
        /// From row to row.
        step: T,
        /// At least 0.
        jitter: T,
    },
    /// Each of a range as often as the others.
    Uniform {
        /// Least.
        low: T,
        /// Greatest; floating numbers stay below it.
        high: T,
    },
}

impl fmt::Display for GeneratorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rows_per_second {
            Some(rate) => write!(f, "generator, {rate} rows/s")?,
            None => f.write_str("generator, as fast as rows are taken")?,
        }
        match self.rows {
            Some(rows) => write!(f, ", {rows} rows"),
            None => f.write_str(", unbounded"),
        }
    }
}

/// The least and the greatest whole number that a type holds, in its own unit; `None` if it holds
/// something else, or cannot be generated.
pub fn whole_limits(data_type: &DataType) -> Option<(i128, i128)> {
    Some(match data_type {
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 | DataType::Date32 => (i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 | DataType::Timestamp(..) => (i64::MIN.into(), i64::MAX.into()),
        DataType::UInt8 => (0, u8::MAX.into()),
        DataType::UInt16 => (0, u16::MAX.into()),
        DataType::UInt32 => (0, u32::MAX.into()),
        DataType::UInt64 => (0, u64::MAX.into()),
        DataType::Time32(unit) | DataType::Time64(unit) => (0, DAY / nanoseconds(*unit) - 1),
        DataType::Decimal128(precision, _) => {
            let greatest = 10_i128.pow(u32::from(*precision).min(38)) - 1;
            (-greatest, greatest)
        }
        _ => return None,
    })
}

/// A day in nanoseconds.
const DAY: i128 = 86_400 * 1_000_000_000;

fn nanoseconds(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// What the options say of a generator, besides its columns.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) rows: Option<u64>,
    pub(super) rows_per_second: Option<f64>,
    pub(super) seed: u64,
}

impl Draft {
    /// The generator of a stream with these columns. `options` are those of its columns, each with
    /// the part of its key behind `column.`.
    pub(super) fn finish(
        self,
        stream: &CreateStream,
        columns: &SchemaRef,
        options: &[(&str, &StreamOption)],
    ) -> Result<GeneratorSpec, PlanError> {
        if columns.fields().is_empty() {
            let name = &stream.name.value;
            return Err(PlanError::new(PlanErrorKind::Setting, format!("stream {name} has no columns"))
                .at(Position::of_span(stream.name.span))
                .hint(format!("declare what is generated: CREATE STREAM {name} (id BIGINT, v DOUBLE) WITH (...)")));
        }
        let mut values: Vec<Option<Distribution>> = vec![None; columns.fields().len()];
        let mut nulls = vec![0.0; columns.fields().len()];
        for (key, option) in options {
            let (column, is_nulls) = find(columns, key, option)?;
            let field = columns.field(column);
            if is_nulls {
                nulls[column] = null_share(field, option)?;
            } else {
                values[column] = Some(self.distribution(field, key, option)?);
            }
        }
        let mut generated = Vec::with_capacity(values.len());
        for (column, (values, nulls)) in values.into_iter().zip(nulls).enumerate() {
            let field = columns.field(column);
            let by_default = || {
                self.by_default(field.data_type()).ok_or_else(|| {
                    let position = stream.columns.get(column).and_then(|column| column.position);
                    not_generated(field).at(position)
                })
            };
            generated.push(GeneratedColumn { values: values.map_or_else(by_default, Ok)?, nulls });
        }
        let Self { rows, rows_per_second, seed } = self;
        Ok(GeneratorSpec { rows, rows_per_second, seed, columns: generated })
    }

    fn distribution(&self, field: &Field, key: &str, option: &StreamOption) -> Result<Distribution, PlanError> {
        let wrong = |hint: String| {
            PlanError::new(PlanErrorKind::Setting, format!("'{}' is not a value for option column.{key}", option.value))
                .hint(hint)
                .at(option.position)
        };
        if self.by_default(field.data_type()).is_none() {
            return Err(not_generated(field).at(option.position));
        }
        let values = parse::distribution(&option.value, field.data_type()).map_err(wrong)?;
        if let (Distribution::Whole(Series::Sequence { start, step, jitter }), Some((least, greatest))) =
            (&values, whole_limits(field.data_type()))
        {
            let rows = self.rows.unwrap_or(1).max(1);
            let last = i128::from(rows - 1).checked_mul(*step).and_then(|way| way.checked_add(*start));
            if last.is_none_or(|last| !(least..=greatest.saturating_sub(*jitter)).contains(&last)) {
                let name = sql_name(field.data_type());
                return Err(wrong(format!("row {rows} leaves the range of {name}: take a smaller step")));
            }
        }
        Ok(values)
    }

    /// What a column has when nothing is said.
    fn by_default(&self, data_type: &DataType) -> Option<Distribution> {
        let uniform = |low, high| Some(Distribution::Whole(Series::Uniform { low, high }));
        match data_type {
            DataType::Float32 | DataType::Float64 => Some(Distribution::Float(Series::Uniform { low: 0.0, high: 1.0 })),
            DataType::Utf8 => Some(Distribution::Text { min: 10, max: 10 }),
            DataType::Boolean => Some(Distribution::Coin),
            DataType::Date32 => uniform(parse::whole("2026-01-01", data_type)?, parse::whole("2026-12-31", data_type)?),
            DataType::Timestamp(unit, _) => {
                let step = self.rows_per_second.map_or(1e6, |rate| 1e9 / rate) as i128 / nanoseconds(*unit);
                let start = parse::whole("2026-01-01T00:00:00", data_type)?;
                Some(Distribution::Whole(Series::Sequence { start, step: step.max(1), jitter: 0 }))
            }
            DataType::Time32(_) | DataType::Time64(_) => {
                let (low, high) = whole_limits(data_type)?;
                uniform(low, high)
            }
            other => uniform(0, whole_limits(other)?.1.min(999_999)),
        }
    }
}

/// The column that the key of an option means, and whether it is about its NULLs.
fn find(columns: &SchemaRef, key: &str, option: &StreamOption) -> Result<(usize, bool), PlanError> {
    let named = |name: &str| {
        let fields = || columns.fields().iter();
        let exact = fields().position(|field| field.name() == name);
        exact.or_else(|| fields().position(|field| field.name().eq_ignore_ascii_case(name)))
    };
    if let Some(column) = named(key) {
        return Ok((column, false));
    }
    let (name, is_nulls) = match key.rsplit_once('.') {
        Some((name, nulls)) if nulls.eq_ignore_ascii_case("nulls") => (name, true),
        _ => (key, false),
    };
    if let (Some(column), true) = (named(name), is_nulls) {
        return Ok((column, true));
    }
    let names: Vec<&str> = columns.fields().iter().map(|field| field.name().as_str()).collect();
    Err(PlanError::new(PlanErrorKind::UndefinedColumn, format!("there is no column '{name}'"))
        .hint(format!("an option is column.NAME or column.NAME.nulls; the columns are {}", names.join(", ")))
        .suggest(name, names)
        .at(Position::of_span(option.key.span)))
}

fn null_share(field: &Field, option: &StreamOption) -> Result<f64, PlanError> {
    let name = field.name();
    let share = option.value.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| {
        PlanError::new(
            PlanErrorKind::Setting,
            format!("'{}' is not a value for option column.{name}.nulls", option.value),
        )
        .hint("it takes a share from 0 to 1, as in 0.1")
        .at(option.position)
    })?;
    if share > 0.0 && !field.is_nullable() {
        return Err(PlanError::new(PlanErrorKind::Setting, format!("column '{name}' is declared NOT NULL"))
            .hint("leave its share of NULLs out, or NOT NULL")
            .at(option.position));
    }
    Ok(share)
}

fn not_generated(field: &Field) -> PlanError {
    let name = sql_name(field.data_type());
    PlanError::unsupported(
        format!("column '{}': values of type {name} cannot be generated", field.name()),
        "numbers, VARCHAR, BOOLEAN, DATE, TIME and TIMESTAMP can be",
    )
}
