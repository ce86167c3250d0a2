//! Which row groups can be left out: by the least and greatest values of their columns, a filter is
//! false for all of their rows.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::{DataFusionError, ScalarValue};
use datafusion_expr::interval_arithmetic::Interval;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{Column, Literal};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use thetis_planner::expr::ScalarExpr;

use crate::error::ExecError;
use crate::steps::compile_all;

/// The filters of each edge out of a source; a row is needed if all of some edge are true for it.
#[derive(Debug)]
pub(super) struct Filters {
    edges: Vec<Vec<Arc<dyn PhysicalExpr>>>,
}

impl Filters {
    /// Over rows of `schema`.
    pub(super) fn new(edges: &[&[ScalarExpr]], schema: &SchemaRef) -> Result<Self, ExecError> {
        let edges = edges.iter().map(|filters| compile_all(filters, schema)).collect::<Result<_, _>>()?;
        Ok(Self { edges })
    }

    /// Of each row group, whether it may have rows that are needed. `names` are those of the columns in
    /// the file, in the order of `schema`.
    pub(super) fn needed(&self, file: &ArrowReaderMetadata, names: &[&str], schema: &SchemaRef) -> Vec<bool> {
        let groups = file.metadata().num_row_groups();
        // Every edge takes something of every group, as long as one has no filter.
        if self.edges.iter().any(Vec::is_empty) {
            return vec![true; groups];
        }
        let columns = names.iter().zip(schema.fields());
        let columns: Vec<Vec<Option<Interval>>> =
            columns.map(|(name, field)| intervals(file, name, field.data_type())).collect();
        let may_hold = |filter: &Arc<dyn PhysicalExpr>, group: usize| {
            let columns: Vec<Option<&Interval>> = columns.iter().map(|column| column[group].as_ref()).collect();
            // What cannot be told may be true.
            bounds(filter, &columns).map_or(true, |bounds| bounds != Interval::FALSE)
        };
        let some = |group| self.edges.iter().any(|filters| filters.iter().all(|filter| may_hold(filter, group)));
        (0..groups).map(some).collect()
    }
}

/// Whether the statistics of a column of this type say what its values are. Those of floats leave NaN
/// out, those of texts may be cut off or in another order.
fn has_bounds(data_type: &DataType) -> bool {
    let time = matches!(data_type, DataType::Date32 | DataType::Timestamp(..));
    time || data_type.is_integer() || matches!(data_type, DataType::Decimal128(..))
}

/// What the values of a column lie in, of each row group.
fn intervals(file: &ArrowReaderMetadata, name: &str, data_type: &DataType) -> Vec<Option<Interval>> {
    let groups = file.metadata().row_groups();
    let known = || -> Option<[ArrayRef; 2]> {
        let converter = StatisticsConverter::try_new(name, file.schema(), file.parquet_schema()).ok()?;
        let stored = file.schema().field_with_name(name).ok()?.data_type();
        if !has_bounds(stored) || !has_bounds(data_type) {
            return None;
        }
        let declared = |values: ArrayRef| cast(&values, data_type).ok();
        Some([declared(converter.row_group_mins(groups).ok()?)?, declared(converter.row_group_maxes(groups).ok()?)?])
    };
    let Some([least, greatest]) = known() else { return vec![None; groups.len()] };
    let interval = |group| {
        let [least, greatest] = [&least, &greatest].map(|values| ScalarValue::try_from_array(values, group));
        Interval::try_new(least.ok()?, greatest.ok()?).ok()
    };
    (0..groups.len()).map(interval).collect()
}

/// What the values of an expression lie in. An error if that is not known.
fn bounds(expr: &Arc<dyn PhysicalExpr>, columns: &[Option<&Interval>]) -> Result<Interval, DataFusionError> {
    let unknown = || DataFusionError::NotImplemented("unknown bounds".to_owned());
    if let Some(column) = expr.downcast_ref::<Column>() {
        return columns.get(column.index()).copied().flatten().cloned().ok_or_else(unknown);
    }
    if let Some(literal) = expr.downcast_ref::<Literal>() {
        let value = literal.value();
        return if value.is_null() { Err(unknown()) } else { Interval::try_new(value.clone(), value.clone()) };
    }
    let children = expr.children().into_iter().map(|child| bounds(child, columns)).collect::<Result<Vec<_>, _>>()?;
    expr.evaluate_bounds(&children.iter().collect::<Vec<_>>())
}
