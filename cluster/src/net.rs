//! Between processes: connections with proven identities, streams of bounded messages, and channels
//! that go on where they stopped when a connection is made again.
//!
//! ```text
//! channel (numbered messages, acks) -> framing (lengths, bounds) -> Stream -> Connection -> Transport
//!                                                                              quic | memory
//! ```

pub mod conversation;
pub mod framing;
pub mod hop;
pub mod identity;
pub mod memory;
pub mod peers;
pub mod quic;
pub mod transport;
