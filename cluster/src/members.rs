//! Who belongs to the cluster: registrations, signs of life, losses. A state machine without I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::{Generation, Hello};

/// A worker as the coordinator knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Its registration.
    pub generation: Generation,
    /// Drawn when its process started.
    pub boot: u64,
    /// Share of the tasks that it wants.
    pub slots: u32,
    /// Where other workers reach it.
    pub address: String,
    /// Whether it gets new queries.
    pub state: State,
    last_heard: Duration,
}

/// Whether a worker gets new queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It does.
    Active,
    /// It wants to leave.
    Leaving,
}

/// All workers, by name.
#[derive(Debug)]
pub struct Members {
    coordinator: u64,
    timeout: Duration,
    next: u64,
    workers: BTreeMap<String, Worker>,
}

/// What a [`Hello`] comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It goes on under its registration.
    Resumed(Generation),
    /// It has a new registration; what was under the one before is lost.
    New {
        /// The registration.
        generation: Generation,
        /// The one before.
        fenced: Option<Generation>,
    },
    /// There is a worker of this name, in another process that lives.
    Taken,
}

impl Members {
    /// No workers. One that is not heard of for `timeout` is lost.
    pub fn new(coordinator: u64, timeout: Duration) -> Self {
        Self { coordinator, timeout, next: 1, workers: BTreeMap::new() }
    }

    /// A worker says hello.
    pub fn on_hello(&mut self, now: Duration, name: &str, hello: &Hello) -> Admission {
        let known = self.workers.get_mut(name);
        if let Some(worker) = known {
            let resumes = hello
                .resumes
                .as_ref()
                .filter(|resumed| resumed.coordinator == self.coordinator && resumed.generation == worker.generation);
            if resumes.is_some() && hello.boot == worker.boot {
                worker.last_heard = now;
                return Admission::Resumed(worker.generation);
            }
            // The one who is there may be alive: it must be seen to be gone before its name is free.
            if hello.boot != worker.boot && now.saturating_sub(worker.last_heard) < self.timeout / 4 {
                return Admission::Taken;
            }
        }
        let generation = Generation(self.next);
        self.next += 1;
        let worker = Worker {
            generation,
            boot: hello.boot,
            slots: hello.slots.max(1),
            address: hello.address.clone(),
            state: State::Active,
            last_heard: now,
        };
        let fenced = self.workers.insert(name.to_owned(), worker).map(|before| before.generation);
        Admission::New { generation, fenced }
    }

    /// Something was heard of a worker.
    pub fn on_heard(&mut self, now: Duration, name: &str, generation: Generation) {
        if let Some(worker) = self.of(name, generation) {
            worker.last_heard = now;
        }
    }

    /// A worker wants to leave.
    pub fn on_leaving(&mut self, name: &str, generation: Generation) {
        if let Some(worker) = self.of(name, generation) {
            worker.state = State::Leaving;
        }
    }

    /// A worker's process has ended, as it says itself; false if it is another one by now.
    pub fn on_left(&mut self, name: &str, generation: Generation) -> bool {
        let there = self.of(name, generation).is_some();
        if there {
            self.workers.remove(name);
        }
        there
    }

    /// The workers that are lost by now, which are forgotten.
    pub fn on_tick(&mut self, now: Duration) -> Vec<(String, Generation)> {
        let timeout = self.timeout;
        let lost = self.workers.extract_if(.., |_, worker| now.saturating_sub(worker.last_heard) >= timeout);
        lost.map(|(name, worker)| (name, worker.generation)).collect()
    }

    /// All workers, by name.
    pub fn workers(&self) -> impl Iterator<Item = (&str, &Worker)> {
        self.workers.iter().map(|(name, worker)| (name.as_str(), worker))
    }

    /// When a worker was last heard of.
    pub fn silence(&self, now: Duration, name: &str) -> Option<Duration> {
        self.workers.get(name).map(|worker| now.saturating_sub(worker.last_heard))
    }

    fn of(&mut self, name: &str, generation: Generation) -> Option<&mut Worker> {
        self.workers.get_mut(name).filter(|worker| worker.generation == generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Resumed;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn hello(boot: u64, resumes: Option<u64>) -> Hello {
        let resumes = resumes.map(|g| Resumed { coordinator: 7, generation: Generation(g), received: 0 });
        Hello { boot, slots: 2, address: "a:1".to_owned(), resumes }
    }

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_worker_goes_on_after_a_lost_connection_and_a_new_process_does_not() {
        let mut members = Members::new(7, TIMEOUT);
        let new = Admission::New { generation: Generation(1), fenced: None };
        assert_eq!(members.on_hello(second(0), "w", &hello(5, None)), new);
        assert_eq!(members.on_hello(second(6), "w", &hello(5, Some(1))), Admission::Resumed(Generation(1)));
        assert_eq!(members.on_hello(second(7), "w", &hello(6, None)), Admission::Taken);
        let fenced = Admission::New { generation: Generation(2), fenced: Some(Generation(1)) };
        assert_eq!(members.on_hello(second(9), "w", &hello(6, None)), fenced);
        // Of the one that was fenced, nothing counts any more.
        members.on_heard(second(15), "w", Generation(1));
        assert_eq!(members.on_tick(second(19)), [("w".to_owned(), Generation(2))]);
    }

    #[test]
    fn who_was_given_up_registers_anew() {
        let mut members = Members::new(7, TIMEOUT);
        members.on_hello(second(0), "w", &hello(5, None));
        assert_eq!(members.on_tick(second(9)), []);
        assert_eq!(members.on_tick(second(10)), [("w".to_owned(), Generation(1))]);
        let new = Admission::New { generation: Generation(2), fenced: None };
        assert_eq!(members.on_hello(second(11), "w", &hello(5, Some(1))), new);
    }

    #[test]
    fn a_new_coordinator_knows_nobody() {
        let mut members = Members::new(8, TIMEOUT);
        let new = Admission::New { generation: Generation(1), fenced: None };
        assert_eq!(members.on_hello(second(0), "w", &hello(5, Some(3))), new);
    }
}
