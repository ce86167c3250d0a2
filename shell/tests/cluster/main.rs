//! Clusters of real processes, joined by real QUIC.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod answers;
mod catalog;
mod front;
mod network;
mod processes;
mod relay;
mod security;
