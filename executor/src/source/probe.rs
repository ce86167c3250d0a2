//! Looks at files for the planner: their columns and how much there is.

use std::fs::File;
use std::io::{Read, Take};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use thetis_planner::catalog::{SourceProbe, Volume};
use thetis_planner::connector::{CsvFormat, FileFormat, OnError, SourceSpec};
use thetis_planner::physical::Source;
use thetis_planner::{PlanError, PlanErrorKind};
use tracing::subscriber::{NoSubscriber, with_default};

use super::csv::{header, records};
use super::files::{expand, failure, open, position_of, total_bytes};
use super::ndjson;
use super::parquet::metadata;
use super::records::Records;
use super::{Fetched, Split, reader_for};
use crate::error::ExecError;

/// Files up to this size are counted whole; of larger ones, this much is looked at.
const SAMPLE: u64 = 1 << 20;

/// Records from which types are inferred.
const INFERRED_FROM: usize = 10_000;

/// Looks at files.
#[derive(Debug, Default, Clone, Copy)]
pub struct FileProbe;

impl SourceProbe for FileProbe {
    fn infer_schema(&self, spec: &SourceSpec) -> Result<SchemaRef, PlanError> {
        let SourceSpec::File(file) = spec else {
            return Ok(Arc::new(Schema::empty()));
        };
        let paths = expand(&file.path).map_err(to_plan_error)?;
        let schema = match &file.format {
            FileFormat::Csv(format) => infer_csv(&paths[0], format),
            FileFormat::Ndjson(format) => infer_ndjson(&paths[0], format.max_record_bytes, file.on_error),
            FileFormat::Parquet => metadata(&paths[0]).map(|metadata| Arc::clone(metadata.schema())),
        };
        let schema = schema.map_err(to_plan_error)?;
        let fields = schema.fields().iter().map(|f| Field::new(f.name(), plain_type(f.data_type()), true));
        Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
    }

    fn check(&self, spec: &SourceSpec, columns: &SchemaRef) -> Result<(), PlanError> {
        let SourceSpec::File(file) = spec else {
            return Ok(());
        };
        let paths = expand(&file.path).map_err(to_plan_error)?;
        let path = &paths[0];
        if !path.metadata().map_or(true, |meta| meta.is_file()) {
            // Looking at a pipe would take its bytes away.
            return Ok(());
        }
        let check = || match &file.format {
            FileFormat::Parquet => {
                let names: Vec<String> = metadata(path)?.schema().fields().iter().map(|f| f.name().clone()).collect();
                has_all(path, &names, columns)
            }
            FileFormat::Csv(format) if format.header => {
                let names = header(path, &mut records(open(path)?, format), format)?;
                names.map_or(Ok(()), |names| has_all(path, &names, columns))
            }
            FileFormat::Csv(_) => open(path).map(|_| ()),
            FileFormat::Ndjson(format) => {
                open(path)?;
                // What cannot be inferred can still be read: its types are declared.
                let found = ndjson::infer(path, format.max_record_bytes, OnError::Skip, SAMPLE);
                found.map_or(Ok(()), |found| same_case(path, &found, columns))
            }
        };
        check().map_err(to_plan_error)
    }

    fn volume(&self, spec: &SourceSpec) -> Volume {
        let file = match spec {
            SourceSpec::File(file) => file,
            SourceSpec::Generator(generator) => {
                return Volume { rows: generator.rows.map(|rows| rows as f64), bytes: None };
            }
            SourceSpec::Values(_) | SourceSpec::Table(_) => return Volume::default(),
        };
        let Ok(paths) = expand(&file.path) else {
            return Volume::default();
        };
        let Some(bytes) = total_bytes(&paths) else {
            return Volume::default();
        };
        let rows = match &file.format {
            FileFormat::Parquet => {
                paths.iter().map(|path| Some(metadata(path).ok()?.metadata().file_metadata().num_rows() as f64)).sum()
            }
            FileFormat::Csv(format) => {
                let found = sampled(&paths[0], |sample| records(sample, format));
                found.map(|(rows, read)| scaled(rows.saturating_sub(usize::from(format.header)), read, bytes))
            }
            FileFormat::Ndjson(format) => {
                let found = sampled(&paths[0], |sample| Records::lines(sample, format.max_record_bytes as usize));
                found.map(|(rows, read)| scaled(rows, read, bytes))
            }
        };
        Volume { rows, bytes: Some(bytes) }
    }

    fn sample(&self, spec: &SourceSpec, columns: &SchemaRef) -> Option<RecordBatch> {
        let source = Source {
            stream: "sample".to_owned(),
            spec: spec.clone(),
            columns: Arc::clone(columns),
            projection: (0..columns.fields().len() as u32).collect(),
            bounded: spec.is_bounded(),
            readers: 1,
            listing: None,
        };
        // Bad records are logged when they are read in earnest.
        with_default(NoSubscriber::default(), || first_rows(source))
    }
}

/// The first rows of a source, at most a frame of them.
fn first_rows(mut source: Source) -> Option<RecordBatch> {
    let mut split = Split::WHOLE;
    match &mut source.spec {
        SourceSpec::File(file) => {
            let path = expand(&file.path).ok()?.into_iter().next()?;
            let bytes = total_bytes(std::slice::from_ref(&path))?;
            // A row group is decoded piece by piece, text by blocks of many records.
            if !matches!(file.format, FileFormat::Parquet) {
                split.of = u32::try_from(bytes.div_ceil(SAMPLE)).ok()?.max(1);
            }
            source.listing = Some(vec![(path.to_str()?.to_owned(), bytes)]);
        }
        SourceSpec::Generator(generator) => generator.rows_per_second = None,
        SourceSpec::Values(_) | SourceSpec::Table(_) => return None,
    }
    let mut reader = reader_for(&source, split, &[&[]], &Arc::default()).ok()?;
    match reader.next(Duration::ZERO).ok()? {
        Fetched::Rows(rows) => Some(rows),
        Fetched::LeftOut(_) | Fetched::Wait(_) | Fetched::End => None,
    }
}

/// Records in the first part of a file, and the length of that part.
fn sampled(path: &Path, records: impl Fn(Take<File>) -> Records<Take<File>>) -> Option<(usize, u64)> {
    let length = path.metadata().ok()?.len().min(SAMPLE);
    let mut records = records(open(path).ok()?.take(SAMPLE));
    let mut rows = 0;
    while let Ok(Some(found)) = records.next(10_000) {
        rows += found.records.len();
    }
    Some((rows, length))
}

/// Rows of `bytes`, of which `read` have `rows`.
fn scaled(rows: usize, read: u64, bytes: u64) -> f64 {
    if bytes <= read { rows as f64 } else { (rows as f64 * bytes as f64 / read.max(1) as f64).ceil() }
}

fn has_all(path: &Path, names: &[String], columns: &SchemaRef) -> Result<(), ExecError> {
    columns.fields().iter().try_for_each(|field| position_of(path, names, field.name()).map(|_| ()))
}

/// JSON fields are found by their exact names: one that differs in case alone was hardly meant to
/// be missing.
fn same_case(path: &Path, found: &SchemaRef, columns: &SchemaRef) -> Result<(), ExecError> {
    for field in columns.fields() {
        let name = field.name();
        let near = found.fields().iter().find(|found| found.name().eq_ignore_ascii_case(name));
        if let (Err(_), Some(near)) = (found.index_of(name), near) {
            let near = near.name();
            let message = format!("there is no field '{name}' in it, but '{near}': write \"{near}\" in double quotes");
            return Err(failure(path, message, None));
        }
    }
    Ok(())
}

fn infer_ndjson(path: &Path, max: u32, on_error: OnError) -> Result<SchemaRef, ExecError> {
    let schema = ndjson::infer(path, max, on_error, SAMPLE)?;
    if schema.fields().is_empty() {
        return Err(failure(path, "has no JSON object in its first lines: declare the columns", None));
    }
    Ok(schema)
}

fn infer_csv(path: &Path, format: &CsvFormat) -> Result<SchemaRef, ExecError> {
    header(path, &mut records(open(path)?, format), format)?;
    let file: File = open(path)?;
    let (schema, _) = arrow_csv::reader::Format::default()
        .with_header(format.header)
        .with_delimiter(format.delimiter)
        .with_quote(format.quote)
        .infer_schema(file, Some(INFERRED_FROM))
        .map_err(|error| failure(path, format!("its columns cannot be inferred: {error}"), None))?;
    if schema.fields().is_empty() {
        return Err(failure(path, "is empty: declare the columns", None));
    }
    Ok(Arc::new(schema))
}

/// The type that a column of this type has in Thetis.
fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => plain_type(value),
        DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::Timestamp(TimeUnit::Second, None) => DataType::Timestamp(TimeUnit::Nanosecond, None),
        DataType::List(item) => DataType::new_list(plain_type(item.data_type()), true),
        other => other.clone(),
    }
}

fn to_plan_error(error: ExecError) -> PlanError {
    PlanError::new(PlanErrorKind::Source, error.to_string()).caused_by(error)
}
