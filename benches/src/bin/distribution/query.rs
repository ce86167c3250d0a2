//! One query, in one process and on clusters, warm: CPU of all processes together.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use thetis::{Driver, Response};

use crate::median;

type Failure = Box<dyn std::error::Error>;

/// Ticks per second of the process times that Linux shows.
const TICKS: f64 = 100.0;

/// CPU seconds of a process so far.
fn cpu(id: u32) -> Result<f64, Failure> {
    let line = fs::read_to_string(format!("/proc/{id}/stat"))?;
    let fields: Vec<&str> = line.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / TICKS)
}

/// CPU seconds and seconds of each round, and what EXPLAIN ANALYZE counted as sent.
struct Run {
    cpu: f64,
    wall: f64,
    sent: Option<f64>,
}

/// Runs the query on a connection, whose processes are given.
fn run(connection: &thetis::Connection, processes: &[u32], sql: &str, rounds: usize) -> Result<Run, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut cpus, mut walls) = (Vec::new(), Vec::new());
    let all = || processes.iter().map(|id| cpu(*id)).sum::<Result<f64, _>>();
    // One more round than is counted: the first one warms up.
    for round in 0..=rounds {
        #[expect(clippy::disallowed_methods, reason = "a benchmark takes the time")]
        let (before, started) = (all()?, Instant::now());
        runtime.block_on(async {
            let mut statement = connection.statement();
            let mut rows = statement.query(sql).await?;
            while rows.next_batch().await?.is_some() {}
            Ok::<(), thetis::Error>(())
        })?;
        if round > 0 {
            walls.push(started.elapsed().as_secs_f64());
            cpus.push(all()? - before);
        }
    }
    let sent = runtime.block_on(sent(connection, sql))?;
    Ok(Run { cpu: median(cpus), wall: median(walls), sent })
}

/// Bytes on the wire for each byte of columns, weights and units.
async fn sent(connection: &thetis::Connection, sql: &str) -> Result<Option<f64>, Failure> {
    let mut statement = connection.statement();
    let mut plan = statement.query(&format!("EXPLAIN (ANALYZE, FORMAT JSON) {sql}")).await?;
    let Some(row) = plan.next_row().await? else { return Ok(None) };
    let text: String = row.at(0)?;
    let sum = |name: &str| -> f64 {
        let values = text.split(name).skip(1);
        values
            .filter_map(|rest| {
                rest.trim_start_matches(['"', ':', ' ']).split([',', '}', '\n']).next()?.trim().parse::<f64>().ok()
            })
            .sum()
    };
    let (bytes, payload) = (sum("sent_bytes"), sum("sent_payload"));
    Ok((payload > 0.0).then(|| bytes / payload))
}

fn define(connection: &thetis::Connection, definitions: &str, parallelism: usize) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let settings = format!("SET parallelism = {parallelism}; {definitions}");
    for piece in thetis::split(&settings) {
        let mut statement = connection.statement();
        if let Response::Rows(_) = runtime.block_on(statement.execute(piece.text))? {
            return Err("definitions give no rows".into());
        }
    }
    Ok(())
}

/// Compares, and prints a table.
pub(crate) fn compare(thetis: &Path, definitions: &str, sql: &str, rounds: usize) -> Result<(), Failure> {
    println!("| where | CPU s | wall s | CPU of embedded | wire bytes / payload |\n| --- | --- | --- | --- | --- |");
    let embedded = Driver::open("thetis:")?;
    // As many tasks as the cluster has slots.
    define(&embedded, definitions, 2)?;
    let base = run(&embedded, &[std::process::id()], sql, rounds)?;
    println!("| embedded | {:.3} | {:.3} | 1.00 | |", base.cpu, base.wall);
    for workers in [1, 2] {
        let data = tempfile::tempdir()?;
        let listen = format!("127.0.0.1:{}", 27170 + workers);
        let command = |arguments: &[&str]| {
            let mut command = Command::new(thetis);
            command.args(arguments).env("THETIS_DATA", data.path()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status()
        };
        let slots = (2 / workers).to_string();
        command(&["cluster", "up", "--workers", &workers.to_string(), "--slots", &slots, "--listen", &listen])?;
        let measured = || -> Result<Run, Failure> {
            let identity = data.path().join("identities/client-local");
            let connection = Driver::connect(&listen, Some(&identity))?;
            define(&connection, definitions, 2)?;
            let mut processes = vec![std::process::id()];
            for entry in fs::read_dir(data.path().join("run"))? {
                processes.push(fs::read_to_string(entry?.path())?.trim().parse()?);
            }
            run(&connection, &processes, sql, rounds)
        };
        let measured = measured();
        command(&["cluster", "down"])?;
        let Run { cpu, wall, sent } = measured?;
        let ratio = sent.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        println!("| {workers} worker(s) | {cpu:.3} | {wall:.3} | {:.2} | {ratio} |", cpu / base.cpu);
    }
    Ok(())
}
