//! The end of a query: rows as they come, changes epoch by epoch, or the result at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{SortColumn, SortOptions, concat_batches, lexsort_to_indices, take_record_batch};
use arrow::datatypes::SchemaRef;
use datafusion_physical_expr::PhysicalExpr;
use thetis_planner::physical::{Sink, SinkMode, SortKey};

use crate::error::ExecError;
use crate::frame::{Epoch, FRAME_ROWS, Frame};
use crate::operator::{Operator, Step};
use crate::steps::{batch_of, compile_all, evaluate};
use crate::zset::ZSet;

/// The sink for a mode. `retracts` says that its input can have deletes.
pub(crate) fn sink_for(sink: &Sink, output: SchemaRef, retracts: bool) -> Result<Box<dyn Operator>, ExecError> {
    Ok(match &sink.mode {
        SinkMode::Append { skip, limit } => {
            Box::new(Append { skip: *skip, left: limit.unwrap_or(u64::MAX), waiting: Vec::new() })
        }
        SinkMode::Changelog => Box::new(Changelog::new(output, retracts)?),
        SinkMode::Final { order, skip, limit } => Box::new(Final::new(sink, output, order, (*skip, *limit), retracts)?),
    })
}

/// Rows of an append-only result, as they come.
#[derive(Debug)]
struct Append {
    skip: u64,
    left: u64,
    waiting: Vec<Frame>,
}

impl Operator for Append {
    fn on_frame(&mut self, _port: u8, frame: Frame) -> Result<(), ExecError> {
        let skipped = self.skip.min(frame.rows() as u64);
        self.skip -= skipped;
        let kept = (frame.rows() as u64 - skipped).min(self.left);
        self.left -= kept;
        if kept > 0 {
            let batch = frame.batch.slice(skipped as usize, kept as usize);
            self.waiting.push(frame.with_rows(batch, None));
        }
        Ok(())
    }

    fn on_progress(&mut self, _epoch: Epoch) -> Result<(), ExecError> {
        Ok(())
    }

    fn resume(&mut self, out: &mut Vec<Frame>) -> Result<Step, ExecError> {
        out.append(&mut self.waiting);
        Ok(if self.left == 0 { Step::Finished } else { Step::Idle })
    }

    fn on_commit(&mut self, _epoch: Epoch) {}

    fn roll_back(&mut self, _committed: Epoch) -> Result<(), ExecError> {
        self.waiting.clear();
        Ok(())
    }
}

/// The changes of each epoch, in the order of epochs.
#[derive(Debug)]
struct Changelog {
    schema: SchemaRef,
    retracts: bool,
    closed: Epoch,
    to_close: Epoch,
    open: BTreeMap<Epoch, Changes>,
    waiting: Vec<Frame>,
}

/// What an open epoch has changed so far.
#[derive(Debug)]
enum Changes {
    /// Only inserts: nothing can cancel.
    Inserts(Vec<Frame>),
    /// To be consolidated.
    Both(ZSet),
}

impl Changelog {
    fn new(schema: SchemaRef, retracts: bool) -> Result<Self, ExecError> {
        Ok(Self {
            schema,
            retracts,
            closed: Epoch::NONE,
            to_close: Epoch::NONE,
            open: BTreeMap::new(),
            waiting: Vec::new(),
        })
    }

    fn close(&mut self, epoch: Epoch, changes: Changes) -> Result<(), ExecError> {
        match changes {
            Changes::Inserts(frames) => self.waiting.extend(frames),
            Changes::Both(set) => {
                for (rows, weights) in set.weighted()? {
                    self.waiting.push(Frame { weights: Some(weights), ..Frame::inserts(rows, epoch) });
                }
            }
        }
        Ok(())
    }
}

impl Operator for Changelog {
    fn on_frame(&mut self, _port: u8, frame: Frame) -> Result<(), ExecError> {
        // Inserts of the lowest open epoch need not wait for its end.
        if !self.retracts && frame.epoch.0 == self.closed.0 + 1 {
            self.waiting.push(frame);
            return Ok(());
        }
        if !self.open.contains_key(&frame.epoch) {
            let changes = if self.retracts {
                Changes::Both(ZSet::new(Arc::clone(&self.schema))?)
            } else {
                Changes::Inserts(Vec::new())
            };
            self.open.insert(frame.epoch, changes);
        }
        match self.open.get_mut(&frame.epoch) {
            Some(Changes::Inserts(frames)) => frames.push(frame),
            Some(Changes::Both(set)) => set.add(&frame.batch, frame.weights.as_deref())?,
            None => {}
        }
        Ok(())
    }

    fn on_progress(&mut self, epoch: Epoch) -> Result<(), ExecError> {
        self.to_close = self.to_close.max(epoch);
        Ok(())
    }

    fn resume(&mut self, out: &mut Vec<Frame>) -> Result<Step, ExecError> {
        let next = self.open.first_key_value().map(|(epoch, _)| *epoch).filter(|epoch| *epoch <= self.to_close);
        if let Some(epoch) = next
            && let Some(changes) = self.open.remove(&epoch)
        {
            self.close(epoch, changes)?;
            out.append(&mut self.waiting);
            return Ok(Step::Full);
        }
        self.closed = self.to_close;
        // What waited for the epoch that is the lowest open one now.
        if let Some(changes) = self.open.get_mut(&Epoch(self.closed.0.saturating_add(1)))
            && let Changes::Inserts(frames) = changes
        {
            self.waiting.append(frames);
        }
        out.append(&mut self.waiting);
        Ok(Step::Idle)
    }

    fn on_commit(&mut self, _epoch: Epoch) {}

    fn roll_back(&mut self, committed: Epoch) -> Result<(), ExecError> {
        self.open.retain(|epoch, _| *epoch <= committed);
        self.waiting.clear();
        Ok(())
    }
}

/// The result when the input has ended, ordered and cut.
#[derive(Debug)]
struct Final {
    input: SchemaRef,
    output: SchemaRef,
    order: Vec<(Arc<dyn PhysicalExpr>, SortOptions)>,
    skip: u64,
    limit: Option<u64>,
    finish: Vec<Arc<dyn PhysicalExpr>>,
    rows: Rows,
    ended: bool,
    result: Option<(RecordBatch, usize)>,
}

#[derive(Debug)]
enum Rows {
    Kept(Vec<RecordBatch>),
    Set(ZSet),
}

impl Final {
    fn new(
        sink: &Sink,
        output: SchemaRef,
        order: &[SortKey],
        (skip, limit): (u64, Option<u64>),
        retracts: bool,
    ) -> Result<Self, ExecError> {
        let exprs: Vec<_> = order.iter().map(|key| key.expr.clone()).collect();
        let options = order.iter().map(|key| SortOptions { descending: key.descending, nulls_first: key.nulls_first });
        let rows = if retracts { Rows::Set(ZSet::new(Arc::clone(&sink.input))?) } else { Rows::Kept(Vec::new()) };
        Ok(Self {
            order: compile_all(&exprs, &sink.input)?.into_iter().zip(options).collect(),
            finish: compile_all(&sink.finish, &sink.input)?,
            input: Arc::clone(&sink.input),
            output,
            skip,
            limit,
            rows,
            ended: false,
            result: None,
        })
    }

    /// All rows, each as often as its weight says.
    fn all_rows(&mut self) -> Result<RecordBatch, ExecError> {
        match &mut self.rows {
            Rows::Kept(batches) => {
                let all = concat_batches(&self.input, batches.iter())?;
                batches.clear();
                Ok(all)
            }
            Rows::Set(set) => Ok(concat_batches(&self.input, &set.batches()?)?),
        }
    }

    fn finish(&mut self) -> Result<RecordBatch, ExecError> {
        let all = self.all_rows()?;
        let end = self
            .limit
            .map_or(usize::MAX, |limit| usize::try_from(self.skip.saturating_add(limit)).unwrap_or(usize::MAX));
        let sorted = if self.order.is_empty() || all.num_rows() == 0 {
            all
        } else {
            let columns = self
                .order
                .iter()
                .map(|(expr, options)| Ok(SortColumn { values: evaluate(expr, &all)?, options: Some(*options) }))
                .collect::<Result<Vec<_>, ExecError>>()?;
            let order: UInt32Array = lexsort_to_indices(&columns, Some(end.min(all.num_rows())))?;
            take_record_batch(&all, &order)?
        };
        let skip = usize::try_from(self.skip).unwrap_or(usize::MAX).min(sorted.num_rows());
        let kept = sorted.slice(skip, sorted.num_rows().min(end) - skip);
        if self.finish.is_empty() {
            return batch_of(&self.output, kept.columns().to_vec(), kept.num_rows());
        }
        let columns = self.finish.iter().map(|expr| evaluate(expr, &kept)).collect::<Result<Vec<_>, _>>()?;
        batch_of(&self.output, columns, kept.num_rows())
    }
}

impl Operator for Final {
    fn on_frame(&mut self, _port: u8, frame: Frame) -> Result<(), ExecError> {
        match &mut self.rows {
            Rows::Kept(batches) => {
                batches.push(frame.batch);
                Ok(())
            }
            Rows::Set(set) => set.add(&frame.batch, frame.weights.as_deref()),
        }
    }

    fn on_progress(&mut self, epoch: Epoch) -> Result<(), ExecError> {
        if epoch == Epoch::END && !self.ended {
            self.ended = true;
            self.result = Some((self.finish()?, 0));
        }
        Ok(())
    }

    fn resume(&mut self, out: &mut Vec<Frame>) -> Result<Step, ExecError> {
        let Some((batch, next)) = &mut self.result else {
            return Ok(Step::Idle);
        };
        let length = FRAME_ROWS.min(batch.num_rows() - *next);
        if length == 0 {
            self.result = None;
            return Ok(Step::Idle);
        }
        out.push(Frame::inserts(batch.slice(*next, length), Epoch::END));
        *next += length;
        Ok(Step::Full)
    }

    fn on_commit(&mut self, _epoch: Epoch) {}

    fn roll_back(&mut self, _committed: Epoch) -> Result<(), ExecError> {
        Err(ExecError::Internal("a final result starts again instead of going back".to_owned()))
    }
}
