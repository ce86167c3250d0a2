//! Results as they come.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use thetis_cluster::{Analysis, Engine, Explained, Running};
use thetis_executor::counters::QueryCounters;
use thetis_executor::frame::Frame;
use thetis_executor::task::Delivery;
use thetis_planner::{Output, Plan};
use tokio::sync::watch;

use crate::connection::CancelHandle;
use crate::error::Error;
use crate::row::Row;

/// The rows of a result. Dropping it ends its query.
#[derive(Debug)]
pub struct ResultSet {
    schema: SchemaRef,
    notices: Vec<String>,
    feed: Feed,
    /// The batch that rows are taken from, and the next row.
    current: Option<(RecordBatch, usize)>,
    rows: u64,
}

#[derive(Debug)]
enum Feed {
    /// All there is.
    Table(Option<RecordBatch>),
    /// A running query.
    Query(Box<Query>),
    /// A query that is measured.
    Analysis(Box<Analyzed>),
}

#[derive(Debug)]
struct Query {
    running: Running,
    changes: bool,
    waiting: VecDeque<RecordBatch>,
    ended: bool,
    stop: watch::Sender<bool>,
    _engine: Arc<Engine>,
}

#[derive(Debug)]
struct Analyzed {
    explained: Box<Explained>,
    analysis: Analysis,
    ended: bool,
    _engine: Arc<Engine>,
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
}

impl ResultSet {
    pub(crate) fn table(batch: RecordBatch) -> Self {
        Self { schema: batch.schema(), notices: Vec::new(), feed: Feed::Table(Some(batch)), current: None, rows: 0 }
    }

    pub(crate) fn of(plan: Plan, running: Running, output: Output, engine: Arc<Engine>, cancel: &CancelHandle) -> Self {
        cancel.watch(running.stop.clone());
        let changes = output == Output::Changes;
        let result = &plan.dag.sink().schema;
        let schema = if changes { changes_schema(result) } else { Arc::clone(result) };
        let stop = running.stop.clone();
        let query = Query { running, changes, waiting: VecDeque::new(), ended: false, stop, _engine: engine };
        Self { schema, notices: plan.notices, feed: Feed::Query(Box::new(query)), current: None, rows: 0 }
    }

    /// The rows of `EXPLAIN ANALYZE`, which has its notices among them.
    pub(crate) fn analysis(
        explained: Box<Explained>,
        analysis: Analysis,
        engine: Arc<Engine>,
        cancel: &CancelHandle,
    ) -> Self {
        cancel.watch(analysis.stop.clone());
        let feed = Feed::Analysis(Box::new(Analyzed { explained, analysis, ended: false, _engine: engine }));
        Self { schema: Explained::schema(), notices: Vec::new(), feed, current: None, rows: 0 }
    }

    /// Names and types of the columns, known before the first row.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What the user should be told about the query.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// The next rows as an Arrow batch; `None` at the end.
    ///
    /// # Errors
    /// Whatever goes wrong in the query, or it was cancelled.
    pub async fn next_batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        if let Some((batch, next)) = self.current.take()
            && next < batch.num_rows()
        {
            return Ok(Some(batch.slice(next, batch.num_rows() - next)));
        }
        let batch = match &mut self.feed {
            Feed::Table(batch) => batch.take(),
            Feed::Query(query) => query.next_batch(&self.schema).await?,
            Feed::Analysis(analyzed) => analyzed.next_batch().await?,
        };
        self.rows += batch.as_ref().map_or(0, |batch| batch.num_rows() as u64);
        Ok(batch)
    }

    /// The next row; `None` at the end.
    ///
    /// # Errors
    /// Whatever goes wrong in the query, or it was cancelled.
    pub async fn next_row(&mut self) -> Result<Option<Row>, Error> {
        loop {
            if let Some((batch, next)) = &mut self.current
                && *next < batch.num_rows()
            {
                let row = Row::new(batch.clone(), *next);
                *next += 1;
                return Ok(Some(row));
            }
            self.current = None;
            match self.next_batch().await? {
                Some(batch) => self.current = Some((batch, 0)),
                None => return Ok(None),
            }
        }
    }

    /// How far the query is.
    pub fn progress(&self) -> Progress {
        let Some(counters) = self.feed.counters() else {
            return Progress { rows_out: self.rows, ..Progress::default() };
        };
        let mut progress = Progress { rows_out: self.rows, total_bytes: Some(0), ..Progress::default() };
        for (_, source) in &counters.sources {
            progress.rows_in += source.rows.load(Ordering::Relaxed);
            progress.skipped += source.skipped.load(Ordering::Relaxed);
            progress.bytes += source.bytes.load(Ordering::Relaxed);
            progress.total_bytes = progress.total_bytes.map(|total| total + source.total_bytes.load(Ordering::Relaxed));
        }
        progress.total_bytes = progress.total_bytes.filter(|total| *total > 0);
        progress
    }
}

impl Feed {
    fn counters(&self) -> Option<&QueryCounters> {
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
        let measured = self.analysis.measured().await;
        // Only now: the caller may drop this future while it waits, and call again.
        self.ended = true;
        Ok(Some(self.explained.table(Some(&measured?))?))
    }
}

impl Query {
    async fn next_batch(&mut self, schema: &SchemaRef) -> Result<Option<RecordBatch>, Error> {
        loop {
            if let Some(batch) = self.waiting.pop_front() {
                return Ok(Some(batch));
            }
            if self.ended {
                return Ok(None);
            }
            match self.running.results.recv().await {
                Some(Delivery::Frame(frame)) => {
                    let batch = if self.changes { changes_batch(&frame, schema)? } else { frame.batch };
                    if batch.num_rows() > 0 {
                        self.waiting.push_back(batch);
                    }
                }
                Some(Delivery::Progress(epoch)) => self.ended = epoch == thetis_executor::frame::Epoch::END,
                None => {
                    // Only now: the caller may drop this future while it waits, and call again.
                    let outcome = self.running.outcome.wait_for(Option::is_some).await.map(|outcome| outcome.clone());
                    self.ended = true;
                    match outcome {
                        Ok(Some(Err(error))) => return Err(error.into()),
                        Ok(_) => {}
                        Err(_) => return Err(Error::internal("the engine is gone")),
                    }
                }
            }
        }
    }
}

impl Drop for Query {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

fn changes_schema(result: &SchemaRef) -> SchemaRef {
    let mut fields = vec![Field::new("epoch", DataType::Int64, false), Field::new("op", DataType::Utf8, false)];
    fields.extend(result.fields().iter().map(|field| field.as_ref().clone()));
    Arc::new(Schema::new(fields))
}

/// One row per unit of weight, with its epoch and sign.
fn changes_batch(frame: &Frame, schema: &SchemaRef) -> Result<RecordBatch, Error> {
    let rows: Vec<u32> = (0..frame.rows())
        .flat_map(|row| std::iter::repeat_n(row as u32, usize::try_from(frame.weight(row).unsigned_abs()).unwrap_or(0)))
        .collect();
    let epoch = i64::try_from(frame.epoch.0).unwrap_or(i64::MAX);
    let ops = rows.iter().map(|row| if frame.weight(*row as usize) > 0 { "+" } else { "-" });
    let mut columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(vec![epoch; rows.len()])), Arc::new(StringArray::from_iter_values(ops))];
    let count = rows.len();
    let rows = UInt32Array::from(rows);
    for column in frame.batch.columns() {
        columns.push(take(column, &rows, None).map_err(|error| Error::internal(error.to_string()))?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| Error::internal(error.to_string()))
}
