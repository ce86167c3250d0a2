//! CSV files: plain records by a decoder of our own, all others by arrow-csv.

mod plain;

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow_csv::ReaderBuilder;
use arrow_csv::reader::Decoder;
use regex::Regex;
use thetis_planner::connector::CsvFormat;
use thetis_planner::physical::Source;

use self::plain::PlainDecoder;
use super::files::{ColumnOrder, failure, open, position_of};
use super::records::{Record, Records};
use super::splits::FilePart;
use super::text::{Decode, TextFile, TextStream, broken_record, shown};
use super::{FileReader, Format};
use crate::error::ExecError;
use crate::frame::FRAME_ROWS;
use crate::steps::batch_of;

/// How the files of a csv stream are read.
#[derive(Debug)]
pub(super) struct Csv {
    stream: Arc<TextStream>,
    format: CsvFormat,
    columns: SchemaRef,
    projection: Vec<u32>,
    output: SchemaRef,
}

#[derive(Debug)]
struct CsvDecoder {
    plain: Option<PlainDecoder>,
    decoder: Decoder,
    /// How to build another decoder.
    layout: FileLayout,
    format: CsvFormat,
    output: SchemaRef,
}

/// Where the stream's columns stand in a file.
#[derive(Debug, Clone)]
struct FileLayout {
    schema: SchemaRef,
    columns: ColumnOrder,
}

impl Csv {
    pub(super) fn new(source: &Source, format: &CsvFormat, stream: Arc<TextStream>) -> Self {
        Self {
            stream,
            format: format.clone(),
            columns: Arc::clone(&source.columns),
            projection: source.projection.clone(),
            output: source.schema(),
        }
    }
}

impl Format for Csv {
    fn open(&self, FilePart { path, range }: FilePart) -> Result<Box<dyn FileReader>, ExecError> {
        let format = &self.format;
        let mut records = records(open(&path)?, format);
        let names = if format.header { header(&path, &mut records, format)? } else { None };
        let layout = match names {
            Some(names) => by_name(&path, &names, &self.columns, &self.projection)?,
            None => by_position(&self.columns, &self.projection),
        };
        let decoder = || {
            Ok(CsvDecoder {
                plain: PlainDecoder::new(&layout.schema, &layout.columns.read, format),
                decoder: decoder(&layout, format)?,
                layout: layout.clone(),
                format: format.clone(),
                output: Arc::clone(&self.output),
            })
        };
        Ok(Box::new(TextFile::new(&self.stream, path, records, range, decoder)?))
    }
}

impl Decode for CsvDecoder {
    fn decode(&mut self, bytes: &[u8], records: &[Record]) -> Result<Option<RecordBatch>, String> {
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            return Ok(None);
        };
        let in_order = |read: &[ArrayRef], rows: usize| {
            let columns = self.layout.columns.order.iter().map(|place| Arc::clone(&read[*place])).collect();
            batch_of(&self.output, columns, rows).map_err(|error| error.to_string())
        };
        if let Some(columns) = self.plain.as_mut().and_then(|plain| plain.decode(bytes, records)) {
            return in_order(&columns, records.len()).map(Some);
        }
        let batch = decode(&mut self.decoder, &bytes[first.start..last.end]);
        let batch = batch.map_err(|error| explain(&error, &self.layout.schema))?;
        batch.map(|batch| in_order(batch.columns(), batch.num_rows())).transpose()
    }

    fn renew(&mut self) -> Result<(), ExecError> {
        self.decoder = decoder(&self.layout, &self.format)?;
        Ok(())
    }
}

/// The records of a csv file.
pub(super) fn records<R: std::io::Read>(input: R, format: &CsvFormat) -> Records<R> {
    Records::quoted(input, format.delimiter, format.quote, format.max_record_bytes as usize)
}

/// The names in a file's first line; `None` if the file is empty.
pub(super) fn header<R: std::io::Read>(
    path: &Path,
    records: &mut Records<R>,
    format: &CsvFormat,
) -> Result<Option<Vec<String>>, ExecError> {
    let first = records.next(1).map_err(|broken| broken_record(path, broken, format.max_record_bytes))?;
    let Some(first) = first else {
        return Ok(None);
    };
    let bytes = &first.bytes()[first.records[0].start..first.records[0].end];
    if bytes.contains(&0) {
        return Err(failure(path, "is a binary file, not csv", None));
    }
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
        let (value, name) = (shown(value), thetis_planner::sql_name(field.data_type()));
        return format!("column {}: '{value}' is not a {name}", field.name());
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
