//! Messages on a stream: a fixed preamble once, then for each message the lengths of its head and its
//! body, its head (bincode), and its body (Arrow IPC, or nothing).
//!
//! Every length is checked against a bound before anything is allocated for it, and memory grows only with
//! the bytes that really arrive.

use arrow_buffer::{Buffer, MutableBuffer};
use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::transport::{NetError, Pending, ReceiveHalf, SendHalf};
use crate::wire;

/// Version of the protocol. Both sides of a stream must speak the same one.
pub const VERSION: u16 = 1;

/// The first bytes of every stream.
const MAGIC: [u8; 4] = *b"THTS";

/// Most bytes of a head.
pub const MAX_HEAD: usize = wire::MAX_MESSAGE;

/// Most bytes of a body.
pub const MAX_BODY: usize = 64 << 20;

/// Most bytes of a greeting, of all but clients: their statements may be long.
pub const MAX_GREETING: usize = 64 << 10;

/// Pieces of a body below this many bytes are put together.
const SMALL: usize = 1 << 10;

/// Bytes asked of a stream at a time.
const CHUNK: usize = 256 << 10;

/// Column buffers as bytes, without a copy.
struct Owned(Buffer);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A message ready to be sent.
#[derive(Debug, Clone)]
pub struct Parcel {
    chunks: Vec<Bytes>,
    bytes: usize,
}

impl Parcel {
    /// A message without a body.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn new<T: Serialize>(head: &T) -> Result<Self, NetError> {
        Self::with_body(head, &[])
    }

    /// A message whose body is made of `pieces`, which are not copied unless they are small.
    ///
    /// # Errors
    /// It cannot be encoded, or is too long.
    pub fn with_body<T: Serialize>(head: &T, pieces: &[Buffer]) -> Result<Self, NetError> {
        let head = wire::encode(head).map_err(|error| NetError::Protocol(error.to_string()))?;
        let body: usize = pieces.iter().map(|piece| piece.len()).sum();
        if head.len() > MAX_HEAD || body > MAX_BODY {
            return Err(NetError::Protocol(format!("a message of {} bytes is too long", head.len() + body)));
        }
        let mut open = BytesMut::with_capacity(8 + head.len() + body.min(SMALL));
        open.put_u32_le(head.len() as u32);
        open.put_u32_le(body as u32);
        open.put_slice(&head);
        let mut chunks = Vec::new();
        for piece in pieces {
            if piece.len() < SMALL {
                open.put_slice(piece);
            } else {
                if !open.is_empty() {
                    chunks.push(open.split().freeze());
                }
                chunks.push(Bytes::from_owner(Owned(piece.clone())));
            }
        }
        if !open.is_empty() {
            chunks.push(open.freeze());
        }
        Ok(Self { chunks, bytes: 8 + head.len() + body })
    }

    /// Length on the wire.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Sends messages.
pub struct Sender {
    half: Box<dyn SendHalf>,
}

/// Receives messages.
pub struct Receiver {
    half: Box<dyn ReceiveHalf>,
    /// Bytes that have arrived and were not taken.
    rest: Bytes,
    /// What has come of the message that is being received: a receiver may be dropped while it waits.
    partial: Partial,
}

#[derive(Default)]
enum Partial {
    #[default]
    Nothing,
    Lengths(Collected),
    Head(Collected, usize),
    Body(Vec<u8>, Collected),
}

/// Bytes of a known number, as they come.
struct Collected {
    bytes: MutableBuffer,
    wanted: usize,
}

impl Collected {
    fn new(wanted: usize) -> Self {
        Self { bytes: MutableBuffer::with_capacity(wanted.min(CHUNK)), wanted }
    }

    fn missing(&self) -> usize {
        self.wanted - self.bytes.len()
    }
}

/// A message that has arrived.
#[derive(Debug)]
pub struct Received {
    head: Vec<u8>,
    /// Its body.
    pub body: Buffer,
}

impl Received {
    /// Its head.
    ///
    /// # Errors
    /// Bytes that are none.
    pub fn head<T: DeserializeOwned>(&self) -> Result<T, NetError> {
        wire::decode(&self.head).map_err(|error| NetError::Protocol(error.to_string()))
    }

    /// Its length on the wire.
    pub fn bytes(&self) -> usize {
        8 + self.head.len() + self.body.len()
    }
}

impl Sender {
    /// Messages on `half`.
    pub fn new(half: Box<dyn SendHalf>) -> Self {
        Self { half }
    }

    /// Says what follows: first of all on a stream.
    ///
    /// # Errors
    /// The stream is of no use any more.
    pub async fn greet(&mut self, greeting: Parcel) -> Result<(), NetError> {
        let mut preamble = BytesMut::from(&MAGIC[..]);
        preamble.put_u16_le(VERSION);
        self.half.send(&mut [preamble.freeze()]).await?;
        self.send(greeting).await
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The stream is of no use any more.
    pub async fn send(&mut self, parcel: Parcel) -> Result<(), NetError> {
        let mut chunks = parcel.chunks;
        self.half.send(&mut chunks).await
    }

    /// Nothing follows.
    pub fn finish(&mut self) {
        self.half.finish();
    }

    /// Waits until the other side wants nothing more.
    pub fn stopped(&self) -> Pending<'static, ()> {
        self.half.stopped()
    }
}

impl Receiver {
    /// Messages on `half`.
    pub fn new(half: Box<dyn ReceiveHalf>) -> Self {
        Self { half, rest: Bytes::new(), partial: Partial::Nothing }
    }

    /// What the other side says first: at most `max_head` bytes.
    ///
    /// # Errors
    /// It speaks another protocol or another version of it, or the stream is of no use any more.
    pub async fn greeting(&mut self, max_head: usize) -> Result<Received, NetError> {
        let mut preamble = Collected::new(MAGIC.len() + 2);
        if !complete(&mut preamble, &mut self.rest, &mut *self.half).await? {
            return Err(NetError::Stopped);
        }
        let (magic, version) = preamble.bytes.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(NetError::Protocol("it is no Thetis".to_owned()));
        }
        let version = u16::from_le_bytes([version[0], version[1]]);
        if version != VERSION {
            let message = format!("it speaks version {version} of the protocol, this process version {VERSION}");
            return Err(NetError::Protocol(message));
        }
        self.next(max_head, 0).await?.ok_or(NetError::Stopped)
    }

    /// The next message; `None` at the end of the stream. May be dropped while it waits, and called again.
    ///
    /// # Errors
    /// A message that is too long or cut off, or the stream is of no use any more.
    pub async fn receive(&mut self) -> Result<Option<Received>, NetError> {
        self.next(MAX_HEAD, MAX_BODY).await
    }

    async fn next(&mut self, max_head: usize, max_body: usize) -> Result<Option<Received>, NetError> {
        loop {
            match std::mem::take(&mut self.partial) {
                Partial::Nothing => self.partial = Partial::Lengths(Collected::new(8)),
                Partial::Lengths(lengths) => {
                    self.partial = Partial::Lengths(lengths);
                    if !self.fill().await? {
                        return Ok(None);
                    }
                    let Partial::Lengths(lengths) = std::mem::take(&mut self.partial) else { continue };
                    let number = |at: usize| {
                        let bytes = [0, 1, 2, 3].map(|i| lengths.bytes[at + i]);
                        u32::from_le_bytes(bytes) as usize
                    };
                    let (head, body) = (number(0), number(4));
                    if head > max_head || body > max_body {
                        return Err(NetError::Protocol(format!("it announces a message of {} bytes", head + body)));
                    }
                    self.partial = Partial::Head(Collected::new(head), body);
                }
                Partial::Head(head, body) => {
                    self.partial = Partial::Head(head, body);
                    if !self.fill().await? {
                        return Err(cut_off());
                    }
                    let Partial::Head(head, body) = std::mem::take(&mut self.partial) else { continue };
                    self.partial = Partial::Body(head.bytes.to_vec(), Collected::new(body));
                }
                Partial::Body(head, body) => {
                    self.partial = Partial::Body(head, body);
                    if !self.fill().await? {
                        return Err(cut_off());
                    }
                    let Partial::Body(head, body) = std::mem::take(&mut self.partial) else { continue };
                    return Ok(Some(Received { head, body: body.bytes.into() }));
                }
            }
        }
    }

    /// Completes the part that is being received; false if the stream ends before its first byte.
    async fn fill(&mut self) -> Result<bool, NetError> {
        let Self { half, rest, partial } = self;
        match partial {
            Partial::Nothing => Ok(true),
            Partial::Lengths(part) | Partial::Head(part, _) | Partial::Body(_, part) => {
                complete(part, rest, &mut **half).await
            }
        }
    }
}

/// Completes `part` with what has arrived, `rest`, and what still comes; false if the stream ends before its
/// first byte. Nothing is lost if this is dropped while it waits.
async fn complete(part: &mut Collected, rest: &mut Bytes, half: &mut dyn ReceiveHalf) -> Result<bool, NetError> {
    while part.missing() > 0 {
        if rest.is_empty() {
            match half.receive(CHUNK).await? {
                Some(bytes) => *rest = bytes,
                None if part.bytes.is_empty() => return Ok(false),
                None => return Err(cut_off()),
            }
        }
        let taken = rest.split_to(part.missing().min(rest.len()));
        part.bytes.extend_from_slice(&taken);
    }
    Ok(true)
}

fn cut_off() -> NetError {
    NetError::Protocol("a message is cut off".to_owned())
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sender")
    }
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receiver")
    }
}

/// Both directions of a stream, as messages.
pub fn framed(stream: super::transport::Stream) -> (Sender, Receiver) {
    (Sender::new(stream.send), Receiver::new(stream.receive))
}

/// A parcel as it arrives.
#[cfg(test)]
pub(crate) fn received(parcel: Parcel) -> Received {
    let bytes = parcel.chunks.concat();
    let length = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize;
    let (head, body) = bytes[8..].split_at(length(0));
    assert_eq!(body.len(), length(4));
    Received { head: head.to_vec(), body: Buffer::from(body) }
}

#[cfg(test)]
mod tests;
