//! Sources: what springs read. Files are read in the order of their names.

mod csv;
mod files;
mod parquet;
mod probe;
mod records;
mod values;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use thetis_planner::connector::{FileFormat, SourceSpec};
use thetis_planner::physical::Source;

pub use probe::FileProbe;

use crate::error::ExecError;

/// What a source has read so far.
#[derive(Debug, Default)]
pub struct SourceCounters {
    /// Rows given out.
    pub rows: AtomicU64,
    /// Bytes read.
    pub bytes: AtomicU64,
    /// Bytes that there are to read; 0 when that is not known.
    pub total_bytes: AtomicU64,
    /// Records that could not be read and were skipped.
    pub skipped: AtomicU64,
    /// The last epoch that has rows.
    pub epoch: AtomicU64,
}

impl SourceCounters {
    fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Reads a stream, batch by batch.
pub trait Reader: Send + std::fmt::Debug {
    /// The next rows, at most [`crate::frame::FRAME_ROWS`]; `None` at the end.
    ///
    /// # Errors
    /// A file or a record that cannot be read.
    fn next(&mut self) -> Result<Option<RecordBatch>, ExecError>;
}

/// The reader for a source.
///
/// # Errors
/// No such file, a column that is not in it.
pub fn reader_for(source: &Source, counters: &Arc<SourceCounters>) -> Result<Box<dyn Reader>, ExecError> {
    Ok(match &source.spec {
        SourceSpec::Values(rows) => Box::new(values::ValuesReader::new(rows, &source.columns)?),
        SourceSpec::File(file) => {
            let paths = files::expand(&file.path)?;
            counters.total_bytes.store(files::total_bytes(&paths).unwrap_or(0), Ordering::Relaxed);
            let format: Box<dyn Format> = match &file.format {
                FileFormat::Csv(format) => Box::new(Arc::new(csv::Csv::new(source, format, file.on_error, counters))),
                FileFormat::Parquet => Box::new(Arc::new(parquet::Parquet::new(source, counters))),
            };
            Box::new(Files { format, paths: paths.into(), current: None })
        }
    })
}

/// How the files of a stream are opened.
trait Format: Send + std::fmt::Debug {
    fn open(&self, path: PathBuf) -> Result<Box<dyn Reader>, ExecError>;
}

/// One file after the other.
#[derive(Debug)]
struct Files {
    format: Box<dyn Format>,
    paths: VecDeque<PathBuf>,
    current: Option<Box<dyn Reader>>,
}

impl Reader for Files {
    fn next(&mut self) -> Result<Option<RecordBatch>, ExecError> {
        loop {
            if let Some(file) = &mut self.current
                && let Some(batch) = file.next()?
            {
                return Ok(Some(batch));
            }
            let Some(path) = self.paths.pop_front() else {
                return Ok(None);
            };
            self.current = Some(self.format.open(path)?);
        }
    }
}
