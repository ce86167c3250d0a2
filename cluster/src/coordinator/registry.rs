//! The workers of a cluster: their conversations with the coordinator.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use thetis_executor::clock::Clock;
use tokio::sync::watch;
use tracing::{info, warn};

use super::Coordinator;
use crate::members::{Admission, Members, State};
use crate::net::conversation::{Beat, Conversation};
use crate::net::framing::{Parcel, Receiver, Sender};
use crate::net::transport::{NetError, Peer, Role};
use crate::protocol::{FromWorker, Generation, Hello, Member, ToWorker, Welcome};
use crate::sync::locked;
use crate::worker::LEFT;

/// Looks for lost workers this often.
const TICK: Duration = Duration::from_millis(500);

/// A worker's name and its count.
type Registration = (String, Generation);

/// The conversation with a registered worker. When this is dropped, so is the stream that it is held over.
#[derive(Default)]
struct Registered {
    conversation: Arc<Conversation<ToWorker>>,
    over: watch::Sender<()>,
}

/// A conversation, and when it is over.
type Talk = (Arc<Conversation<ToWorker>>, watch::Receiver<()>);

/// The workers.
pub struct Registry {
    clock: Arc<dyn Clock>,
    /// Drawn when this process started.
    boot: u64,
    address: String,
    heartbeat: Duration,
    members: Mutex<Members>,
    conversations: Mutex<BTreeMap<Registration, Registered>>,
    coordinator: OnceLock<Coordinator>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("members", &self.members).finish_non_exhaustive()
    }
}

/// A worker, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub address: String,
    /// Its slots.
    pub slots: u32,
    /// `active`, or `leaving`.
    pub state: &'static str,
    /// Since it was last heard of.
    pub silence: Duration,
}

impl Registry {
    /// No workers yet. `boot` is drawn anew for each process, `address` is where workers reach it; a worker
    /// that is not heard of for `timeout` is lost.
    pub fn new(clock: Arc<dyn Clock>, boot: u64, address: String, timeout: Duration) -> Self {
        Self {
            clock,
            boot,
            address,
            heartbeat: (timeout / 10).clamp(Duration::from_millis(20), Duration::from_millis(500)),
            members: Mutex::new(Members::new(boot, timeout)),
            conversations: Mutex::default(),
            coordinator: OnceLock::new(),
        }
    }

    /// Begins to report to `coordinator`, and to look for lost workers.
    pub fn start(self: &Arc<Self>, coordinator: Coordinator) {
        let _ = self.coordinator.set(coordinator);
        let registry = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                let Some(registry) = registry.upgrade() else { return };
                let lost = locked(&registry.members).on_tick(registry.clock.now());
                for (name, generation) in lost {
                    registry.lose(&name, generation, "nothing was heard of it for too long");
                }
            }
        });
    }

    /// Where workers reach the coordinator.
    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// Slots of all workers.
    pub fn slots(&self) -> u32 {
        locked(&self.members).workers().map(|(_, worker)| worker.slots).sum()
    }

    /// The workers that get new queries, with their slots.
    pub fn active(&self) -> Vec<(Member, u32)> {
        let members = locked(&self.members);
        let active = members.workers().filter(|(_, worker)| worker.state == State::Active);
        active
            .map(|(name, worker)| {
                let peer = Peer::new(Role::Worker, name);
                (Member { peer, address: worker.address.clone(), generation: worker.generation }, worker.slots)
            })
            .collect()
    }

    /// The workers, for people.
    pub fn status(&self) -> Vec<WorkerStatus> {
        let now = self.clock.now();
        let members = locked(&self.members);
        let status = |(name, worker): (&str, &crate::members::Worker)| WorkerStatus {
            name: name.to_owned(),
            address: worker.address.clone(),
            slots: worker.slots,
            state: if worker.state == State::Active { "active" } else { "leaving" },
            silence: members.silence(now, name).unwrap_or_default(),
        };
        members.workers().map(status).collect()
    }

    /// Tells a worker something; false if it does not have this registration any more.
    pub(super) fn tell(&self, name: &str, generation: Generation, message: ToWorker) -> bool {
        let conversations = locked(&self.conversations);
        let registered = conversations.get(&(name.to_owned(), generation));
        if let Some(registered) = registered {
            registered.conversation.say(message);
        }
        registered.is_some()
    }

    fn lose(&self, name: &str, generation: Generation, reason: &str) {
        warn!(worker = name, generation = generation.0, reason, "worker lost");
        locked(&self.conversations).remove(&(name.to_owned(), generation));
        if let Some(coordinator) = self.coordinator.get() {
            coordinator.on_lost((name, generation), reason);
        }
    }

    /// Talks with a worker over one stream.
    ///
    /// # Errors
    /// How the stream broke.
    pub async fn converse(&self, name: &str, hello: &Hello, streams: (Sender, Receiver)) -> Result<(), NetError> {
        let (mut sender, receiver) = streams;
        let (admission, registered) = self.admit(name, hello);
        let (generation, heard) = match admission {
            Admission::Taken => {
                let reason = format!("there is a worker {name} already; give this one another name");
                sender.send(Parcel::new(&Welcome::Refused(reason))?).await?;
                sender.finish();
                sender.stopped().await;
                return Ok(());
            }
            Admission::Resumed(generation) => (generation, hello.resumes.map_or(0, |resumed| resumed.received)),
            Admission::New { generation, fenced } => {
                if let Some(fenced) = fenced {
                    self.lose(name, fenced, "it was started again");
                }
                info!(
                    worker = name,
                    address = hello.address,
                    slots = hello.slots,
                    generation = generation.0,
                    "registered"
                );
                (generation, 0)
            }
        };
        let Some((conversation, mut over)) = registered else { return Ok(()) };
        let mut state = conversation.take().await;
        let welcome = Welcome::Registered {
            coordinator: self.boot,
            generation,
            received: state.resume(),
            heartbeat: self.heartbeat,
        };
        sender.send(Parcel::new(&welcome)?).await?;
        let beat = Beat { every: self.heartbeat, make: || ToWorker::Alive };
        let on = |message| self.on_message(name, generation, message);
        let held = tokio::select! {
            biased;
            // It was given up, or has another registration: it will say hello again.
            _ = over.changed() => return Ok(()),
            held = state.hold((sender, receiver), heard, beat, on) => held,
        };
        match held {
            Ok(never) => match never {},
            Err(NetError::Lost(reason)) if reason == LEFT => {
                if locked(&self.members).on_left(name, generation) {
                    self.lose(name, generation, "it has left the cluster");
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Decides about a worker. Who is registered can be talked to from then on.
    fn admit(&self, name: &str, hello: &Hello) -> (Admission, Option<Talk>) {
        let mut conversations = locked(&self.conversations);
        let admission = locked(&self.members).on_hello(self.clock.now(), name, hello);
        let generation = match &admission {
            Admission::Taken => return (admission, None),
            Admission::Resumed(generation) | Admission::New { generation, .. } => *generation,
        };
        let registered = conversations.entry((name.to_owned(), generation)).or_default();
        let talk = (Arc::clone(&registered.conversation), registered.over.subscribe());
        (admission, Some(talk))
    }

    fn on_message(&self, name: &str, generation: Generation, message: FromWorker) {
        locked(&self.members).on_heard(self.clock.now(), name, generation);
        let Some(coordinator) = self.coordinator.get() else { return };
        let from = (name, generation);
        match message {
            FromWorker::Prepared(query, result) => coordinator.on_prepared(from, query, result),
            FromWorker::Ended(query, result, counted) => coordinator.on_ended(from, query, result, counted),
            FromWorker::Counted(counted) => coordinator.on_counted(from, counted),
            FromWorker::Leaving => {
                info!(worker = name, "leaving");
                locked(&self.members).on_leaving(name, generation);
            }
        }
    }
}
