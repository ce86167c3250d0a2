//! GROUP BY and aggregate functions, exact under deletes.
//!
//! Every open epoch has a table of its own: what the epoch adds to each group. When an epoch
//! closes, its table is merged into the base, and for every group that changed the row last
//! emitted is deleted and the new one inserted.

mod accumulator;
mod groups;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Float32Type, Float64Type, SchemaRef};
use arrow::row::{RowConverter, SortField};
use datafusion_physical_expr::PhysicalExpr;
use thetis_planner::expr::ScalarExpr;
use thetis_planner::physical::{Aggregate, AggregateCall};

use self::accumulator::{Accumulator, Update, accumulator_for};
use self::groups::Groups;
use crate::error::ExecError;
use crate::frame::{Epoch, FRAME_ROWS, Frame};
use crate::operator::{Operator, Step};
use crate::steps::{batch_of, compile_all, evaluate, mask};

/// One task of an aggregate.
#[derive(Debug)]
pub(crate) struct Aggregation {
    spec: Arc<Aggregate>,
    output: SchemaRef,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    inputs: Vec<Inputs>,
    base: Table,
    open: BTreeMap<Epoch, Table>,
    /// The output row last emitted for each group of the base, as row bytes.
    emitted: Vec<Option<Box<[u8]>>>,
    converter: RowConverter,
    /// Group keys as row bytes; absent for a global aggregate.
    key_converter: Option<RowConverter>,
    closing: Option<Closing>,
    closed: Epoch,
    to_close: Epoch,
}

/// What a call reads of a row.
#[derive(Debug)]
struct Inputs {
    values: Vec<Arc<dyn PhysicalExpr>>,
    order: Vec<Arc<dyn PhysicalExpr>>,
    filter: Option<Arc<dyn PhysicalExpr>>,
}

impl Inputs {
    fn new(call: &AggregateCall, input: &SchemaRef) -> Result<Self, ExecError> {
        let order: Vec<ScalarExpr> = call.order.iter().map(|key| key.expr.clone()).collect();
        Ok(Self {
            values: compile_all(&call.arguments, input)?,
            order: compile_all(&order, input)?,
            filter: compile_all(call.filter.as_slice(), input)?.pop(),
        })
    }

    /// Gives the rows of a frame to the call's accumulator.
    fn update(&self, frame: &Frame, groups: &[u32], accumulator: &mut dyn Accumulator) -> Result<(), ExecError> {
        let columns = |exprs: &[Arc<dyn PhysicalExpr>]| {
            exprs.iter().map(|expr| evaluate(expr, &frame.batch).map(canonical_floats)).collect::<Result<Vec<_>, _>>()
        };
        let (values, order) = (columns(&self.values)?, columns(&self.order)?);
        let filter = self.filter.as_ref().map(|filter| mask(filter, &frame.batch)).transpose()?;
        // NULL itself is a column without a bitmap.
        let nulls: Vec<_> = values.iter().filter_map(|values| values.logical_nulls()).collect();
        let kept = |row: usize| {
            filter.as_ref().is_none_or(|filter| filter.value(row)) && nulls.iter().all(|nulls| nulls.is_valid(row))
        };
        let rows: Vec<u32> = (0..frame.rows()).filter(|row| kept(*row)).map(|row| row as u32).collect();
        let weights = frame.weights.as_deref();
        accumulator.update(&Update { values: &values, order: &order, rows: &rows, groups, weights })
    }
}

/// Groups with the number of their rows and their accumulators.
#[derive(Debug)]
struct Table {
    groups: Groups,
    rows: Vec<i64>,
    accumulators: Vec<Box<dyn Accumulator>>,
}

/// An epoch that is being emitted: the groups that it changed.
#[derive(Debug)]
struct Closing {
    epoch: Epoch,
    changed: Vec<u32>,
    next: usize,
}

impl Table {
    fn new(spec: &Aggregate) -> Result<Self, ExecError> {
        let accumulators = spec.aggregates.iter().map(|call| accumulator_for(call, &spec.input, spec.input_retracts));
        Ok(Self { groups: Groups::default(), rows: Vec::new(), accumulators: accumulators.collect::<Result<_, _>>()? })
    }

    fn resize(&mut self) {
        let count = self.groups.len();
        self.rows.resize(count, 0);
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.resize(count));
    }

    /// Adds `other` to this one; the groups that it touched, as numbered here.
    fn merge(&mut self, other: &Self) -> Result<Vec<u32>, ExecError> {
        let map: Vec<u32> =
            (0..other.groups.len() as u32).map(|group| self.groups.intern(other.groups.key(group))).collect();
        self.resize();
        for (from, to) in map.iter().enumerate() {
            self.rows[*to as usize] += other.rows[from];
        }
        for (own, others) in self.accumulators.iter_mut().zip(&other.accumulators) {
            own.merge(others.as_ref(), &map)?;
        }
        Ok(map)
    }
}

impl Aggregation {
    pub(crate) fn new(spec: Arc<Aggregate>, output: SchemaRef) -> Result<Self, ExecError> {
        let inputs = spec.aggregates.iter().map(|call| Inputs::new(call, &spec.input));
        let inputs = inputs.collect::<Result<_, ExecError>>()?;
        let fields: Vec<_> = output.fields().iter().map(|f| SortField::new(f.data_type().clone())).collect();
        let key_fields = fields[..spec.groups.len()].to_vec();
        let key_converter = (!key_fields.is_empty()).then(|| RowConverter::new(key_fields)).transpose()?;
        Ok(Self {
            keys: compile_all(&spec.groups, &spec.input)?,
            inputs,
            base: Table::new(&spec)?,
            open: BTreeMap::new(),
            emitted: Vec::new(),
            converter: RowConverter::new(fields)?,
            key_converter,
            closing: None,
            closed: Epoch::NONE,
            to_close: Epoch::NONE,
            spec,
            output,
        })
    }

    /// Rows of the base's groups as they are now.
    fn current(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, ExecError> {
        let mut columns = self.group_columns(groups)?;
        for accumulator in &self.base.accumulators {
            columns.push(accumulator.values(groups)?);
        }
        Ok(columns)
    }

    fn group_columns(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, ExecError> {
        let Some(converter) = &self.key_converter else {
            return Ok(Vec::new());
        };
        let parser = converter.parser();
        Ok(converter.convert_rows(groups.iter().map(|group| parser.parse(self.base.groups.key(*group))))?)
    }

    /// Starts to close the next epoch up to `to_close` that has changes.
    fn close_next(&mut self) -> Result<bool, ExecError> {
        // A global aggregate has its row from the first epoch on, with or without input.
        let first = self.keys.is_empty() && self.closed == Epoch::NONE && self.to_close >= Epoch::FIRST;
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
            changed.push(self.base.groups.intern(&[]));
            self.base.resize();
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
        let global = self.keys.is_empty();
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

/// Floats that are equal become the same: -0.0 is 0.0, and there is one NaN.
fn canonical_floats(array: ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Float64 => {
            let canonical = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
            Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(canonical))
        }
        DataType::Float32 => {
            let canonical = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(canonical))
        }
        _ => array,
    }
}

impl Operator for Aggregation {
    fn on_frame(&mut self, _port: u8, frame: Frame) -> Result<(), ExecError> {
        let rows = frame.rows();
        let table = match self.open.entry(frame.epoch) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => entry.insert(Table::new(&self.spec)?),
        };
        let groups: Vec<u32> = match &self.key_converter {
            None => vec![table.groups.intern(&[]); rows],
            Some(converter) => {
                let key = |key| evaluate(key, &frame.batch).map(canonical_floats);
                let keys = self.keys.iter().map(key).collect::<Result<Vec<_>, _>>()?;
                let keys = converter.convert_columns(&keys)?;
                keys.iter().map(|key| table.groups.intern(key.data())).collect()
            }
        };
        table.resize();
        for (row, group) in groups.iter().enumerate() {
            table.rows[*group as usize] += frame.weight(row);
        }
        for (inputs, accumulator) in self.inputs.iter().zip(&mut table.accumulators) {
            inputs.update(&frame, &groups, accumulator.as_mut())?;
        }
        Ok(())
    }

    fn on_progress(&mut self, epoch: Epoch) -> Result<(), ExecError> {
        self.to_close = self.to_close.max(epoch);
        Ok(())
    }

    fn resume(&mut self, out: &mut Vec<Frame>) -> Result<Step, ExecError> {
        let mut closing = match self.closing.take() {
            Some(closing) => closing,
            None if self.closed < self.to_close && self.close_next()? => match self.closing.take() {
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
