//! Work that other threads do ahead, taken in the order in which it was started.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use crate::error::ExecError;
use crate::threads::are_several;

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
    /// With one at a time, or outside of a runtime of several threads, the work is done at once by who
    /// starts it.
    pub(super) fn new(most: usize) -> Self {
        let most = if are_several() { most.max(1) } else { 1 };
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

    /// The result of the work that was started first, once it is there; `None` if none is under way.
    ///
    /// # Errors
    /// It never ended.
    pub(super) fn take(&mut self) -> Result<Option<T>, ExecError> {
        Ok(match self.under_way.pop_front() {
            None => None,
            Some(Work::Done(result)) => Some(result),
            Some(Work::Elsewhere(result)) => {
                let lost = |_| ExecError::Internal("a reader stopped in the middle of its work".to_owned());
                Some(result.blocking_recv().map_err(lost)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_work_that_dies_is_an_error() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let _guard = runtime.enter();
        let mut ahead = Ahead::new(3);
        assert_eq!(ahead.most(), 3);
        for number in 0..3_u64 {
            assert!(ahead.has_room());
            ahead.start(move || {
                std::thread::sleep(std::time::Duration::from_millis(20 * (3 - number)));
                assert!(number < 2, "this one dies");
                number
            });
        }
        assert!(!ahead.has_room());
        ahead.put(7);
        assert_eq!((ahead.take().unwrap(), ahead.take().unwrap()), (Some(0), Some(1)));
        assert!(ahead.take().is_err());
        assert_eq!((ahead.take().unwrap(), ahead.take().unwrap()), (Some(7), None));
    }
}
