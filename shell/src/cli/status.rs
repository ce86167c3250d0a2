//! `thetis status`: a cluster, for people.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use thetis::{Driver, Error, Status};

use super::args::{Format, StatusArgs};
use super::output::{Display, Out};
use super::report::say;
use super::{exit, settings::DEFAULT_LISTEN};

/// Runs the command; its exit code.
pub(super) fn run(args: &StatusArgs) -> u8 {
    let address = args.connect.connect.as_deref().unwrap_or(DEFAULT_LISTEN);
    let status = Driver::connect(address, args.connect.identity.as_deref()).and_then(|connection| connection.status());
    match status.and_then(|status| print(&status, args.tasks)) {
        Ok(()) => 0,
        Err(error) => {
            say(format!("ERROR: {error}"));
            if let Some(hint) = error.hint() {
                say(format!("HINT: {hint}"));
            }
            exit::FAILED
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn print(status: &Status, tasks: bool) -> Result<(), Error> {
    println!("coordinator {}, up for {}", status.address, seconds(status.uptime));
    let workers = status.workers.iter().map(|worker| {
        let silence = seconds(worker.silence);
        let (slots, tasks) = (worker.slots.to_string(), worker.tasks.to_string());
        [worker.name.clone(), worker.address.clone(), worker.state.clone(), slots, tasks, silence]
    });
    table(["worker", "address", "state", "slots", "tasks", "last heard"], workers);
    let queries = status.queries.iter().map(|query| {
        let rate = query.rows_in as f64 / query.runs.as_secs_f64().max(0.001);
        let counts = [query.rows_in.to_string(), format!("{rate:.0}"), query.rows_out.to_string()];
        let [rows_in, rate, rows_out] = counts;
        let (id, epoch) = (query.id.to_string(), query.epoch.to_string());
        [id, seconds(query.runs), query.tasks.to_string(), rows_in, rate, rows_out, epoch]
    });
    table(["query", "runs", "tasks", "rows in", "rows/s", "rows out", "epoch"], queries);
    if tasks {
        let rows = status.tasks.iter().map(|task| {
            let times = [task.busy, task.blocked, task.idle].map(seconds);
            let [busy, blocked, idle] = times;
            let (rows_in, rows_out) = (task.rows_in.to_string(), task.rows_out.to_string());
            let queue = task.queue.to_string();
            [
                task.query.to_string(),
                task.task.clone(),
                task.worker.clone(),
                rows_in,
                rows_out,
                busy,
                blocked,
                idle,
                queue,
            ]
        });
        table(["query", "task", "worker", "rows in", "rows out", "busy", "blocked", "idle", "queue"], rows);
    }
    Ok(())
}

/// A table of texts on standard output.
fn table<const N: usize>(names: [&str; N], rows: impl Iterator<Item = [String; N]>) {
    let rows: Vec<[String; N]> = rows.collect();
    let column = |i: usize| Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row[i]))) as ArrayRef;
    let columns = names.iter().enumerate().map(|(i, name)| (*name, column(i)));
    if let Ok(batch) = RecordBatch::try_from_iter(columns) {
        // Nobody may read it any more.
        let _ = super::output::print_whole(&mut Out::stdout(), &Display::new(Format::Table), &batch);
    }
}
