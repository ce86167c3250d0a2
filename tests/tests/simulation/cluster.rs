//! A simulated cluster.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use thetis_cluster::front::client::{Client, ClientError, Response};
use thetis_cluster::net::memory::{Network, Weather};
use thetis_cluster::net::peers::Peers;
use thetis_cluster::net::transport::{Peer, Role};
use thetis_cluster::{CoordinatorNode, Host, MemoryStore, NodeOptions, Running, Worker, WorkerOptions};
use thetis_executor::ExecError;
use thetis_executor::clock::{Clock, RuntimeClock};
use thetis_executor::table::Tables;
use thetis_executor::task::Delivery;
use thetis_planner::Output;
use thetis_tests::{Value, rows as rows_of};
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const STACK: usize = 64 << 20;

/// Runs a simulation: one thread with a deep stack, whose time stands still while there is work.
pub(crate) fn simulate<T: Send + 'static>(simulation: impl Future<Output = T> + Send + 'static) -> T {
    let run = || Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(simulation);
    std::thread::Builder::new().stack_size(STACK).spawn(run).unwrap().join().unwrap()
}

/// A coordinator at `c` and workers at `w1`, `w2`, ....
pub(crate) struct Cluster {
    pub(crate) network: Network,
    _coordinator: Arc<CoordinatorNode>,
    _leave: watch::Sender<bool>,
    workers: usize,
}

impl Cluster {
    pub(crate) async fn start(seed: u64, workers: usize) -> Self {
        let network = Network::new(seed, Weather::default());
        let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::start());
        let options = NodeOptions { worker_timeout: Duration::from_secs(10), boot: seed };
        let coordinator = CoordinatorNode::start(
            &Handle::current(),
            network.endpoint(Peer::coordinator(), "c"),
            Arc::clone(&clock),
            Arc::new(MemoryStore::default()),
            None,
            &options,
        );
        let (leave, told) = watch::channel(false);
        for number in 1..=workers {
            let name = format!("w{number}");
            let peers = Peers::new(network.endpoint(Peer::new(Role::Worker, &name), &name));
            let tables = Arc::new(Tables::new());
            let host = Host::new(Handle::current(), Arc::clone(&clock), tables, Some(Arc::clone(&peers)));
            let options =
                WorkerOptions { slots: 1, address: name, coordinator: "c".to_owned(), boot: seed + number as u64 };
            let worker = Worker::new(options, Arc::new(host), peers);
            let told = told.clone();
            tokio::spawn(async move { worker.run(told, Duration::from_secs(1)).await });
        }
        let cluster = Self { network, _coordinator: coordinator.unwrap(), _leave: leave, workers };
        let client = cluster.client().await;
        while client.status().await.unwrap().workers.len() < workers {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        cluster
    }

    /// A new client, at an address of its own.
    pub(crate) async fn client(&self) -> Client {
        let transport = self.network.endpoint(Peer::new(Role::Client, "test"), "client");
        Client::connect(transport, "c").await.unwrap()
    }

    /// Cuts connections between the processes of the cluster, some for so short that they survive.
    pub(crate) fn cut_now_and_then(&self, seed: u64) -> JoinHandle<()> {
        let (network, workers) = (self.network.clone(), self.workers);
        tokio::spawn(async move {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(random.random_range(0..60))).await;
                let mut end = || match random.random_range(0..=workers) {
                    0 => "c".to_owned(),
                    number => format!("w{number}"),
                };
                let (a, b) = (end(), end());
                let time = random.random_range(Duration::from_millis(1)..Duration::from_secs(7));
                if a != b {
                    network.cut(&a, &b, time);
                }
            }
        })
    }
}

/// Runs a statement that gives no rows.
pub(crate) async fn done(client: &Client, sql: &str) {
    let response = client.execute(sql.to_owned(), Vec::new(), Output::Result).await;
    assert!(matches!(response, Ok(Response::Done(..))), "{sql}: {response:?}");
}

async fn run(client: &Client, sql: &str) -> Result<Running, ClientError> {
    match client.execute(sql.to_owned(), Vec::new(), Output::Result).await? {
        Response::Rows(_, running) => Ok(running),
        Response::Done(..) => panic!("{sql} gives no rows"),
    }
}

async fn collect(mut running: Running) -> Result<Vec<RecordBatch>, ExecError> {
    let mut batches = Vec::new();
    while let Some(delivery) = running.next().await? {
        if let Delivery::Frame(frame) = delivery {
            batches.push(frame.batch);
        }
    }
    Ok(batches)
}

/// The rows of a query's result.
pub(crate) async fn rows(client: &Client, sql: &str) -> Vec<Vec<Value>> {
    let batches = collect(run(client, sql).await.unwrap()).await.unwrap();
    batches.iter().flat_map(|batch| rows_of(batch, 0)).collect()
}

/// How a query ends.
pub(crate) async fn outcome(client: Client, sql: &str) -> Result<usize, ExecError> {
    let batches = collect(run(&client, sql).await.unwrap()).await?;
    Ok(batches.iter().map(RecordBatch::num_rows).sum())
}
