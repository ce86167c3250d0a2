//! IN, EXISTS and scalar subqueries in a WHERE, answered for one row after the other: the row's
//! values are put in, and the subquery is evaluated.

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::expr::{Exists, InSubquery};
use datafusion_expr::{Expr, LogicalPlan, logical_plan};

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;

use super::{Oracle, Tagged, evaluate};

/// A row of the outer query.
struct Outer<'a> {
    schema: &'a DFSchema,
    row: RecordBatch,
}

/// Whether an expression asks a subquery.
pub(super) fn asks(expr: &Expr) -> bool {
    let subquery = |part: &Expr| matches!(part, Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_));
    expr.exists(|part| Ok(subquery(part))).unwrap()
}

impl Oracle<'_> {
    /// The rows for which a condition with subqueries is true.
    pub(super) fn ask(&mut self, filter: &logical_plan::Filter, epoch: u64) -> Tagged {
        let input = self.at(&filter.input, epoch);
        let schema = filter.input.schema();
        let keeps = (0..input.batch.num_rows()).map(|row| {
            let outer = Outer { schema, row: input.batch.slice(row, 1) };
            let answered = filter.predicate.clone().transform_down(|part| Ok(self.answered(part, &outer, epoch)));
            let holds = evaluate(&answered.unwrap().data, schema, &outer.row);
            holds.is_valid(0) && holds.as_boolean().value(0)
        });
        let keeps: Vec<bool> = keeps.collect();
        let epochs = input.epochs.iter().zip(&keeps).filter(|(_, keep)| **keep).map(|(epoch, _)| *epoch).collect();
        Tagged { batch: filter_record_batch(&input.batch, &BooleanArray::from(keeps)).unwrap(), epochs }
    }

    /// A subquery as the value that it has for a row.
    fn answered(&mut self, expr: Expr, outer: &Outer<'_>, epoch: u64) -> Transformed<Expr> {
        let value = match &expr {
            Expr::Exists(Exists { subquery, negated }) => {
                let rows = self.bound(&subquery.subquery, outer, epoch);
                ScalarValue::Boolean(Some((rows.num_rows() > 0) != *negated))
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                let rows = self.bound(&subquery.subquery, outer, epoch);
                let x = ScalarValue::try_from_array(&evaluate(expr, outer.schema, &outer.row), 0).unwrap();
                let found = is_in(&x, &rows);
                ScalarValue::Boolean(found.map(|found| found != *negated))
            }
            Expr::ScalarSubquery(subquery) => {
                let rows = self.bound(&subquery.subquery, outer, epoch);
                let data_type = subquery.subquery.schema().field(0).data_type();
                match rows.num_rows() {
                    0 => ScalarValue::try_from(data_type).unwrap(),
                    _ => ScalarValue::try_from_array(rows.column(0), 0).unwrap(),
                }
            }
            _ => return Transformed::no(expr),
        };
        Transformed::yes(Expr::Literal(value, None))
    }

    /// The rows of a subquery for one row of the outer query.
    fn bound(&mut self, subquery: &LogicalPlan, outer: &Outer<'_>, epoch: u64) -> RecordBatch {
        let bound = subquery.clone().transform_down_with_subqueries(|node| {
            node.map_expressions(|expr| {
                expr.transform_down(|part| match &part {
                    Expr::OuterReferenceColumn(_, column) => match outer.schema.maybe_index_of_column(column) {
                        Some(index) => {
                            let value = ScalarValue::try_from_array(outer.row.column(index), 0)?;
                            Ok(Transformed::yes(Expr::Literal(value, None)))
                        }
                        None => Ok(Transformed::no(part)),
                    },
                    _ => Ok(Transformed::no(part)),
                })
            })
        });
        // This plan lives for one row only: nothing of it is kept.
        self.bindings += 1;
        let rows = self.at(&bound.unwrap().data, epoch).batch;
        self.bindings -= 1;
        rows
    }
}

/// Whether `x` is in the first column; NULL if only a NULL could have been it.
fn is_in(x: &ScalarValue, rows: &RecordBatch) -> Option<bool> {
    let values = (0..rows.num_rows()).map(|row| ScalarValue::try_from_array(rows.column(0), row).unwrap());
    let values: Vec<ScalarValue> = values.collect();
    if values.is_empty() {
        return Some(false);
    }
    if x.is_null() {
        return None;
    }
    if values.contains(x) {
        return Some(true);
    }
    if values.iter().any(ScalarValue::is_null) { None } else { Some(false) }
}
