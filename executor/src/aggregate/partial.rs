//! The first phase of an aggregate: one row per group and epoch is made of many.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, SchemaRef};
use thetis_planner::physical::{Aggregate, Phase};

use super::table::{Inputs, Table, key_types};
use crate::error::ExecError;
use crate::frame::{Epoch, FRAME_ROWS, Frame};
use crate::operator::{Operator, Step};
use crate::steps::{Steps, batch_of};

/// Groups of an epoch that are held before they are sent on: more are no smaller than their rows.
const MOST_GROUPS: usize = 1 << 16;

/// Tables of the open epochs, whose contents go out as rows of states.
#[derive(Debug)]
pub(crate) struct Partial {
    spec: Arc<Aggregate>,
    steps: Steps,
    inputs: Inputs,
    key_types: Vec<DataType>,
    open: BTreeMap<Epoch, Table>,
    closed: Epoch,
    schema: SchemaRef,
}

impl Partial {
    /// Of rows of `taken` to rows of `schema`.
    pub(crate) fn new(spec: &Arc<Aggregate>, taken: &SchemaRef, schema: SchemaRef) -> Result<Self, ExecError> {
        let Phase::Partial(steps) = &spec.phase else {
            return Err(ExecError::Internal("an aggregate of the wrong phase".to_owned()));
        };
        Ok(Self {
            steps: Steps::new(steps, taken)?,
            inputs: Inputs::new(spec)?,
            key_types: key_types(spec, &schema)?,
            open: BTreeMap::new(),
            closed: Epoch::NONE,
            spec: Arc::clone(spec),
            schema,
        })
    }

    /// Adds rows; what has grown too large to be held goes to `out`.
    pub(crate) fn add(&mut self, frame: Frame, out: &mut Vec<Frame>) -> Result<(), ExecError> {
        for frame in self.steps.run(frame)? {
            let (epoch, inputs) = (self.epoch_of(frame.epoch), &self.inputs);
            let table = table_of(&mut self.open, epoch, &self.spec, &self.key_types)?;
            inputs.update(&frame, table)?;
            if table.groups.len() > MOST_GROUPS {
                self.flush(epoch, out)?;
            }
        }
        Ok(())
    }

    /// Adds what was computed elsewhere: `rows` rows of the columns that go out.
    pub(crate) fn add_states(&mut self, epoch: Epoch, columns: &[ArrayRef], rows: usize) -> Result<(), ExecError> {
        let epoch = self.epoch_of(epoch);
        let table = table_of(&mut self.open, epoch, &self.spec, &self.key_types)?;
        table.merge_states(columns, self.key_types.len(), rows)
    }

    /// The epoch whose table takes rows of `epoch`: one for all if nobody asks before the end.
    fn epoch_of(&self, epoch: Epoch) -> Epoch {
        if self.spec.at_end { Epoch(Epoch::END.0 - 1) } else { epoch }
    }

    /// Sends what all epochs up to `epoch` hold.
    pub(crate) fn close(&mut self, epoch: Epoch, out: &mut Vec<Frame>) -> Result<(), ExecError> {
        let closed: Vec<Epoch> = self.open.range(..=epoch).map(|(epoch, _)| *epoch).collect();
        closed.into_iter().try_for_each(|epoch| self.flush(epoch, out))?;
        self.closed = epoch;
        Ok(())
    }

    fn flush(&mut self, epoch: Epoch, out: &mut Vec<Frame>) -> Result<(), ExecError> {
        let Some(table) = self.open.remove(&epoch) else { return Ok(()) };
        // The table of all epochs goes out as part of the first one that is open.
        let epoch = if self.spec.at_end { Epoch(self.closed.0 + 1) } else { epoch };
        let batch = batch_of(&self.schema, table.states()?, table.groups.len())?;
        for start in (0..batch.num_rows()).step_by(FRAME_ROWS) {
            let rows = FRAME_ROWS.min(batch.num_rows() - start);
            out.push(Frame::inserts(batch.slice(start, rows), epoch));
        }
        Ok(())
    }

    /// Forgets the epochs after `committed`.
    ///
    /// # Errors
    /// They are not told apart any more.
    pub(crate) fn roll_back(&mut self, committed: Epoch) -> Result<(), ExecError> {
        if self.spec.at_end && !self.open.is_empty() {
            return Err(ExecError::Internal("an aggregate of all epochs needs a checkpoint".to_owned()));
        }
        self.open.retain(|epoch, _| *epoch <= committed);
        Ok(())
    }
}

fn table_of<'a>(
    open: &'a mut BTreeMap<Epoch, Table>,
    epoch: Epoch,
    spec: &Aggregate,
    key_types: &[DataType],
) -> Result<&'a mut Table, ExecError> {
    Ok(match open.entry(epoch) {
        std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
        std::collections::btree_map::Entry::Vacant(entry) => entry.insert(Table::new(spec, key_types)?),
    })
}

/// One task of a first phase that is no join's.
#[derive(Debug)]
pub(crate) struct PartialAggregation {
    partial: Partial,
    waiting: Vec<Frame>,
}

impl PartialAggregation {
    /// Of rows of `taken` to rows of `schema`.
    pub(crate) fn new(spec: Aggregate, taken: &SchemaRef, schema: SchemaRef) -> Result<Self, ExecError> {
        Ok(Self { partial: Partial::new(&Arc::new(spec), taken, schema)?, waiting: Vec::new() })
    }
}

impl Operator for PartialAggregation {
    fn on_frame(&mut self, _port: u8, frame: Frame) -> Result<(), ExecError> {
        self.partial.add(frame, &mut self.waiting)
    }

    fn on_progress(&mut self, epoch: Epoch) -> Result<(), ExecError> {
        self.partial.close(epoch, &mut self.waiting)
    }

    fn resume(&mut self, out: &mut Vec<Frame>) -> Result<Step, ExecError> {
        out.append(&mut self.waiting);
        Ok(Step::Idle)
    }

    fn on_commit(&mut self, _epoch: Epoch) {}

    fn roll_back(&mut self, committed: Epoch) -> Result<(), ExecError> {
        self.waiting.clear();
        self.partial.roll_back(committed)
    }
}
