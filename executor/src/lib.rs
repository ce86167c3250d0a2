//! Runs physical plans: frames, operators, join cells, state, sources and sinks. It knows no
//! network.
//!
//! The way of a tuple:
//!
//! ```text
//! source -> [steps] -> route -> cell -> [steps] -> route -> aggregate -> [steps] -> sink
//! ```
//!
//! [`query`] makes the tasks of a plan, a [`task`] drives an [`operator`], [`route`] says where
//! rows go, [`join`] and `aggregate` are the operators with state.

mod aggregate;
pub mod changes;
pub mod clock;
pub mod counters;
mod error;
mod exact;
pub mod export;
pub mod frame;
pub mod join;
pub mod operator;
pub mod query;
pub mod route;
mod sink;
pub mod source;
mod steps;
pub mod table;
pub mod task;
pub mod threads;
mod zset;

pub use error::ExecError;
