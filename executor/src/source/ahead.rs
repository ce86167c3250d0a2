//! Work that other threads do ahead, taken in the order in which it was started.

use std::collections::VecDeque;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Up to so many pieces of work at a time.
#[derive(Debug)]
pub(super) struct Ahead<T> {
    most: usize,
    under_way: VecDeque<Work<T>>,
}

#[derive(Debug)]
enum Work<T> {
    Done(T),
    Elsewhere(oneshot::Receiver<T>),
}

impl<T: Send + 'static> Ahead<T> {
    /// With one at a time, or outside of a runtime, the work is done at once by who starts it.
    pub(super) fn new(most: usize) -> Self {
        let most = if Handle::try_current().is_ok() { most.max(1) } else { 1 };
        Self { most, under_way: VecDeque::with_capacity(most) }
    }

    /// How many pieces of work there can be at a time.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Whether more work may be started.
    pub(super) fn has_room(&self) -> bool {
        self.under_way.len() < self.most
    }

    /// Starts `work`.
    pub(super) fn start(&mut self, work: impl FnOnce() -> T + Send + 'static) {
        self.under_way.push_back(if self.most == 1 {
            Work::Done(work())
        } else {
            let (done, result) = oneshot::channel();
            // Who takes the results may have gone: then nobody wants this one.
            tokio::task::spawn_blocking(move || done.send(work()).ok());
            Work::Elsewhere(result)
        });
    }

    /// Adds what is done.
    pub(super) fn put(&mut self, result: T) {
        self.under_way.push_back(Work::Done(result));
    }

    /// The result of the work that was started first, once it is there; `None` if none is under
    /// way, or if it never ended.
    pub(super) fn take(&mut self) -> Option<T> {
        match self.under_way.pop_front()? {
            Work::Done(result) => Some(result),
            Work::Elsewhere(result) => result.blocking_recv().ok(),
        }
    }
}
