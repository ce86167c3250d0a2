//! Carries UDP packets between hosts, badly.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::net::UdpSocket;
use tokio::runtime::{Builder, Runtime};

const DELAY: Duration = Duration::from_millis(20);
/// One packet of so many is lost.
const LOST_ONE_IN: u32 = 100;

/// A relay, which runs until it is dropped.
pub(crate) struct Relay {
    runtime: Runtime,
    shared: Arc<Shared>,
}

struct Shared {
    random: Mutex<ChaCha8Rng>,
    lost: AtomicU64,
    /// A host that is cut off, and the packets that this has cost.
    cut: Mutex<Option<(String, Arc<Partition>)>>,
}

/// A host that is cut off for a while.
#[derive(Default)]
pub(crate) struct Partition {
    active: AtomicBool,
    lost: AtomicU64,
}

impl Partition {
    /// Packets that were lost by it.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Whether a packet between two addresses arrives.
    fn arrives(&self, from: &SocketAddr, to: &SocketAddr) -> bool {
        if let Some((host, partition)) = &*self.cut.lock().unwrap()
            && partition.active.load(Ordering::Relaxed)
            && [from, to].iter().any(|end| end.ip().to_string() == *host)
        {
            partition.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let arrives = self.random.lock().unwrap().random_range(0..LOST_ONE_IN) > 0;
        if !arrives {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        arrives
    }

    /// Sends a packet a little later, if at all.
    fn carry(self: &Arc<Self>, packet: Vec<u8>, from: SocketAddr, to: SocketAddr, out: &Arc<UdpSocket>) {
        if self.arrives(&from, &to) {
            let out = Arc::clone(out);
            tokio::spawn(async move {
                tokio::time::sleep(DELAY).await;
                let _ = out.send_to(&packet, to).await;
            });
        }
    }
}

impl Relay {
    /// Carries what is sent to each address on to another one, and the answers back.
    pub(crate) fn start(ways: impl Iterator<Item = (String, String)>, seed: u64) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let random = Mutex::new(ChaCha8Rng::seed_from_u64(seed));
        let shared = Arc::new(Shared { random, lost: AtomicU64::new(0), cut: Mutex::new(None) });
        for (here, there) in ways {
            let socket = Arc::new(runtime.block_on(UdpSocket::bind(&here)).unwrap());
            runtime.spawn(forward(Arc::clone(&shared), socket, there.parse().unwrap()));
        }
        Self { runtime, shared }
    }

    /// Packets that were lost by chance.
    pub(crate) fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Cuts a host off, in a while, for some time.
    pub(crate) fn partition(&self, host: &str, after: Duration, time: Duration) -> Arc<Partition> {
        let partition = Arc::new(Partition::default());
        *self.shared.cut.lock().unwrap() = Some((host.to_owned(), Arc::clone(&partition)));
        let of = Arc::clone(&partition);
        self.runtime.spawn(async move {
            tokio::time::sleep(after).await;
            of.active.store(true, Ordering::Relaxed);
            tokio::time::sleep(time).await;
            of.active.store(false, Ordering::Relaxed);
        });
        partition
    }
}

/// Packets of each sender go out from a socket of their own, so that answers find their way back.
async fn forward(shared: Arc<Shared>, socket: Arc<UdpSocket>, there: SocketAddr) {
    let mut senders: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut packet = vec![0; 1 << 16];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut packet).await else { continue };
        let out = match senders.entry(from) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let out = Arc::new(UdpSocket::bind("0.0.0.0:0").await.unwrap());
                tokio::spawn(back(Arc::clone(&shared), Arc::clone(&out), Arc::clone(&socket), from));
                new.insert(out)
            }
        };
        shared.carry(packet[..length].to_vec(), from, there, out);
    }
}

async fn back(shared: Arc<Shared>, out: Arc<UdpSocket>, socket: Arc<UdpSocket>, to: SocketAddr) {
    let mut packet = vec![0; 1 << 16];
    loop {
        let Ok((length, from)) = out.recv_from(&mut packet).await else { continue };
        shared.carry(packet[..length].to_vec(), from, to, &socket);
    }
}
