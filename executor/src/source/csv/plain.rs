//! Straight from bytes to columns: numbers are parsed where they stand, texts are copied once, what
//! is not needed is passed over.
//!
//! It knows what nearly all records look like. What it does not know for sure (escaped quotes,
//! spaces around numbers, a field too many, bytes that are no text) it leaves to the general decoder,
//! for the whole block: so there is one judge of what is valid.

use std::sync::Arc;

use arrow::array::{ArrayRef, ArrowPrimitiveType, BooleanArray, Decimal128Array, PrimitiveArray, StringArray};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::kernels::cast_utils::{Parser, parse_decimal, string_to_datetime};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float64Type, Int32Type, Int64Type, SchemaRef, TimeUnit,
    TimestampNanosecondType,
};
use memchr::memchr;
use thetis_planner::connector::CsvFormat;

use crate::source::records::Record;

/// Decodes blocks of records in which nothing is unusual.
#[derive(Debug)]
pub(super) struct PlainDecoder {
    delimiter: u8,
    quote: u8,
    null: Vec<u8>,
    /// Of every column of the file up to the last one.
    fields: Vec<Option<Column>>,
    /// The columns that are read, in the order of the file.
    read: Vec<usize>,
}

#[derive(Debug)]
struct Column {
    kind: Kind,
    nullable: bool,
    /// One per row, from the first NULL on.
    valid: Vec<bool>,
}

#[derive(Debug)]
enum Kind {
    Int64(Vec<i64>),
    Int32(Vec<i32>),
    Float64(Vec<f64>),
    Timestamp(Vec<i64>),
    Date(Vec<i32>),
    Decimal { values: Vec<i128>, precision: u8, scale: i8 },
    Boolean(Vec<bool>),
    Text { bytes: Vec<u8>, ends: Vec<i32> },
}

impl PlainDecoder {
    /// For the columns at the positions `read` of files with this schema; `None` if one has a type
    /// that is left to the general decoder.
    pub(super) fn new(schema: &SchemaRef, read: &[usize], format: &CsvFormat) -> Option<Self> {
        let mut fields: Vec<Option<Column>> = schema.fields().iter().map(|_| None).collect();
        for position in read {
            let field = schema.field(*position);
            let kind = match field.data_type() {
                DataType::Int64 => Kind::Int64(Vec::new()),
                DataType::Int32 => Kind::Int32(Vec::new()),
                DataType::Float64 => Kind::Float64(Vec::new()),
                DataType::Timestamp(TimeUnit::Nanosecond, None) => Kind::Timestamp(Vec::new()),
                DataType::Date32 => Kind::Date(Vec::new()),
                DataType::Decimal128(precision, scale) => {
                    Kind::Decimal { values: Vec::new(), precision: *precision, scale: *scale }
                }
                DataType::Boolean => Kind::Boolean(Vec::new()),
                DataType::Utf8 => Kind::Text { bytes: Vec::new(), ends: Vec::new() },
                _ => return None,
            };
            fields[*position] = Some(Column { kind, nullable: field.is_nullable(), valid: Vec::new() });
        }
        let (delimiter, quote, null) = (format.delimiter, format.quote, format.null.as_bytes().to_vec());
        Some(Self { delimiter, quote, null, fields, read: read.to_vec() })
    }

    /// The columns of whole records; `None` if anything in them is unusual.
    pub(super) fn decode(&mut self, bytes: &[u8], records: &[Record]) -> Option<Vec<ArrayRef>> {
        self.fields.iter_mut().flatten().for_each(Column::clear);
        let block = &bytes[records.first()?.start..records.last()?.end];
        let quoted = memchr(self.quote, block).is_some();
        // A carriage return ends a record for the general decoder, wherever it stands.
        if memchr(b'\r', block).is_some() && block.split(|byte| *byte == b'\n').any(has_inner_return) {
            return None;
        }
        for (row, record) in records.iter().enumerate() {
            self.record(&bytes[record.start..record.end], row, quoted)?;
        }
        self.read.iter().map(|position| self.fields[*position].as_mut()?.finish()).collect()
    }

    /// One record with its line end.
    fn record(&mut self, record: &[u8], row: usize, quoted: bool) -> Option<()> {
        let record = record.strip_suffix(b"\n")?;
        let record = record.strip_suffix(b"\r").unwrap_or(record);
        let mut rest = record;
        let last = self.fields.len() - 1;
        for (number, column) in self.fields.iter_mut().enumerate() {
            let field = if quoted && rest.first() == Some(&self.quote) {
                let length = memchr(self.quote, &rest[1..])?;
                let field = &rest[1..=length];
                rest = &rest[length + 2..];
                // A delimiter or the end follows, not a second quote.
                if !rest.is_empty() && rest[0] != self.delimiter {
                    return None;
                }
                field
            } else {
                let length = field_length(rest, self.delimiter);
                let (field, after) = rest.split_at(length);
                rest = after;
                field
            };
            match column {
                None => {}
                Some(column) if field.is_empty() || field == self.null => column.push_null(row)?,
                Some(column) => column.push(field, row)?,
            }
            match (number == last, rest.split_first()) {
                (true, None) => return Some(()),
                (false, Some((_, after))) => rest = after,
                _ => return None,
            }
        }
        None
    }
}

impl Column {
    fn clear(&mut self) {
        self.valid.clear();
        match &mut self.kind {
            Kind::Int64(values) | Kind::Timestamp(values) => values.clear(),
            Kind::Int32(values) | Kind::Date(values) => values.clear(),
            Kind::Decimal { values, .. } => values.clear(),
            Kind::Boolean(values) => values.clear(),
            Kind::Float64(values) => values.clear(),
            Kind::Text { bytes, ends } => {
                bytes.clear();
                ends.clear();
            }
        }
    }

    fn push_null(&mut self, row: usize) -> Option<()> {
        if !self.nullable {
            return None;
        }
        self.valid.resize(row, true);
        self.valid.push(false);
        match &mut self.kind {
            Kind::Int64(values) | Kind::Timestamp(values) => values.push(0),
            Kind::Int32(values) | Kind::Date(values) => values.push(0),
            Kind::Decimal { values, .. } => values.push(0),
            Kind::Boolean(values) => values.push(false),
            Kind::Float64(values) => values.push(0.0),
            Kind::Text { bytes, ends } => ends.push(i32::try_from(bytes.len()).ok()?),
        }
        Some(())
    }

    fn push(&mut self, field: &[u8], row: usize) -> Option<()> {
        match &mut self.kind {
            Kind::Int64(values) => values.push(integer(field)?),
            Kind::Int32(values) => values.push(integer(field)?.try_into().ok()?),
            Kind::Float64(values) => values.push(float(field)?),
            Kind::Timestamp(values) => {
                let time = string_to_datetime(&chrono::Utc, std::str::from_utf8(field).ok()?).ok()?;
                values.push(time.timestamp_nanos_opt()?);
            }
            Kind::Date(values) => values.push(Date32Type::parse(std::str::from_utf8(field).ok()?)?),
            Kind::Decimal { values, precision, scale } => {
                let text = std::str::from_utf8(field).ok()?;
                values.push(parse_decimal::<Decimal128Type>(text, *precision, *scale).ok()?);
            }
            Kind::Boolean(values) => match field {
                b"true" => values.push(true),
                b"false" => values.push(false),
                _ => return None,
            },
            Kind::Text { bytes, ends } => {
                bytes.extend_from_slice(field);
                ends.push(i32::try_from(bytes.len()).ok()?);
            }
        }
        if !self.valid.is_empty() {
            self.valid.resize(row, true);
            self.valid.push(true);
        }
        Some(())
    }

    fn finish(&mut self) -> Option<ArrayRef> {
        let nulls = (!self.valid.is_empty()).then(|| NullBuffer::from(std::mem::take(&mut self.valid)));
        Some(match &mut self.kind {
            Kind::Int64(values) => primitive::<Int64Type>(values, nulls),
            Kind::Int32(values) => primitive::<Int32Type>(values, nulls),
            Kind::Float64(values) => primitive::<Float64Type>(values, nulls),
            Kind::Timestamp(values) => primitive::<TimestampNanosecondType>(values, nulls),
            Kind::Date(values) => primitive::<Date32Type>(values, nulls),
            Kind::Decimal { values, precision, scale } => {
                let values = ScalarBuffer::from(std::mem::take(values));
                let array = Decimal128Array::new(values, nulls).with_precision_and_scale(*precision, *scale);
                Arc::new(array.ok()?)
            }
            Kind::Boolean(values) => Arc::new(BooleanArray::new(BooleanBuffer::from(std::mem::take(values)), nulls)),
            Kind::Text { bytes, ends } => {
                let mut offsets = Vec::with_capacity(ends.len() + 1);
                offsets.push(0);
                offsets.append(ends);
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                let capacity = bytes.len();
                let bytes = Buffer::from_vec(std::mem::replace(bytes, Vec::with_capacity(capacity)));
                Arc::new(StringArray::try_new(offsets, bytes, nulls).ok()?)
            }
        })
    }
}

fn primitive<T: ArrowPrimitiveType>(values: &mut Vec<T::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
    let capacity = values.len();
    let values = std::mem::replace(values, Vec::with_capacity(capacity));
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls))
}

/// Up to the delimiter, or to the end. Most fields are short.
fn field_length(rest: &[u8], delimiter: u8) -> usize {
    let near = rest.len().min(16);
    rest[..near]
        .iter()
        .position(|byte| *byte == delimiter)
        .unwrap_or_else(|| memchr(delimiter, &rest[near..]).map_or(rest.len(), |length| near + length))
}

/// A carriage return that is not the line's last byte.
fn has_inner_return(line: &[u8]) -> bool {
    memchr(b'\r', line).is_some_and(|at| at + 1 < line.len())
}

/// Digits, perhaps after a sign.
fn integer(field: &[u8]) -> Option<i64> {
    let (negative, digits) = match field {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // Eighteen digits fit.
    if digits.is_empty() || digits.len() > 18 {
        return Int64Type::parse(std::str::from_utf8(field).ok()?);
    }
    let mut value = 0_i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

/// Powers of ten that a double holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// A number of few digits is a whole number divided by a power of ten, both exact: the quotient is
/// the nearest double (W. Clinger, How to Read Floating Point Numbers Accurately, 1990). Others are
/// parsed by the library.
fn float(field: &[u8]) -> Option<f64> {
    let (negative, digits) = match field {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let (mut value, mut point, mut count) = (0_u64, None, 0);
    for (at, byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        match (digit, point) {
            (0..=9, _) if count < 18 => {
                value = value * 10 + u64::from(digit);
                count += 1;
            }
            (_, None) if *byte == b'.' => point = Some(at),
            _ => return Float64Type::parse(std::str::from_utf8(field).ok()?),
        }
    }
    let decimals = point.map_or(0, |point| digits.len() - point - 1);
    if count == 0 || decimals == digits.len() - 1 || (point.is_some() && decimals == 0) || value > 1 << 53 {
        return Float64Type::parse(std::str::from_utf8(field).ok()?);
    }
    let value = value as f64 / POWERS[decimals];
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests;
