//! The progress line on standard error, when that is a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use thetis::Progress;

/// How often the line is drawn.
pub(super) const INTERVAL: Duration = Duration::from_millis(200);

/// One line that is redrawn in place; nothing at all when standard error is no terminal.
pub(super) struct ProgressLine {
    bar: Option<ProgressBar>,
}

impl ProgressLine {
    pub(super) fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_style(ProgressStyle::default_spinner());
            bar
        });
        Self { bar }
    }

    pub(super) fn show(&self, progress: &Progress) {
        let Some(bar) = &self.bar else { return };
        let seconds = bar.elapsed().as_secs_f64().max(0.001);
        let rate = (progress.rows_in as f64 / seconds) as u64;
        let read = match progress.total_bytes {
            Some(total) => format!("{:.0} % of {}", 100.0 * progress.bytes as f64 / total as f64, HumanBytes(total)),
            None => HumanBytes(progress.bytes).to_string(),
        };
        bar.set_message(format!(
            "{} rows in, {} rows/s, {read}, {} rows out",
            HumanCount(progress.rows_in),
            HumanCount(rate),
            HumanCount(progress.rows_out),
        ));
        bar.tick();
    }

    /// Runs `write` while the line is out of the way.
    pub(super) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
