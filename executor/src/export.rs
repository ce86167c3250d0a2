//! Sinks outside of the engine: files, standard output, nothing at all.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::csv::WriterBuilder;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::json::LineDelimitedWriter;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use thetis_planner::connector::{FileSink, IfExists, SinkFormat, SinkSpec};

use crate::error::ExecError;

/// How timestamps are written as text.
const TIMESTAMP: &str = "%Y-%m-%d %H:%M:%S%.f";

/// Where the rows of an `INSERT INTO sink` go.
#[derive(Debug)]
pub struct Export {
    path: PathBuf,
    writer: Writer,
}

enum Writer {
    Csv { writer: Box<arrow::csv::Writer<Output>>, schema: SchemaRef },
    Ndjson(Box<LineDelimitedWriter<Output>>),
    Parquet { writer: Option<Box<ArrowWriter<Output>>>, schema: SchemaRef },
    Nothing,
}

type Output = BufWriter<Box<dyn Write + Send>>;

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Csv { .. } => "Csv",
            Self::Ndjson(_) => "Ndjson",
            Self::Parquet { .. } => "Parquet",
            Self::Nothing => "Nothing",
        })
    }
}

impl Export {
    /// Opens a sink for rows of `schema`.
    ///
    /// # Errors
    /// A file that cannot be made, or is there and must not be.
    pub fn open(spec: &SinkSpec, schema: &SchemaRef) -> Result<Self, ExecError> {
        match spec {
            SinkSpec::Blackhole => Ok(Self { path: PathBuf::new(), writer: Writer::Nothing }),
            SinkSpec::Stdout(format) => {
                let path = PathBuf::from("standard output");
                let writer = Writer::new(*format, schema, Box::new(io::stdout()), true);
                Ok(Self { writer: writer.map_err(|error| failed(&path, error))?, path })
            }
            SinkSpec::File(file) => {
                let path = PathBuf::from(&file.path);
                let (output, empty) = open(file)?;
                let writer = Writer::new(file.format, schema, Box::new(output), empty);
                Ok(Self { writer: writer.map_err(|error| failed(&path, error))?, path })
            }
        }
    }

    /// Writes rows.
    ///
    /// # Errors
    /// A disk that is full, a pipe that is closed, a type that the format does not know.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<(), ExecError> {
        self.writer.write(rows).map_err(|error| failed(&self.path, error))
    }

    /// Hands on what is buffered, where the format allows it.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn flush(&mut self) -> Result<(), ExecError> {
        self.writer.flush().map_err(|error| failed(&self.path, error))
    }

    /// Writes what comes after the last row.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn finish(&mut self) -> Result<(), ExecError> {
        self.writer.finish().map_err(|error| failed(&self.path, error))
    }
}

fn failed(path: &Path, error: ArrowError) -> ExecError {
    let (message, source) = match error {
        ArrowError::IoError(_, error) => (format!("cannot be written: {error}"), Some(Arc::new(error))),
        error => (format!("cannot be written: {error}"), None),
    };
    ExecError::Sink { path: path.to_owned(), message, source }
}

/// The file, and whether it is empty.
fn open(sink: &FileSink) -> Result<(File, bool), ExecError> {
    let path = Path::new(&sink.path);
    let mut options = OpenOptions::new();
    match sink.if_exists {
        IfExists::Append => options.append(true).create(true),
        IfExists::Replace => options.write(true).create(true).truncate(true),
        IfExists::Fail => options.write(true).create_new(true),
    };
    let refused = |error: io::Error| {
        let message = match error.kind() {
            io::ErrorKind::AlreadyExists => "is there already (option if_exists = 'replace' writes it anew)".to_owned(),
            _ => format!("cannot be written: {error}"),
        };
        ExecError::Sink { path: path.to_owned(), message, source: Some(Arc::new(error)) }
    };
    let file = options.open(path).map_err(refused)?;
    let empty = file.metadata().map_or(true, |meta| meta.len() == 0);
    Ok((file, empty))
}

impl Writer {
    /// `empty`: nothing was written before, so a header is due.
    fn new(
        format: SinkFormat,
        schema: &SchemaRef,
        output: Box<dyn Write + Send>,
        empty: bool,
    ) -> Result<Self, ArrowError> {
        let output = BufWriter::new(output);
        Ok(match format {
            SinkFormat::Csv => {
                let builder = WriterBuilder::new()
                    .with_header(empty)
                    .with_timestamp_format(TIMESTAMP.to_owned())
                    .with_datetime_format(TIMESTAMP.to_owned());
                Self::Csv { writer: Box::new(builder.build(output)), schema: Arc::clone(schema) }
            }
            SinkFormat::Ndjson => {
                let builder = arrow::json::WriterBuilder::new().with_explicit_nulls(true);
                Self::Ndjson(Box::new(builder.build(output)))
            }
            SinkFormat::Parquet => {
                let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
                let writer = ArrowWriter::try_new(output, Arc::clone(schema), Some(properties))?;
                Self::Parquet { writer: Some(Box::new(writer)), schema: Arc::clone(schema) }
            }
        })
    }

    fn write(&mut self, rows: &RecordBatch) -> Result<(), ArrowError> {
        match self {
            Self::Csv { writer, .. } => writer.write(rows),
            Self::Ndjson(writer) => writer.write(rows),
            Self::Parquet { writer: Some(writer), schema } => {
                // Names and nullability are those of the file.
                let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
                let rows = RecordBatch::try_new_with_options(Arc::clone(schema), rows.columns().to_vec(), &options)?;
                writer.write(&rows).map_err(ArrowError::from)
            }
            Self::Parquet { writer: None, .. } | Self::Nothing => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), ArrowError> {
        match self {
            Self::Ndjson(writer) => Ok(writer.get_mut().flush()?),
            // The csv writer flushes by itself; what parquet has not closed cannot be read.
            Self::Csv { .. } | Self::Parquet { .. } | Self::Nothing => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), ArrowError> {
        match self {
            // A header without rows tells the columns.
            Self::Csv { writer, schema } => writer.write(&RecordBatch::new_empty(Arc::clone(schema))),
            Self::Ndjson(writer) => {
                writer.finish()?;
                Ok(writer.get_mut().flush()?)
            }
            Self::Parquet { writer, .. } => match writer.take() {
                Some(writer) => writer.close().map(|_| ()).map_err(ArrowError::from),
                None => Ok(()),
            },
            Self::Nothing => Ok(()),
        }
    }
}
