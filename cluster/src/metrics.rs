//! The coordinator's metrics, in the text format of Prometheus, over plain HTTP on an address of their own.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::front::protocol::Status;
use crate::node::CoordinatorNode;

/// Bytes of a request that are looked at.
const MAX_REQUEST: usize = 4 << 10;
/// A request is read and answered within this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests that are answered at a time.
const MAX_REQUESTS: usize = 16;

/// Answers requests for ever.
pub(crate) async fn serve(listener: TcpListener, node: Arc<CoordinatorNode>) {
    let places = Arc::new(Semaphore::new(MAX_REQUESTS));
    while let Ok((stream, _)) = listener.accept().await {
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let node = Arc::clone(&node);
        tokio::spawn(async move {
            let _ = tokio::time::timeout(PATIENCE, answer(stream, &node)).await;
            drop(place);
        });
    }
}

async fn answer(mut stream: TcpStream, node: &CoordinatorNode) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < MAX_REQUEST {
        let mut piece = [0; 512];
        match stream.read(&mut piece).await? {
            0 => break,
            read => request.extend_from_slice(&piece[..read]),
        }
    }
    let found = request.starts_with(b"GET /metrics ") || request.starts_with(b"GET / ");
    let (status, body) =
        if found { ("200 OK", render(&node.status())) } else { ("404 Not Found", "see /metrics\n".to_owned()) };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// One metric: its name, kind and meaning, then its samples.
fn metric(out: &mut String, name: &str, kind: &str, meaning: &str, samples: impl Iterator<Item = (String, f64)>) {
    let _ = writeln!(out, "# HELP thetis_{name} {meaning}\n# TYPE thetis_{name} {kind}");
    for (labels, value) in samples {
        let _ = writeln!(out, "thetis_{name}{labels} {value}");
    }
}

/// The metrics of a cluster.
fn render(status: &Status) -> String {
    let mut out = String::new();
    let one = |value: f64| std::iter::once((String::new(), value));
    metric(&mut out, "uptime_seconds", "gauge", "Since the coordinator started.", one(status.uptime.as_secs_f64()));
    metric(&mut out, "queries", "gauge", "Queries that run.", one(status.queries.len() as f64));
    type OfWorker = fn(&crate::front::protocol::WorkerRow) -> f64;
    let of_workers: [(&str, &str, OfWorker); 3] = [
        ("worker_slots", "Slots of a worker.", |worker| f64::from(worker.slots)),
        ("worker_tasks", "Tasks that a worker runs.", |worker| f64::from(worker.tasks)),
        ("worker_silence_seconds", "Since a worker was last heard of.", |worker| worker.silence.as_secs_f64()),
    ];
    for (name, meaning, value) in of_workers {
        let samples = status.workers.iter().map(|worker| (format!("{{worker=\"{}\"}}", worker.name), value(worker)));
        metric(&mut out, name, "gauge", meaning, samples);
    }
    type OfTask = fn(&crate::front::protocol::TaskRow) -> f64;
    let of_tasks: [(&str, &str, &str, OfTask); 7] = [
        ("task_rows_in_total", "counter", "Rows that a task has taken.", |task| task.rows_in as f64),
        ("task_rows_out_total", "counter", "Rows that a task has given out.", |task| task.rows_out as f64),
        ("task_bytes_total", "counter", "Bytes that a source has read.", |task| task.bytes as f64),
        ("task_busy_seconds_total", "counter", "Time at work.", |task| task.busy.as_secs_f64()),
        ("task_blocked_seconds_total", "counter", "Time without room downstream.", |task| task.blocked.as_secs_f64()),
        ("task_idle_seconds_total", "counter", "Time without input.", |task| task.idle.as_secs_f64()),
        ("task_queue_messages", "gauge", "Messages that wait for a task.", |task| task.queue as f64),
    ];
    for (name, kind, meaning, value) in of_tasks {
        let samples = status.tasks.iter().map(|task| {
            let label = task.task.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            (format!("{{query=\"{}\",task=\"{label}\",worker=\"{}\"}}", task.query, task.worker), value(task))
        });
        metric(&mut out, name, kind, meaning, samples);
    }
    out
}
