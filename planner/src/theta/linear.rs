//! Comparisons whose difference is a sum of one-sided terms and constants:
//! `r.k >= s.k - 5`, `r.a - s.a < r.b + 10`, `s.ts <= r.ts + INTERVAL '5 minutes'`.
//!
//! Keys are computed beside the query, in whole numbers of the finest unit (or in floats), not
//! with the query's own arithmetic: nothing overflows here that would not overflow there.

use std::cmp::Ordering;

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion_common::ScalarValue;
use datafusion_expr::expr::Alias;
use datafusion_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Operator};

use super::{Bounds, Inputs, Mixed, RawKey, RawRange, Reads, SURE_BOUND};
use crate::physical::Side;

/// Several roundings of single precision, relative to a value.
const SINGLE: f64 = 1e-5;

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;

/// What the numbers of a key count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Whole numbers times 10^-scale.
    Number { scale: u8 },
    /// Nanoseconds.
    Time,
    /// Floating.
    Float,
    /// Only an order.
    Ordered,
}

impl Unit {
    pub(super) fn of(data_type: &DataType) -> Option<Self> {
        use DataType as T;
        Some(match data_type {
            T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64 => {
                Self::Number { scale: 0 }
            }
            T::Decimal32(_, scale) | T::Decimal64(_, scale) | T::Decimal128(_, scale) => {
                Self::Number { scale: u8::try_from(*scale).ok()? }
            }
            T::Float32 | T::Float64 => Self::Float,
            T::Timestamp(..) | T::Date32 | T::Date64 | T::Duration(_) | T::Interval(_) => Self::Time,
            T::Utf8 | T::LargeUtf8 | T::Utf8View | T::Binary | T::LargeBinary | T::BinaryView => Self::Ordered,
            T::Boolean | T::Time32(_) | T::Time64(_) => Self::Ordered,
            _ => return None,
        })
    }
}

/// A sum of one-sided terms and a constant; the constant is an interval, as a month is.
#[derive(Debug, Default)]
pub(super) struct Linear {
    pub(super) left: Vec<(i64, Expr)>,
    pub(super) right: Vec<(i64, Expr)>,
    exact: (i128, i128),
    float: f64,
    /// By how much casts may have changed the sum.
    error: f64,
    /// The query computes the sum in a type in which modest values do not overflow.
    wide: bool,
    /// It computes some of it in single precision.
    single: bool,
}

/// `a op b` as a range, if it is linear and reads both sides.
pub(super) fn compare(a: &Expr, op: Operator, b: &Expr, inputs: Inputs<'_>) -> Option<RawRange> {
    let a_unit = Unit::of(&a.get_type(inputs.pair).ok()?)?;
    let b_unit = Unit::of(&b.get_type(inputs.pair).ok()?)?;
    let unit = common(a_unit, b_unit)?;
    let unit = finest(a, finest(b, unit, inputs)?, inputs)?;
    let mut sum = Linear { wide: true, ..Linear::default() };
    sum.add(a, 1, unit, inputs)?;
    sum.add(b, -1, unit, inputs)?;
    if sum.left.is_empty() || sum.right.is_empty() {
        return None;
    }
    // L - R + k op 0, so L - R op -k.
    if unit == Unit::Time && sum.exact != (0, 0) {
        let slack = sum.coarsest(inputs);
        sum.exact = (sum.exact.0 - slack, sum.exact.1 + slack);
    }
    if sum.single {
        sum.error += sum.float.abs() * SINGLE;
    }
    let (lower, upper) = match op {
        Operator::Eq => (true, true),
        Operator::Lt | Operator::LtEq => (false, true),
        _ => (true, false),
    };
    let tight = sum.is_tight(unit);
    let bounds = match unit {
        Unit::Number { .. } | Unit::Time => {
            let strict = i128::from(tight && matches!(op, Operator::Lt | Operator::Gt));
            Bounds::Exact {
                lower: lower.then(|| saturate(-sum.exact.1 + strict)),
                upper: upper.then(|| saturate(-sum.exact.0 - strict)),
            }
        }
        Unit::Float => Bounds::Float {
            lower: lower.then_some(0.0 - sum.float - sum.error),
            upper: upper.then_some(0.0 - sum.float + sum.error),
        },
        Unit::Ordered => Bounds::Ordered { lower, upper },
    };
    let mixed = if unit == Unit::Float { mixed(a, op, b, inputs) } else { Mixed::ANY };
    Some(RawRange { tight, mixed, ..sum.into_range(bounds, unit)? })
}

/// What the comparison says of one key that is not finite and another that is: with constants that are
/// not huge, whichever finite one.
fn mixed(a: &Expr, op: Operator, b: &Expr, inputs: Inputs<'_>) -> Mixed {
    let mut mixed = 0;
    let cases = Side::BOTH.into_iter().flat_map(|side| [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(|v| (side, v)));
    for (bit, (side, value)) in cases.enumerate() {
        let values = (value_of(a, (side, value), inputs), value_of(b, (side, value), inputs));
        let holds = match values {
            // Zeros are equal, NaN is greater than all else.
            (Some(a), Some(b)) => {
                let order = if a == b { Ordering::Equal } else { nan_last(a).total_cmp(&nan_last(b)) };
                match op {
                    Operator::Eq => order.is_eq(),
                    Operator::Lt => order.is_lt(),
                    Operator::LtEq => order.is_le(),
                    Operator::Gt => order.is_gt(),
                    _ => order.is_ge(),
                }
            }
            _ => true,
        };
        mixed |= u8::from(holds) << bit;
    }
    Mixed(mixed)
}

fn nan_last(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

/// The value of an expression where all terms of one side have a value that is not finite, and those of
/// the other are zero.
fn value_of(expr: &Expr, of: (Side, f64), inputs: Inputs<'_>) -> Option<f64> {
    Some(match parts(expr, inputs) {
        Parts::Sum(a, sign, b) => value_of(a, of, inputs)? + sign as f64 * value_of(b, of, inputs)?,
        Parts::Inner(inner, sign, _) => sign as f64 * value_of(inner, of, inputs)?,
        Parts::Leaf => match (inputs.reads(expr), expr) {
            (Reads::Nothing, Expr::Literal(value, _)) => float_value(value)?,
            (Reads::One(side), _) => {
                if side == of.0 {
                    of.1
                } else {
                    0.0
                }
            }
            _ => return None,
        },
    })
}

/// The range `lower <= expr <= upper` for a linear expression of both sides, a little wider than
/// asked for: the bounds went through square roots and the like.
pub(super) fn between(
    expr: &Expr,
    lower: Option<f64>,
    upper: Option<f64>,
    domain: Option<f64>,
    inputs: Inputs<'_>,
) -> Option<RawRange> {
    let unit = Unit::of(&expr.get_type(inputs.pair).ok()?)?;
    let unit = finest(expr, unit, inputs)?;
    let mut sum = Linear::default();
    sum.add(expr, 1, unit, inputs)?;
    if sum.left.is_empty() || sum.right.is_empty() {
        return None;
    }
    // What is less than the other part becomes zero when it is squared.
    let (rounding, nothing) = if sum.single { (SINGLE, 1e-18) } else { (1e-9, 1e-150) };
    let slack = |bound: f64| bound.abs() * rounding + nothing;
    let lower = lower.map(|bound| bound - slack(bound));
    let upper = upper.map(|bound| bound + slack(bound));
    let bounds = match unit {
        Unit::Number { scale } => {
            let scale = 10_f64.powi(i32::from(scale));
            let (least, most) = sum.exact;
            Bounds::Exact {
                lower: lower.map(|bound| saturate(((bound * scale).floor() as i128 - 1).saturating_sub(most))),
                upper: upper.map(|bound| saturate(((bound * scale).ceil() as i128 + 1).saturating_sub(least))),
            }
        }
        Unit::Float => Bounds::Float {
            lower: lower.map(|bound| bound - sum.float - sum.error),
            upper: upper.map(|bound| bound - sum.float + sum.error),
        },
        Unit::Time | Unit::Ordered => return None,
    };
    let mut range = sum.into_range(bounds, unit)?;
    if lower.is_some() && upper.is_some() {
        // A size is bounded; that of NaN is NaN, greater than any bound.
        range.mixed = Mixed::NONE;
    }
    range.left.limit = domain;
    range.right.limit = domain;
    Some(range)
}

/// A bound outside of i64 bounds nothing that an i64 key can be, less one for the ends.
fn saturate(value: i128) -> i64 {
    value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// The unit in which keys of both units can be compared.
fn common(a: Unit, b: Unit) -> Option<Unit> {
    match (a, b) {
        (Unit::Number { scale: a }, Unit::Number { scale: b }) => Some(Unit::Number { scale: a.max(b) }),
        (a, b) if a == b => Some(a),
        _ => None,
    }
}

/// `unit` made fine enough for every term of `expr`.
fn finest(expr: &Expr, unit: Unit, inputs: Inputs<'_>) -> Option<Unit> {
    match parts(expr, inputs) {
        Parts::Sum(a, _, b) => finest(b, finest(a, unit, inputs)?, inputs),
        Parts::Inner(e, ..) => finest(e, unit, inputs),
        Parts::Leaf => {
            let own = Unit::of(&expr.get_type(inputs.pair).ok()?)?;
            match (unit, own) {
                (Unit::Float, Unit::Number { .. }) | (Unit::Number { .. }, Unit::Float) => Some(Unit::Float),
                (unit, own) => common(unit, own),
            }
        }
    }
}

/// How an expression is taken apart. One-sided sums without constants stay whole: their value is
/// the query's own.
enum Parts<'a> {
    Sum(&'a Expr, i64, &'a Expr),
    /// What is inside, its sign, and by how much the outside may differ from it.
    Inner(&'a Expr, i64, f64),
    Leaf,
}

fn parts<'a>(expr: &'a Expr, inputs: Inputs<'_>) -> Parts<'a> {
    let mixed = || inputs.reads(expr) == Reads::Both;
    match expr {
        Expr::Alias(Alias { expr, .. }) => Parts::Inner(expr, 1, 0.0),
        Expr::Negative(inner) => Parts::Inner(inner, -1, 0.0),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus | Operator::Minus, right })
            if mixed() || is_literal(left) || is_literal(right) =>
        {
            let sign = if matches!(expr, Expr::BinaryExpr(b) if b.op == Operator::Minus) { -1 } else { 1 };
            Parts::Sum(left, sign, right)
        }
        // A cast stays whole, as a sum does, unless there is a constant to be found inside of it.
        Expr::Cast(Cast { expr: inner, field }) if mixed() || matches!(parts(inner, inputs), Parts::Sum(..)) => {
            let from = inner.get_type(inputs.pair).ok();
            match from.and_then(|from| cast_error(&from, field.data_type())) {
                Some(error) => Parts::Inner(inner, 1, error),
                None => Parts::Leaf,
            }
        }
        _ => Parts::Leaf,
    }
}

/// Whether the query computes an expression in single precision, which rounds more.
fn is_single(expr: &Expr, inputs: Inputs<'_>) -> bool {
    expr.get_type(inputs.pair).is_ok_and(|data_type| data_type == DataType::Float32)
}

fn is_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(..))
}

/// A term without casts that keep its value: however it was coerced, it is one key.
fn uncast<'a>(expr: &'a Expr, inputs: Inputs<'_>) -> &'a Expr {
    match expr {
        Expr::Alias(Alias { expr, .. }) => uncast(expr, inputs),
        Expr::Cast(Cast { expr: inner, field }) => {
            let from = inner.get_type(inputs.pair).ok();
            match from.and_then(|from| cast_error(&from, field.data_type())) {
                Some(0.0) => uncast(inner, inputs),
                _ => expr,
            }
        }
        _ => expr,
    }
}

/// By how much a cast changes a value, beyond the rounding of floats; `None` if nothing can be said.
fn cast_error(from: &DataType, to: &DataType) -> Option<f64> {
    use DataType as T;
    match (from, to) {
        (T::Duration(_), T::Interval(IntervalUnit::MonthDayNano) | T::Duration(TimeUnit::Nanosecond))
        | (T::Float32, T::Float64) => Some(0.0),
        (from, T::Float64) => matches!(Unit::of(from)?, Unit::Number { .. }).then_some(0.0),
        (from, to) => match (Unit::of(from)?, Unit::of(to)?) {
            (Unit::Number { scale: a }, Unit::Number { scale: b }) => (a <= b).then_some(0.0),
            (Unit::Float, Unit::Number { scale }) if !to.is_integer() => Some(10_f64.powi(-i32::from(scale))),
            _ => None,
        },
    }
}

impl Linear {
    fn add(&mut self, expr: &Expr, sign: i64, unit: Unit, inputs: Inputs<'_>) -> Option<()> {
        match parts(expr, inputs) {
            Parts::Sum(a, b_sign, b) => {
                self.wide &= is_wide(&expr.get_type(inputs.pair).ok()?);
                self.single |= is_single(expr, inputs);
                self.add(a, sign, unit, inputs)?;
                self.add(b, sign * b_sign, unit, inputs)
            }
            Parts::Inner(e, inner_sign, error) => {
                self.error += error;
                self.wide &= inner_sign > 0 || is_wide(&expr.get_type(inputs.pair).ok()?);
                self.add(e, sign * inner_sign, unit, inputs)
            }
            Parts::Leaf => match inputs.reads(expr) {
                Reads::Nothing => self.add_constant(expr, sign, unit),
                Reads::One(side) => {
                    let expr = uncast(expr, inputs);
                    let factor = sign.checked_mul(factor(&expr.get_type(inputs.pair).ok()?, unit)?)?;
                    let terms = match side {
                        Side::Left => &mut self.left,
                        Side::Right => &mut self.right,
                    };
                    terms.push((factor, expr.clone()));
                    Some(())
                }
                Reads::Both => None,
            },
        }
    }

    fn add_constant(&mut self, expr: &Expr, sign: i64, unit: Unit) -> Option<()> {
        let Expr::Literal(value, _) = expr else {
            return None;
        };
        if unit == Unit::Float {
            self.float += sign as f64 * float_value(value)?;
            return Some(());
        }
        let (low, high) = exact_value(value, unit)?;
        let (low, high) = if sign < 0 { (-high, -low) } else { (low, high) };
        self.exact = (self.exact.0.checked_add(low)?, self.exact.1.checked_add(high)?);
        Some(())
    }

    /// What adding an interval to a time may cut off: a date keeps no hours, a time in seconds no
    /// fractions. In nanoseconds.
    fn coarsest(&self, inputs: Inputs<'_>) -> i128 {
        let unit = |expr: &Expr| match expr.get_type(inputs.pair) {
            Ok(DataType::Date32 | DataType::Date64) => DAY,
            Ok(DataType::Timestamp(unit, _) | DataType::Duration(unit)) if unit != TimeUnit::Nanosecond => {
                nanoseconds(unit)
            }
            _ => 0,
        };
        self.left.iter().chain(&self.right).map(|(_, expr)| i128::from(unit(expr))).max().unwrap_or(0)
    }

    /// Whether the range says as much as the comparison, for keys that are not too large.
    fn is_tight(&self, unit: Unit) -> bool {
        let modest = self.exact.0.unsigned_abs() <= SURE_BOUND.unsigned_abs().into();
        match unit {
            Unit::Number { .. } | Unit::Time => {
                self.wide && self.error == 0.0 && self.exact.0 == self.exact.1 && modest
            }
            Unit::Float => self.error == 0.0 && !self.single,
            Unit::Ordered => false,
        }
    }

    /// Left terms as they are, right terms with the other sign: L - R.
    fn into_range(mut self, bounds: Bounds, unit: Unit) -> Option<RawRange> {
        for (factor, _) in &mut self.right {
            *factor = factor.checked_neg()?;
        }
        if unit == Unit::Ordered {
            let plain = |terms: &[(i64, Expr)]| matches!(terms, [(1, _)]);
            let swapped = |terms: &[(i64, Expr)]| matches!(terms, [(-1, _)]);
            let bounds = match bounds {
                bounds if plain(&self.left) && plain(&self.right) => bounds,
                Bounds::Ordered { lower, upper } if swapped(&self.left) && swapped(&self.right) => {
                    self.left[0].0 = 1;
                    self.right[0].0 = 1;
                    Bounds::Ordered { lower: upper, upper: lower }
                }
                _ => return None,
            };
            return Some(self.range(bounds));
        }
        // The same keys are written one way, so that `a < b` and `-a > -b` join to one range.
        if self.left.first().is_some_and(|(factor, _)| *factor < 0) {
            for (factor, _) in self.left.iter_mut().chain(&mut self.right) {
                *factor = factor.checked_neg()?;
            }
            let bounds = match bounds {
                Bounds::Exact { lower, upper } => {
                    let flip = |bound: Option<i64>| bound.map(|b| b.saturating_neg());
                    Bounds::Exact { lower: flip(upper), upper: flip(lower) }
                }
                Bounds::Float { lower, upper } => Bounds::Float { lower: upper.map(|b| -b), upper: lower.map(|b| -b) },
                ordered @ Bounds::Ordered { .. } => ordered,
            };
            return Some(self.range(bounds));
        }
        Some(self.range(bounds))
    }

    fn range(self, bounds: Bounds) -> RawRange {
        RawRange {
            left: RawKey { terms: self.left, limit: None, single: self.single },
            right: RawKey { terms: self.right, limit: None, single: self.single },
            bounds,
            tight: false,
            mixed: Mixed::ANY,
        }
    }
}

/// Sums of this type do not overflow while their terms are no larger than [`super::SURE`].
fn is_wide(data_type: &DataType) -> bool {
    use DataType as T;
    matches!(
        data_type,
        T::Int64
            | T::Decimal128(..)
            | T::Timestamp(TimeUnit::Nanosecond, _)
            | T::Duration(TimeUnit::Nanosecond)
            | T::Float64
    )
}

/// What a value of this type is multiplied with to be in `unit`.
fn factor(data_type: &DataType, unit: Unit) -> Option<i64> {
    use DataType as T;
    match unit {
        Unit::Float => matches!(Unit::of(data_type)?, Unit::Float | Unit::Number { .. }).then_some(1),
        Unit::Ordered => Some(1),
        Unit::Number { scale } => {
            let Unit::Number { scale: own } = Unit::of(data_type)? else {
                return None;
            };
            10_i64.checked_pow(u32::from(scale.checked_sub(own)?))
        }
        Unit::Time => match data_type {
            T::Timestamp(unit, _) | T::Duration(unit) => Some(nanoseconds(*unit)),
            T::Date32 => Some(DAY),
            T::Date64 => Some(1_000_000),
            _ => None,
        },
    }
}

fn nanoseconds(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => SECOND,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// A literal in `unit`: least and greatest value that it can stand for.
fn exact_value(value: &ScalarValue, unit: Unit) -> Option<(i128, i128)> {
    use ScalarValue as V;
    let (number, own_scale) = match value {
        V::Int8(Some(v)) => (i128::from(*v), 0),
        V::Int16(Some(v)) => (i128::from(*v), 0),
        V::Int32(Some(v)) => (i128::from(*v), 0),
        V::Int64(Some(v)) => (i128::from(*v), 0),
        V::UInt8(Some(v)) => (i128::from(*v), 0),
        V::UInt16(Some(v)) => (i128::from(*v), 0),
        V::UInt32(Some(v)) => (i128::from(*v), 0),
        V::UInt64(Some(v)) => (i128::from(*v), 0),
        V::Decimal128(Some(v), _, scale) => (*v, u8::try_from(*scale).ok()?),
        other => return time_value(other).filter(|_| unit == Unit::Time),
    };
    let Unit::Number { scale } = unit else {
        return None;
    };
    let number = number.checked_mul(10_i128.checked_pow(u32::from(scale.checked_sub(own_scale)?))?)?;
    Some((number, number))
}

fn time_value(value: &ScalarValue) -> Option<(i128, i128)> {
    use ScalarValue as V;
    let exact = |value: i64, factor: i64| {
        let value = i128::from(value) * i128::from(factor);
        Some((value, value))
    };
    match value {
        V::TimestampSecond(Some(v), _) | V::DurationSecond(Some(v)) => exact(*v, SECOND),
        V::TimestampMillisecond(Some(v), _) | V::DurationMillisecond(Some(v)) => exact(*v, 1_000_000),
        V::TimestampMicrosecond(Some(v), _) | V::DurationMicrosecond(Some(v)) => exact(*v, 1_000),
        V::TimestampNanosecond(Some(v), _) | V::DurationNanosecond(Some(v)) => exact(*v, 1),
        V::Date32(Some(v)) => exact(i64::from(*v), DAY),
        V::IntervalYearMonth(Some(months)) => Some(months_days(i128::from(*months), 0, 0)),
        V::IntervalDayTime(Some(v)) => Some(months_days(0, i128::from(v.days), i128::from(v.milliseconds) * 1_000_000)),
        V::IntervalMonthDayNano(Some(v)) => {
            Some(months_days(i128::from(v.months), i128::from(v.days), i128::from(v.nanoseconds)))
        }
        _ => None,
    }
}

/// A month has 28 to 31 days; a day has 23 to 25 hours where clocks are changed.
fn months_days(months: i128, days: i128, nanoseconds: i128) -> (i128, i128) {
    let day = i128::from(DAY);
    let hour = 3_600 * i128::from(SECOND);
    let (mut low, mut high) = (nanoseconds, nanoseconds);
    for (count, least, most) in [(months, 28 * day - hour, 31 * day + hour), (days, day - hour, day + hour)] {
        low += count * if count < 0 { most } else { least };
        high += count * if count < 0 { least } else { most };
    }
    (low, high)
}

/// A numeric literal as a float.
pub(super) fn float_value(value: &ScalarValue) -> Option<f64> {
    match value {
        ScalarValue::Float64(Some(v)) => Some(*v),
        ScalarValue::Float32(Some(v)) => Some(f64::from(*v)),
        ScalarValue::Decimal128(Some(v), _, scale) => Some(*v as f64 / 10_f64.powi(i32::from(*scale))),
        other => exact_value(other, Unit::Number { scale: 0 }).map(|(v, _)| v as f64),
    }
    .filter(|v| v.is_finite())
}
