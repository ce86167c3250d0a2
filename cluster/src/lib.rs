//! Coordinator and worker. In this version both live in the user's process (embedded mode); the
//! traits and messages between them are the ones that a network will use.
//!
//! ```text
//! statement -> Session (settings, planner) -> Plan, or Work on stored tables and sinks
//!           -> Database (catalogue, tables, materialized views)
//!           -> Coordinator -- wire bytes over a Link --> Worker (tasks) -> deliveries
//! ```

mod analyze;
mod coordinator;
mod database;
mod embedded;
pub mod epochs;
mod error;
mod link;
mod materialized;
mod session;
pub mod wire;
mod work;
mod worker;

pub use analyze::{Analysis, Explained};
pub use coordinator::Coordinator;
pub use database::Database;
pub use embedded::Engine;
pub use error::StatementError;
pub use link::{Link, Outcome, Running, StartError};
pub use session::{Prepared, Reply, Session};
pub use work::{Completion, Work, is_changelog};
pub use worker::Worker;
