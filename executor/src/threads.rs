//! What depends on threads: how many the runtime has (a simulation has one), how many a query takes.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::error::ExecError;
use crate::query::TaskFuture;

/// Whether this runs in a runtime of several threads.
pub fn are_several() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Runs work that may wait for a disk or a pipe: the other tasks of this thread move away, if there is
/// another one.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    if are_several() { tokio::task::block_in_place(work) } else { work() }
}

/// Runs tasks in turns, as one that never takes more than one core.
///
/// # Errors
/// The first of a task; that its receiver is gone only if there is no other.
pub(crate) async fn in_turns(tasks: Vec<TaskFuture>) -> Result<(), ExecError> {
    let mut running: FuturesUnordered<TaskFuture> = tasks.into_iter().collect();
    let mut result = Ok(());
    while let Some(ended) = running.next().await {
        match ended {
            Ok(()) => {}
            Err(ExecError::Cancelled) => result = Err(ExecError::Cancelled),
            Err(error) => return Err(error),
        }
    }
    result
}
