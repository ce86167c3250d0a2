//! A simulated network in one process: seeded delays, reorder across streams, stalls and partitions,
//! under the runtime's virtual time. The same seed gives the same events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::transport::{Connection, IDLE, NetError, Peer, Pending, ReceiveHalf, SendHalf, Stream, Transport};

/// Chunks that may be on the way in a stream.
const WINDOW: usize = 16;
/// Bytes of a chunk at most.
const CHUNK: usize = 64 << 10;
/// Events of the trace that are kept word for word.
const MAX_TRACE: usize = 1 << 20;

/// How bad the network is.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    /// The least and the most that a chunk takes.
    pub delay: (Duration, Duration),
    /// One of so many chunks is held up...
    pub stall_one_in: u32,
    /// ... for up to this long.
    pub stall: Duration,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            delay: (Duration::from_micros(50), Duration::from_millis(5)),
            stall_one_in: 200,
            stall: Duration::from_millis(300),
        }
    }
}

/// Why a connection is gone, once it is.
type End = watch::Sender<Option<String>>;

/// A network.
#[derive(Debug, Clone)]
pub struct Network(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    random: ChaCha8Rng,
    weather: Weather,
    start: Instant,
    endpoints: BTreeMap<String, mpsc::UnboundedSender<Arc<dyn Connection>>>,
    /// Until when two addresses cannot reach each other.
    cut: BTreeMap<(String, String), Instant>,
    connections: Vec<(String, String, Weak<End>)>,
    trace: Vec<String>,
}

fn pair(a: &str, b: &str) -> (String, String) {
    if a < b { (a.to_owned(), b.to_owned()) } else { (b.to_owned(), a.to_owned()) }
}

impl Network {
    /// A network whose accidents come from `seed`. Must be made within a runtime.
    pub fn new(seed: u64, weather: Weather) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: ChaCha8Rng::seed_from_u64(seed),
            weather,
            start: Instant::now(),
            endpoints: BTreeMap::new(),
            cut: BTreeMap::new(),
            connections: Vec::new(),
            trace: Vec::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An endpoint of `peer` at `address`; it takes the place of one that was there.
    pub fn endpoint(&self, peer: Peer, address: &str) -> Arc<dyn Transport> {
        let (sender, incoming) = mpsc::unbounded_channel();
        self.lock().endpoints.insert(address.to_owned(), sender);
        Arc::new(Endpoint {
            network: self.clone(),
            peer,
            address: address.to_owned(),
            incoming: tokio::sync::Mutex::new(incoming),
        })
    }

    /// For `time`, nothing goes between two addresses. Connections break if it takes too long.
    pub fn cut(&self, a: &str, b: &str, time: Duration) {
        let mut state = self.lock();
        let until = Instant::now() + time;
        state.note(&format!("cut {a} {b}"), 0);
        state.cut.insert(pair(a, b), until);
        if time < IDLE {
            return;
        }
        let broken: Vec<_> = state
            .connections
            .iter()
            .filter(|(x, y, _)| pair(x, y) == pair(a, b))
            .map(|(.., end)| end.clone())
            .collect();
        drop(state);
        tokio::spawn(async move {
            sleep_until(Instant::now() + IDLE).await;
            for end in broken.iter().filter_map(Weak::upgrade) {
                end.send_replace(Some("nothing came".to_owned()));
            }
        });
    }

    /// What has happened: time, ends and bytes of each chunk, in order.
    pub fn trace(&self) -> Vec<String> {
        self.lock().trace.clone()
    }
}

impl State {
    fn note(&mut self, what: &str, bytes: usize) {
        if self.trace.len() < MAX_TRACE {
            let at = self.start.elapsed().as_micros();
            self.trace.push(format!("{at} {what} {bytes}"));
        }
    }

    /// When something that is sent now arrives.
    fn arrival(&mut self, a: &str, b: &str) -> Instant {
        let Weather { delay: (least, most), stall_one_in, stall } = self.weather;
        let mut delay = self.random.random_range(least..=most);
        if self.random.random_range(0..stall_one_in.max(1)) == 0 {
            delay += self.random.random_range(Duration::ZERO..=stall);
        }
        let now = Instant::now();
        let open = self.cut.get(&pair(a, b)).copied().filter(|until| *until > now).unwrap_or(now);
        open + delay
    }
}

#[derive(Debug)]
struct Endpoint {
    network: Network,
    peer: Peer,
    address: String,
    incoming: tokio::sync::Mutex<mpsc::UnboundedReceiver<Arc<dyn Connection>>>,
}

impl Transport for Endpoint {
    fn connect<'a>(&'a self, peer: &'a Peer, address: &'a str) -> Pending<'a, Result<Arc<dyn Connection>, NetError>> {
        Box::pin(async move {
            let unreachable =
                |reason: &str| NetError::Unreachable { address: address.to_owned(), reason: reason.to_owned() };
            let arrival = self.network.lock().arrival(&self.address, address);
            if arrival > Instant::now() + IDLE {
                sleep_until(Instant::now() + IDLE).await;
                return Err(unreachable("nobody answers there"));
            }
            sleep_until(arrival).await;
            let mut state = self.network.lock();
            let Some(accept) = state.endpoints.get(address).cloned() else {
                return Err(unreachable("nobody answers there"));
            };
            let end = Arc::new(watch::channel(None).0);
            let (to, at_peer) = mpsc::unbounded_channel();
            let (from, here) = mpsc::unbounded_channel();
            let side = |peer: &Peer, addresses: (&str, &str), open, accepted| {
                Arc::new(MemoryConnection {
                    network: self.network.clone(),
                    peer: peer.clone(),
                    addresses: (addresses.0.to_owned(), addresses.1.to_owned()),
                    open,
                    accepted: tokio::sync::Mutex::new(accepted),
                    end: Arc::clone(&end),
                }) as Arc<dyn Connection>
            };
            let own = side(peer, (&self.address, address), to, here);
            let theirs = side(&self.peer, (address, &self.address), from, at_peer);
            state.connections.push((self.address.clone(), address.to_owned(), Arc::downgrade(&end)));
            state.note(&format!("connect {} {address}", self.address), 0);
            accept.send(theirs).map_err(|_| unreachable("nobody answers there"))?;
            Ok(own)
        })
    }

    fn accept(&self) -> Pending<'_, Option<Arc<dyn Connection>>> {
        Box::pin(async move { self.incoming.lock().await.recv().await })
    }

    fn address(&self) -> String {
        self.address.clone()
    }
}

#[derive(Debug)]
struct MemoryConnection {
    network: Network,
    peer: Peer,
    /// Of this side, of the other side.
    addresses: (String, String),
    open: mpsc::UnboundedSender<Stream>,
    accepted: tokio::sync::Mutex<mpsc::UnboundedReceiver<Stream>>,
    end: Arc<End>,
}

async fn ended(end: &End) -> NetError {
    let mut end = end.subscribe();
    let reason = end.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
    NetError::Lost(reason.unwrap_or_default())
}

impl MemoryConnection {
    fn is_ended(&self) -> Result<(), NetError> {
        self.end.borrow().clone().map_or(Ok(()), |reason| Err(NetError::Lost(reason)))
    }

    /// A direction of a stream, from one address to another.
    fn direction(&self, from: &str, to: &str) -> (Box<dyn SendHalf>, Box<dyn ReceiveHalf>) {
        let (sender, receiver) = mpsc::channel(WINDOW);
        let send = MemorySend {
            network: self.network.clone(),
            addresses: (from.to_owned(), to.to_owned()),
            chunks: Some(sender),
            last: Instant::now(),
            end: Arc::clone(&self.end),
        };
        (Box::new(send), Box::new(MemoryReceive { chunks: receiver, arrived: None, end: Arc::clone(&self.end) }))
    }
}

impl Connection for MemoryConnection {
    fn peer(&self) -> Option<&Peer> {
        Some(&self.peer)
    }

    fn remote(&self) -> String {
        self.addresses.1.clone()
    }

    fn open(&self) -> Pending<'_, Result<Stream, NetError>> {
        Box::pin(async move {
            self.is_ended()?;
            let (here, there) = (&self.addresses.0, &self.addresses.1);
            let (out, in_there) = self.direction(here, there);
            let (out_there, back) = self.direction(there, here);
            let gone = |_| NetError::Lost("the other side is gone".to_owned());
            self.open.send(Stream { send: out_there, receive: in_there }).map_err(gone)?;
            Ok(Stream { send: out, receive: back })
        })
    }

    fn accept(&self) -> Pending<'_, Result<Stream, NetError>> {
        Box::pin(async move {
            let mut accepted = self.accepted.lock().await;
            tokio::select! {
                biased;
                reason = ended(&self.end) => Err(reason),
                stream = accepted.recv() => {
                    stream.ok_or_else(|| NetError::Lost("the other side is gone".to_owned()))
                }
            }
        })
    }

    fn close(&self, reason: &str) {
        self.end.send_if_modified(|end| {
            let open = end.is_none();
            if open {
                *end = Some(reason.to_owned());
            }
            open
        });
    }

    fn closed(&self) -> Pending<'_, NetError> {
        Box::pin(ended(&self.end))
    }
}

struct MemorySend {
    network: Network,
    addresses: (String, String),
    chunks: Option<mpsc::Sender<(Instant, Bytes)>>,
    /// Nothing arrives before this.
    last: Instant,
    end: Arc<End>,
}

impl SendHalf for MemorySend {
    fn send<'a>(&'a mut self, chunks: &'a mut [Bytes]) -> Pending<'a, Result<(), NetError>> {
        Box::pin(async move {
            let Some(sender) = self.chunks.clone() else { return Err(NetError::Stopped) };
            for chunk in chunks {
                while !chunk.is_empty() {
                    let piece = chunk.split_to(CHUNK.min(chunk.len()));
                    let place = tokio::select! {
                        biased;
                        reason = ended(&self.end) => return Err(reason),
                        place = sender.reserve() => place.map_err(|_| NetError::Stopped)?,
                    };
                    let (from, to) = (&self.addresses.0, &self.addresses.1);
                    let mut state = self.network.lock();
                    self.last = self.last.max(state.arrival(from, to));
                    state.note(&format!("send {from} {to}"), piece.len());
                    place.send((self.last, piece));
                }
            }
            Ok(())
        })
    }

    fn finish(&mut self) {
        self.chunks = None;
    }

    fn stopped(&self) -> Pending<'static, ()> {
        let (chunks, end) = (self.chunks.clone(), Arc::clone(&self.end));
        Box::pin(async move {
            let Some(chunks) = chunks else { return };
            tokio::select! {
                biased;
                _ = ended(&end) => {}
                () = chunks.closed() => {}
            }
        })
    }
}

struct MemoryReceive {
    chunks: mpsc::Receiver<(Instant, Bytes)>,
    /// A chunk that has been taken from the channel; it arrives at its time.
    arrived: Option<(Instant, Bytes)>,
    end: Arc<End>,
}

impl ReceiveHalf for MemoryReceive {
    fn receive(&mut self, most: usize) -> Pending<'_, Result<Option<Bytes>, NetError>> {
        Box::pin(async move {
            loop {
                if let Some((at, mut chunk)) = self.arrived.take() {
                    if at > Instant::now() {
                        self.arrived = Some((at, chunk));
                        tokio::select! {
                            biased;
                            reason = ended(&self.end) => return Err(reason),
                            () = sleep_until(at) => continue,
                        }
                    }
                    let piece = chunk.split_to(most.min(chunk.len()));
                    if !chunk.is_empty() {
                        self.arrived = Some((at, chunk));
                    }
                    return Ok(Some(piece));
                }
                tokio::select! {
                    biased;
                    reason = ended(&self.end) => return Err(reason),
                    chunk = self.chunks.recv() => match chunk {
                        Some(chunk) => self.arrived = Some(chunk),
                        None => return Ok(None),
                    },
                }
            }
        })
    }
}
