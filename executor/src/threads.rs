//! What depends on threads: how many the runtime has (a simulation has one), how many a query takes.

use std::future::poll_fn;
use std::task::Poll;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::error::ExecError;
use crate::query::TaskFuture;

/// Whether this runs in a runtime of several threads.
pub fn are_several() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Runs work that may wait for other threads or a pipe: the other tasks of this thread move away, if there is
/// another one.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    if are_several() { tokio::task::block_in_place(work) } else { work() }
}

/// Lets the other tasks have their turn. The runtime's own way waits until its thread has nothing else to do,
/// and meanwhile no idle thread can take the task over: a source and those that it feeds would share one.
pub(crate) async fn pass() {
    let mut passed = false;
    poll_fn(|context| {
        if std::mem::replace(&mut passed, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
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
