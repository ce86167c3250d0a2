//! Frames as bytes: a small head, the Arrow IPC stream's messages, then weights and units.
//!
//! ```text
//! head (bincode) | IPC (schema first, once per stream) | weights: i8 or i64 | buckets: u16 | slices: u16
//! ```
//!
//! Weights that are all +1, buckets that are all one, and slices that are counted take no bytes.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::{IpcWriteOptions, StreamEncoder};
use arrow_ipc::{CompressionType, MetadataVersion};
use serde::{Deserialize, Serialize};
use thetis_executor::frame::{Epoch, FRAME_ROWS, Frame, Message, Units};
use thetis_executor::task::{Addressed, Envelope};
use thetis_planner::layout::SLICES;

use crate::net::framing::{MAX_BODY, Parcel, Received};
use crate::net::transport::NetError;

/// Bytes of padding between columns.
const ALIGNMENT: usize = 8;

/// A frame that cannot be sent, or bytes that are none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// Arrow says no.
    #[error("rows cannot be encoded or decoded")]
    Arrow(#[from] ArrowError),
    /// One row is too long.
    #[error("a row of {0} bytes is too long to be sent: the most is {MAX_BODY} bytes")]
    Row(usize),
    /// It is no frame of this edge.
    #[error("a malformed frame: {0}")]
    Malformed(&'static str),
    /// The head cannot be written or read.
    #[error(transparent)]
    Net(#[from] NetError),
}

/// The head of a message: to whom, and what its body is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FrameHead {
    tasks: Vec<u32>,
    channel: u32,
    epoch: u64,
    rows: Option<Rows>,
}

/// What the body holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Rows {
    count: u32,
    ipc: u32,
    weights: Weights,
    units: Option<UnitsHead>,
    layout: u32,
    incarnation: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Weights {
    Ones,
    Narrow,
    Wide,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct UnitsHead {
    /// The bucket of all rows, or each has its own.
    bucket: Option<u32>,
    /// The slice of the first row, if the others are counted from it.
    slice: Option<u16>,
}

/// Encodes the messages of one stream.
pub struct Encoder {
    ipc: StreamEncoder,
    payload: u64,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Encoder")
    }
}

impl Encoder {
    /// For rows of `schema`; `compress` says that bytes are dearer than cycles.
    ///
    /// # Errors
    /// Types that Arrow IPC does not know.
    pub fn new(schema: &SchemaRef, compress: bool) -> Result<Self, CodecError> {
        let options = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)?;
        let options = options.try_with_compression(compress.then_some(CompressionType::LZ4_FRAME))?;
        Ok(Self { ipc: StreamEncoder::try_new_with_options(schema, options)?, payload: 0 })
    }

    /// Bytes of all columns, weights and units so far, as they are in memory.
    pub fn payload(&self) -> u64 {
        self.payload
    }

    /// The parcels of a message: one, or several for rows that are very long.
    ///
    /// # Errors
    /// A row that is too long, a value that cannot be encoded.
    pub fn encode(&mut self, message: &Addressed) -> Result<Vec<Parcel>, CodecError> {
        self.encode_as(message, &|head| head)
    }

    /// Like [`Self::encode`], with heads that are part of another protocol.
    ///
    /// # Errors
    /// As for [`Self::encode`].
    pub fn encode_as<H: Serialize>(
        &mut self,
        message: &Addressed,
        wrap: &impl Fn(FrameHead) -> H,
    ) -> Result<Vec<Parcel>, CodecError> {
        let Addressed { tasks, envelope: Envelope { channel, message } } = message;
        match message {
            Message::Progress(epoch) => {
                let head = FrameHead { tasks: tasks.clone(), channel: *channel, epoch: epoch.0, rows: None };
                Ok(vec![Parcel::new(&wrap(head))?])
            }
            Message::Frame(frame) => {
                let mut parcels = Vec::new();
                self.encode_frame((tasks, *channel), frame, wrap, &mut parcels)?;
                Ok(parcels)
            }
        }
    }

    fn encode_frame<H: Serialize>(
        &mut self,
        to: (&[u32], u32),
        frame: &Frame,
        wrap: &impl Fn(FrameHead) -> H,
        parcels: &mut Vec<Parcel>,
    ) -> Result<(), CodecError> {
        let rows = frame.rows();
        let bytes: usize = frame
            .batch
            .columns()
            .iter()
            .map(|column| column.to_data().get_slice_memory_size())
            .sum::<Result<_, _>>()?;
        if bytes > MAX_BODY / 2 {
            if rows < 2 {
                return Err(CodecError::Row(bytes));
            }
            let half = rows / 2;
            self.encode_frame(to, &slice(frame, 0, half), wrap, parcels)?;
            return self.encode_frame(to, &slice(frame, half, rows - half), wrap, parcels);
        }
        let mut pieces = self.ipc.encode(&frame.batch)?;
        let ipc: usize = pieces.iter().map(|piece| piece.len()).sum();
        let per_row = frame.weights.as_ref().map_or(0, |_| 8) + frame.units.as_ref().map_or(0, |_| 4 + 2);
        self.payload += (bytes + rows * per_row) as u64;
        let weights = pack_weights(frame.weights.as_deref(), &mut pieces);
        let units = frame.units.as_ref().map(|units| pack_units(units, &mut pieces));
        let rows = Rows {
            count: rows as u32,
            ipc: ipc as u32,
            weights,
            units,
            layout: frame.layout,
            incarnation: frame.incarnation,
        };
        let head = FrameHead { tasks: to.0.to_vec(), channel: to.1, epoch: frame.epoch.0, rows: Some(rows) };
        parcels.push(Parcel::with_body(&wrap(head), &pieces)?);
        Ok(())
    }
}

fn slice(frame: &Frame, from: usize, length: usize) -> Frame {
    let weights = frame.weights.as_ref().map(|weights| weights[from..from + length].into());
    let units = frame.units.as_ref().map(|units| Units {
        buckets: units.buckets[from..from + length].into(),
        slices: units.slices[from..from + length].into(),
    });
    Frame { units, ..frame.with_rows(frame.batch.slice(from, length), weights) }
}

fn pack_weights(weights: Option<&[i64]>, pieces: &mut Vec<Buffer>) -> Weights {
    let Some(weights) = weights else { return Weights::Ones };
    let narrow: Option<Vec<i8>> = weights.iter().map(|weight| i8::try_from(*weight).ok()).collect();
    match narrow {
        Some(narrow) => {
            pieces.push(Buffer::from_vec(narrow));
            Weights::Narrow
        }
        None => {
            pieces.push(Buffer::from_iter(weights.iter().map(|weight| weight.to_le())));
            Weights::Wide
        }
    }
}

fn pack_units(units: &Units, pieces: &mut Vec<Buffer>) -> UnitsHead {
    let (buckets, slices) = (&units.buckets, &units.slices);
    let bucket = buckets.first().copied().filter(|first| buckets.iter().all(|bucket| bucket == first));
    if bucket.is_none() {
        // Buckets are below BUCKETS, which fits.
        pieces.push(Buffer::from_iter(buckets.iter().map(|bucket| (*bucket as u16).to_le())));
    }
    let counted = |first: u16| (0..).zip(slices.iter()).all(|(i, slice)| *slice == count_on(first, i));
    let slice = slices.first().copied().filter(|first| counted(*first));
    if slice.is_none() {
        pieces.push(Buffer::from_iter(slices.iter().map(|slice| slice.to_le())));
    }
    UnitsHead { bucket, slice }
}

/// The slice of the row that is `rows` behind one of slice `first`.
fn count_on(first: u16, rows: u32) -> u16 {
    ((u32::from(first) + rows) % SLICES) as u16
}

/// Decodes the messages of one stream.
#[derive(Debug)]
pub struct Decoder {
    schema: SchemaRef,
    ipc: StreamDecoder,
}

impl Decoder {
    /// For rows of `schema`.
    pub fn new(schema: SchemaRef) -> Self {
        Self { schema, ipc: StreamDecoder::new() }
    }

    /// The message in what was received.
    ///
    /// # Errors
    /// It is none, or its rows are not of this stream.
    pub fn decode(&mut self, received: &Received) -> Result<Addressed, CodecError> {
        self.decode_head(received.head()?, &received.body)
    }

    /// The message of a head that was part of another protocol, and its body.
    ///
    /// # Errors
    /// As for [`Self::decode`].
    pub fn decode_head(&mut self, head: FrameHead, body: &Buffer) -> Result<Addressed, CodecError> {
        let FrameHead { tasks, channel, epoch, rows } = head;
        let message = match rows {
            None => Message::Progress(Epoch(epoch)),
            Some(rows) => Message::Frame(self.frame(&rows, Epoch(epoch), body)?),
        };
        Ok(Addressed { tasks, envelope: Envelope { channel, message } })
    }

    fn frame(&mut self, head: &Rows, epoch: Epoch, body: &Buffer) -> Result<Frame, CodecError> {
        let count = head.count as usize;
        let mut body = Body { rest: body.clone() };
        let mut ipc = body.take(head.ipc as usize)?;
        let batch = decode_ipc(&mut self.ipc, &mut ipc)?.ok_or(CodecError::Malformed("no rows"))?;
        if !ipc.is_empty() || batch.num_rows() != count || count > FRAME_ROWS {
            return Err(CodecError::Malformed("not the rows that it announces"));
        }
        // The types of the columns are those of the plan, whatever the other side says.
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), batch.columns().to_vec(), &options)?;
        let weights = match head.weights {
            Weights::Ones => None,
            Weights::Narrow => Some(body.take(count)?.iter().map(|weight| i64::from(weight.cast_signed())).collect()),
            Weights::Wide => {
                let bytes = body.take(count * 8)?;
                let (weights, _) = bytes.as_chunks::<8>();
                Some(weights.iter().map(|weight| i64::from_le_bytes(*weight)).collect())
            }
        };
        let units = head.units.as_ref().map(|units| body.units(units, count)).transpose()?;
        let frame = Frame::inserts(batch, epoch);
        Ok(Frame { weights, units, layout: head.layout, incarnation: head.incarnation, ..frame })
    }
}

/// The next rows in bytes that came from elsewhere.
///
/// # Errors
/// They are no Arrow IPC, or announce more than they may.
pub(crate) fn decode_ipc(decoder: &mut StreamDecoder, ipc: &mut Buffer) -> Result<Option<RecordBatch>, CodecError> {
    check_lengths(ipc)?;
    let decode = || {
        let batch = decoder.decode(ipc)?;
        // Rows whose columns take no bytes are complete only when another byte is there.
        if batch.is_some() { Ok(batch) } else { decoder.decode(&mut Buffer::from([0])) }
    };
    // Of damaged bytes, some make Arrow panic.
    let decoded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode));
    Ok(decoded.map_err(|_| CodecError::Malformed("not Arrow IPC"))??)
}

/// Arrow allocates what a compressed column says that it will take: it must be said in bounds.
fn check_lengths(ipc: &[u8]) -> Result<(), CodecError> {
    const MALFORMED: CodecError = CodecError::Malformed("not Arrow IPC");
    let word = |at: usize| Some(u32::from_le_bytes(ipc.get(at..at + 4)?.try_into().ok()?));
    let mut at = 0;
    while let Some(first) = word(at) {
        let (length, start) = match first {
            u32::MAX => (word(at + 4).ok_or(MALFORMED)?, at + 8),
            length => (length, at + 4),
        };
        let head = start.checked_add(length as usize).and_then(|end| ipc.get(start..end)).ok_or(MALFORMED)?;
        let message = arrow_ipc::root_as_message(head).map_err(|_| MALFORMED)?;
        let body = usize::try_from(message.bodyLength()).map_err(|_| MALFORMED)?;
        let from = start + head.len();
        let bytes = from.checked_add(body).and_then(|end| ipc.get(from..end)).ok_or(MALFORMED)?;
        if let Some(batch) = message.header_as_record_batch().filter(|batch| batch.compression().is_some()) {
            let mut total = 0_usize;
            for buffer in batch.buffers().into_iter().flatten().filter(|buffer| buffer.length() > 0) {
                let place = usize::try_from(buffer.offset()).map_err(|_| MALFORMED)?;
                let length = place.checked_add(8).and_then(|end| bytes.get(place..end)).ok_or(MALFORMED)?;
                // -1 says that the column is not compressed after all.
                let length = i64::from_le_bytes(length.try_into().map_err(|_| MALFORMED)?).max(0);
                total = total.saturating_add(usize::try_from(length).map_err(|_| MALFORMED)?);
            }
            if total > MAX_BODY {
                return Err(CodecError::Malformed("it announces too many bytes"));
            }
        }
        at = from + body;
    }
    Ok(())
}

/// A body that is being read.
struct Body {
    rest: Buffer,
}

impl Body {
    fn take(&mut self, bytes: usize) -> Result<Buffer, CodecError> {
        if bytes > self.rest.len() {
            return Err(CodecError::Malformed("shorter than it announces"));
        }
        let taken = self.rest.slice_with_length(0, bytes);
        self.rest = self.rest.slice(bytes);
        Ok(taken)
    }

    fn units(&mut self, head: &UnitsHead, count: usize) -> Result<Units, CodecError> {
        let numbers = |buffer: Buffer| {
            let (numbers, _) = buffer.as_chunks::<2>();
            numbers.iter().map(|number| u16::from_le_bytes(*number)).collect::<Vec<_>>()
        };
        let buckets = match head.bucket {
            Some(bucket) => vec![bucket; count].into(),
            None => numbers(self.take(count * 2)?).into_iter().map(u32::from).collect(),
        };
        let slices = match head.slice {
            Some(first) => (0..count as u32).map(|row| count_on(first, row)).collect(),
            None => numbers(self.take(count * 2)?).into(),
        };
        Ok(Units { buckets, slices })
    }
}

#[cfg(test)]
mod tests;
