//! The data plane: what tasks of one process send to those of another. One stream for each edge of a DAG
//! and each pair of processes, so that edges do not wait for each other.

pub(crate) mod codec;
mod inlet;
mod outlet;

pub(crate) use codec::decode_ipc;
pub use codec::{CodecError, Decoder, Encoder};
pub use inlet::{Inlet, InletSlot};
pub use outlet::{LinkCounters, Outlet};
