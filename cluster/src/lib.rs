//! Coordinator and worker. In this version both live in the user's process (embedded mode); the
//! traits and messages between them are the ones that a network will use.
//!
//! ```text
//! statement -> Session (catalogue, settings, planner) -> Plan
//!           -> Coordinator -- wire bytes over a Link --> Worker (tasks) -> deliveries
//! ```

mod analyze;
mod coordinator;
mod embedded;
pub mod epochs;
mod link;
mod session;
pub mod wire;
mod worker;

pub use analyze::{Analysis, Explained};
pub use coordinator::Coordinator;
pub use embedded::Engine;
pub use link::{Link, Outcome, Running, StartError};
pub use session::{Reply, Session};
pub use worker::Worker;
