//! The spring of a stored table: its rows in epoch 1, then its commits.
//!
//! A query over tables alone has an epoch per commit, to whichever table: epoch e shows all tables
//! as they are at commit v + e - 1, where v is the commit that the query started from. Beside other
//! sources, commits belong to the epoch that runs when they come.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use thetis_planner::physical::EpochPolicy;
use tokio::sync::{mpsc, watch};

use super::{Change, Commit, Opened};
use crate::counters::Meter;
use crate::error::ExecError;
use crate::frame::{Epoch, FRAME_ROWS, Frame};
use crate::source::SourceCounters;
use crate::steps::batch_of;
use crate::task::{Control, Outbox};

/// How often a table beside sources that are cut by rows closes epochs, and how many at most.
const TICK: Duration = Duration::from_millis(10);
const MOST_AT_ONCE: u64 = 32;

/// A task that reads a stored table.
#[derive(Debug)]
pub(crate) struct TableTask {
    pub(crate) table: String,
    pub(crate) opened: Opened,
    /// Positions of the columns that are read, and the rows' schema by that.
    pub(crate) projection: Vec<usize>,
    pub(crate) schema: SchemaRef,
    pub(crate) policy: EpochPolicy,
    pub(crate) version: watch::Receiver<u64>,
    pub(crate) outbox: Outbox,
    pub(crate) meter: Meter,
    pub(crate) control: Control,
    pub(crate) counters: Arc<SourceCounters>,
}

impl TableTask {
    /// Runs to the end of the rows, or for ever if the table is followed.
    pub(crate) async fn run(mut self) -> Result<(), ExecError> {
        let rows = std::mem::take(&mut self.opened.rows);
        for batch in &rows {
            self.emit(batch, None, Epoch::FIRST).await?;
        }
        drop(rows);
        let Some(commits) = self.opened.commits.take() else {
            return self.outbox.progress(Epoch::END, &mut self.meter).await;
        };
        match self.policy {
            EpochPolicy::Commits => self.follow_commits(commits).await?,
            EpochPolicy::Interval(interval) => self.follow_clock(commits, interval).await?,
            EpochPolicy::Rows(_) => self.follow_rows(commits).await?,
        }
        self.outbox.progress(Epoch::END, &mut self.meter).await
    }

    /// One epoch per commit of any table.
    async fn follow_commits(&mut self, mut commits: mpsc::UnboundedReceiver<Commit>) -> Result<(), ExecError> {
        let first = self.opened.version;
        let epoch_of = |version: u64| Epoch(version - first + 1);
        let mut closed = first;
        let mut waiting: Option<Commit> = None;
        self.close(Epoch::FIRST, first).await?;
        loop {
            let latest = tokio::select! {
                biased;
                latest = self.version.wait_for(|version| *version > closed) => match latest {
                    Ok(version) => *version,
                    Err(_) => return Ok(()),
                },
                commit = commits.recv(), if waiting.is_none() => match commit {
                    Some(commit) => {
                        waiting = Some(commit);
                        continue;
                    }
                    // The table was dropped.
                    None => return Ok(()),
                },
            };
            let granted = self.control.granted.wait_for(|granted| *granted > epoch_of(closed)).await;
            let granted = *granted.map_err(|_| ExecError::Cancelled)?;
            let upto = latest.min(first.saturating_add(granted.0 - 1));
            // A commit is here before its number is told.
            loop {
                let commit = match waiting.take().map_or_else(|| commits.try_recv(), Ok) {
                    Ok(commit) => commit,
                    Err(mpsc::error::TryRecvError::Empty) => break,
                    Err(mpsc::error::TryRecvError::Disconnected) => return Ok(()),
                };
                if commit.version > upto {
                    waiting = Some(commit);
                    break;
                }
                self.emit_commit(&commit, epoch_of(commit.version)).await?;
            }
            closed = upto;
            self.close(epoch_of(closed), closed).await?;
        }
    }

    /// Commits belong to the epoch of the clock.
    async fn follow_clock(
        &mut self,
        mut commits: mpsc::UnboundedReceiver<Commit>,
        interval: Duration,
    ) -> Result<(), ExecError> {
        let mut epoch = Epoch::FIRST;
        let mut version = self.opened.version;
        loop {
            let now = self.control.clock.now();
            let elapsed = now.as_nanos() / interval.as_nanos().max(1);
            let by_clock = Epoch(u64::try_from(elapsed).unwrap_or(u64::MAX - 1).saturating_add(1));
            let open = by_clock.min(*self.control.granted.borrow());
            if open > epoch {
                self.close(Epoch(open.0 - 1), version).await?;
                epoch = open;
            }
            let rest = interval - Duration::from_nanos((now.as_nanos() % interval.as_nanos().max(1)) as u64);
            tokio::select! {
                biased;
                commit = commits.recv() => match commit {
                    Some(commit) => {
                        version = commit.version;
                        self.emit_commit(&commit, epoch).await?;
                    }
                    None => return Ok(()),
                },
                () = tokio::time::sleep(rest.min(interval)) => version = version.max(self.seen(&commits)),
            }
        }
    }

    /// Other sources cut by rows, and say nothing of time: a few epochs are closed at every tick, more the
    /// faster the others are. Commits belong to the first epoch that is open then.
    async fn follow_rows(&mut self, mut commits: mpsc::UnboundedReceiver<Commit>) -> Result<(), ExecError> {
        let mut closed = Epoch::NONE;
        let mut version = self.opened.version;
        let mut at_once = 1;
        loop {
            let granted = self.control.granted.wait_for(|granted| *granted > closed).await;
            let granted = *granted.map_err(|_| ExecError::Cancelled)?;
            if granted == Epoch::END {
                return Ok(());
            }
            version = version.max(self.seen(&commits));
            loop {
                match commits.try_recv() {
                    Ok(commit) => {
                        version = version.max(commit.version);
                        self.emit_commit(&commit, Epoch(closed.0 + 1)).await?;
                    }
                    Err(mpsc::error::TryRecvError::Empty) => break,
                    Err(mpsc::error::TryRecvError::Disconnected) => return Ok(()),
                }
            }
            // If all that was closed here is finished, the others were faster. Else they are waited for: a
            // commit is to show soon, not many of their epochs later.
            let finished = *self.control.committed.borrow();
            at_once = if finished >= closed { (at_once * 2).min(MOST_AT_ONCE) } else { 1 };
            let next = granted.min(Epoch(finished.0.saturating_add(at_once)));
            if next > closed {
                closed = next;
                self.close(closed, version).await?;
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// The last commit of any table, if none of this one waits.
    fn seen(&self, commits: &mpsc::UnboundedReceiver<Commit>) -> u64 {
        let version = *self.version.borrow();
        if commits.is_empty() { version } else { 0 }
    }

    /// All commits up to `version` are in the epochs up to `epoch`.
    async fn close(&mut self, epoch: Epoch, version: u64) -> Result<(), ExecError> {
        self.counters.covers(epoch, version);
        self.meter.begin();
        self.outbox.progress(epoch, &mut self.meter).await
    }

    async fn emit_commit(&mut self, commit: &Commit, epoch: Epoch) -> Result<(), ExecError> {
        for Change { rows, weights } in commit.changes.iter() {
            self.emit(rows, weights.as_deref(), epoch).await?;
        }
        Ok(())
    }

    async fn emit(&mut self, rows: &RecordBatch, weights: Option<&[i64]>, epoch: Epoch) -> Result<(), ExecError> {
        self.meter.begin();
        let columns = self.projection.iter().map(|column| Arc::clone(rows.column(*column))).collect();
        let read = batch_of(&self.schema, columns, rows.num_rows())?;
        for start in (0..rows.num_rows()).step_by(FRAME_ROWS) {
            let length = FRAME_ROWS.min(rows.num_rows() - start);
            let weights = weights.map(|weights| weights[start..start + length].into());
            let frame = Frame { weights, ..Frame::inserts(read.slice(start, length), epoch) };
            let sent = self.outbox.send(frame, &mut self.meter).await;
            sent.map_err(|error| error.at(|| format!("table {}, epoch {epoch}", self.table)))?;
        }
        self.meter.worked();
        self.counters.rows.fetch_add(rows.num_rows() as u64, Ordering::Relaxed);
        self.counters.epoch.store(epoch.0, Ordering::Relaxed);
        Ok(())
    }
}
