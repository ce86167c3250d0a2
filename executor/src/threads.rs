//! What depends on the runtime having several threads: a simulation has one.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Whether this runs in a runtime of several threads.
pub fn are_several() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Runs work that may wait for a disk or a pipe: the other tasks of this thread move away, if there is
/// another one.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    if are_several() { tokio::task::block_in_place(work) } else { work() }
}
