//! CSV files: blocks of whole records are decoded by arrow-csv; only when a block fails are its
//! records decoded one by one, to name the line or to skip it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow_csv::ReaderBuilder;
use arrow_csv::reader::Decoder;
use regex::Regex;
use thetis_planner::connector::{CsvFormat, OnError};
use thetis_planner::physical::Source;
use tracing::warn;

use super::files::{ColumnOrder, failure, open, position_of};
use super::records::{Broken, Record, Records};
use super::{Format, Reader, SourceCounters};
use crate::error::ExecError;
use crate::frame::FRAME_ROWS;
use crate::steps::batch_of;

/// Skipped records that are logged one by one; later ones are only counted.
const LOGGED: u64 = 10;

/// How the files of a csv stream are read.
#[derive(Debug)]
pub(super) struct Csv {
    format: CsvFormat,
    on_error: OnError,
    stream: String,
    columns: SchemaRef,
    projection: Vec<u32>,
    output: SchemaRef,
    counters: Arc<SourceCounters>,
}

#[derive(Debug)]
struct CsvFile {
    csv: Arc<Csv>,
    path: PathBuf,
    records: Records<File>,
    decoder: Decoder,
    /// How to build another decoder: columns of the file, and those that are read.
    layout: FileLayout,
}

/// Where the stream's columns stand in a file.
#[derive(Debug, Clone)]
struct FileLayout {
    schema: SchemaRef,
    columns: ColumnOrder,
}

impl Csv {
    pub(super) fn new(source: &Source, format: &CsvFormat, on_error: OnError, counters: &Arc<SourceCounters>) -> Self {
        Self {
            format: format.clone(),
            on_error,
            stream: source.stream.clone(),
            output: source.schema(),
            columns: Arc::clone(&source.columns),
            projection: source.projection.clone(),
            counters: Arc::clone(counters),
        }
    }

    /// Counts and logs a bad record, or stops.
    fn bad_record(&self, error: ExecError) -> Result<(), ExecError> {
        if self.on_error == OnError::Fail {
            return Err(error);
        }
        let stream = self.stream.as_str();
        let skipped = self.counters.skipped.fetch_add(1, Ordering::Relaxed) + 1;
        if skipped <= LOGGED {
            warn!(stream, %error, "record skipped");
        }
        if skipped == LOGGED {
            warn!(stream, "further skipped records are counted, not logged");
        }
        Ok(())
    }
}

impl Format for Arc<Csv> {
    fn open(&self, path: PathBuf) -> Result<Box<dyn Reader>, ExecError> {
        let format = &self.format;
        let file = open(&path)?;
        let mut records = Records::new(file, format.delimiter, format.quote, format.max_record_bytes as usize);
        let names = if format.header { header(&path, &mut records, format)? } else { None };
        let layout = match names {
            Some(names) => by_name(&path, &names, &self.columns, &self.projection)?,
            None => by_position(&self.columns, &self.projection),
        };
        let decoder = decoder(&layout, format)?;
        Ok(Box::new(CsvFile { csv: Self::clone(self), path, records, decoder, layout }))
    }
}

impl CsvFile {
    fn decode(&mut self, records: &[Record]) -> Result<Option<RecordBatch>, ExecError> {
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            return Ok(None);
        };
        let batch = match decode(&mut self.decoder, &self.records.bytes()[first.start..last.end]) {
            Ok(batch) => batch,
            Err(_) => self.decode_one_by_one(records)?,
        };
        let in_order = |batch: RecordBatch| {
            let columns = self.layout.columns.order.iter().map(|place| Arc::clone(batch.column(*place))).collect();
            batch_of(&self.csv.output, columns, batch.num_rows())
        };
        batch.map(in_order).transpose()
    }

    fn decode_one_by_one(&mut self, records: &[Record]) -> Result<Option<RecordBatch>, ExecError> {
        let mut batches = Vec::new();
        for record in records {
            let mut decoder = decoder(&self.layout, &self.csv.format)?;
            match decode(&mut decoder, &self.records.bytes()[record.start..record.end]) {
                Ok(batch) => batches.extend(batch),
                Err(error) => {
                    let message = explain(&error, &self.layout.schema);
                    let path = self.path.clone();
                    self.csv.bad_record(ExecError::Record { path, line: record.line, message })?;
                }
            }
        }
        self.decoder = decoder(&self.layout, &self.csv.format)?;
        let Some(first) = batches.first() else {
            return Ok(None);
        };
        Ok(Some(concat_batches(&first.schema(), &batches)?))
    }
}

impl Reader for CsvFile {
    fn next(&mut self) -> Result<Option<RecordBatch>, ExecError> {
        loop {
            let next = self.records.next(FRAME_ROWS);
            self.csv.counters.add_bytes(self.records.take_read());
            match next {
                Ok(records) if records.is_empty() => return Ok(None),
                Ok(records) => {
                    if let Some(batch) = self.decode(&records)? {
                        return Ok(Some(batch));
                    }
                }
                Err(broken) => {
                    let error = broken_record(&self.path, broken, self.csv.format.max_record_bytes);
                    if matches!(error, ExecError::Source { .. }) {
                        return Err(error);
                    }
                    self.csv.bad_record(error)?;
                    let skipped = self.records.skip_line();
                    skipped.map_err(|error| failure(&self.path, "cannot be read", Some(error)))?;
                }
            }
        }
    }
}

fn broken_record(path: &Path, broken: Broken, max: u32) -> ExecError {
    match broken {
        Broken::Io(error) => failure(path, format!("cannot be read: {error}"), Some(error)),
        Broken::TooLong(line) => ExecError::Record {
            path: path.to_owned(),
            line,
            message: format!("the record is longer than {max} bytes; is a quote left open? (option max_record_bytes)"),
        },
        Broken::OpenQuote(line) => {
            ExecError::Record { path: path.to_owned(), line, message: "a quote is opened and never closed".to_owned() }
        }
    }
}

/// The names in a file's first line; `None` if the file is empty.
pub(super) fn header<R: std::io::Read>(
    path: &Path,
    records: &mut Records<R>,
    format: &CsvFormat,
) -> Result<Option<Vec<String>>, ExecError> {
    let first = records.next(1).map_err(|broken| broken_record(path, broken, format.max_record_bytes))?;
    let Some(record) = first.first() else {
        return Ok(None);
    };
    let bytes = &records.bytes()[record.start..record.end];
    if bytes.contains(&0) {
        return Err(failure(path, "is a binary file, not csv", None));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let (schema, _) = arrow_csv::reader::Format::default()
        .with_header(true)
        .with_delimiter(format.delimiter)
        .with_quote(format.quote)
        .infer_schema(bytes, Some(0))
        .map_err(|error| failure(path, format!("the header cannot be read: {error}"), None))?;
    Ok(Some(schema.fields().iter().map(|field| field.name().trim().to_owned()).collect()))
}

/// Finds the declared columns by the names in the header.
fn by_name(path: &Path, names: &[String], columns: &SchemaRef, projection: &[u32]) -> Result<FileLayout, ExecError> {
    let mut types = vec![(DataType::Utf8, true); names.len()];
    let mut positions = Vec::with_capacity(columns.fields().len());
    for field in columns.fields() {
        let position = position_of(path, names, field.name())?;
        types[position] = (field.data_type().clone(), field.is_nullable());
        positions.push(position);
    }
    let fields = names.iter().zip(types).map(|(name, (data_type, nullable))| Field::new(name, data_type, nullable));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok(layout(schema, &projection.iter().map(|column| positions[*column as usize]).collect::<Vec<_>>()))
}

fn by_position(columns: &SchemaRef, projection: &[u32]) -> FileLayout {
    let schema = Arc::clone(columns);
    layout(schema, &projection.iter().map(|column| *column as usize).collect::<Vec<_>>())
}

fn layout(schema: SchemaRef, wanted: &[usize]) -> FileLayout {
    FileLayout { schema, columns: ColumnOrder::of(wanted) }
}

fn decoder(layout: &FileLayout, format: &CsvFormat) -> Result<Decoder, ExecError> {
    let mut builder = ReaderBuilder::new(Arc::clone(&layout.schema))
        .with_header(false)
        .with_delimiter(format.delimiter)
        .with_quote(format.quote)
        .with_batch_size(FRAME_ROWS)
        .with_projection(layout.columns.read.clone());
    if !format.null.is_empty() {
        let pattern = format!("^(|{})$", regex::escape(&format.null));
        let pattern = Regex::new(&pattern).map_err(|error| ExecError::Internal(error.to_string()))?;
        builder = builder.with_null_regex(pattern);
    }
    Ok(builder.build_decoder())
}

/// Decodes whole records.
fn decode(decoder: &mut Decoder, mut bytes: &[u8]) -> Result<Option<RecordBatch>, ArrowError> {
    while !bytes.is_empty() {
        let used = decoder.decode(bytes)?;
        if used == 0 {
            break;
        }
        bytes = &bytes[used..];
    }
    decoder.flush()
}

/// The decoder's message in terms of the stream: its line numbers count from the block's start.
fn explain(error: &ArrowError, schema: &SchemaRef) -> String {
    let text = error.to_string();
    let between = |from: &str, to: &str| {
        let start = text.find(from)? + from.len();
        let length = text[start..].find(to)?;
        Some(&text[start..start + length])
    };
    let column = |at: &str| schema.fields().get(at.trim().parse::<usize>().ok()?);
    if let Some(value) = between("parsing value '", "' as type")
        && let Some(field) = between("for column ", " at line").and_then(column)
    {
        let value: String = value.chars().take(60).collect();
        return format!("column {}: '{value}' is not a {}", field.name(), thetis_planner::sql_name(field.data_type()));
    }
    if let Some(expected) = between("expected ", " got") {
        let got = text.rsplit("got ").next().unwrap_or_default();
        return format!("the record has {got} fields instead of {expected}");
    }
    if let Some(name) = between("Column '", "' is declared as non-nullable") {
        return format!("column {name} is NULL, and it is declared NOT NULL");
    }
    if text.contains("UTF-8") {
        return "the record is not valid UTF-8".to_owned();
    }
    let prefixes = ["Csv error: ", "Parser error: ", "Cast error: "];
    let message = prefixes.iter().fold(text.as_str(), |text, prefix| text.trim_start_matches(prefix));
    message.split(". Row data").next().unwrap_or_default().to_owned()
}
