//! Locks that are held for a moment only.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The value of a mutex. A thread that panicked has left it as it was: changes are made in one step.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
