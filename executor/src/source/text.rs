//! What text formats share: blocks of whole records are decoded together; only when a block fails
//! is it halved, down to the record that is at fault, to name its line or to skip it.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use thetis_planner::connector::OnError;
use tracing::warn;

use super::ahead::Ahead;
use super::files::failure;
use super::records::{Block, Broken, Record, Records};
use super::{FileReader, Part, SourceCounters};
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
    /// Blocks of a file that are decoded at a time.
    pub(super) readers: usize,
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

/// One open file: cut into blocks of records here, decoded by several readers.
#[derive(Debug)]
pub(super) struct TextFile<D> {
    stream: Arc<TextStream>,
    path: Arc<Path>,
    records: Records<File>,
    /// Readers without work.
    idle: Vec<BlockReader<D>>,
    ahead: Ahead<Decoded<D>>,
    /// Where the file's records end that are read here.
    until: u64,
    /// There are no more blocks: the file has ended, or it goes on with this.
    end: Option<Result<(), ExecError>>,
}

/// Decodes blocks of a file.
#[derive(Debug)]
struct BlockReader<D> {
    stream: Arc<TextStream>,
    path: Arc<Path>,
    decoder: D,
}

/// A reader that is idle again, the block that it has read, and its rows.
type Decoded<D> = (BlockReader<D>, Block, Result<Option<RecordBatch>, ExecError>);

impl<D: Decode> BlockReader<D> {
    fn decode(&mut self, block: &Block) -> Result<Option<RecordBatch>, ExecError> {
        let mut batches = Vec::new();
        self.decode_into(block.bytes(), &block.records, &mut batches)?;
        Ok(match batches.as_slice() {
            [] | [_] => batches.pop(),
            [first, ..] => Some(concat_batches(&first.schema(), &batches)?),
        })
    }

    fn decode_into(
        &mut self,
        bytes: &[u8],
        records: &[Record],
        batches: &mut Vec<RecordBatch>,
    ) -> Result<(), ExecError> {
        let message = match self.decoder.decode(bytes, records) {
            Ok(batch) => {
                batches.extend(batch);
                return Ok(());
            }
            Err(message) => message,
        };
        self.decoder.renew()?;
        if let [record] = records {
            let path = self.path.to_path_buf();
            return self.stream.bad_record(ExecError::Record { path, line: record.line, message });
        }
        let (first, second) = records.split_at(records.len() / 2);
        self.decode_into(bytes, first, batches)?;
        self.decode_into(bytes, second, batches)
    }
}

impl<D: Decode + 'static> TextFile<D> {
    /// The records behind those that `records` has given, as far as they begin in `range`.
    ///
    /// # Errors
    /// `decoder` cannot make one, the file cannot be read.
    pub(super) fn new(
        stream: &Arc<TextStream>,
        path: PathBuf,
        mut records: Records<File>,
        range: Option<Range<u64>>,
        decoder: impl Fn() -> Result<D, ExecError>,
    ) -> Result<Self, ExecError> {
        // What a pipe has sent must not wait for its next bytes.
        let ahead = Ahead::new(if path.is_file() { stream.readers } else { 1 });
        let path: Arc<Path> = path.into();
        let reader = || {
            let (stream, path) = (Arc::clone(stream), Arc::clone(&path));
            Ok(BlockReader { stream, path, decoder: decoder()? })
        };
        let idle = (0..ahead.most()).map(|_| reader()).collect::<Result<_, ExecError>>()?;
        let Range { start, end: until } = range.unwrap_or(0..u64::MAX);
        let passed = records.pass(start);
        passed.map_err(|error| failure(&*path, format!("cannot be read: {error}"), Some(error)))?;
        if start > 0 {
            // What others read.
            records.take_read();
        }
        Ok(Self { stream: Arc::clone(stream), path, records, idle, ahead, until, end: None })
    }

    /// The next records; `None` at the end.
    fn cut(&mut self) -> Result<Option<Block>, ExecError> {
        loop {
            let next = if self.records.offset() < self.until { self.records.next(FRAME_ROWS) } else { Ok(None) };
            self.stream.counters.add_bytes(self.records.take_read());
            let broken = match next {
                Ok(block) => {
                    return Ok(block.and_then(|block| self.records.up_to(block, self.until)));
                }
                Err(broken) => broken_record(&self.path, broken, self.stream.max_record_bytes),
            };
            if matches!(broken, ExecError::Source { .. }) {
                return Err(broken);
            }
            self.stream.bad_record(broken)?;
            let skipped = self.records.skip_line();
            skipped.map_err(|error| failure(&*self.path, "cannot be read", Some(error)))?;
        }
    }
}

impl<D: Decode + 'static> FileReader for TextFile<D> {
    fn next(&mut self) -> Result<Option<Part>, ExecError> {
        loop {
            while self.end.is_none()
                && self.ahead.has_room()
                && let Some(mut reader) = self.idle.pop()
            {
                match self.cut() {
                    Ok(Some(block)) => self.ahead.start(move || {
                        let decoded = reader.decode(&block);
                        (reader, block, decoded)
                    }),
                    Ok(None) => self.end = Some(Ok(())),
                    Err(error) => self.end = Some(Err(error)),
                }
            }
            let Some((reader, block, decoded)) = self.ahead.take()? else {
                return self.end.take().unwrap_or(Ok(())).map(|()| None);
            };
            self.idle.push(reader);
            self.records.recycle(block);
            if let Some(batch) = decoded? {
                return Ok(Some(Part::Rows(batch)));
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
