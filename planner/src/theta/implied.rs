//! What a bounded distance implies for the coordinates.
//!
//! `distance <= c` is turned inside out through increasing functions (`sqrt`, `asin`, products
//! with positive constants), sums of terms that cannot be negative (each is at most c) and
//! squares, down to a linear difference of the two sides: `abs(a - b) <= x`,
//! `(r.x - s.x)^2 + (r.y - s.y)^2 <= c`, the haversine formula. The spherical law of cosines
//! bounds the latitude as well, as cos(longitude difference) is at most 1.

use std::f64::consts::{FRAC_PI_2, PI};

use arrow::datatypes::DataType;
use datafusion_expr::expr::{Alias, ScalarFunction};
use datafusion_expr::{BinaryExpr, Cast, Expr, Operator};

use super::linear::{between, float_value};
use super::{AtomClass, Inputs, RawRange, Reads};

type Found = Vec<(RawRange, AtomClass)>;

/// Ranges implied by `expr <= limit`; `None` when nothing is.
pub(super) fn upper(expr: &Expr, limit: &Expr, inputs: Inputs<'_>) -> Option<Found> {
    let Expr::Literal(limit, _) = limit else {
        return None;
    };
    let mut search = Search { inputs, found: Vec::new() };
    search.upper(expr, float_value(limit)?);
    search.result()
}

/// Ranges implied by `bound <= expr`, for `(expr, bound)`; `None` when nothing is.
pub(super) fn lower(atom: Option<(&Expr, &Expr)>, inputs: Inputs<'_>) -> Option<Found> {
    let (expr, Expr::Literal(bound, _)) = atom? else {
        return None;
    };
    let mut search = Search { inputs, found: Vec::new() };
    search.law_of_cosines(expr, float_value(bound)?);
    search.result()
}

struct Search<'a> {
    inputs: Inputs<'a>,
    found: Found,
}

impl Search<'_> {
    fn result(self) -> Option<Found> {
        (!self.found.is_empty()).then_some(self.found)
    }

    /// expr <= limit
    fn upper(&mut self, expr: &Expr, limit: f64) {
        if self.inputs.reads(expr) != Reads::Both || limit.is_nan() {
            return;
        }
        if let Some(range) = between(expr, None, Some(limit), None, self.inputs) {
            self.found.push((range, AtomClass::Inequality));
            return;
        }
        match expr {
            Expr::Alias(Alias { expr, .. }) => self.upper(expr, limit),
            Expr::Cast(cast) => {
                if let Some(expr) = widened(cast) {
                    self.upper(expr, limit);
                }
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Multiply, right }) => {
                if let Some(base) = square(expr) {
                    self.within(base, limit.max(0.0).sqrt(), Assumed::default(), AtomClass::Distance);
                } else if let Some((factor, rest)) = constant_factor(left, right).filter(|(f, _)| *f > 0.0) {
                    self.upper(rest, limit / factor);
                }
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Divide, right }) => {
                if let Some(divisor) = float_divisor(right).filter(|d| *d > 0.0) {
                    self.upper(left, limit * divisor);
                }
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus, right }) => {
                self.sum(expr, left, right, limit);
            }
            Expr::ScalarFunction(function) => self.upper_of_function(expr, function, limit),
            _ => {}
        }
    }

    fn upper_of_function(&mut self, expr: &Expr, function: &ScalarFunction, limit: f64) {
        match (function.name(), function.args.as_slice()) {
            ("abs", [arg]) => self.within(arg, limit, Assumed::default(), AtomClass::Band),
            ("sqrt", [arg]) if limit >= 0.0 => self.upper(arg, limit * limit),
            ("power" | "pow", _) => {
                if let Some(base) = square(expr) {
                    self.within(base, limit.max(0.0).sqrt(), Assumed::default(), AtomClass::Distance);
                }
            }
            ("asin", [arg]) if limit < FRAC_PI_2 => self.upper(arg, limit.max(0.0).sin()),
            ("acos", [arg]) if limit < PI => self.law_of_cosines(arg, limit.max(0.0).cos()),
            // least(1, x) <= c says x <= c only while c is below the constant.
            ("least", [a, b]) => {
                for (bound, rest) in [(a, b), (b, a)] {
                    if constant(bound).is_some_and(|bound| bound > limit) {
                        self.upper(rest, limit);
                    }
                }
            }
            _ => {}
        }
    }

    /// left + right <= limit: each is at most the limit if the other cannot be negative.
    fn sum(&mut self, sum: &Expr, left: &Expr, right: &Expr, limit: f64) {
        for (part, rest) in [(left, right), (right, left)] {
            if let Some(constant) = constant(rest) {
                self.upper(part, limit - constant);
                return;
            }
        }
        let terms = terms(sum);
        for (i, term) in terms.iter().enumerate() {
            let mut assumed = Assumed::default();
            let others = terms.iter().enumerate().filter(|(j, _)| *j != i);
            let mut others = others;
            if others.all(|(_, other)| non_negative(other, &mut assumed)) {
                self.upper_assuming(term, limit, assumed);
            }
        }
    }

    fn upper_assuming(&mut self, expr: &Expr, limit: f64, assumed: Assumed) {
        if assumed.is_empty() {
            self.upper(expr, limit);
        } else if let Some(base) = square(expr) {
            self.within(base, limit.max(0.0).sqrt(), assumed, AtomClass::Distance);
        }
    }

    /// -limit <= expr <= limit
    fn within(&mut self, expr: &Expr, limit: f64, assumed: Assumed, class: AtomClass) {
        if limit < 0.0 || limit.is_nan() || self.inputs.reads(expr) != Reads::Both {
            return;
        }
        if assumed.is_empty()
            && let Some(range) = between(expr, Some(-limit), Some(limit), None, self.inputs)
        {
            self.found.push((range, class));
            return;
        }
        match expr {
            Expr::Alias(Alias { expr, .. }) | Expr::Negative(expr) => self.within(expr, limit, assumed, class),
            Expr::Cast(cast) => {
                if let Some(expr) = widened(cast) {
                    self.within(expr, limit, assumed, class);
                }
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Multiply, right }) => {
                if let Some((factor, rest)) = constant_factor(left, right).filter(|(f, _)| *f != 0.0) {
                    self.within(rest, limit / factor.abs(), assumed, class);
                }
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Divide, right }) => {
                if let Some(divisor) = float_divisor(right).filter(|d| *d != 0.0) {
                    self.within(left, limit * divisor.abs(), assumed, class);
                }
            }
            Expr::ScalarFunction(ScalarFunction { func, args }) => match (func.name(), args.as_slice()) {
                ("abs", [arg]) => self.within(arg, limit, assumed, class),
                ("sin", [arg]) if limit < 1.0 => self.half_angle(arg, limit.asin(), &assumed),
                _ => {}
            },
            _ => {}
        }
    }

    /// |sin(angle)| <= sin(limit), where the angle is half the difference of two latitudes: the
    /// sine is one to one as long as both latitudes are in [-90, 90] degrees, so keys outside of
    /// that are not bounded at all.
    fn half_angle(&mut self, angle: &Expr, limit: f64, assumed: &Assumed) {
        // Wider than computed: sines of small angles lose digits.
        let limit = limit * (1.0 + 1e-6) + 1e-7;
        let Some((scale, difference)) = scaled(angle) else {
            return;
        };
        let quarter = FRAC_PI_2 / scale / 2.0;
        let Some(range) = between(difference, Some(-limit / scale), Some(limit / scale), Some(quarter), self.inputs)
        else {
            return;
        };
        // What was assumed (cosines of latitudes are not negative) must be about these keys.
        let terms = || range.left.terms.iter().chain(&range.right.terms).filter_map(|(_, term)| scaled(term));
        let covered = assumed.0.iter().all(|(expr, most)| {
            terms().any(|(term_scale, latitude)| latitude == expr && quarter <= *most * term_scale * (1.0 + 1e-12))
        });
        if covered && range.left.terms.len() == 1 && range.right.terms.len() == 1 {
            self.found.push((range, AtomClass::GreatCircle));
        }
    }

    /// sin(a) sin(b) + cos(a) cos(b) cos(...) >= bound, with a latitude of each side.
    fn law_of_cosines(&mut self, expr: &Expr, bound: f64) {
        let expr = unwrap_least(expr);
        if !(-1.0..1.0).contains(&bound) {
            return;
        }
        let terms = terms(expr);
        let [first, second] = terms.as_slice() else {
            return;
        };
        for (sines, cosines) in [(first, second), (second, first)] {
            let (sines, cosines) = (factors(sines), factors(cosines));
            let angles = arguments("sin", &sines);
            let [a, b] = angles.as_slice() else { continue };
            let of_cosines = arguments("cos", &cosines);
            let fits = sines.len() == 2
                && cosines.len() == 3
                && of_cosines.len() == 3
                && of_cosines.contains(a)
                && of_cosines.contains(b);
            if !fits {
                continue;
            }
            // cos(a - b) >= bound in [-1, 1]; the arc cosine near 1 has half the digits.
            let limit = bound.acos() * (1.0 + 1e-6) + 1e-6;
            let (Some((scale, a)), Some((other, b))) = (scaled(a), scaled(b)) else {
                continue;
            };
            if scale == other {
                let difference =
                    Expr::BinaryExpr(BinaryExpr::new(Box::new(a.clone()), Operator::Minus, Box::new(b.clone())));
                if let Some(range) = between(
                    &difference,
                    Some(-limit / scale),
                    Some(limit / scale),
                    Some(FRAC_PI_2 / scale),
                    self.inputs,
                ) {
                    self.found.push((range, AtomClass::GreatCircle));
                }
            }
        }
    }
}

/// What must hold for a bound to be valid: |expr| <= limit.
#[derive(Debug, Clone, Default)]
struct Assumed(Vec<(Expr, f64)>);

impl Assumed {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether `expr` cannot be negative, under assumptions that are added to `assumed`.
fn non_negative(expr: &Expr, assumed: &mut Assumed) -> bool {
    if square(expr).is_some() || constant(expr).is_some_and(|c| c >= 0.0) {
        return true;
    }
    match expr {
        Expr::Alias(Alias { expr, .. }) => non_negative(expr, assumed),
        Expr::Cast(cast) => widened(cast).is_some_and(|expr| non_negative(expr, assumed)),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Multiply | Operator::Plus, right }) => {
            non_negative(left, assumed) && non_negative(right, assumed)
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) => match (func.name(), args.as_slice()) {
            ("abs" | "sqrt" | "exp", [_]) => true,
            ("cos", [arg]) => match scaled(arg) {
                Some((scale, latitude)) => {
                    assumed.0.push((latitude.clone(), FRAC_PI_2 / scale));
                    true
                }
                None => false,
            },
            _ => false,
        },
        _ => false,
    }
}

/// `angle` as a positive factor times an expression: `radians(x) / 2` is (pi / 360, x).
fn scaled(angle: &Expr) -> Option<(f64, &Expr)> {
    let (factor, rest) = match angle {
        Expr::Alias(Alias { expr, .. }) => (1.0, expr.as_ref()),
        Expr::Cast(cast) => (1.0, widened(cast)?),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Multiply, right }) => constant_factor(left, right)?,
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Divide, right }) => {
            (1.0 / float_divisor(right)?, left.as_ref())
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == "radians" => (PI / 180.0, args.first()?),
        _ => return Some((1.0, angle)),
    };
    let (inner, expr) = scaled(rest)?;
    Some((factor * inner, expr)).filter(|(scale, _)| *scale > 0.0 && scale.is_finite())
}

/// The base of `x * x`, `power(x, 2)`.
fn square(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Alias(Alias { expr, .. }) => square(expr),
        Expr::Cast(cast) => square(widened(cast)?),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Multiply, right }) if left == right => Some(left),
        Expr::ScalarFunction(ScalarFunction { func, args }) => match (func.name(), args.as_slice()) {
            ("power" | "pow", [base, exponent]) if constant(exponent) == Some(2.0) => Some(base),
            _ => None,
        },
        _ => None,
    }
}

/// The addends of a sum.
fn terms(expr: &Expr) -> Vec<&Expr> {
    flatten(expr, Operator::Plus)
}

/// The factors of a product.
fn factors(expr: &Expr) -> Vec<&Expr> {
    flatten(expr, Operator::Multiply)
}

fn flatten(expr: &Expr, over: Operator) -> Vec<&Expr> {
    match expr {
        Expr::Alias(Alias { expr, .. }) => flatten(expr, over),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == over => {
            let mut all = flatten(left, over);
            all.extend(flatten(right, over));
            all
        }
        _ => vec![expr],
    }
}

/// The arguments of the calls of `name` in `exprs`.
fn arguments<'a>(name: &str, exprs: &[&'a Expr]) -> Vec<&'a Expr> {
    exprs
        .iter()
        .filter_map(|expr| match expr {
            Expr::ScalarFunction(f) if f.name() == name => f.args.first(),
            _ => None,
        })
        .collect()
}

/// `least(1, x)` and `greatest(-1, x)` around the argument of an arc cosine change nothing here.
fn unwrap_least(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(Alias { expr, .. }) => unwrap_least(expr),
        Expr::ScalarFunction(ScalarFunction { func, args }) => match (func.name(), args.as_slice()) {
            ("least", [a, b]) if constant(a).is_some_and(|c| c >= 1.0) => unwrap_least(b),
            ("least", [a, b]) if constant(b).is_some_and(|c| c >= 1.0) => unwrap_least(a),
            ("greatest", [a, b]) if constant(a) == Some(-1.0) => unwrap_least(b),
            ("greatest", [a, b]) if constant(b) == Some(-1.0) => unwrap_least(a),
            _ => expr,
        },
        _ => expr,
    }
}

fn constant(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Literal(value, _) => float_value(value),
        Expr::Alias(Alias { expr, .. }) => constant(expr),
        Expr::Cast(cast) => constant(widened(cast)?),
        Expr::Negative(expr) => constant(expr).map(|value| -value),
        _ => None,
    }
}

/// The constant of a product and what it multiplies.
fn constant_factor<'a>(left: &'a Expr, right: &'a Expr) -> Option<(f64, &'a Expr)> {
    match (constant(left), constant(right)) {
        (Some(factor), None) => Some((factor, right)),
        (None, Some(factor)) => Some((factor, left)),
        _ => None,
    }
}

/// The divisor of a division that loses nothing but rounding: integers lose the remainder, and
/// decimals the digits beyond their scale.
fn float_divisor(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Literal(value, _) if value.data_type() == DataType::Float64 => float_value(value),
        _ => None,
    }
}

/// What a cast to DOUBLE casts: the one cast that changes no value here.
fn widened(cast: &Cast) -> Option<&Expr> {
    (cast.field.data_type() == &DataType::Float64).then_some(cast.expr.as_ref())
}
