//! Theta analysis: what a join condition lets a cell skip.
//!
//! Every conjunct is read as an equality of one-sided keys, a range `L - R in [lower, upper]` of
//! one-sided keys (bands, inequalities, and what a distance implies for each coordinate), or a
//! residual. Ranges are *necessary* conditions: a cell finds candidate pairs with them and then
//! evaluates the whole condition, so a bound may be generous but never too narrow. Order and
//! spelling of the conjuncts do not matter.

mod implied;
mod linear;

use std::fmt;

use datafusion_common::{DFSchema, NullEquality};
use datafusion_expr::expr::Alias;
use datafusion_expr::logical_plan::Join;
use datafusion_expr::utils::split_conjunction_owned;
use datafusion_expr::{Between, BinaryExpr, Expr, ExprSchemable, Operator};
use serde::{Deserialize, Serialize};

use crate::error::PlanError;
use crate::expr::ScalarExpr;
use crate::physical::Side;

/// A necessary condition of a join: the difference of two one-sided keys lies in a range.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// Key over the left columns.
    pub left: IndexKey,
    /// Key over the right columns.
    pub right: IndexKey,
    /// What L - R must be in.
    pub bounds: Bounds,
    /// The range says all that its conjuncts say, as long as no key is beyond [`SURE`]: pairs inside
    /// need no further look. Of floats, those that are inside by more than the error of the keys.
    pub tight: bool,
    /// Which pairs of a finite key and one that is not can match.
    pub mixed: Mixed,
}

/// Terms of whole keys are sure up to this size, and up to this divided by half of their number if
/// there are more than two in both keys together: with a bound of at most two thirds of it, no
/// arithmetic of 64 bits on them overflows.
pub const SURE: i64 = 3_000_000_000_000_000_000;

/// See [`SURE`].
const SURE_BOUND: i64 = 2_000_000_000_000_000_000;

/// Bounds of L - R, inclusive; an absent bound is none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Bounds {
    /// Keys are whole numbers: integers, decimals at one scale, times in nanoseconds.
    Exact {
        /// Least difference.
        lower: Option<i64>,
        /// Greatest difference.
        upper: Option<i64>,
    },
    /// Keys are floating.
    Float {
        /// Least difference.
        lower: Option<f64>,
        /// Greatest difference.
        upper: Option<f64>,
    },
    /// Keys have an order and no difference (text, booleans): `lower` means L >= R, `upper`
    /// means L <= R.
    Ordered {
        /// L >= R.
        lower: bool,
        /// L <= R.
        upper: bool,
    },
}

impl Bounds {
    /// Both ends are bounded.
    pub fn is_band(&self) -> bool {
        match self {
            Self::Exact { lower, upper } => lower.is_some() && upper.is_some(),
            Self::Float { lower, upper } => lower.is_some() && upper.is_some(),
            Self::Ordered { lower, upper } => *lower && *upper,
        }
    }

    /// Both ends are bounded, and it has a width.
    pub fn is_numeric_band(&self) -> bool {
        match self {
            Self::Exact { lower, upper } => lower.is_some() && upper.is_some(),
            Self::Float { lower: Some(lower), upper: Some(upper) } => upper > lower && (upper - lower).is_finite(),
            _ => false,
        }
    }

    /// The bounds that hold when both do; `None` if the kinds differ.
    fn and(self, other: Self) -> Option<Self> {
        fn tighter<T>(a: Option<T>, b: Option<T>, pick: fn(T, T) -> T) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(pick(a, b)),
                (a, b) => a.or(b),
            }
        }
        match (self, other) {
            (Self::Exact { lower: a, upper: b }, Self::Exact { lower: c, upper: d }) => {
                Some(Self::Exact { lower: tighter(a, c, i64::max), upper: tighter(b, d, i64::min) })
            }
            (Self::Float { lower: a, upper: b }, Self::Float { lower: c, upper: d }) => {
                Some(Self::Float { lower: tighter(a, c, f64::max), upper: tighter(b, d, f64::min) })
            }
            (Self::Ordered { lower: a, upper: b }, Self::Ordered { lower: c, upper: d }) => {
                Some(Self::Ordered { lower: a || c, upper: b || d })
            }
            _ => None,
        }
    }
}

/// A key of one side: the sum of `factor * expr`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct IndexKey {
    /// The terms.
    pub terms: Vec<Term>,
    /// The range holds only for keys in [-limit, limit]; others must be treated as meeting all.
    pub limit: Option<f64>,
    /// The condition computes with it in single precision: its error is that of such numbers.
    pub single: bool,
}

/// One term of an [`IndexKey`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// Sign and conversion to the key's unit.
    pub factor: i64,
    /// Over the columns of one side.
    pub expr: ScalarExpr,
}

/// The classes of conjuncts that a condition has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionClass(pub Vec<AtomClass>);

/// Class of one conjunct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AtomClass {
    /// `f(R) = g(S)`.
    Equality,
    /// Bounded on both ends.
    Band,
    /// `<`, `<=`, `>`, `>=`.
    Inequality,
    /// A sum of squares is bounded.
    Distance,
    /// A great-circle distance is bounded.
    GreatCircle,
    /// Anything else: evaluated on candidate pairs.
    Residual,
}

impl fmt::Display for ConditionClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none (cross product)");
        }
        for (i, atom) in self.0.iter().enumerate() {
            let name = match atom {
                AtomClass::Equality => "equality",
                AtomClass::Band => "band",
                AtomClass::Inequality => "inequality",
                AtomClass::Distance => "distance",
                AtomClass::GreatCircle => "great-circle distance",
                AtomClass::Residual => "residual",
            };
            write!(f, "{}{name}", if i > 0 { " + " } else { "" })?;
        }
        Ok(())
    }
}

/// What the analysis found in a condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Analysis {
    /// Class of the condition.
    pub class: ConditionClass,
    /// Equality keys: left, right.
    pub equality: Vec<(ScalarExpr, ScalarExpr)>,
    /// Ranges, the most selective kind first.
    pub ranges: Vec<Range>,
    /// What says all that a conjunct says, of each.
    pub said: Vec<Said>,
}

/// Where all that a conjunct says is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// In the equality keys.
    ByKeys,
    /// In the ranges, which are [tight](Range::tight).
    ByRanges,
    /// Nowhere else: it must be evaluated.
    ByItself,
}

/// The two inputs of a join, as the analysis sees them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) left: &'a DFSchema,
    pub(crate) right: &'a DFSchema,
    /// Both: the columns of a pair.
    pub(crate) pair: &'a DFSchema,
}

/// Which side's columns an expression reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    Nothing,
    One(Side),
    Both,
}

impl Inputs<'_> {
    pub(crate) fn reads(&self, expr: &Expr) -> Reads {
        let columns = expr.column_refs();
        let left = columns.iter().any(|column| self.left.has_column(column));
        let right = columns.iter().any(|column| !self.left.has_column(column));
        match (left, right) {
            (false, false) => Reads::Nothing,
            (true, false) => Reads::One(Side::Left),
            (false, true) => Reads::One(Side::Right),
            (true, true) => Reads::Both,
        }
    }

    fn schema(&self, side: Side) -> &DFSchema {
        match side {
            Side::Left => self.left,
            Side::Right => self.right,
        }
    }
}

/// A range before its terms are lowered to plain expressions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RawRange {
    pub(crate) left: RawKey,
    pub(crate) right: RawKey,
    pub(crate) bounds: Bounds,
    pub(crate) tight: bool,
    pub(crate) mixed: Mixed,
}

/// For which pairs of a finite key and one that is not a range can hold: a bit for each of NaN and
/// the infinities, those of the left side before those of the right one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mixed(pub(crate) u8);

impl Mixed {
    /// All of them.
    pub const ANY: Self = Self(0b11_1111);
    /// NaN and infinities match only each other.
    pub const NONE: Self = Self(0);

    /// Whether two ranges together keep what is not finite on `side` away from the finite keys of the other.
    pub(crate) fn exclude(self, other: Self, side: Side) -> bool {
        let of_side = match side {
            Side::Left => 0b00_0111,
            Side::Right => 0b11_1000,
        };
        self.0 & other.0 & of_side == 0
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct RawKey {
    pub(crate) terms: Vec<(i64, Expr)>,
    pub(crate) limit: Option<f64>,
    pub(crate) single: bool,
}

impl RawKey {
    fn is_same(&self, other: &Self) -> bool {
        self.terms == other.terms && self.limit == other.limit
    }

    fn lower(&self, schema: &DFSchema) -> Result<IndexKey, PlanError> {
        let terms =
            self.terms.iter().map(|(factor, expr)| Ok(Term { factor: *factor, expr: ScalarExpr::of(expr, schema)? }));
        Ok(IndexKey { terms: terms.collect::<Result<_, PlanError>>()?, limit: self.limit, single: self.single })
    }
}

/// The whole condition of a join: equalities first, as they are the cheapest to check.
pub(crate) fn conjuncts(join: &Join) -> Vec<Expr> {
    let op = match join.null_equality {
        NullEquality::NullEqualsNothing => Operator::Eq,
        NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
    };
    let equal = |(left, right): &(Expr, Expr)| {
        Expr::BinaryExpr(BinaryExpr::new(Box::new(left.clone()), op, Box::new(right.clone())))
    };
    let filter = join.filter.iter().cloned().flat_map(split_conjunction_owned);
    join.on.iter().map(equal).chain(filter).collect()
}

/// Reads the conjuncts of a condition.
pub(crate) fn analyze(conjuncts: &[Expr], inputs: Inputs<'_>) -> Result<Analysis, PlanError> {
    let mut classes = Vec::new();
    let mut equality = Vec::new();
    let mut ranges: Vec<(RawRange, AtomClass)> = Vec::new();
    let mut said = vec![None; conjuncts.len()];
    let all_atoms = conjuncts
        .iter()
        .enumerate()
        .flat_map(|(number, conjunct)| atoms(conjunct).into_iter().map(move |atom| (number, atom)));
    for (number, atom) in all_atoms {
        let mut say = |by: Said| {
            said[number] = Some(said[number].map_or(by, |before| if before == by { by } else { Said::ByItself }))
        };
        if let Some((left, right)) = equality_keys(&atom, inputs) {
            equality.push((ScalarExpr::of(&left, inputs.left)?, ScalarExpr::of(&right, inputs.right)?));
            classes.push(AtomClass::Equality);
            say(Said::ByKeys);
            continue;
        }
        let found = ranges_of(&atom, inputs);
        if found.is_empty() {
            classes.push(AtomClass::Residual);
        }
        let tight = !found.is_empty() && found.iter().all(|(range, _)| range.tight);
        say(if tight { Said::ByRanges } else { Said::ByItself });
        for (range, class) in found {
            merge(&mut ranges, range, class);
        }
    }
    classes.extend(ranges.iter().map(|(_, class)| *class));
    classes.sort();
    classes.dedup();
    // Bands before inequalities; the sort is stable, so the text's order decides among equals.
    ranges.sort_by_key(|(range, _)| !range.bounds.is_band());
    let ranges = ranges.iter().map(|(range, _)| {
        Ok(Range {
            left: range.left.lower(inputs.schema(Side::Left))?,
            right: range.right.lower(inputs.schema(Side::Right))?,
            bounds: range.bounds,
            tight: range.tight,
            mixed: range.mixed,
        })
    });
    let ranges = ranges.collect::<Result<_, PlanError>>()?;
    let said = said.into_iter().map(|said| said.unwrap_or(Said::ByItself)).collect();
    Ok(Analysis { class: ConditionClass(classes), equality, ranges, said })
}

/// Joins a range to one over the same keys, if there is one: two inequalities make a band.
fn merge(ranges: &mut Vec<(RawRange, AtomClass)>, range: RawRange, class: AtomClass) {
    for (present, present_class) in ranges.iter_mut() {
        if present.left.is_same(&range.left)
            && present.right.is_same(&range.right)
            && let Some(both) = present.bounds.and(range.bounds)
        {
            present.bounds = both;
            present.tight &= range.tight;
            present.mixed.0 &= range.mixed.0;
            present.left.single |= range.left.single;
            present.right.single |= range.right.single;
            if both.is_band() && *present_class == AtomClass::Inequality {
                *present_class = AtomClass::Band;
            }
            return;
        }
    }
    ranges.push((range, class));
}

/// The comparisons that a conjunct consists of: BETWEEN is two, NOT of a comparison is its
/// opposite (both are true for the same rows).
fn atoms(expr: &Expr) -> Vec<Expr> {
    match expr {
        Expr::Alias(Alias { expr, .. }) => atoms(expr),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            let mut all = atoms(left);
            all.extend(atoms(right));
            all
        }
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let compare =
                |op, bound: &Expr| Expr::BinaryExpr(BinaryExpr::new(expr.clone(), op, Box::new(bound.clone())));
            vec![compare(Operator::GtEq, low), compare(Operator::LtEq, high)]
        }
        Expr::Not(inner) => match inner.as_ref() {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op.negate() {
                Some(op) => vec![Expr::BinaryExpr(BinaryExpr::new(left.clone(), op, right.clone()))],
                None => vec![expr.clone()],
            },
            _ => vec![expr.clone()],
        },
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let size = size_within(left, *op, right);
            let size = size.or_else(|| op.swap().and_then(|op| size_within(right, op, left)));
            size.unwrap_or_else(|| vec![expr.clone()])
        }
        _ => vec![expr.clone()],
    }
}

/// `abs(expr) <= bound` as `expr <= bound` and `expr >= -bound`.
fn size_within(size: &Expr, op: Operator, bound: &Expr) -> Option<Vec<Expr>> {
    let (Expr::ScalarFunction(call), Expr::Literal(bound, _)) = (size, bound) else { return None };
    let other = match op {
        Operator::Lt => Operator::Gt,
        Operator::LtEq => Operator::GtEq,
        _ => return None,
    };
    let [inner] = call.args.as_slice() else { return None };
    let negative = bound.arithmetic_negate().ok().filter(|_| call.name() == "abs" && !bound.is_null())?;
    let compare = |op, bound| {
        Expr::BinaryExpr(BinaryExpr::new(Box::new(inner.clone()), op, Box::new(Expr::Literal(bound, None))))
    };
    Some(vec![compare(op, bound.clone()), compare(other, negative)])
}

/// `f(R) = g(S)` with both of one type: (left key, right key).
fn equality_keys(atom: &Expr, inputs: Inputs<'_>) -> Option<(Expr, Expr)> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = atom else {
        return None;
    };
    if left.get_type(inputs.pair).ok()? != right.get_type(inputs.pair).ok()? {
        return None;
    }
    match (inputs.reads(left), inputs.reads(right)) {
        (Reads::One(Side::Left), Reads::One(Side::Right)) => Some((left.as_ref().clone(), right.as_ref().clone())),
        (Reads::One(Side::Right), Reads::One(Side::Left)) => Some((right.as_ref().clone(), left.as_ref().clone())),
        _ => None,
    }
}

/// The ranges that an atom implies, with its class.
fn ranges_of(atom: &Expr, inputs: Inputs<'_>) -> Vec<(RawRange, AtomClass)> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = atom else {
        return Vec::new();
    };
    let op = match op {
        Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => *op,
        _ => return Vec::new(),
    };
    if let Some(range) = linear::compare(left, op, right, inputs) {
        let class = if range.bounds.is_band() { AtomClass::Band } else { AtomClass::Inequality };
        return vec![(range, class)];
    }
    let (bounded, limit) = match op {
        Operator::Lt | Operator::LtEq | Operator::Eq => (left, right),
        _ => (right, left),
    };
    if let Some(found) = implied::upper(bounded, limit, inputs) {
        return found;
    }
    // `c = distance` bounds the distance as well.
    if op == Operator::Eq
        && let Some(found) = implied::upper(right, left, inputs)
    {
        return found;
    }
    // `-100 <= cos(...)` and the like: an inequality of a decreasing function.
    implied::lower(right_of(op, left, right), inputs).unwrap_or_default()
}

/// (the side that is bounded from below, its bound), if the atom says `bound <= side`.
fn right_of<'a>(op: Operator, left: &'a Expr, right: &'a Expr) -> Option<(&'a Expr, &'a Expr)> {
    match op {
        Operator::Gt | Operator::GtEq => Some((left, right)),
        Operator::Lt | Operator::LtEq => Some((right, left)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
