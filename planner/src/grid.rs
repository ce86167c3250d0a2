//! Grids for joins over a band, and for joins of points with intervals.
//!
//! ```text
//! key of the home side      . . | . . . . | . . * . | . . .
//! what the other one reaches      [from + below ... to + above]     copied to each cell that it touches
//! ```
//!
//! A band reaches equally far from every row, so its width makes that of the cells. How long intervals are is
//! known from a sample; without one there is no grid.

use std::ops::Neg;

use arrow::array::RecordBatch;

use crate::layout::{Grid, Reach};
use crate::physical::Side;
use crate::sample::numbers;
use crate::theta::{Bounds, IndexKey, Mixed, Range, SURE};

/// A grid cell is this many times as wide as what rows reach: a row is copied 1 + 1/8 times, and a dense
/// spot still spreads over several buckets.
const WIDTHS: f64 = 8.0;

/// Intervals make a grid of at least so many grid cells for each cell of the join.
const LEAST_CELLS: f64 = 16.0;

/// Spans by which a grid of intervals is known.
const SPANS: usize = 64;

/// Bounds of floats for which there is a grid: larger ones might overflow.
const MODEST: f64 = 1e280;

/// Some rows of either input, if any are known.
pub(crate) type Samples<'a> = &'a dyn Fn(Side) -> Option<RecordBatch>;

/// The grid for a join of `cells` cells, if one of its ranges is a band, or two of them ask for points in
/// intervals.
pub(crate) fn grid_for(ranges: &[Range], rows: [f64; 2], cells: u32, samples: Samples<'_>) -> Option<Grid> {
    let home = if rows[0] >= rows[1] { Side::Left } else { Side::Right };
    let of_intervals = || {
        let ends = || ranges.iter().flat_map(|from| ranges.iter().map(move |to| (from, to)));
        let grids = Side::BOTH.into_iter().flat_map(|home| ends().map(move |(from, to)| (home, from, to)));
        // One cell has no use for a sample.
        let mut grids = grids.filter(|_| cells > 1).filter_map(|(home, from, to)| Intervals::of(home, from, to));
        grids.find_map(|intervals| intervals.grid(rows, cells, samples))
    };
    ranges.iter().find_map(|range| of_band(home, range)).or_else(of_intervals)
}

/// The key of one side of a range.
fn key(range: &Range, side: Side) -> &IndexKey {
    match side {
        Side::Left => &range.left,
        Side::Right => &range.right,
    }
}

/// How far the key of the `home` side is from that of the other one: at least and at most.
#[derive(Debug, Clone, Copy)]
enum Distance {
    Exact(Option<i64>, Option<i64>),
    Float(Option<f64>, Option<f64>),
}

impl Distance {
    fn of(home: Side, range: &Range) -> Option<Self> {
        if range.left.limit.or(range.right.limit).is_some() {
            return None;
        }
        // A key of one term is exact: a value itself.
        let exact = |key: &IndexKey| matches!(key.terms.as_slice(), [term] if term.factor == 1) && !key.single;
        Some(match range.bounds {
            Bounds::Exact { lower, upper } => {
                let modest = |bound: &i64| bound.unsigned_abs() <= SURE.unsigned_abs();
                let (least, most) = from(home, lower.filter(modest), upper.filter(modest));
                Self::Exact(least, most)
            }
            Bounds::Float { lower, upper } if exact(&range.left) && exact(&range.right) => {
                let modest = |bound: &f64| bound.abs() <= MODEST;
                let (least, most) = from(home, lower.filter(modest), upper.filter(modest));
                Self::Float(least, most)
            }
            Bounds::Float { .. } | Bounds::Ordered { .. } => return None,
        })
    }
}

/// What L - R is in, for the key of `home` less the other one.
fn from<T: Neg<Output = T>>(home: Side, lower: Option<T>, upper: Option<T>) -> (Option<T>, Option<T>) {
    match home {
        Side::Left => (lower, upper),
        Side::Right => (upper.map(Neg::neg), lower.map(Neg::neg)),
    }
}

/// A grid for a band over whole numbers, or over floats if NaN and infinities match only each other.
fn of_band(home: Side, range: &Range) -> Option<Grid> {
    let (reach, span) = match Distance::of(home, range)? {
        Distance::Exact(Some(below), Some(above)) => {
            let span = above.checked_sub(below).filter(|span| *span >= 0)?;
            let width = span.max(1).checked_mul(WIDTHS as i64)?;
            (Reach::Exact { below, above, width }, span as f64 / width as f64)
        }
        Distance::Float(Some(below), Some(above)) if above - below >= MODEST.recip() && range.mixed == Mixed::NONE => {
            (Reach::Float { below, above, width: (above - below) * WIDTHS }, WIDTHS.recip())
        }
        _ => return None,
    };
    let (own, other) = (key(range, home), key(range, home.other()));
    Some(Grid { home, key: own.clone(), from: other.clone(), to: None, reach, spans: vec![span] })
}

/// Two ranges over one key of the home side: rows of the other one are intervals.
struct Intervals<'a> {
    home: Side,
    key: &'a IndexKey,
    from: &'a IndexKey,
    to: &'a IndexKey,
    below: Bound,
    above: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    Exact(i64),
    Float(f64),
}

impl<'a> Intervals<'a> {
    fn of(home: Side, from: &'a Range, to: &'a Range) -> Option<Self> {
        let (below, above) = match (Distance::of(home, from)?, Distance::of(home, to)?) {
            (Distance::Exact(Some(below), _), Distance::Exact(_, Some(above))) => {
                (Bound::Exact(below), Bound::Exact(above))
            }
            // What is not finite itself has a bucket of its own; intervals with such an end are everywhere.
            (Distance::Float(Some(below), _), Distance::Float(_, Some(above)))
                if from.mixed.exclude(to.mixed, home) =>
            {
                (Bound::Float(below), Bound::Float(above))
            }
            _ => return None,
        };
        let one_key = key(from, home) == key(to, home);
        let (own, other) = (key(from, home), home.other());
        one_key.then(|| Self { home, key: own, from: key(from, other), to: key(to, other), below, above })
    }

    /// The grid whose cells suit a sample: wide beside the intervals, and many.
    fn grid(&self, rows: [f64; 2], cells: u32, samples: Samples<'_>) -> Option<Grid> {
        let (homes, others) = (samples(self.home)?, samples(self.home.other())?);
        let (below, above) = match (self.below, self.above) {
            (Bound::Exact(below), Bound::Exact(above)) => (below as f64, above as f64),
            (Bound::Float(below), Bound::Float(above)) => (below, above),
            _ => return None,
        };
        let ends = numbers(self.from, &others)?.into_iter().zip(numbers(self.to, &others)?);
        let lengths = ends.filter_map(|(from, to)| Some(to? + above - (from? + below)));
        let lengths = sorted(lengths.filter(|length| *length >= 0.0));
        let keys: Vec<f64> = numbers(self.key, &homes)?.into_iter().flatten().collect();
        let domain = domain(&keys, rows[self.home.index()])?;
        let width = (WIDTHS * quantile(&lengths, 0.9)?).min(domain / (LEAST_CELLS * f64::from(cells)));
        let reach = match (self.below, self.above) {
            (Bound::Exact(below), Bound::Exact(above)) => Reach::Exact { below, above, width: (width as i64).max(1) },
            (Bound::Float(below), Bound::Float(above)) if width >= MODEST.recip() => {
                Reach::Float { below, above, width }
            }
            _ => return None,
        };
        let span = |number| Some(quantile(&lengths, (number as f64 + 0.5) / SPANS as f64)? / reach.width());
        let spans = (0..SPANS).map(span).collect::<Option<_>>()?;
        let [key, from, to] = [self.key, self.from, self.to].map(Clone::clone);
        Some(Grid { home: self.home, key, from, to: Some(to), reach, spans })
    }
}

/// The finite ones, in order.
fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The value below which this share of `sorted` is; `None` if it is empty.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    sorted.get((sorted.len() as f64 * share) as usize).copied()
}

/// Width of the domain that most keys of `rows` rows are in. Keys that come in order are those of the beginning.
fn domain(keys: &[f64], rows: f64) -> Option<f64> {
    let ascending = keys.windows(2).filter(|pair| pair[0] <= pair[1]).count();
    let in_order = ascending as f64 >= 0.95 * keys.len().saturating_sub(1) as f64;
    let sorted = sorted(keys.iter().copied());
    let most = quantile(&sorted, 0.95)? - quantile(&sorted, 0.05)?;
    Some(if in_order { most * (rows / keys.len() as f64).max(1.0) } else { most })
}
