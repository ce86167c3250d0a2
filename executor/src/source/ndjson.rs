//! JSON lines: one object per line, decoded by arrow-json. Columns are found by their exact names;
//! a field that is missing is NULL, one that no column has is left out.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use arrow::json::reader::{Decoder, ValueIter, infer_json_schema_from_iterator};
use thetis_planner::connector::OnError;
use thetis_planner::physical::Source;
use thetis_planner::sql_name;

use super::files::{failure, open};
use super::records::{Record, Records};
use super::splits::FilePart;
use super::text::{Decode, TextFile, TextStream, broken_record, shown};
use super::{FileReader, Format, exact};
use crate::error::ExecError;
use crate::frame::FRAME_ROWS;
use crate::steps::batch_of;

/// Deepest nesting of arrays and objects in a line: more would be walked recursively.
const DEEPEST: usize = 128;

/// How the files of an ndjson stream are read.
#[derive(Debug)]
pub(super) struct Ndjson {
    stream: Arc<TextStream>,
    output: SchemaRef,
    /// Columns that are declared NOT NULL, by position in the output.
    not_null: Vec<usize>,
}

#[derive(Debug)]
struct NdjsonDecoder {
    decoder: Decoder,
    /// As the decoder reads it: exact numbers as text.
    read: SchemaRef,
    output: SchemaRef,
    not_null: Vec<usize>,
}

impl Ndjson {
    pub(super) fn new(source: &Source, stream: Arc<TextStream>) -> Self {
        let declared = source.projection.iter().map(|column| source.columns.field(*column as usize));
        let not_null = declared.enumerate().filter(|(_, field)| !field.is_nullable()).map(|(place, _)| place).collect();
        Self { stream, output: source.schema(), not_null }
    }
}

impl Format for Ndjson {
    fn open(&self, FilePart { path, range }: FilePart) -> Result<Box<dyn FileReader>, ExecError> {
        let records = Records::lines(open(&path)?, self.stream.max_record_bytes as usize);
        let fields = self.output.fields().iter().map(|field| {
            let exact = exact::is_exact(field.data_type());
            Field::new(field.name(), if exact { DataType::Utf8 } else { field.data_type().clone() }, true)
        });
        let read = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let place = path.clone();
        let decoder = || {
            Ok(NdjsonDecoder {
                decoder: decoder(&read).map_err(|message| failure(&place, message, None))?,
                read: Arc::clone(&read),
                output: Arc::clone(&self.output),
                not_null: self.not_null.clone(),
            })
        };
        Ok(Box::new(TextFile::new(&self.stream, path, records, range, decoder)?))
    }
}

fn decoder(read: &SchemaRef) -> Result<Decoder, String> {
    // The decoder counts the digits of a decimal in a byte.
    if let Some(field) = read.fields().iter().find(|field| holds_decimal(field.data_type())) {
        return Err(format!("column {}: a list of decimals cannot be read; declare it as a DOUBLE[]", field.name()));
    }
    ReaderBuilder::new(Arc::clone(read))
        .with_coerce_primitive(true)
        .with_batch_size(FRAME_ROWS)
        .build_decoder()
        .map_err(|error| format!("a column cannot be read: {}", message(&error)))
}

fn holds_decimal(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) => holds_decimal(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| holds_decimal(field.data_type())),
        other => other.is_decimal(),
    }
}

impl Decode for NdjsonDecoder {
    fn decode(&mut self, bytes: &[u8], records: &[Record]) -> Result<Option<RecordBatch>, String> {
        for (done, record) in records.iter().enumerate() {
            self.take(&bytes[record.start..record.end], done)?;
        }
        let batch = self.decoder.flush().map_err(|error| self.explain(&error))?;
        batch.map(|batch| self.convert(&batch)).transpose()
    }

    fn renew(&mut self) -> Result<(), ExecError> {
        self.decoder = decoder(&self.read).map_err(ExecError::Internal)?;
        Ok(())
    }
}

impl NdjsonDecoder {
    /// Takes one line; `done` of them have been taken before. A line is a whole value: what is wrong
    /// with one does not change how the next is read.
    fn take(&mut self, line: &[u8], done: usize) -> Result<(), String> {
        if is_too_deep(line) {
            return Err(format!("the line is nested more than {DEEPEST} levels deep"));
        }
        let used = self.decoder.decode(line).map_err(|error| self.explain(&error))?;
        if self.decoder.has_partial_record() {
            return Err("the line ends in the middle of a JSON value".to_owned());
        }
        if used < line.len() || self.decoder.len() != done + 1 {
            return Err("the line has more than one JSON value".to_owned());
        }
        Ok(())
    }

    fn convert(&self, batch: &RecordBatch) -> Result<RecordBatch, String> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
        for (column, field) in batch.columns().iter().zip(self.output.fields()) {
            let exact = column.as_string_opt::<i32>().and_then(|texts| exact::read(texts, field.data_type()));
            columns.push(match exact {
                Some(values) => values.map_err(|text| not_a(field, &format!("'{}'", shown(text))))?,
                None => Arc::clone(column),
            });
        }
        if let Some(place) = self.not_null.iter().find(|place| columns[**place].null_count() > 0) {
            let name = self.output.field(*place).name();
            return Err(format!("column {name} is NULL or missing, and it is declared NOT NULL"));
        }
        batch_of(&self.output, columns, batch.num_rows()).map_err(|error| error.to_string())
    }

    /// The decoder's message in terms of the stream.
    fn explain(&self, error: &ArrowError) -> String {
        let text = message(error);
        if text.contains("UTF-8") {
            return "the line is not valid UTF-8".to_owned();
        }
        if let Some((name, rest)) = text.strip_prefix("whilst decoding field '").and_then(|text| text.split_once("': "))
        {
            let got = rest.strip_prefix("failed to parse ").and_then(|rest| rest.rsplit_once(" as "));
            let got = got.map(|(value, _)| value).or_else(|| rest.split_once(" got ").map(|(_, value)| value));
            return match (got, self.output.field_with_name(name)) {
                (Some(value), Ok(field)) => not_a(field, &shown(value)),
                _ => format!("column {name}: {}", shown(rest)),
            };
        }
        if let Some(got) = text.strip_prefix("expected { got ") {
            return format!("the line is not a JSON object but {}", shown(got));
        }
        format!("the line is not JSON: {}", shown(text.trim_start_matches("Encountered ")))
    }
}

fn not_a(field: &Field, value: &str) -> String {
    format!("column {}: {value} is not a {}", field.name(), sql_name(field.data_type()))
}

/// An arrow error without the name of its class.
fn message(error: &ArrowError) -> String {
    match error {
        ArrowError::JsonError(message)
        | ArrowError::ParseError(message)
        | ArrowError::CastError(message)
        | ArrowError::NotYetImplemented(message) => message.clone(),
        other => other.to_string(),
    }
}

fn is_too_deep(line: &[u8]) -> bool {
    let opening = line.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
    opening > DEEPEST && depth(line) > DEEPEST
}

/// Deepest nesting of brackets outside of strings.
fn depth(line: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut quoted, mut escaped) = (false, false);
    for byte in line {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The columns of the whole lines in the first `sample` bytes of a file.
pub(super) fn infer(path: &Path, max: u32, on_error: OnError, sample: u64) -> Result<SchemaRef, ExecError> {
    let mut records = Records::lines(open(path)?.take(sample), max as usize);
    let mut lines = Vec::new();
    let mut last = 0;
    loop {
        match records.next(FRAME_ROWS) {
            Ok(None) => break,
            Ok(Some(found)) => {
                for (line, _) in found.iter() {
                    last = lines.len();
                    lines.extend_from_slice(line);
                }
            }
            Err(broken) if on_error == OnError::Fail => return Err(broken_record(path, broken, max)),
            Err(_) => records.skip_line().map_err(|error| failure(path, "cannot be read", Some(error)))?,
        }
    }
    if path.metadata().is_ok_and(|meta| meta.len() > sample) {
        // The last line is cut off.
        lines.truncate(last);
    }
    let values = ValueIter::new(lines.as_slice(), None)
        .filter(|value| on_error == OnError::Fail || value.as_ref().is_ok_and(|value| value.is_object()));
    let schema = infer_json_schema_from_iterator(values).map_err(|error| {
        let reason = shown(&message(&error));
        failure(path, format!("its columns cannot be inferred: {reason}; declare them"), None)
    })?;
    Ok(Arc::new(schema))
}

#[cfg(test)]
mod tests;
