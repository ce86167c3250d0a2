//! A table of groups with the state of each aggregate function, and how rows get into it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use datafusion_physical_expr::PhysicalExpr;
use thetis_planner::expr::ScalarExpr;
use thetis_planner::physical::{Aggregate, AggregateCall, Phase};

use super::accumulator::{Accumulator, Selected, Update, accumulator_for, types};
use super::groups::Groups;
use crate::error::ExecError;
use crate::exact::canonical_floats;
use crate::frame::Frame;
use crate::steps::{compile_all, evaluate, mask};

/// Groups with the number of their rows and their accumulators.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) groups: Groups,
    pub(super) rows: Vec<i64>,
    pub(super) accumulators: Vec<Box<dyn Accumulator>>,
}

impl Table {
    /// No groups yet.
    pub(super) fn new(spec: &Aggregate, key_types: &[DataType]) -> Result<Self, ExecError> {
        let accumulators = spec.aggregates.iter().map(|call| accumulator_for(call, &spec.input, spec.input_retracts));
        let (groups, accumulators) = (Groups::new(key_types)?, accumulators.collect::<Result<_, _>>()?);
        Ok(Self { groups, rows: Vec::new(), accumulators })
    }

    pub(super) fn resize(&mut self) {
        let count = self.groups.len();
        self.rows.resize(count, 0);
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.resize(count));
    }

    /// The number of the group of all rows.
    pub(super) fn global_group(&mut self) -> Result<u32, ExecError> {
        let group = self.groups.intern_all(&[], 1)?;
        self.resize();
        Ok(group[0])
    }

    /// Adds `other` to this one; the groups that it touched, as numbered here.
    pub(super) fn merge(&mut self, other: &Self) -> Result<Vec<u32>, ExecError> {
        let map = self.groups.intern_groups(&other.groups);
        self.resize();
        for (from, to) in map.iter().enumerate() {
            self.rows[*to as usize] += other.rows[from];
        }
        for (own, others) in self.accumulators.iter_mut().zip(&other.accumulators) {
            own.merge(others.as_ref(), &map)?;
        }
        Ok(map)
    }

    /// Adds rows that carry groups, counts and states: the columns of
    /// [`Aggregate::partial_schema`].
    pub(super) fn merge_states(&mut self, columns: &[ArrayRef], keys: usize, rows: usize) -> Result<(), ExecError> {
        let groups = self.groups.intern_all(&columns[..keys], rows)?;
        self.resize();
        let counts = columns[keys].as_primitive::<Int64Type>().values();
        groups.iter().zip(counts).for_each(|(group, count)| self.rows[*group as usize] += count);
        let mut states = &columns[keys + 1..];
        for accumulator in &mut self.accumulators {
            let (own, rest) = states.split_at(accumulator.state_columns());
            accumulator.merge_state(own, &groups)?;
            states = rest;
        }
        Ok(())
    }

    /// What [`Self::merge_states`] takes, of all groups.
    pub(super) fn states(&self) -> Result<Vec<ArrayRef>, ExecError> {
        let all: Vec<u32> = (0..self.groups.len() as u32).collect();
        let mut columns = self.groups.columns(&all)?;
        columns.push(Arc::new(Int64Array::from(self.rows.clone())));
        for accumulator in &self.accumulators {
            columns.extend(accumulator.state()?);
        }
        Ok(columns)
    }
}

/// What an aggregate reads of its input.
#[derive(Debug)]
pub(super) struct Inputs {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    calls: Vec<CallInputs>,
}

impl Inputs {
    /// Compiles what `spec` reads.
    pub(super) fn new(spec: &Aggregate) -> Result<Self, ExecError> {
        let calls = spec.aggregates.iter().map(|call| CallInputs::new(call, &spec.input));
        let calls = calls.collect::<Result<_, ExecError>>()?;
        Ok(Self { keys: compile_all(&spec.groups, &spec.input)?, calls })
    }

    /// Adds the rows of a frame to a table.
    pub(super) fn update(&self, frame: &Frame, table: &mut Table) -> Result<(), ExecError> {
        let groups = if self.keys.is_empty() {
            let group = table.global_group()?;
            let changes = frame.weights.as_ref().map_or(frame.rows() as i64, |weights| weights.iter().sum());
            table.rows[group as usize] += changes;
            None
        } else {
            let key = |key| evaluate(key, &frame.batch).map(canonical_floats);
            let keys = self.keys.iter().map(key).collect::<Result<Vec<_>, _>>()?;
            let groups = table.groups.intern_all(&keys, frame.rows())?;
            table.resize();
            for (row, group) in groups.iter().enumerate() {
                table.rows[*group as usize] += frame.weight(row);
            }
            Some(groups)
        };
        for (inputs, accumulator) in self.calls.iter().zip(&mut table.accumulators) {
            inputs.update(frame, groups.as_deref(), accumulator.as_mut())?;
        }
        Ok(())
    }
}

/// The types of an aggregate's group keys.
pub(super) fn key_types(spec: &Aggregate, output: &SchemaRef) -> Result<Vec<DataType>, ExecError> {
    match spec.phase {
        Phase::Final => Ok(output.fields()[..spec.groups.len()].iter().map(|f| f.data_type().clone()).collect()),
        _ => types(&spec.groups, &spec.input),
    }
}

/// What a call reads of a row.
#[derive(Debug)]
struct CallInputs {
    values: Vec<Arc<dyn PhysicalExpr>>,
    order: Vec<Arc<dyn PhysicalExpr>>,
    filter: Option<Arc<dyn PhysicalExpr>>,
}

impl CallInputs {
    fn new(call: &AggregateCall, input: &SchemaRef) -> Result<Self, ExecError> {
        let order: Vec<ScalarExpr> = call.order.iter().map(|key| key.expr.clone()).collect();
        Ok(Self {
            values: compile_all(&call.arguments, input)?,
            order: compile_all(&order, input)?,
            filter: compile_all(call.filter.as_slice(), input)?.pop(),
        })
    }

    /// Gives the rows of a frame to the call's accumulator.
    fn update(
        &self,
        frame: &Frame,
        groups: Option<&[u32]>,
        accumulator: &mut dyn Accumulator,
    ) -> Result<(), ExecError> {
        let columns = |exprs: &[Arc<dyn PhysicalExpr>]| {
            exprs.iter().map(|expr| evaluate(expr, &frame.batch).map(canonical_floats)).collect::<Result<Vec<_>, _>>()
        };
        let (values, order) = (columns(&self.values)?, columns(&self.order)?);
        let filter = self.filter.as_ref().map(|filter| mask(filter, &frame.batch)).transpose()?;
        // NULL itself is a column without a bitmap.
        let nulls = values.iter().filter_map(|values| values.logical_nulls().filter(|nulls| nulls.null_count() > 0));
        let nulls: Vec<_> = nulls.collect();
        let kept = |row: usize| {
            filter.as_ref().is_none_or(|filter| filter.value(row)) && nulls.iter().all(|nulls| nulls.is_valid(row))
        };
        let some: Option<Vec<u32>> = (filter.is_some() || !nulls.is_empty())
            .then(|| (0..frame.rows()).filter(|row| kept(*row)).map(|row| row as u32).collect());
        let rows = some.as_deref().map_or(Selected::All(frame.rows()), Selected::Rows);
        let weights = frame.weights.as_deref();
        accumulator.update(&Update { values: &values, order: &order, rows, groups, weights })
    }
}
