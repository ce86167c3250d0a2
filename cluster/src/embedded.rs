//! The embedded engine: one coordinator, one worker and a database in the user's process, on a runtime
//! of their own.

use std::sync::Arc;

use thetis_executor::clock::SystemClock;
use thetis_executor::table::Tables;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::coordinator::Coordinator;
use crate::database::Database;
use crate::host::Host;
use crate::session::Session;
use crate::store::MemoryStore;

/// Deep expressions are walked recursively; a thread's stack is only reserved, not used.
pub(crate) const STACK: usize = 64 << 20;

/// A coordinator, a worker and the threads that they run on. Dropping it ends its queries.
#[derive(Debug)]
pub struct Engine {
    runtime: Option<Runtime>,
    database: Arc<Database>,
}

impl Engine {
    /// Starts the engine with one thread per core.
    ///
    /// # Errors
    /// Threads cannot be started.
    pub fn start() -> std::io::Result<Self> {
        let runtime =
            Builder::new_multi_thread().thread_name("thetis").thread_stack_size(STACK).enable_all().build()?;
        let handle = runtime.handle().clone();
        let tables = Arc::new(Tables::new());
        let host = Host::new(handle.clone(), Arc::new(SystemClock::start()), Arc::clone(&tables), None);
        let coordinator = Coordinator::new(handle.clone(), Arc::new(host), None);
        let database = Arc::new(Database::new(handle, coordinator, tables, Arc::new(MemoryStore::default())));
        Ok(Self { database, runtime: Some(runtime) })
    }

    /// What all sessions share.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// A session with settings of its own.
    pub fn session(&self) -> Session {
        Session::new(Arc::clone(&self.database))
    }

    /// The runtime's handle.
    pub fn handle(&self) -> &Handle {
        self.runtime.as_ref().map(Runtime::handle).expect("invariant: the runtime is there until drop")
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // A runtime may not be dropped inside of another one, but it may be left to itself.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
