//! The life of a query, as the coordinator sees it: a state machine without I/O. The states are types.
//!
//! ```text
//! Preparing --all have made their tasks--> Running --all have ended--> Ended
//!      \__________ a failure, a loss, a stop __________/________________^
//! ```

use std::collections::BTreeSet;

use thetis_executor::ExecError;
use thetis_executor::query::Process;

/// Where a query is.
#[derive(Debug)]
pub enum Job {
    /// Its processes make their tasks.
    Preparing(Preparing),
    /// They run.
    Running(Running),
    /// It is over.
    Ended(Ended),
}

/// Processes make their tasks.
#[derive(Debug)]
pub struct Preparing {
    all: BTreeSet<Process>,
    waiting: BTreeSet<Process>,
}

/// The tasks run.
#[derive(Debug)]
pub struct Running {
    open: BTreeSet<Process>,
    /// Some tasks have ended because their receivers were gone; the reason is to come.
    cancelled: bool,
}

/// It is over.
#[derive(Debug, Clone)]
pub struct Ended {
    /// How.
    pub result: Result<(), ExecError>,
}

/// What happens to a query.
#[derive(Debug, Clone)]
pub enum Event {
    /// A process has made its tasks, or cannot.
    Prepared(Process, Result<(), ExecError>),
    /// The tasks of a process have ended.
    Done(Process, Result<(), ExecError>),
    /// A process is lost.
    Lost(Process, ExecError),
    /// Nobody wants the result any more.
    Stop,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// All processes run their tasks.
    Start,
    /// All processes forget the query.
    Finish,
}

impl Job {
    /// A query of these processes.
    pub fn new(processes: impl IntoIterator<Item = Process>) -> Self {
        let all: BTreeSet<Process> = processes.into_iter().collect();
        Self::Preparing(Preparing { waiting: all.clone(), all })
    }

    /// The next state, and what is to be done about it.
    #[must_use]
    pub fn step(self, event: Event) -> (Self, Option<Effect>) {
        match self {
            Self::Preparing(state) => state.step(event),
            Self::Running(state) => state.step(event),
            Self::Ended(state) => (Self::Ended(state), None),
        }
    }

    /// How it has ended, if it has.
    pub fn ended(&self) -> Option<&Ended> {
        match self {
            Self::Ended(ended) => Some(ended),
            Self::Preparing(_) | Self::Running(_) => None,
        }
    }
}

fn end(result: Result<(), ExecError>) -> (Job, Option<Effect>) {
    (Job::Ended(Ended { result }), Some(Effect::Finish))
}

impl Preparing {
    fn step(mut self, event: Event) -> (Job, Option<Effect>) {
        match event {
            Event::Prepared(process, Ok(())) => {
                self.waiting.remove(&process);
                if self.waiting.is_empty() {
                    return (Job::Running(Running { open: self.all, cancelled: false }), Some(Effect::Start));
                }
                (Job::Preparing(self), None)
            }
            Event::Prepared(_, Err(error)) | Event::Done(_, Err(error)) => end(Err(error)),
            Event::Lost(process, error) if self.all.contains(&process) => end(Err(error)),
            Event::Stop => end(Err(ExecError::Cancelled)),
            Event::Lost(..) | Event::Done(..) => (Job::Preparing(self), None),
        }
    }
}

impl Running {
    fn step(mut self, event: Event) -> (Job, Option<Effect>) {
        match event {
            Event::Done(process, result) => {
                match result {
                    Ok(()) => {}
                    Err(ExecError::Cancelled) => self.cancelled = true,
                    Err(error) => return end(Err(error)),
                }
                self.open.remove(&process);
                if self.open.is_empty() {
                    return end(if self.cancelled { Err(ExecError::Cancelled) } else { Ok(()) });
                }
                (Job::Running(self), None)
            }
            // One that has sent everything is not needed any more.
            Event::Lost(process, error) if self.open.contains(&process) => end(Err(error)),
            Event::Stop => end(Err(ExecError::Cancelled)),
            Event::Lost(..) | Event::Prepared(..) => (Job::Running(self), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(events: impl IntoIterator<Item = Event>) -> (Job, Vec<Effect>) {
        let mut job = Job::new([Process(0), Process(1)]);
        let mut effects = Vec::new();
        for event in events {
            let (next, effect) = job.step(event);
            job = next;
            effects.extend(effect);
        }
        (job, effects)
    }

    fn prepared() -> Vec<Event> {
        vec![Event::Prepared(Process(1), Ok(())), Event::Prepared(Process(0), Ok(()))]
    }

    #[test]
    fn tasks_start_when_all_are_made_and_the_query_ends_with_the_last() {
        let (job, effects) = run(prepared());
        assert!(matches!(job, Job::Running(_)) && effects == [Effect::Start]);
        let done = [Event::Done(Process(0), Ok(())), Event::Done(Process(1), Ok(()))];
        let (job, effects) = run(prepared().into_iter().chain(done));
        assert!(matches!(job.ended().unwrap().result, Ok(())));
        assert_eq!(effects, [Effect::Start, Effect::Finish]);
    }

    #[test]
    fn the_reason_wins_over_what_it_cancels() {
        let failed = ExecError::Internal("x".to_owned());
        let done = [Event::Done(Process(0), Err(ExecError::Cancelled)), Event::Done(Process(1), Err(failed))];
        let (job, _) = run(prepared().into_iter().chain(done));
        assert!(matches!(&job.ended().unwrap().result, Err(ExecError::Internal(_))));
    }

    #[test]
    fn a_loss_counts_until_its_process_has_sent_everything() {
        let lost = || Event::Lost(Process(1), ExecError::Internal("lost".to_owned()));
        let (job, effects) = run([lost()]);
        assert!(job.ended().unwrap().result.is_err() && effects == [Effect::Finish]);
        let (job, _) = run(prepared().into_iter().chain([Event::Done(Process(1), Ok(())), lost()]));
        assert!(matches!(job, Job::Running(_)));
        let (job, _) = run(prepared().into_iter().chain([lost()]));
        assert!(job.ended().unwrap().result.is_err());
    }

    #[test]
    fn whatever_happens_it_ends_once() {
        let events = [Event::Stop, Event::Stop, Event::Prepared(Process(0), Ok(())), Event::Done(Process(1), Ok(()))];
        let (job, effects) = run(events);
        assert!(matches!(&job.ended().unwrap().result, Err(ExecError::Cancelled)));
        assert_eq!(effects, [Effect::Finish]);
    }
}
