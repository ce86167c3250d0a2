//! GROUP BY and aggregate functions, exact under deletes.
//!
//! Every open epoch has a table of its own: what the epoch adds to each group. When an epoch
//! closes, its table is merged into the base, and for every group that changed the row last
//! emitted is deleted and the new one inserted.

mod accumulator;
mod groups;
mod partial;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::row::{RowConverter, SortField};
use thetis_planner::physical::{Aggregate, Phase};

pub(crate) use self::groups::Groups;
pub(crate) use self::partial::{Partial, PartialAggregation};
use self::table::{Inputs, Table, key_types};
use crate::error::ExecError;
use crate::frame::{Epoch, FRAME_ROWS, Frame};
use crate::operator::{Operator, Step};
use crate::steps::batch_of;

/// One task of an aggregate.
#[derive(Debug)]
pub(crate) struct Aggregation {
    spec: Arc<Aggregate>,
    output: SchemaRef,
    /// What is read of rows; the last of two phases reads states.
    inputs: Option<Inputs>,
    key_types: Vec<DataType>,
    base: Table,
    open: BTreeMap<Epoch, Table>,
    /// The output row last emitted for each group of the base, as row bytes.
    emitted: Vec<Option<Box<[u8]>>>,
    converter: RowConverter,
    closing: Option<Closing>,
    closed: Epoch,
    to_close: Epoch,
}

/// An epoch that is being emitted: the groups that it changed.
#[derive(Debug)]
struct Closing {
    epoch: Epoch,
    changed: Vec<u32>,
    next: usize,
}

impl Aggregation {
    pub(crate) fn new(spec: Arc<Aggregate>, output: SchemaRef) -> Result<Self, ExecError> {
        let fields: Vec<_> = output.fields().iter().map(|f| SortField::new(f.data_type().clone())).collect();
        let key_types = key_types(&spec, &output)?;
        Ok(Self {
            inputs: (spec.phase != Phase::Final).then(|| Inputs::new(&spec)).transpose()?,
            base: Table::new(&spec, &key_types)?,
            key_types,
            open: BTreeMap::new(),
            emitted: Vec::new(),
            converter: RowConverter::new(fields)?,
            closing: None,
            closed: Epoch::NONE,
            to_close: Epoch::NONE,
            spec,
            output,
        })
    }

    /// Rows of the base's groups as they are now.
    fn current(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, ExecError> {
        let mut columns = self.base.groups.columns(groups)?;
        for accumulator in &self.base.accumulators {
            columns.push(accumulator.values(groups)?);
        }
        Ok(columns)
    }

    fn close(&mut self) -> Result<bool, ExecError> {
        if self.spec.at_end { self.close_at_end() } else { self.close_next() }
    }

    /// Takes in what has closed; all groups are to be emitted when the input has ended.
    fn close_at_end(&mut self) -> Result<bool, ExecError> {
        while let Some(entry) = self.open.first_entry().filter(|entry| *entry.key() <= self.to_close) {
            let (epoch, table) = entry.remove_entry();
            self.base.merge(&table)?;
            self.closed = self.closed.max(epoch);
        }
        if self.to_close < Epoch::END {
            self.closed = self.to_close;
            return Ok(false);
        }
        if self.spec.groups.is_empty() {
            self.base.global_group()?;
        }
        let changed: Vec<u32> = (0..self.base.groups.len() as u32).collect();
        self.emitted.resize(changed.len(), None);
        let epoch = self.closed.max(Epoch::FIRST);
        self.closed = Epoch::END;
        self.closing = Some(Closing { epoch, changed, next: 0 });
        Ok(true)
    }

    /// Starts to close the next epoch up to `to_close` that has changes.
    fn close_next(&mut self) -> Result<bool, ExecError> {
        // A global aggregate has its row from the first epoch on, with or without input.
        let first = self.spec.groups.is_empty() && self.closed == Epoch::NONE && self.to_close >= Epoch::FIRST;
        let next = self.open.keys().next().copied().filter(|epoch| *epoch <= self.to_close);
        let (epoch, table) = match next {
            Some(epoch) if !first || epoch == Epoch::FIRST => (epoch, self.open.remove(&epoch)),
            _ if first => (Epoch::FIRST, None),
            _ => {
                self.closed = self.to_close;
                return Ok(false);
            }
        };
        let mut changed = match table {
            Some(table) => self.base.merge(&table)?,
            None => Vec::new(),
        };
        if first && changed.is_empty() {
            changed.push(self.base.global_group()?);
        }
        self.emitted.resize(self.base.groups.len(), None);
        self.closed = epoch;
        self.closing = Some(Closing { epoch, changed, next: 0 });
        Ok(true)
    }

    /// Emits some of the groups that the closing epoch changed.
    fn emit(&mut self, closing: &mut Closing, out: &mut Vec<Frame>) -> Result<(), ExecError> {
        // A group is at most a delete and an insert.
        let end = closing.changed.len().min(closing.next + FRAME_ROWS / 2);
        let groups = &closing.changed[closing.next..end];
        closing.next = end;
        let global = self.spec.groups.is_empty();
        let (live, dead): (Vec<u32>, Vec<u32>) =
            groups.iter().partition(|group| global || self.base.rows[**group as usize] > 0);
        if let Some(group) = dead.iter().find(|group| self.base.rows[**group as usize] < 0) {
            let rows = self.base.rows[*group as usize];
            return Err(ExecError::Internal(format!("a group has {rows} rows")));
        }
        let columns = self.current(&live)?;
        let rows = self.converter.convert_columns(&columns)?;
        let mut deletes: Vec<Box<[u8]>> = Vec::new();
        let mut inserts: Vec<u32> = Vec::new();
        for (i, group) in live.iter().enumerate() {
            let row = rows.row(i);
            let last = &mut self.emitted[*group as usize];
            if last.as_deref() == Some(row.data()) {
                continue;
            }
            deletes.extend(last.replace(row.data().into()));
            inserts.push(i as u32);
        }
        for group in &dead {
            deletes.extend(self.emitted[*group as usize].take());
            self.base.groups.remove(*group);
            self.base.accumulators.iter_mut().for_each(|accumulator| accumulator.reset(*group));
        }
        self.push_frame(closing.epoch, &deletes, &columns, &inserts, out)
    }

    fn push_frame(
        &self,
        epoch: Epoch,
        deletes: &[Box<[u8]>],
        columns: &[ArrayRef],
        inserts: &[u32],
        out: &mut Vec<Frame>,
    ) -> Result<(), ExecError> {
        if !deletes.is_empty() {
            let parser = self.converter.parser();
            let gone = self.converter.convert_rows(deletes.iter().map(|bytes| parser.parse(bytes)))?;
            let batch = batch_of(&self.output, gone, deletes.len())?;
            let weights = vec![-1; deletes.len()].into();
            out.push(Frame { weights: Some(weights), ..Frame::inserts(batch, epoch) });
        }
        if !inserts.is_empty() {
            let rows = UInt32Array::from(inserts.to_vec());
            let columns = columns.iter().map(|column| take(column, &rows, None)).collect::<Result<Vec<_>, _>>()?;
            out.push(Frame::inserts(batch_of(&self.output, columns, inserts.len())?, epoch));
        }
        Ok(())
    }
}

impl Operator for Aggregation {
    fn on_frame(&mut self, _port: u8, frame: Frame) -> Result<(), ExecError> {
        let table = match self.open.entry(frame.epoch) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => entry.insert(Table::new(&self.spec, &self.key_types)?),
        };
        match &self.inputs {
            Some(inputs) => inputs.update(&frame, table),
            None => table.merge_states(frame.batch.columns(), self.key_types.len(), frame.rows()),
        }
    }

    fn on_progress(&mut self, epoch: Epoch) -> Result<(), ExecError> {
        self.to_close = self.to_close.max(epoch);
        Ok(())
    }

    fn resume(&mut self, out: &mut Vec<Frame>) -> Result<Step, ExecError> {
        let mut closing = match self.closing.take() {
            Some(closing) => closing,
            None if self.closed < self.to_close && self.close()? => match self.closing.take() {
                Some(closing) => closing,
                None => return Ok(Step::Idle),
            },
            None => return Ok(Step::Idle),
        };
        self.emit(&mut closing, out)?;
        if closing.next < closing.changed.len() {
            self.closing = Some(closing);
        }
        Ok(Step::Full)
    }

    fn on_commit(&mut self, _epoch: Epoch) {}

    fn roll_back(&mut self, committed: Epoch) -> Result<(), ExecError> {
        if self.closed > committed {
            return Err(ExecError::Internal(format!(
                "an aggregate that has closed epoch {} cannot return to {committed} without a checkpoint",
                self.closed
            )));
        }
        self.open.retain(|epoch, _| *epoch <= committed);
        self.to_close = self.closed;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
