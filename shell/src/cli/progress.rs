//! The progress line on standard error, when that is a terminal and nothing is printed for a while.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use thetis::Progress;
use tokio::time::Instant;

use super::screen;

/// How often the line is drawn.
pub(super) const INTERVAL: Duration = Duration::from_millis(200);

/// For how long nothing must have been printed.
const QUIET: Duration = Duration::from_millis(500);

/// One line that is redrawn in place; nothing at all when standard error is no terminal.
pub(super) struct ProgressLine {
    wanted: bool,
    bar: Option<ProgressBar>,
    started: Instant,
    printed: Instant,
}

impl ProgressLine {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let wanted = std::io::stderr().is_terminal() && screen::moves_cursor();
        Self { wanted, bar: None, started: now, printed: now }
    }

    /// Shows how far the query is, if nothing was printed for a while.
    pub(super) fn show(&mut self, progress: &Progress) {
        if !self.wanted || self.printed.elapsed() < QUIET {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_style(ProgressStyle::default_spinner());
            bar
        });
        let read = match progress.total_bytes {
            Some(total) => format!(", {:.0} % of {}", 100.0 * progress.bytes as f64 / total as f64, HumanBytes(total)),
            None if progress.bytes > 0 => format!(", {}", HumanBytes(progress.bytes)),
            None => String::new(),
        };
        bar.set_message(format!("{}{read}", summary(progress, self.started.elapsed())));
        bar.tick();
    }

    /// Something is about to be printed.
    pub(super) fn hide(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.printed = Instant::now();
    }
}

/// How far a query is, after it has run for so long.
pub(super) fn summary(progress: &Progress, elapsed: Duration) -> String {
    let rate = (progress.rows_in as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
    let epoch = progress.epoch.map_or_else(String::new, |epoch| format!(", epoch {epoch}"));
    format!(
        "{} rows in, {} rows/s, {} rows out{epoch}",
        HumanCount(progress.rows_in),
        HumanCount(rate),
        HumanCount(progress.rows_out),
    )
}
