//! Looks at files for the planner: their columns and how much there is.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use thetis_planner::catalog::{SourceProbe, Volume};
use thetis_planner::connector::{CsvFormat, FileFormat, SourceSpec};
use thetis_planner::{PlanError, PlanErrorKind};

use super::csv::header;
use super::files::{expand, failure, open, position_of, total_bytes};
use super::parquet::builder;
use super::records::Records;
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
            FileFormat::Parquet => builder(&paths[0]).map(|builder| Arc::clone(builder.schema())),
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
        let check = || {
            let names = match &file.format {
                FileFormat::Parquet => {
                    Some(builder(path)?.schema().fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>())
                }
                FileFormat::Csv(format) => {
                    if format.header {
                        header(path, &mut records(open(path)?, format), format)?
                    } else {
                        None
                    }
                }
            };
            for field in columns.fields() {
                if let Some(names) = &names {
                    position_of(path, names, field.name())?;
                }
            }
            Ok(())
        };
        check().map_err(to_plan_error)
    }

    fn volume(&self, spec: &SourceSpec) -> Volume {
        let SourceSpec::File(file) = spec else {
            return Volume::default();
        };
        let Ok(paths) = expand(&file.path) else {
            return Volume::default();
        };
        let Some(bytes) = total_bytes(&paths) else {
            return Volume::default();
        };
        let rows = match &file.format {
            FileFormat::Parquet => {
                paths.iter().map(|path| Some(builder(path).ok()?.metadata().file_metadata().num_rows() as f64)).sum()
            }
            FileFormat::Csv(format) => csv_rows(&paths[0], format).map(|(rows, read)| {
                if bytes <= read { rows } else { (rows * bytes as f64 / read.max(1) as f64).ceil() }
            }),
        };
        Volume { rows, bytes: Some(bytes) }
    }
}

fn records<R: Read>(input: R, format: &CsvFormat) -> Records<R> {
    Records::new(input, format.delimiter, format.quote, format.max_record_bytes as usize)
}

/// Records in the first part of a file, and the length of that part.
fn csv_rows(path: &Path, format: &CsvFormat) -> Option<(f64, u64)> {
    let length = path.metadata().ok()?.len().min(SAMPLE);
    let mut records = records(open(path).ok()?.take(SAMPLE), format);
    let mut rows = 0;
    while let Ok(found) = records.next(10_000) {
        if found.is_empty() {
            break;
        }
        rows += found.len();
    }
    Some((rows.saturating_sub(usize::from(format.header)) as f64, length))
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
        other => other.clone(),
    }
}

fn to_plan_error(error: ExecError) -> PlanError {
    PlanError::new(PlanErrorKind::Source, error.to_string()).caused_by(error)
}
