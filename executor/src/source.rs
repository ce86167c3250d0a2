//! Sources: what springs read. Files are read in the order of their names.

mod csv;
mod files;
mod parquet;
mod probe;
mod records;
mod values;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use thetis_planner::connector::{FileFormat, SourceSpec};
use thetis_planner::physical::Source;

pub use probe::FileProbe;

use crate::error::ExecError;
use crate::frame::Epoch;

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
    /// The epoch of the source's last row, once all are read; 0 before.
    pub last_epoch: AtomicU64,
    /// Of a table's spring: the last closes, each with the last commit in it.
    covered: Mutex<VecDeque<(Epoch, u64)>>,
}

/// Closes of a table's spring that are remembered; no more can be between it and the sink.
const REMEMBERED: usize = 64;

impl SourceCounters {
    /// A table's spring has closed `epoch`, with all commits up to `version` in it.
    pub(crate) fn covers(&self, epoch: Epoch, version: u64) {
        let mut covered = self.covered.lock().unwrap_or_else(PoisonError::into_inner);
        if covered.len() == REMEMBERED {
            covered.pop_front();
        }
        covered.push_back((epoch, version));
    }

    /// The last commit to the stored table that is in the epochs up to `epoch`; `None` for other
    /// sources, and before the table's rows were read.
    pub fn covered(&self, epoch: Epoch) -> Option<u64> {
        let covered = self.covered.lock().unwrap_or_else(PoisonError::into_inner);
        covered.iter().rev().find(|(closed, _)| *closed <= epoch).map(|(_, version)| *version)
    }

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
        SourceSpec::Table(_) => return Err(ExecError::Internal("a stored table has a spring of its own".to_owned())),
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
