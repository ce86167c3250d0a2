//! Prints one result as it comes, until it ends, is cancelled, or has printed enough.

use std::io::{self, IsTerminal};

use arrow::array::RecordBatch;
use thetis::ResultSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};

use super::args::Format;
use super::interrupts::Interrupts;
use super::live::Live;
use super::output::{Display, Out, Writer};
use super::progress::{INTERVAL, ProgressLine};
use super::report::say;
use super::run::Failure;
use super::screen;

/// Rows that are written before Ctrl-C is looked at again.
const SLICE: usize = 1024;

/// How a result is printed.
pub(super) struct Printing<'a> {
    pub(super) display: &'a Display,
    pub(super) out: &'a Out,
    pub(super) interrupts: &'a Interrupts,
    pub(super) limits: Limits,
    /// A result that changes for ever may be redrawn in place.
    pub(super) live: bool,
}

/// When a query has run long enough.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) until: Option<Instant>,
    pub(super) rows: Option<u64>,
}

/// How printing ended when nothing failed.
enum Ended {
    /// The result did.
    Complete,
    /// The time is over.
    Time,
    /// There are more rows than are wanted.
    Rows,
}

/// Prints `rows`.
pub(super) async fn print(mut rows: ResultSet, how: &Printing<'_>) -> Result<(), Failure> {
    for notice in rows.notices() {
        say(format!("NOTICE: {notice}"));
    }
    let mut view = View::new(&rows, how);
    let mut footer = ProgressLine::new();
    let outcome = follow(&mut rows, &mut view, &mut footer, how).await;
    footer.hide();
    let progress = rows.progress();
    match (&mut view, &outcome) {
        (View::Rows { writer, .. }, Ok(_)) => {
            writer.finish()?;
            how.out.flush_all()?;
        }
        (View::Rows { .. }, Err(_)) => {}
        (View::Live(live), Ok(Ended::Complete)) => live.finish(&progress)?,
        (View::Live(live), _) => live.draw(&progress)?,
    }
    match outcome? {
        Ended::Complete => {}
        Ended::Time => say("NOTICE: the time is over: the query is ended"),
        Ended::Rows => say("NOTICE: there are more rows than the limit: the query is ended"),
    }
    if progress.skipped > 0 {
        let records = if progress.skipped == 1 { "record" } else { "records" };
        say(format!("NOTICE: {} {records} that could not be read: skipped", progress.skipped));
    }
    Ok(())
}

async fn follow(
    rows: &mut ResultSet,
    view: &mut View,
    footer: &mut ProgressLine,
    how: &Printing<'_>,
) -> Result<Ended, Failure> {
    let mut ticks = interval_at(Instant::now() + INTERVAL, INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut left = how.limits.rows.unwrap_or(u64::MAX);
    loop {
        if left == 0 {
            // Whether there is more is told soon, or does not matter.
            return match timeout(INTERVAL, rows.next_batch()).await {
                Ok(Ok(None)) => Ok(Ended::Complete),
                Ok(Err(error)) => Err(error.into()),
                Ok(Ok(Some(_))) | Err(_) => Ok(Ended::Rows),
            };
        }
        tokio::select! {
            batch = rows.next_batch() => {
                let Some(batch) = batch? else { return Ok(Ended::Complete) };
                let wanted = batch.num_rows().min(usize::try_from(left).unwrap_or(usize::MAX));
                footer.hide();
                view.write(&batch.slice(0, wanted), how.interrupts)?;
                if wanted < batch.num_rows() {
                    return Ok(Ended::Rows);
                }
                left -= wanted as u64;
            }
            _ = ticks.tick() => {
                let progress = rows.progress();
                match view {
                    View::Rows { writer, eager } => {
                        writer.show(*eager)?;
                        footer.show(&progress);
                    }
                    View::Live(live) => live.draw(&progress)?,
                }
            }
            () = how.interrupts.told() => return Err(Failure::Interrupted),
            () = time_is_over(how.limits.until) => return Ok(Ended::Time),
        }
    }
}

async fn time_is_over(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Where rows go.
enum View {
    /// Written one after the other. An eager writer shows what it has, before it knows all widths.
    Rows { writer: Writer<Out>, eager: bool },
    /// A table that is redrawn.
    Live(Box<Live>),
}

impl View {
    fn new(rows: &ResultSet, how: &Printing<'_>) -> Self {
        let terminal = how.out.is_stdout() && io::stdout().is_terminal();
        let live = how.live && rows.is_changelog() && how.display.format == Format::Table && how.limits.rows.is_none();
        if live && terminal && screen::moves_cursor() {
            return Self::Live(Box::new(Live::new(rows.schema())));
        }
        let writer = Writer::new(how.display, rows.schema(), how.out.clone());
        Self::Rows { writer, eager: terminal || !rows.is_bounded() }
    }

    fn write(&mut self, batch: &RecordBatch, interrupts: &Interrupts) -> Result<(), Failure> {
        match self {
            Self::Live(live) => live.add(batch)?,
            Self::Rows { writer, .. } => {
                for start in (0..batch.num_rows()).step_by(SLICE) {
                    if interrupts.is_told() {
                        return Err(Failure::Interrupted);
                    }
                    writer.write(&batch.slice(start, SLICE.min(batch.num_rows() - start)))?;
                }
            }
        }
        Ok(())
    }
}
