//! Sinks outside of the engine: files, standard output, nothing at all.

mod text;

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use thetis_planner::connector::{FileSink, IfExists, SinkFormat, SinkSpec};

pub use text::{CsvRows, NdjsonRows, TIMESTAMP};

use crate::error::ExecError;

/// Longest header that is compared before rows are appended, in bytes.
const MAX_HEADER: u64 = 1 << 20;

/// Where the rows of an `INSERT INTO sink` go.
#[derive(Debug)]
pub struct Export {
    path: PathBuf,
    writer: Writer,
    /// What is written beside the file, to take its place when it is whole.
    draft: Option<PathBuf>,
}

enum Writer {
    Csv(Box<CsvRows<Output>>),
    Ndjson(Box<NdjsonRows<Output>>),
    Parquet { writer: Option<Box<ArrowWriter<Output>>>, schema: SchemaRef },
    Nothing,
}

type Output = BufWriter<Box<dyn Write + Send>>;

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Csv(_) => "Csv",
            Self::Ndjson(_) => "Ndjson",
            Self::Parquet { .. } => "Parquet",
            Self::Nothing => "Nothing",
        })
    }
}

impl Export {
    /// Opens a sink for rows of `schema`. May block, as on a pipe that nobody reads.
    ///
    /// # Errors
    /// A file that cannot be made, is there and must not be, or has other columns.
    pub fn open(spec: &SinkSpec, schema: &SchemaRef) -> Result<Self, ExecError> {
        match spec {
            SinkSpec::Blackhole => Ok(Self { path: PathBuf::new(), writer: Writer::Nothing, draft: None }),
            SinkSpec::Stdout(format) => {
                let path = PathBuf::from("standard output");
                let writer = Writer::new(*format, schema, Box::new(io::stdout()), true);
                Ok(Self { writer: writer.map_err(|error| failed(&path, error))?, path, draft: None })
            }
            SinkSpec::File(file) => {
                let path = PathBuf::from(&file.path);
                let (output, header, draft) = open(file, schema)?;
                let writer = Writer::new(file.format, schema, Box::new(output), header);
                Ok(Self { writer: writer.map_err(|error| failed(&path, error))?, path, draft })
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

    /// Writes what comes after the last row. Unless the rows are `whole`, a file that should have been
    /// replaced stays as it is.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn finish(&mut self, whole: bool) -> Result<(), ExecError> {
        let finished = self.writer.finish().map_err(|error| failed(&self.path, error));
        let Some(draft) = self.draft.take() else { return finished };
        if whole && finished.is_ok() {
            std::fs::rename(&draft, &self.path).map_err(|error| refused(&self.path, error))
        } else {
            let _ = std::fs::remove_file(&draft);
            finished
        }
    }
}

fn failed(path: &Path, error: ArrowError) -> ExecError {
    match error {
        ArrowError::IoError(_, error) => refused(path, error),
        error => {
            ExecError::Sink { path: path.to_owned(), message: format!("cannot be written: {error}"), source: None }
        }
    }
}

fn refused(path: &Path, error: io::Error) -> ExecError {
    let message = match error.kind() {
        io::ErrorKind::AlreadyExists => "is there already (option if_exists = 'replace' writes it anew)".to_owned(),
        _ => format!("cannot be written: {error}"),
    };
    ExecError::Sink { path: path.to_owned(), message, source: Some(Arc::new(error)) }
}

/// The file, whether a header is due, and the draft that is to take the file's place.
fn open(sink: &FileSink, schema: &SchemaRef) -> Result<(File, bool, Option<PathBuf>), ExecError> {
    let path = Path::new(&sink.path);
    let failed = |error| refused(path, error);
    // Devices and pipes are what they are: nothing can take their place.
    let special = path.metadata().is_ok_and(|meta| !meta.is_file());
    match sink.if_exists {
        _ if special => Ok((OpenOptions::new().write(true).open(path).map_err(failed)?, true, None)),
        IfExists::Append => append(sink, path, schema).map(|(file, header)| (file, header, None)),
        IfExists::Fail => Ok((OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?, true, None)),
        IfExists::Replace => {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(format!(".{}.part", std::process::id()));
            let draft = path.with_file_name(name);
            Ok((File::create(&draft).map_err(failed)?, true, Some(draft)))
        }
    }
}

/// The file at its end, and whether a header is due.
fn append(sink: &FileSink, path: &Path, schema: &SchemaRef) -> Result<(File, bool), ExecError> {
    let failed = |error| refused(path, error);
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    if length == 0 {
        return Ok((file, true));
    }
    if sink.format == SinkFormat::Csv {
        let mut found = String::new();
        let header = BufReader::new(&mut file).take(MAX_HEADER).read_line(&mut found);
        let mut expected = Vec::new();
        let written = CsvRows::new(schema, true, &mut expected).finish();
        if header.is_err() || written.is_err() || found.trim_end().as_bytes() != expected.trim_ascii_end() {
            let message =
                format!("has other columns: {} (option if_exists = 'replace' writes it anew)", found.trim_end());
            return Err(ExecError::Sink { path: path.to_owned(), message, source: None });
        }
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1)).and_then(|_| file.read_exact(&mut last)).map_err(failed)?;
    if last != *b"\n" {
        file.write_all(b"\n").map_err(failed)?;
    }
    Ok((file, false))
}

impl Writer {
    fn new(
        format: SinkFormat,
        schema: &SchemaRef,
        output: Box<dyn Write + Send>,
        header: bool,
    ) -> Result<Self, ArrowError> {
        let output = BufWriter::new(output);
        Ok(match format {
            SinkFormat::Csv => Self::Csv(Box::new(CsvRows::new(schema, header, output))),
            SinkFormat::Ndjson => Self::Ndjson(Box::new(NdjsonRows::new(schema, output))),
            SinkFormat::Parquet => {
                let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
                let schema = text::unique_names(schema);
                let writer = ArrowWriter::try_new(output, Arc::clone(&schema), Some(properties))?;
                Self::Parquet { writer: Some(Box::new(writer)), schema }
            }
        })
    }

    fn write(&mut self, rows: &RecordBatch) -> Result<(), ArrowError> {
        match self {
            Self::Csv(writer) => writer.write(rows),
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
            Self::Ndjson(writer) => writer.flush(),
            // The csv writer flushes by itself; what parquet has not closed cannot be read.
            Self::Csv(_) | Self::Parquet { .. } | Self::Nothing => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), ArrowError> {
        match self {
            Self::Csv(writer) => writer.finish(),
            Self::Ndjson(writer) => writer.finish(),
            Self::Parquet { writer, .. } => match writer.take() {
                Some(writer) => writer.close().map(|_| ()).map_err(ArrowError::from),
                None => Ok(()),
            },
            Self::Nothing => Ok(()),
        }
    }
}
