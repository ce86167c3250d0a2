//! Coordinator and workers, in one process (the embedded engine) or in many, joined by QUIC.
//!
//! ```text
//! statement -> Session (settings, planner) -> Plan, or Work on stored tables and sinks
//!           -> Database (catalogue, tables, materialized views)
//!           -> Coordinator (placement, jobs, epochs) -> Host (tasks) of this process
//!                                                    -> Registry -> conversations -> Worker -> its Host
//! rows between processes:  task -> Outlet -> stream -> Inlet -> task
//! clients elsewhere:       Client -> stream per statement -> front server -> Session
//! ```
//!
//! What decides is plain: [`epochs`], [`job`], [`members`], [`placement`] and [`net::hop`] are state machines or
//! functions without I/O.

mod analyze;
mod coordinator;
pub mod data;
mod database;
mod embedded;
pub mod epochs;
mod error;
pub mod front;
mod host;
pub mod job;
mod link;
mod materialized;
pub mod members;
mod metrics;
pub mod net;
mod node;
pub mod placement;
pub mod process;
pub mod protocol;
mod session;
mod status;
mod store;
mod sync;
pub mod wire;
mod work;
mod worker;

pub use analyze::{Analysis, Explained};
pub use coordinator::{Coordinator, QueryStatus, Registry, WorkerStatus};
pub use database::Database;
pub use embedded::Engine;
pub use error::{Failure, StartError, StatementError, chain};
pub use front::server::describe;
pub use host::Host;
pub use link::{Counters, Outcome, Running};
pub use node::{CoordinatorNode, NodeError, NodeOptions};
pub use session::{Prepared, Reply, Session};
pub use store::{FileStore, MemoryStore, Store, StoreError};
pub use work::{Completion, Work, is_changelog};
pub use worker::{Worker, WorkerError, WorkerOptions};
