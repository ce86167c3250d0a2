//! Results as they come.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use thetis_cluster::front::protocol::RowsHead;
use thetis_cluster::{Analysis, Counters, Explained, Running};
use thetis_executor::changes::{ChangeRows, changes_schema};
use thetis_executor::frame::Epoch;
use thetis_executor::task::Delivery;

use crate::backend::Backend;
use crate::connection::Execution;
use crate::error::Error;
use crate::row::Row;
use crate::subscription::{Changes, Event};

/// The rows of a result. Dropping it ends its query.
#[derive(Debug)]
pub struct ResultSet {
    schema: SchemaRef,
    notices: Vec<String>,
    pub(crate) feed: Feed,
    /// The batch that rows are taken from, and the next row.
    current: Option<(Arc<RecordBatch>, usize)>,
    rows: u64,
    fetch_size: usize,
}

#[derive(Debug)]
pub(crate) enum Feed {
    /// All there is.
    Table(Option<RecordBatch>),
    /// A running query.
    Query(Box<Query>),
    /// A query that is measured.
    Analysis(Box<Analyzed>),
}

#[derive(Debug)]
pub(crate) struct Query {
    running: Running,
    /// Columns of the result.
    result: SchemaRef,
    bounded: bool,
    changes: bool,
    /// Changes that are being given out.
    waiting: Option<ChangeRows>,
    epoch: Option<u64>,
    ended: bool,
    execution: Execution,
    _backend: Backend,
}

#[derive(Debug)]
pub(crate) struct Analyzed {
    explained: Box<Explained>,
    analysis: Analysis,
    ended: bool,
    execution: Execution,
    _backend: Backend,
}

/// How far a query is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Rows read from sources.
    pub rows_in: u64,
    /// Records of sources that could not be read and were skipped.
    pub skipped: u64,
    /// Bytes read from files.
    pub bytes: u64,
    /// Bytes that there are to read, if that is known.
    pub total_bytes: Option<u64>,
    /// Rows that this result set has given out.
    pub rows_out: u64,
    /// The last epoch of which this result set has given out everything; `None` before the first.
    pub epoch: Option<u64>,
}

impl ResultSet {
    pub(crate) fn table(batch: RecordBatch) -> Self {
        Self::new(batch.schema(), Vec::new(), Feed::Table(Some(batch)))
    }

    pub(crate) fn of(head: RowsHead, running: Running, backend: Backend, execution: Execution) -> Self {
        let RowsHead { schema: result, changes, bounded, notices } = head;
        let schema = if changes { changes_schema(&result) } else { Arc::clone(&result) };
        let query = Query {
            running,
            result,
            bounded,
            changes,
            waiting: None,
            epoch: None,
            ended: false,
            execution,
            _backend: backend,
        };
        Self::new(schema, notices, Feed::Query(Box::new(query)))
    }

    /// The rows of `EXPLAIN ANALYZE`, which has its notices among them.
    pub(crate) fn analysis(
        explained: Box<Explained>,
        analysis: Analysis,
        backend: Backend,
        execution: Execution,
    ) -> Self {
        let analyzed = Analyzed { explained, analysis, ended: false, execution, _backend: backend };
        Self::new(Explained::schema(), Vec::new(), Feed::Analysis(Box::new(analyzed)))
    }

    fn new(schema: SchemaRef, notices: Vec<String>, feed: Feed) -> Self {
        Self { schema, notices, feed, current: None, rows: 0, fetch_size: usize::MAX }
    }

    pub(crate) fn with_fetch_size(self, rows: Option<usize>) -> Self {
        Self { fetch_size: rows.unwrap_or(usize::MAX), ..self }
    }

    /// Names and types of the columns, known before the first row.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether the rows are changes of the result, epoch by epoch: their first columns are `epoch`
    /// (BIGINT) and `op` (`+` or `-`). They are when changes were asked for, and when the result
    /// changes and never ends.
    pub fn is_changelog(&self) -> bool {
        matches!(&self.feed, Feed::Query(query) if query.changes)
    }

    /// Whether the result ends by itself.
    pub fn is_bounded(&self) -> bool {
        match &self.feed {
            Feed::Table(_) | Feed::Analysis(_) => true,
            Feed::Query(query) => query.bounded,
        }
    }

    /// What the user should be told about the query.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// The next rows as an Arrow batch, at most as many as the fetch size; `None` at the end. May be
    /// dropped while it waits, and called again. The query runs a few batches ahead, not more.
    ///
    /// # Errors
    /// Whatever goes wrong in the query, or it was cancelled.
    pub async fn next_batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        loop {
            if let Some((batch, next)) = &mut self.current
                && *next < batch.num_rows()
            {
                let length = self.fetch_size.min(batch.num_rows() - *next);
                let part = batch.slice(*next, length);
                *next += length;
                return Ok(Some(part));
            }
            if !self.fetch().await? {
                return Ok(None);
            }
        }
    }

    /// The next row; `None` at the end. May be dropped while it waits, and called again.
    ///
    /// # Errors
    /// Whatever goes wrong in the query, or it was cancelled.
    pub async fn next_row(&mut self) -> Result<Option<Row>, Error> {
        loop {
            if let Some(row) = self.waiting_row() {
                return Ok(Some(row));
            }
            // Boxed, as it is made once per batch: the future of a row stays small.
            if !Box::pin(self.fetch()).await? {
                return Ok(None);
            }
        }
    }

    /// The next row, if it is here already.
    fn waiting_row(&mut self) -> Option<Row> {
        let (batch, next) = self.current.as_mut()?;
        let row = (*next < batch.num_rows()).then(|| Row::new(Arc::clone(batch), *next));
        *next += 1;
        row
    }

    /// Gets the next batch; false at the end.
    async fn fetch(&mut self) -> Result<bool, Error> {
        self.current = None;
        let batch = match &mut self.feed {
            Feed::Table(batch) => batch.take(),
            Feed::Query(query) => query.next_batch(&self.schema).await?,
            Feed::Analysis(analyzed) => analyzed.next_batch().await?,
        };
        self.rows += batch.as_ref().map_or(0, |batch| batch.num_rows() as u64);
        self.current = batch.map(|batch| (Arc::new(batch), 0));
        Ok(self.current.is_some())
    }

    /// What the user should be told about the query, up to now.
    pub fn warnings(&self) -> Vec<String> {
        let skipped = self.progress().skipped;
        let records = if skipped == 1 { "record" } else { "records" };
        let skipped = (skipped > 0).then(|| format!("{skipped} {records} that could not be read: skipped"));
        self.notices.iter().cloned().chain(skipped).collect()
    }

    /// How far the query is.
    pub fn progress(&self) -> Progress {
        let Some(counters) = self.feed.counters() else {
            return Progress { rows_out: self.rows, ..Progress::default() };
        };
        let epoch = match &self.feed {
            Feed::Query(query) => query.epoch,
            Feed::Table(_) | Feed::Analysis(_) => None,
        };
        let mut progress = Progress { rows_out: self.rows, total_bytes: Some(0), epoch, ..Progress::default() };
        for source in &counters.snapshot().sources {
            progress.rows_in += source.rows;
            progress.skipped += source.skipped;
            progress.bytes += source.bytes;
            progress.total_bytes = progress.total_bytes.map(|total| total + source.total_bytes);
        }
        progress.total_bytes = progress.total_bytes.filter(|total| *total > 0);
        progress
    }
}

impl Feed {
    fn counters(&self) -> Option<&Counters> {
        match self {
            Self::Table(_) => None,
            Self::Query(query) => Some(&query.running.counters),
            Self::Analysis(analyzed) => Some(&analyzed.analysis.counters),
        }
    }
}

impl Analyzed {
    async fn next_batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        if self.ended {
            return Ok(None);
        }
        let measured = tokio::select! {
            biased;
            stopped = self.execution.stopped() => Err(stopped),
            measured = self.analysis.measured() => measured.map_err(Error::from),
        };
        // Only now: the caller may drop this future while it waits, and call again.
        self.ended = true;
        Ok(Some(self.explained.table(Some(&measured?))?))
    }
}

impl Query {
    pub(crate) fn is_changelog(&self) -> bool {
        self.changes
    }

    pub(crate) fn result_schema(&self) -> SchemaRef {
        Arc::clone(&self.result)
    }

    async fn next_batch(&mut self, schema: &SchemaRef) -> Result<Option<RecordBatch>, Error> {
        loop {
            if let Some(rows) = &mut self.waiting
                && let Some(batch) = rows.next_batch()?
            {
                return Ok(Some(batch));
            }
            self.waiting = None;
            match self.next_delivery().await? {
                Some(Delivery::Frame(frame)) if self.changes => {
                    self.waiting = Some(ChangeRows::new(frame, Arc::clone(schema)));
                }
                Some(Delivery::Frame(frame)) if frame.rows() > 0 => return Ok(Some(frame.batch)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    pub(crate) async fn next_event(&mut self) -> Result<Option<Event>, Error> {
        loop {
            match self.next_delivery().await? {
                Some(Delivery::Frame(frame)) if frame.rows() > 0 => {
                    let weights = (0..frame.rows()).map(|row| frame.weight(row)).collect();
                    return Ok(Some(Event::Changes(Changes { epoch: frame.epoch.0, rows: frame.batch, weights })));
                }
                Some(Delivery::Frame(_)) => {}
                Some(Delivery::Progress(Epoch::END)) => {}
                Some(Delivery::Progress(epoch)) => return Ok(Some(Event::Finished(epoch.0))),
                None => return Ok(None),
            }
        }
    }

    /// The next delivery; `None` when all is delivered.
    async fn next_delivery(&mut self) -> Result<Option<Delivery>, Error> {
        if self.ended {
            return Ok(None);
        }
        let delivery = tokio::select! {
            biased;
            stopped = self.execution.stopped() => Err(stopped),
            delivery = self.running.next() => delivery.map_err(Error::from),
        };
        match &delivery {
            Ok(Some(Delivery::Progress(Epoch::END)) | None) => self.ended = true,
            Ok(Some(Delivery::Progress(epoch))) => self.epoch = Some(epoch.0),
            Ok(Some(Delivery::Frame(_))) => {}
            Err(_) => {
                self.ended = true;
                self.running.stop.send_replace(true);
            }
        }
        delivery
    }
}

impl Drop for Query {
    fn drop(&mut self) {
        self.running.stop.send_replace(true);
    }
}
