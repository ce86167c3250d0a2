//! What text formats share: blocks of whole records are decoded together; only when a block fails
//! is it halved, down to the record that is at fault, to name its line or to skip it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use thetis_planner::connector::OnError;
use tracing::warn;

use super::files::failure;
use super::records::{Broken, Record, Records};
use super::{FileReader, SourceCounters};
use crate::error::ExecError;
use crate::frame::FRAME_ROWS;

/// Skipped records that are logged one by one; later ones are only counted.
const LOGGED: u64 = 10;

/// Decodes the records of a format.
pub(super) trait Decode: Send + std::fmt::Debug {
    /// The rows of whole records, in the columns of the source. An error says what is wrong with
    /// one of them; then [`Self::renew`] must come next.
    fn decode(&mut self, bytes: &[u8], records: &[Record]) -> Result<Option<RecordBatch>, String>;

    /// Starts anew after an error.
    ///
    /// # Errors
    /// Columns that the format cannot hold.
    fn renew(&mut self) -> Result<(), ExecError>;
}

/// What all files of a stream share.
#[derive(Debug)]
pub(super) struct TextStream {
    pub(super) name: String,
    pub(super) on_error: OnError,
    pub(super) max_record_bytes: u32,
    pub(super) counters: Arc<SourceCounters>,
}

impl TextStream {
    /// Counts and logs a bad record, or stops.
    fn bad_record(&self, error: ExecError) -> Result<(), ExecError> {
        if self.on_error == OnError::Fail {
            return Err(error);
        }
        let stream = self.name.as_str();
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

/// One open file.
#[derive(Debug)]
pub(super) struct TextFile<D> {
    pub(super) stream: Arc<TextStream>,
    pub(super) path: PathBuf,
    pub(super) records: Records<File>,
    pub(super) decoder: D,
}

impl<D: Decode> TextFile<D> {
    fn decode(&mut self, records: &[Record]) -> Result<Option<RecordBatch>, ExecError> {
        let mut batches = Vec::new();
        self.decode_into(records, &mut batches)?;
        Ok(match batches.as_slice() {
            [] | [_] => batches.pop(),
            [first, ..] => Some(concat_batches(&first.schema(), &batches)?),
        })
    }

    fn decode_into(&mut self, records: &[Record], batches: &mut Vec<RecordBatch>) -> Result<(), ExecError> {
        let message = match self.decoder.decode(self.records.bytes(), records) {
            Ok(batch) => {
                batches.extend(batch);
                return Ok(());
            }
            Err(message) => message,
        };
        self.decoder.renew()?;
        if let [record] = records {
            return self.stream.bad_record(ExecError::Record { path: self.path.clone(), line: record.line, message });
        }
        let (first, second) = records.split_at(records.len() / 2);
        self.decode_into(first, batches)?;
        self.decode_into(second, batches)
    }
}

impl<D: Decode> FileReader for TextFile<D> {
    fn next(&mut self) -> Result<Option<RecordBatch>, ExecError> {
        loop {
            let next = self.records.next(FRAME_ROWS);
            self.stream.counters.add_bytes(self.records.take_read());
            match next {
                Ok(records) if records.is_empty() => return Ok(None),
                Ok(records) => {
                    if let Some(batch) = self.decode(&records)? {
                        return Ok(Some(batch));
                    }
                }
                Err(broken) => {
                    let error = broken_record(&self.path, broken, self.stream.max_record_bytes);
                    if matches!(error, ExecError::Source { .. }) {
                        return Err(error);
                    }
                    self.stream.bad_record(error)?;
                    let skipped = self.records.skip_line();
                    skipped.map_err(|error| failure(&self.path, "cannot be read", Some(error)))?;
                }
            }
        }
    }
}

pub(super) fn broken_record(path: &Path, broken: Broken, max: u32) -> ExecError {
    let record = |line, message| ExecError::Record { path: path.to_owned(), line, message };
    match broken {
        Broken::Io(error) => failure(path, format!("cannot be read: {error}"), Some(error)),
        Broken::TooLong { line, quotes } => {
            let quotes = if quotes { "; is a quote left open?" } else { "" };
            record(line, format!("the record is longer than {max} bytes{quotes} (option max_record_bytes)"))
        }
        Broken::OpenQuote(line) => record(line, "a quote is opened and never closed".to_owned()),
    }
}

/// A value or a message from the input, for an error's text: not too long, without control
/// characters.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(60).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
