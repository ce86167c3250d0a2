//! Stored tables: rows that statements or the results of queries put there, in memory.
//!
//! A table is a multiset of rows. Every commit has a number, counted over all tables of an engine,
//! and is handed to who follows the table; tables that are opened together show the same commit.
//!
//! ```text
//! INSERT, UPDATE, DELETE, materialized views -> commit -> rows now
//!                                                      -> followers (springs of running queries)
//! ```

mod spring;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use thetis_planner::connector::TableId;
use tokio::sync::{mpsc, watch};

use crate::error::ExecError;
use crate::frame::FRAME_ROWS;
use crate::zset::ZSet;

pub(crate) use spring::TableTask;

/// Rows with their weights.
#[derive(Debug, Clone)]
pub struct Change {
    /// The rows.
    pub rows: RecordBatch,
    /// One per row: +n for n inserts, -n for n deletes; absent means all +1.
    pub weights: Option<Arc<[i64]>>,
}

impl Change {
    /// Inserts.
    pub fn inserts(rows: RecordBatch) -> Self {
        Self { rows, weights: None }
    }

    /// Deletes of rows that are there.
    pub fn deletes(rows: RecordBatch) -> Self {
        let weights = vec![-1; rows.num_rows()].into();
        Self { rows, weights: Some(weights) }
    }

    /// Inserts less deletes.
    fn net_rows(&self) -> i64 {
        self.weights.as_ref().map_or(self.rows.num_rows() as i64, |weights| weights.iter().sum())
    }
}

/// What one commit did to one table.
#[derive(Debug, Clone)]
pub(crate) struct Commit {
    /// Its number.
    pub(crate) version: u64,
    pub(crate) changes: Arc<[Change]>,
}

/// A table as it is at a commit, and what comes after it.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The commit.
    pub(crate) version: u64,
    pub(crate) rows: Vec<RecordBatch>,
    /// Later commits, if they are wanted.
    pub(crate) commits: Option<mpsc::UnboundedReceiver<Commit>>,
}

/// All stored tables of an engine.
#[derive(Debug)]
pub struct Tables {
    state: Mutex<State>,
    version: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    next: u64,
    tables: BTreeMap<TableId, Stored>,
}

#[derive(Debug)]
struct Stored {
    schema: SchemaRef,
    /// Inserts, in the order of their commits.
    rows: Vec<RecordBatch>,
    /// Changes with deletes that are not folded into `rows` yet.
    pending: Vec<Change>,
    count: Arc<AtomicU64>,
    followers: Vec<mpsc::UnboundedSender<Commit>>,
}

impl Tables {
    /// No tables.
    pub fn new() -> Self {
        Self { state: Mutex::default(), version: watch::channel(0).0 }
    }

    /// A new, empty table. The second value is kept at its number of rows.
    pub fn create(&self, schema: SchemaRef) -> (TableId, Arc<AtomicU64>) {
        let mut state = self.lock();
        let id = TableId(state.next);
        state.next += 1;
        let count = Arc::new(AtomicU64::new(0));
        let stored =
            Stored { schema, rows: Vec::new(), pending: Vec::new(), count: Arc::clone(&count), followers: Vec::new() };
        state.tables.insert(id, stored);
        (id, count)
    }

    /// Forgets a table; for who follows it, it ends.
    pub fn remove(&self, id: TableId) {
        self.lock().tables.remove(&id);
    }

    /// Number of the last commit.
    pub fn version(&self) -> u64 {
        self.lock().version
    }

    /// Follows the number of the last commit.
    pub(crate) fn watch_version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Changes a table in one step; the number of the commit. Deletes must be of rows that are there.
    ///
    /// # Errors
    /// The table is gone, a NULL in a NOT NULL column, rows of other columns. Nothing is changed then.
    pub fn commit(&self, id: TableId, changes: Vec<Change>) -> Result<u64, ExecError> {
        let mut state = self.lock();
        let version = state.version + 1;
        let table = state.tables.get_mut(&id).ok_or_else(gone)?;
        let changes = changes.into_iter().map(|change| table.check(change)).collect::<Result<Arc<[Change]>, _>>()?;
        table.apply(&changes)?;
        let commit = Commit { version, changes };
        table.followers.retain(|follower| follower.send(commit.clone()).is_ok());
        state.version = version;
        // Followers have the commit before they hear of its number.
        self.version.send_replace(version);
        Ok(version)
    }

    /// Tables as they are at one commit; those marked `true` are followed from there on.
    pub(crate) fn open(&self, wanted: &[(TableId, bool)]) -> Result<Vec<Opened>, ExecError> {
        let mut state = self.lock();
        let version = state.version;
        let mut opened = Vec::with_capacity(wanted.len());
        for (id, follow) in wanted {
            let table = state.tables.get_mut(id).ok_or_else(gone)?;
            table.fold()?;
            let commits = follow.then(|| {
                let (sender, receiver) = mpsc::unbounded_channel();
                table.followers.push(sender);
                receiver
            });
            opened.push(Opened { version, rows: table.rows.clone(), commits });
        }
        Ok(opened)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Tables {
    fn default() -> Self {
        Self::new()
    }
}

fn gone() -> ExecError {
    ExecError::Table { message: "the table was dropped".to_owned() }
}

impl Stored {
    /// The change with the table's own schema.
    fn check(&self, change: Change) -> Result<Change, ExecError> {
        for (field, column) in self.schema.fields().iter().zip(change.rows.columns()) {
            if !field.is_nullable() && column.null_count() > 0 {
                let message = format!("NULL in column '{}', which is NOT NULL", field.name());
                return Err(ExecError::Constraint { message });
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(change.rows.num_rows()));
        let columns = change.rows.columns().to_vec();
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        Ok(Change { rows, ..change })
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), ExecError> {
        for change in changes.iter().filter(|change| change.rows.num_rows() > 0) {
            if change.weights.is_none() && self.pending.is_empty() {
                self.append(change.rows.clone())?;
            } else {
                self.pending.push(change.clone());
            }
            let count = self.count.load(Ordering::Relaxed).saturating_add_signed(change.net_rows());
            self.count.store(count, Ordering::Relaxed);
        }
        // A table that is never read must not grow by its changes.
        let pending: usize = self.pending.iter().map(|change| change.rows.num_rows()).sum();
        let rows: usize = self.rows.iter().map(RecordBatch::num_rows).sum();
        if pending > FRAME_ROWS && pending > rows { self.fold() } else { Ok(()) }
    }

    /// Adds rows; many small batches become one.
    fn append(&mut self, batch: RecordBatch) -> Result<(), ExecError> {
        match self.rows.last_mut() {
            Some(last) if last.num_rows() + batch.num_rows() <= FRAME_ROWS / 8 => {
                *last = arrow::compute::concat_batches(&self.schema, [&*last, &batch])?;
            }
            _ => self.rows.push(batch),
        }
        Ok(())
    }

    /// Brings the pending changes into the rows.
    fn fold(&mut self) -> Result<(), ExecError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut set = ZSet::new(Arc::clone(&self.schema))?;
        for rows in &self.rows {
            set.add(rows, None)?;
        }
        for change in &self.pending {
            set.add(&change.rows, change.weights.as_deref())?;
        }
        self.rows = set.batches()?;
        self.pending.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
