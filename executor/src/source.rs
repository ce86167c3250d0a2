//! Sources: what springs read. Files are read in the order of their names.

mod ahead;
mod csv;
mod exact;
mod files;
mod generator;
mod ndjson;
mod parquet;
mod probe;
mod records;
mod splits;
mod text;
mod values;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::array::RecordBatch;
use thetis_planner::connector::{FileFormat, SourceSpec};
use thetis_planner::expr::ScalarExpr;
use thetis_planner::physical::{Dag, OperatorId, OperatorKind, Source};

pub use probe::FileProbe;
use splits::FilePart;
pub use splits::Split;

use crate::counters::SourceSnapshot;
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
    /// Rows that were left out, unread, as no filter needs them.
    pub left_out: AtomicU64,
    /// The epoch of the source's last row, once all are read; 0 before.
    pub last_epoch: AtomicU64,
    /// Of a table's spring: the last closes, each with the last commit in it.
    covered: Mutex<VecDeque<(Epoch, u64)>>,
    /// The last epoch that has rows.
    pub epoch: AtomicU64,
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

    /// What it has counted, as the source `operator`.
    pub(crate) fn read(&self, operator: OperatorId) -> SourceSnapshot {
        SourceSnapshot {
            operator,
            rows: self.rows.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            total_bytes: self.total_bytes.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            epoch: self.epoch.load(Ordering::Relaxed),
            last_epoch: self.last_epoch.load(Ordering::Acquire),
        }
    }

    fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// What a reader has for its spring.
#[derive(Debug)]
pub enum Fetched {
    /// Rows, at most [`crate::frame::FRAME_ROWS`].
    Rows(RecordBatch),
    /// So many rows were left out, as no filter needs them.
    LeftOut(u64),
    /// Nothing now: ask again after this time.
    Wait(Duration),
    /// The stream has ended.
    End,
}

/// What a reader waits for, with the thread that it is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// Nothing, or a disk: not worth another thread.
    Briefly,
    /// Threads that decode ahead.
    ForReaders,
    /// Whoever writes into a pipe, for as long as that takes.
    ForWriter,
}

/// Reads a stream, batch by batch.
pub trait Reader: Send + std::fmt::Debug {
    /// The next rows. `now` is the time of the query's clock.
    ///
    /// # Errors
    /// A file or a record that cannot be read.
    fn next(&mut self, now: Duration) -> Result<Fetched, ExecError>;

    /// What [`Self::next`] may wait for.
    fn waits(&self) -> Waits {
        Waits::Briefly
    }
}

/// The reader for a share of a source; what is not in files is not shared. `filters` are what each edge out of it keeps.
///
/// # Errors
/// No such file, a column that is not in it.
pub fn reader_for(
    source: &Source,
    split: Split,
    filters: &[&[ScalarExpr]],
    counters: &Arc<SourceCounters>,
) -> Result<Box<dyn Reader>, ExecError> {
    Ok(match &source.spec {
        SourceSpec::Table(_) => return Err(ExecError::Internal("a stored table has a spring of its own".to_owned())),
        SourceSpec::Values(rows) => Box::new(values::ValuesReader::new(rows, &source.columns)?),
        SourceSpec::Generator(spec) => Box::new(generator::Generator::new(source, spec)?),
        SourceSpec::File(file) => {
            let listing = match &source.listing {
                Some(listing) => files::listed(listing)?,
                None => files::list(&file.path)?,
            };
            let total: u64 = listing.iter().filter_map(|(_, length)| *length).sum();
            counters.total_bytes.store(total / u64::from(split.of), Ordering::Relaxed);
            let plain = listing.iter().all(|(_, length)| length.is_some());
            let waits = match source.readers {
                _ if !plain => Waits::ForWriter,
                1 => Waits::Briefly,
                _ => Waits::ForReaders,
            };
            let parts = split.parts(listing);
            let text = |max_record_bytes| {
                let (name, counters) = (source.stream.clone(), Arc::clone(counters));
                let (on_error, readers) = (file.on_error, source.readers as usize);
                Arc::new(text::TextStream { name, on_error, max_record_bytes, readers, counters })
            };
            let format: Box<dyn Format> = match &file.format {
                FileFormat::Csv(format) => Box::new(csv::Csv::new(source, format, text(format.max_record_bytes))),
                FileFormat::Ndjson(format) => Box::new(ndjson::Ndjson::new(source, text(format.max_record_bytes))),
                FileFormat::Parquet => Box::new(Arc::new(parquet::Parquet::new(source, filters, counters)?)),
            };
            Box::new(Files { format, parts: parts.into(), current: None, waits })
        }
    })
}

/// Fixes the files of sources that several tasks share: those may look at different times, and elsewhere.
///
/// # Errors
/// No such file.
pub fn fix_listings(dag: &mut Dag) -> Result<(), ExecError> {
    for operator in dag.operators.iter_mut().filter(|operator| operator.tasks > 1) {
        let OperatorKind::Source(source) = &mut operator.kind else { continue };
        if let SourceSpec::File(file) = &source.spec {
            let listing = files::list(&file.path)?.into_iter();
            source.listing =
                listing.map(|(path, length)| Some((path.to_str()?.to_owned(), length?))).collect::<Option<Vec<_>>>();
        }
    }
    Ok(())
}

/// How the files of a stream are opened.
trait Format: Send + std::fmt::Debug {
    fn open(&self, part: FilePart) -> Result<Box<dyn FileReader>, ExecError>;
}

/// Reads one file.
trait FileReader: Send + std::fmt::Debug {
    /// What comes next; `None` at the end.
    fn next(&mut self) -> Result<Option<Part>, ExecError>;
}

/// A part of a file.
#[derive(Debug)]
enum Part {
    /// Rows that were read.
    Rows(RecordBatch),
    /// So many were left out.
    LeftOut(u64),
}

/// One file after the other.
#[derive(Debug)]
struct Files {
    format: Box<dyn Format>,
    parts: VecDeque<FilePart>,
    current: Option<Box<dyn FileReader>>,
    waits: Waits,
}

impl Reader for Files {
    fn next(&mut self, _: Duration) -> Result<Fetched, ExecError> {
        loop {
            if let Some(file) = &mut self.current
                && let Some(part) = file.next()?
            {
                return Ok(match part {
                    Part::Rows(batch) => Fetched::Rows(batch),
                    Part::LeftOut(rows) => Fetched::LeftOut(rows),
                });
            }
            let Some(part) = self.parts.pop_front() else {
                return Ok(Fetched::End);
            };
            self.current = Some(self.format.open(part)?);
        }
    }

    fn waits(&self) -> Waits {
        self.waits
    }
}
