//! The shell in a pseudo-terminal: what a user sees on the screen.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod editing;
mod results;
mod terminal;
