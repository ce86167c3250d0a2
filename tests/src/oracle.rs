//! A naive evaluation of logical plans over a prefix of every stream: nested loops, grouping by
//! sorting, nothing incremental. It shares the logical plan with the engine, and none of what
//! the engine does with it.

mod sets;
mod subqueries;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::{cast, concat, concat_batches, filter_record_batch, take_record_batch};
use arrow::datatypes::{DataType, Schema};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, JoinType, NullEquality, ScalarValue};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::expr::AggregateFunction;
use datafusion_expr::logical_plan::{Distinct, FetchType};
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::utils::split_conjunction;
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, Operator, binary_expr, logical_plan};
use datafusion_physical_expr::expressions::{Column, Literal};
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr};

/// Rows with the epoch that each belongs to.
#[derive(Debug, Clone)]
struct Tagged {
    batch: RecordBatch,
    epochs: Vec<u64>,
}

/// Evaluates one plan at prefixes.
#[derive(Debug)]
pub struct Oracle<'a> {
    plan: &'a LogicalPlan,
    streams: HashMap<String, RecordBatch>,
    epoch_rows: u64,
    /// Parts without aggregates only ever gain rows: they are evaluated once, with epochs.
    known: HashMap<*const LogicalPlan, Tagged>,
    /// How many subqueries are being evaluated for a row: their plans are of the moment.
    bindings: u32,
}

impl<'a> Oracle<'a> {
    /// An oracle for `plan` over `streams` (all columns, in order), cut every `epoch_rows` rows.
    pub fn new(plan: &'a LogicalPlan, streams: HashMap<String, RecordBatch>, epoch_rows: u64) -> Self {
        Self { plan, streams, epoch_rows, known: HashMap::new(), bindings: 0 }
    }

    /// The last epoch in which any stream has rows.
    pub fn last_epoch(&self) -> u64 {
        self.streams.values().map(|rows| (rows.num_rows() as u64).div_ceil(self.epoch_rows)).max().unwrap_or(0).max(1)
    }

    /// The query's answer over all rows of epochs up to `epoch`.
    pub fn answer(&mut self, epoch: u64) -> RecordBatch {
        let plan = self.plan;
        self.at(plan, epoch).batch
    }

    fn at(&mut self, plan: &LogicalPlan, epoch: u64) -> Tagged {
        if !grows_only(plan) {
            return self.evaluate(plan, epoch);
        }
        if self.bindings > 0 {
            return up_to(&self.evaluate(plan, epoch), epoch);
        }
        if !self.known.contains_key(&std::ptr::from_ref(plan)) {
            let all = self.evaluate(plan, u64::MAX);
            self.known.insert(std::ptr::from_ref(plan), all);
        }
        up_to(&self.known[&std::ptr::from_ref(plan)], epoch)
    }

    fn evaluate(&mut self, plan: &LogicalPlan, epoch: u64) -> Tagged {
        match plan {
            LogicalPlan::TableScan(scan) => {
                let rows = &self.streams[scan.table_name.table()];
                let epochs = (0..rows.num_rows() as u64).map(|row| row / self.epoch_rows + 1).collect();
                let all = Tagged { batch: rows.clone(), epochs };
                let schema = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &rows.schema()).unwrap();
                let kept = keep(all, &scan.filters.iter().collect::<Vec<_>>(), &schema);
                match &scan.projection {
                    Some(columns) => Tagged { batch: kept.batch.project(columns).unwrap(), ..kept },
                    None => kept,
                }
            }
            LogicalPlan::Filter(filter) if subqueries::asks(&filter.predicate) => self.ask(filter, epoch),
            LogicalPlan::Filter(filter) => {
                let input = self.at(&filter.input, epoch);
                keep(input, &split_conjunction(&filter.predicate), filter.input.schema())
            }
            LogicalPlan::Projection(projection) => {
                let input = self.at(&projection.input, epoch);
                let schema = projection.input.schema();
                let columns = projection.expr.iter().map(|expr| evaluate(expr, schema, &input.batch)).collect();
                Tagged { batch: batch(columns, input.batch.num_rows()), epochs: input.epochs }
            }
            LogicalPlan::SubqueryAlias(alias) => self.at(&alias.input, epoch),
            LogicalPlan::Union(union) => {
                let inputs: Vec<Tagged> = union.inputs.iter().map(|input| self.at(input, epoch)).collect();
                let batches: Vec<_> =
                    inputs.iter().map(|i| batch(i.batch.columns().to_vec(), i.batch.num_rows())).collect();
                let all = concat_batches(&batches[0].schema(), &batches).unwrap();
                Tagged { batch: all, epochs: inputs.into_iter().flat_map(|input| input.epochs).collect() }
            }
            LogicalPlan::Join(join) => {
                let (left, right) = (self.at(&join.left, epoch), self.at(&join.right, epoch));
                match join.join_type {
                    JoinType::Inner => nested_loops(join, &left, &right),
                    _ if sets::is_set_operation(join) => sets::set_operation(join, &left.batch, &right.batch),
                    _ => sets::semi_join(join, &left.batch, &right.batch),
                }
            }
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let rows = self.at(input, epoch).batch;
                sets::distinct(&rows, input.schema())
            }
            LogicalPlan::EmptyRelation(empty) => {
                let rows = usize::from(empty.produce_one_row);
                Tagged { batch: batch(Vec::new(), rows), epochs: vec![1; rows] }
            }
            LogicalPlan::Values(values) => {
                let column = |column: usize| {
                    let one = batch(Vec::new(), 1);
                    let values = values.values.iter().map(|row| evaluate(&row[column], &DFSchema::empty(), &one));
                    let values: Vec<ArrayRef> = values.collect();
                    concat(&values.iter().map(AsRef::as_ref).collect::<Vec<_>>()).unwrap()
                };
                let columns = (0..values.schema.fields().len()).map(column).collect();
                Tagged { batch: batch(columns, values.values.len()), epochs: vec![1; values.values.len()] }
            }
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.at(&sort.input, epoch),
            // In a subquery, where any rows will do.
            LogicalPlan::Limit(limit) if self.bindings > 0 => {
                let FetchType::Literal(Some(most)) = limit.get_fetch_type().unwrap() else { panic!("LIMIT a number") };
                let rows = self.at(&limit.input, epoch).batch;
                let rows = rows.slice(0, most.min(rows.num_rows()));
                Tagged { epochs: vec![0; rows.num_rows()], batch: rows }
            }
            LogicalPlan::Aggregate(aggregate) => {
                let input = self.at(&aggregate.input, epoch);
                group(aggregate, &input.batch)
            }
            other => panic!("the oracle does not know {}", other.display()),
        }
    }
}

/// The rows of the epochs up to `epoch`.
fn up_to(rows: &Tagged, epoch: u64) -> Tagged {
    let mask: BooleanArray = rows.epochs.iter().map(|e| Some(*e <= epoch)).collect();
    let epochs = rows.epochs.iter().copied().filter(|e| *e <= epoch).collect();
    Tagged { batch: filter_record_batch(&rows.batch, &mask).unwrap(), epochs }
}

fn grows_only(plan: &LogicalPlan) -> bool {
    let grows = match plan {
        LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_) | LogicalPlan::Limit(_) => false,
        LogicalPlan::Join(join) => join.join_type == JoinType::Inner,
        LogicalPlan::Filter(filter) => !subqueries::asks(&filter.predicate),
        _ => true,
    };
    grows && plan.inputs().into_iter().all(grows_only)
}

fn physical(expr: &Expr, schema: &DFSchema) -> Arc<dyn PhysicalExpr> {
    create_physical_expr(expr, schema, &ExecutionProps::new(), &PhysicalPlanningContext::default()).unwrap()
}

fn evaluate(expr: &Expr, schema: &DFSchema, rows: &RecordBatch) -> ArrayRef {
    physical(expr, schema).evaluate(rows).unwrap().into_array(rows.num_rows()).unwrap()
}

fn batch(columns: Vec<ArrayRef>, rows: usize) -> RecordBatch {
    let fields = columns
        .iter()
        .enumerate()
        .map(|(i, c)| arrow::datatypes::Field::new(format!("c{i}"), c.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options).unwrap()
}

fn keep(rows: Tagged, conditions: &[&Expr], schema: &DFSchema) -> Tagged {
    conditions.iter().flat_map(|condition| split_conjunction(condition)).fold(rows, |rows, condition| {
        let mask = evaluate(condition, schema, &rows.batch);
        let mask = mask.as_boolean();
        let holds = |row: usize| mask.is_valid(row) && mask.value(row);
        let epochs = (0..mask.len()).filter(|row| holds(*row)).map(|row| rows.epochs[row]).collect();
        Tagged { batch: filter_record_batch(&rows.batch, mask).unwrap(), epochs }
    })
}

/// The conjuncts of a join.
fn conditions(join: &logical_plan::Join) -> Vec<Expr> {
    let op = match join.null_equality {
        NullEquality::NullEqualsNothing => Operator::Eq,
        NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
    };
    let equal = join.on.iter().map(|(l, r)| binary_expr(l.clone(), op, r.clone()));
    equal.chain(join.filter.iter().flat_map(|f| split_conjunction(f).into_iter().cloned())).collect()
}

/// Every left row against all right rows. A pair's epoch is the later of the two.
fn nested_loops(join: &logical_plan::Join, left: &Tagged, right: &Tagged) -> Tagged {
    let schema = join.left.schema().join(join.right.schema()).unwrap();
    let conditions: Vec<_> = conditions(join).iter().map(|condition| physical(condition, &schema)).collect();
    let (mut lefts, mut rights) = (Vec::new(), Vec::new());
    for row in 0..left.batch.num_rows() {
        let mut candidates: Vec<u64> = (0..right.batch.num_rows() as u64).collect();
        for condition in &conditions {
            let bound = bind(condition, &left.batch, row);
            let rows = if candidates.len() == right.batch.num_rows() {
                right.batch.clone()
            } else {
                take_record_batch(&right.batch, &UInt64Array::from(candidates.clone())).unwrap()
            };
            let mask = bound.evaluate(&rows).unwrap().into_array(rows.num_rows()).unwrap();
            let mask = mask.as_boolean();
            let mut i = 0;
            candidates.retain(|_| {
                i += 1;
                mask.is_valid(i - 1) && mask.value(i - 1)
            });
        }
        lefts.extend(std::iter::repeat_n(row as u64, candidates.len()));
        rights.extend(candidates);
    }
    let epochs =
        lefts.iter().zip(&rights).map(|(l, r)| left.epochs[*l as usize].max(right.epochs[*r as usize])).collect();
    let count = lefts.len();
    let mut columns = take_record_batch(&left.batch, &UInt64Array::from(lefts)).unwrap().columns().to_vec();
    columns.extend_from_slice(take_record_batch(&right.batch, &UInt64Array::from(rights)).unwrap().columns());
    Tagged { batch: batch(columns, count), epochs }
}

/// The condition with the left columns replaced by a row's values.
fn bind(condition: &Arc<dyn PhysicalExpr>, left: &RecordBatch, row: usize) -> Arc<dyn PhysicalExpr> {
    let bound = Arc::clone(condition).transform_up(|node| {
        let Some(column) = node.downcast_ref::<Column>() else { return Ok(Transformed::no(node)) };
        let bound: Arc<dyn PhysicalExpr> = if column.index() < left.num_columns() {
            Arc::new(Literal::new(ScalarValue::try_from_array(left.column(column.index()), row)?))
        } else {
            Arc::new(Column::new(column.name(), column.index() - left.num_columns()))
        };
        Ok(Transformed::yes(bound))
    });
    bound.unwrap().data
}

fn group(aggregate: &logical_plan::Aggregate, rows: &RecordBatch) -> Tagged {
    let schema = aggregate.input.schema();
    let keys: Vec<ArrayRef> = aggregate.group_expr.iter().map(|expr| evaluate(expr, schema, rows)).collect();
    let mut groups: BTreeMap<Vec<String>, Vec<u64>> = BTreeMap::new();
    if keys.is_empty() {
        groups.insert(Vec::new(), (0..rows.num_rows() as u64).collect());
    } else {
        for row in 0..rows.num_rows() {
            let key = keys.iter().map(|key| format!("{:?}", ScalarValue::try_from_array(key, row).unwrap())).collect();
            groups.entry(key).or_default().push(row as u64);
        }
    }
    let mut columns: Vec<ArrayRef> = keys
        .iter()
        .map(|key| {
            let firsts: Vec<u64> = groups.values().map(|rows| rows[0]).collect();
            arrow::compute::take(key, &UInt64Array::from(firsts), None).unwrap()
        })
        .collect();
    for expr in &aggregate.aggr_expr {
        let call = match expr {
            Expr::Alias(alias) => alias.expr.as_ref(),
            other => other,
        };
        let Expr::AggregateFunction(function) = call else { panic!("not an aggregate: {call}") };
        let output = expr.get_type(schema).unwrap();
        let call = Call::new(function, schema, rows);
        let values = groups.values().map(|rows| call.of_group(rows, &output));
        columns.push(match ScalarValue::iter_to_array(values) {
            Ok(values) => values,
            // No groups at all.
            Err(_) => arrow::array::new_empty_array(&output),
        });
    }
    Tagged { batch: batch(columns, groups.len()), epochs: vec![0; groups.len()] }
}

/// An aggregate function with what it reads, for all rows.
struct Call<'a> {
    function: &'a AggregateFunction,
    arguments: Vec<ArrayRef>,
    order: Vec<ArrayRef>,
    filter: Option<BooleanArray>,
}

impl<'a> Call<'a> {
    fn new(function: &'a AggregateFunction, schema: &DFSchema, rows: &RecordBatch) -> Self {
        let params = &function.params;
        let column = |expr: &Expr| evaluate(expr, schema, rows);
        Self {
            function,
            arguments: params.args.iter().map(column).collect(),
            order: params.order_by.iter().map(|key| column(&key.expr)).collect(),
            filter: params.filter.as_deref().map(|filter| column(filter).as_boolean().clone()),
        }
    }

    /// The rows that count, once each value if they are to be distinct.
    fn rows(&self, rows: &[u64]) -> Vec<usize> {
        // A NULL delimiter is none.
        let needed = if self.function.func.name() == "string_agg" { &self.arguments[..1] } else { &self.arguments };
        let mut rows: Vec<usize> = rows.iter().map(|row| *row as usize).collect();
        rows.retain(|row| self.filter.as_ref().is_none_or(|filter| filter.is_valid(*row) && filter.value(*row)));
        rows.retain(|row| needed.iter().all(|argument| !cell(argument, *row).is_null()));
        if self.function.params.distinct {
            let mut seen = std::collections::HashSet::new();
            rows.retain(|row| seen.insert(needed.iter().map(|argument| cell(argument, *row)).collect::<Vec<_>>()));
        }
        rows
    }

    /// The aggregate of one group, in the plainest way.
    fn of_group(&self, rows: &[u64], output: &DataType) -> ScalarValue {
        let rows = self.rows(rows);
        let name = self.function.func.name();
        let argument = &self.arguments[0];
        match name {
            "count" => ScalarValue::Int64(Some(rows.len() as i64)),
            _ if rows.is_empty() => ScalarValue::try_from(output).unwrap(),
            "min" | "max" => {
                let values = rows.iter().map(|row| cell(argument, *row));
                let order = |a: &ScalarValue, b: &ScalarValue| a.partial_cmp(b).unwrap();
                if name == "min" { values.min_by(order) } else { values.max_by(order) }.unwrap()
            }
            "bool_and" => ScalarValue::Boolean(Some(rows.iter().all(|row| argument.as_boolean().value(*row)))),
            "bool_or" => ScalarValue::Boolean(Some(rows.iter().any(|row| argument.as_boolean().value(*row)))),
            "string_agg" => self.joined(rows),
            "sum" | "avg" if *output != DataType::Float64 => exact_sum(name, argument, &rows, output),
            _ => ScalarValue::Float64(of_floats(name, argument, &rows)),
        }
    }

    fn joined(&self, mut rows: Vec<usize>) -> ScalarValue {
        let text = |argument: &ArrayRef, row: usize| match cell(argument, row) {
            value if value.is_null() => String::new(),
            value => value.try_as_str().unwrap().unwrap().to_owned(),
        };
        rows.sort_by(|a, b| {
            let keys = self.order.iter().zip(&self.function.params.order_by).map(|(key, how)| {
                let (x, y) = (cell(key, *a), cell(key, *b));
                match (x.is_null(), y.is_null()) {
                    (false, false) if how.asc => x.partial_cmp(&y).unwrap(),
                    (false, false) => y.partial_cmp(&x).unwrap(),
                    (x, y) if how.nulls_first => y.cmp(&x),
                    (x, y) => x.cmp(&y),
                }
            });
            let values = text(&self.arguments[0], *a).cmp(&text(&self.arguments[0], *b));
            keys.chain([values]).find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
        });
        let delimiter = text(&self.arguments[1], rows[0]);
        let values: Vec<String> = rows.iter().map(|row| text(&self.arguments[0], *row)).collect();
        ScalarValue::LargeUtf8(Some(values.join(&delimiter)))
    }
}

fn cell(column: &ArrayRef, row: usize) -> ScalarValue {
    ScalarValue::try_from_array(column, row).unwrap()
}

/// A sum, a mean, or a spread around the mean in two passes.
fn of_floats(name: &str, argument: &ArrayRef, rows: &[usize]) -> Option<f64> {
    let values = cast(argument, &DataType::Float64).unwrap();
    let values = values.as_primitive::<arrow::datatypes::Float64Type>();
    let values: Vec<f64> = rows.iter().map(|row| values.value(*row)).collect();
    let count = values.len() as f64;
    let sum: f64 = values.iter().sum();
    let mean = sum / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    let sample = (values.len() > 1).then(|| squares / (count - 1.0));
    match name {
        "sum" => Some(sum),
        "avg" => Some(mean),
        "var" => sample,
        "var_pop" => Some(squares / count),
        "stddev" => sample.map(f64::sqrt),
        "stddev_pop" => Some((squares / count).sqrt()),
        other => panic!("the oracle does not know {other}"),
    }
}

fn exact_sum(name: &str, argument: &ArrayRef, rows: &[usize], output: &DataType) -> ScalarValue {
    let scale = |data_type: &DataType| if let DataType::Decimal128(_, scale) = data_type { *scale } else { 0 };
    let wide = cast(argument, &DataType::Decimal128(38, scale(argument.data_type()))).unwrap();
    let wide = wide.as_primitive::<arrow::datatypes::Decimal128Type>();
    let sum: i128 = rows.iter().map(|row| wide.value(*row)).sum();
    match output {
        DataType::Decimal128(precision, to) => {
            let more = 10_i128.pow(u32::try_from(*to - scale(argument.data_type())).unwrap());
            let value = if name == "avg" { sum * more / rows.len() as i128 } else { sum };
            ScalarValue::Decimal128(Some(value), *precision, *to)
        }
        other => ScalarValue::Int64(Some(i64::try_from(sum).unwrap())).cast_to(other).unwrap(),
    }
}
