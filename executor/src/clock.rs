//! Time, injected: the only module that reads the system's clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time since some start.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Never goes back.
    fn now(&self) -> Duration;
}

/// The system's monotonic clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that takes the time")]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that takes the time")]
    fn now(&self) -> Duration {
        Instant::now().duration_since(self.start)
    }
}

/// The clock of the runtime that it is started in, which a simulation can hold.
#[derive(Debug)]
pub struct RuntimeClock {
    start: tokio::time::Instant,
}

impl RuntimeClock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { start: tokio::time::Instant::now() }
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that moves when it is told to, for simulations and tests.
#[derive(Debug, Default)]
pub struct VirtualClock {
    nanoseconds: AtomicU64,
}

impl VirtualClock {
    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(by, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }
}
