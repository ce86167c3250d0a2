//! Samples: some rows of a source, looked at before it is read, and what steps and keys make of them.

use std::fmt;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, SchemaRef};

use crate::catalog::SourceProbe;
use crate::compile::compile;
use crate::connector::SourceSpec;
use crate::expr::ScalarExpr;
use crate::physical::Step;
use crate::theta::IndexKey;

type Look = Box<dyn FnOnce() -> Option<RecordBatch> + Send>;

/// Rows from the beginning of a source. It is looked at once, when they are first asked for.
#[derive(Clone)]
pub struct Sample(Arc<LazyLock<Option<RecordBatch>, Look>>);

impl Sample {
    /// What `probe` will find.
    pub fn of(probe: impl SourceProbe + Send + 'static, spec: &SourceSpec, columns: &SchemaRef) -> Self {
        let (spec, columns) = (spec.clone(), Arc::clone(columns));
        Self(Arc::new(LazyLock::new(Box::new(move || probe.sample(&spec, &columns)))))
    }

    /// The rows; `None` if there are none, or looking at them would take them away.
    pub fn rows(&self) -> Option<&RecordBatch> {
        LazyLock::force(&self.0).as_ref()
    }
}

impl Default for Sample {
    fn default() -> Self {
        Self(Arc::new(LazyLock::new(Box::new(|| None))))
    }
}

impl fmt::Debug for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sample").finish_non_exhaustive()
    }
}

/// What is left of a sample after `steps`; `None` if they fail.
pub(crate) fn after(steps: &[Step], sample: RecordBatch) -> Option<RecordBatch> {
    steps.iter().try_fold(sample, |rows, step| match step {
        Step::Filter(filters) => filters
            .iter()
            .try_fold(rows, |rows, filter| filter_record_batch(&rows, evaluate(filter, &rows)?.as_boolean_opt()?).ok()),
        Step::Project { exprs, schema } => {
            let columns = exprs.iter().map(|expr| evaluate(expr, &rows)).collect::<Option<Vec<_>>>()?;
            RecordBatch::try_new(Arc::clone(schema), columns).ok()
        }
        Step::Unnest { .. } | Step::Negate => None,
    })
}

fn evaluate(expr: &ScalarExpr, rows: &RecordBatch) -> Option<ArrayRef> {
    let schema: SchemaRef = rows.schema();
    compile(expr, &schema).ok()?.evaluate(rows).ok()?.into_array(rows.num_rows()).ok()
}

/// A key of every row, as nearly as a float is to it, in the unit of the key.
pub(crate) fn numbers(key: &IndexKey, rows: &RecordBatch) -> Option<Vec<Option<f64>>> {
    let mut sums = vec![Some(0.0); rows.num_rows()];
    for term in &key.terms {
        let values = floats(&evaluate(&term.expr, rows)?)?;
        for (sum, value) in sums.iter_mut().zip(&values) {
            *sum = sum.zip(value).map(|(sum, value)| sum + term.factor as f64 * value);
        }
    }
    Some(sums)
}

/// Numbers as they are, decimals without their point, times in their units.
fn floats(values: &ArrayRef) -> Option<Float64Array> {
    let as_floats =
        |values: &ArrayRef| Some(cast(values, &DataType::Float64).ok()?.as_primitive::<Float64Type>().clone());
    let by_way_of = |other: DataType| floats(&cast(values, &other).ok()?);
    match values.data_type() {
        DataType::Decimal128(..) => {
            Some(values.as_primitive::<Decimal128Type>().unary::<_, Float64Type>(|value| value as f64))
        }
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) => by_way_of(DataType::Decimal128(38, *scale)),
        DataType::Date32 | DataType::Time32(_) => by_way_of(DataType::Int32),
        other if other.is_temporal() => by_way_of(DataType::Int64),
        _ => as_floats(values),
    }
}
