//! Stripes: how a plane of two bands is cut for a sorted index.

use thetis_planner::physical::{Join, LocalIndexKind};
use thetis_planner::theta::Bounds;

use crate::exact::float_of;

/// How a plane of two bands is cut: into stripes of the second key, a little wider than its band,
/// within which rows are in the order of the first.
#[derive(Debug, Clone, Copy)]
pub enum Stripes {
    /// Of 2^shift numbers.
    Exact {
        /// Binary logarithm of the width.
        shift: u32,
    },
    /// Of this width.
    Float {
        /// Width.
        width: f64,
        /// Floats beyond this have no stripe.
        limit: f64,
    },
}

/// A stripe is at least so many times as wide as the band: fewer stripes to visit, more rows to
/// look at.
const WIDTHS_OF_BAND: f64 = 2.0;
/// Floats beyond so many widths are rounded too much to be told from stripe to stripe, and sums of
/// those beyond the other bound may be infinite.
const KNOWN_WIDTHS: f64 = 1e12;
const KNOWN_WIDTHS_SINGLE: f64 = 1e5;
const KNOWN_FLOATS: f64 = 1e300;

impl Stripes {
    /// For a join on two bands without equality keys.
    pub fn of(join: &Join) -> Option<Self> {
        match (join.local_index(), join.ranges.get(1)) {
            (LocalIndexKind::Striped, Some(range)) => Self::of_keys(&range.bounds, range.left.single),
            _ => None,
        }
    }

    /// For a second key with these bounds, if both are there.
    pub fn of_band(bounds: &Bounds) -> Option<Self> {
        Self::of_keys(bounds, false)
    }

    fn of_keys(bounds: &Bounds, single: bool) -> Option<Self> {
        match *bounds {
            Bounds::Exact { lower: Some(lower), upper: Some(upper) } => {
                let span = i128::from(upper) - i128::from(lower) + 1;
                let shift = (span.max(1) as f64 * WIDTHS_OF_BAND).log2().ceil();
                Some(Self::Exact { shift: (shift as u32).min(63) })
            }
            Bounds::Float { lower: Some(lower), upper: Some(upper) } => {
                let width = (upper - lower) * WIDTHS_OF_BAND;
                let limit = KNOWN_FLOATS.min(width * if single { KNOWN_WIDTHS_SINGLE } else { KNOWN_WIDTHS });
                let known = lower.abs().max(upper.abs()) <= limit;
                (width > 0.0 && width.is_finite() && known).then_some(Self::Float { width, limit })
            }
            _ => None,
        }
    }

    /// The stripe of an order number.
    pub fn stripe(self, order: i64) -> i64 {
        match self {
            Self::Exact { shift } => order >> shift,
            Self::Float { width, .. } => (float_of(order) / width).floor() as i64,
        }
    }

    /// Floats beyond this are not known to a stripe.
    pub(super) fn limit(self) -> f64 {
        match self {
            Self::Exact { .. } => f64::INFINITY,
            Self::Float { limit, .. } => limit,
        }
    }
}

/// A stripe as a prefix: in the same order.
pub fn stripe_prefix(stripe: i64) -> u64 {
    stripe as u64 ^ (1 << 63)
}

/// The stripe of a prefix.
pub fn stripe_of(prefix: u64) -> i64 {
    (prefix ^ (1 << 63)) as i64
}
