//! Layouts: which cell of a join gets which rows.
//!
//! ```text
//! row --partitioning--> bucket(s) --> region (r x c cells) --slice--> a row or a column of cells
//! ```
//!
//! Rows meet only inside one bucket. A left row picks a row of its region by its slice and goes
//! to all c cells of it; a right row picks a column and goes to all r cells: so every pair of a
//! bucket meets in exactly one cell, whatever the skew.

use serde::{Deserialize, Serialize};

use crate::expr::ScalarExpr;
use crate::physical::Side;
use crate::sizing::Shape;
use crate::theta::IndexKey;

/// Slices of a region. Divisible by 1 to 8, so that rows and columns get equal shares.
pub const SLICES: u32 = 840;

/// Buckets of a `key` or `grid` partitioning.
pub const BUCKETS: u32 = 840;

/// Which cell gets which rows, from an epoch on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// Version, from 1.
    pub version: u32,
    /// First epoch that it rules.
    pub first_epoch: u64,
    /// How rows choose their buckets.
    pub partitioning: Partitioning,
    /// The regions; their cells are task numbers of the join.
    pub regions: Vec<Region>,
    /// The region of every bucket.
    pub bucket_regions: Vec<u32>,
}

/// A small matrix of cells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// Rows and columns.
    pub shape: Shape,
    /// Task numbers, row by row.
    pub cells: Vec<u32>,
}

impl Region {
    /// Into how many shares the slices of `side` are divided: rows of cells for left rows, columns
    /// of cells for right ones.
    pub fn shares(&self, side: Side) -> u32 {
        match side {
            Side::Left => self.shape.rows,
            Side::Right => self.shape.columns,
        }
    }

    /// The share of a slice.
    pub fn share(&self, side: Side, slice: u16) -> u32 {
        u32::from(slice) * self.shares(side) / SLICES
    }

    /// The cells that the rows of a share go to: all of one row, or of one column.
    pub fn share_cells(&self, side: Side, share: u32) -> impl Iterator<Item = u32> + '_ {
        let Shape { rows, columns } = self.shape;
        let (start, step, count) = match side {
            Side::Left => (share * columns, 1, columns),
            Side::Right => (share, columns, rows),
        };
        (0..count).map(move |i| self.cells[(start + i * step) as usize])
    }
}

/// How rows choose their buckets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Partitioning {
    /// One bucket for all: any condition.
    Any,
    /// By the hash of the equality keys of each side.
    Key {
        /// Keys over the left columns.
        left: Vec<ScalarExpr>,
        /// Keys over the right columns.
        right: Vec<ScalarExpr>,
    },
    /// By grid cells: the home side goes to the cell of its key, the other to every cell that it reaches.
    Grid(Grid),
}

/// A grid over the keys of a band, or of points and intervals, in the units of their [`IndexKey`]s. Rows meet
/// only if `from + below <= key <= to + above`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    /// The side whose rows go to one bucket each.
    pub home: Side,
    /// Its key.
    pub key: IndexKey,
    /// Key of the other side, with which the reach of a row begins.
    pub from: IndexKey,
    /// The one with which it ends, if that is another: such rows are intervals.
    pub to: Option<IndexKey>,
    /// How much further rows reach, and the width of the cells.
    pub reach: Reach,
    /// How far rows reach in all, in widths of a cell: of equally many rows each.
    pub spans: Vec<f64>,
}

/// What a row of a grid reaches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Reach {
    /// Over whole numbers.
    Exact {
        /// Least distance from where it begins.
        below: i64,
        /// Greatest distance from where it ends.
        above: i64,
        /// Width of a grid cell.
        width: i64,
    },
    /// Over floats.
    Float {
        /// Least distance from where it begins.
        below: f64,
        /// Greatest distance from where it ends.
        above: f64,
        /// Width of a grid cell.
        width: f64,
    },
}

impl Reach {
    /// Of a row that goes to its own cell alone.
    pub fn nowhere_else(self) -> Self {
        match self {
            Self::Exact { width, .. } => Self::Exact { below: 0, above: 0, width },
            Self::Float { width, .. } => Self::Float { below: 0.0, above: 0.0, width },
        }
    }

    /// The first and the last grid cell that a row reaches; none if the last is before the first. Keys beyond
    /// all cells are in the first or the last one.
    pub fn exact_cells((below, above, width): (i64, i64, i64), from: i128, to: i128) -> (i64, i64) {
        let cell = |key: i128| {
            let cell = key.div_euclid(i128::from(width));
            cell.clamp(i64::MIN.into(), i64::MAX.into()) as i64
        };
        (cell(from.saturating_add(below.into())), cell(to.saturating_add(above.into())))
    }

    /// The same for keys that are at most [`crate::theta::SURE`].
    pub fn sure_cells((below, above, width): (i64, i64, i64), from: i64, to: i64) -> (i64, i64) {
        (from.saturating_add(below).div_euclid(width), to.saturating_add(above).div_euclid(width))
    }

    /// The same for finite floats, whose partners are told within `slack`.
    pub fn float_cells((below, above, width): (f64, f64, f64), from: f64, to: f64, slack: f64) -> (i64, i64) {
        (Self::float_cell(from + below - slack, width), Self::float_cell(to + above + slack, width))
    }

    /// The grid cell of a float; those beyond all cells are in the last one.
    pub fn float_cell(key: f64, width: f64) -> i64 {
        (key / width).floor() as i64
    }

    /// Width of a grid cell.
    pub fn width(&self) -> f64 {
        match *self {
            Self::Exact { width, .. } => width as f64,
            Self::Float { width, .. } => width,
        }
    }
}

impl Grid {
    /// Expected copies of a row of the other side: the grid cells that it reaches, less those that hash to the
    /// same one of `cells` cells of the join.
    fn expected_copies(&self, cells: u32) -> f64 {
        let cells = f64::from(cells);
        let copies = |span: &f64| cells * (1.0 - (1.0 - 1.0 / cells).powf(1.0 + span));
        self.spans.iter().map(copies).sum::<f64>() / self.spans.len().max(1) as f64
    }
}

impl Layout {
    /// One region of `shape` for the whole pair space.
    pub fn any(shape: Shape) -> Self {
        Self {
            version: 1,
            first_epoch: 1,
            partitioning: Partitioning::Any,
            regions: vec![Region { shape, cells: (0..shape.cells()).collect() }],
            bucket_regions: vec![0],
        }
    }

    /// A 1 x 1 region per cell, the buckets spread evenly over them.
    pub fn bucketed(partitioning: Partitioning, cells: u32) -> Self {
        Self {
            version: 1,
            first_epoch: 1,
            partitioning,
            regions: (0..cells).map(|cell| Region { shape: Shape::ONE, cells: vec![cell] }).collect(),
            bucket_regions: (0..BUCKETS)
                .map(|bucket| (u64::from(bucket) * u64::from(cells) / u64::from(BUCKETS)) as u32)
                .collect(),
        }
    }

    /// Number of cells of all regions.
    pub fn cells(&self) -> u32 {
        self.regions.iter().map(|region| region.shape.cells()).sum()
    }

    /// Expected copies of a row of each side.
    pub fn replication(&self) -> [f64; 2] {
        match &self.partitioning {
            Partitioning::Any => {
                let shape = self.regions[0].shape;
                [f64::from(shape.columns), f64::from(shape.rows)]
            }
            Partitioning::Key { .. } => [1.0, 1.0],
            Partitioning::Grid(grid) => match grid.home {
                Side::Left => [1.0, grid.expected_copies(self.cells())],
                Side::Right => [grid.expected_copies(self.cells()), 1.0],
            },
        }
    }

    /// Name for people, as in `any 2x3` or `key 4 cells`.
    pub fn name(&self) -> String {
        match &self.partitioning {
            Partitioning::Any => {
                let Shape { rows, columns } = self.regions[0].shape;
                format!("any {rows}x{columns}")
            }
            Partitioning::Key { .. } => format!("key, {} cells of 1x1", self.cells()),
            Partitioning::Grid(grid) => {
                format!("grid of width {}, {} cells of 1x1", grid.reach.width(), self.cells())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_pair_of_a_bucket_meets_in_exactly_one_cell(
            rows in 1_u32..9, columns in 1_u32..9, r in 0_u16..840, s in 0_u16..840,
        ) {
            let layout = Layout::any(Shape { rows, columns });
            let region = &layout.regions[0];
            let cells = |side, slice| region.share_cells(side, region.share(side, slice)).collect::<BTreeSet<_>>();
            let (left, right) = (cells(Side::Left, r), cells(Side::Right, s));
            prop_assert_eq!(left.intersection(&right).count(), 1);
            prop_assert_eq!(left.len(), columns as usize);
            prop_assert_eq!(right.len(), rows as usize);
        }

        #[test]
        fn buckets_are_spread_evenly(cells in 1_u32..64) {
            let layout = Layout::bucketed(Partitioning::Key { left: vec![], right: vec![] }, cells);
            let mut counts = vec![0_u32; cells as usize];
            for region in &layout.bucket_regions {
                let region = &layout.regions[*region as usize];
                let cells = |side, slice| region.share_cells(side, region.share(side, slice)).collect::<Vec<_>>();
                let targets = cells(Side::Left, 0);
                prop_assert_eq!(&targets, &cells(Side::Right, 839));
                counts[targets[0] as usize] += 1;
            }
            let (min, max) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            prop_assert!(max - min <= 1);
        }

        #[test]
        fn a_row_reaches_the_cells_of_all_its_partners(
            from in -1_000_i128..1_000, key in -1_000_i128..1_000, length in -50_i128..300, below in -20_i64..20,
            above in -20_i64..40, width in 1_i64..50,
        ) {
            let (reach, to) = ((below, above, width), from + length);
            let meets = from + i128::from(below) <= key && key <= to + i128::from(above);
            let (first, last) = Reach::exact_cells(reach, from, to);
            let (own, end) = Reach::exact_cells((0, 0, width), key, key);
            prop_assert_eq!(own, end);
            prop_assert!(!meets || (first..=last).contains(&own));
            prop_assert_eq!(Reach::sure_cells(reach, from as i64, to as i64), (first, last));
        }

        #[test]
        fn a_row_of_floats_reaches_the_cells_of_all_its_partners(
            from in prop_oneof![-1e3_f64..1e3, -1e17_f64..1e17, prop::num::f64::NORMAL], offset in -30.0_f64..30.0,
            length in -5.0_f64..60.0, below in -20.0_f64..20.0, above in -20.0_f64..40.0, width in 0.01_f64..100.0,
        ) {
            let (key, to) = (from + offset, from + length);
            let meets = (key - from >= below || key >= from + below) && (key - to <= above || key <= to + above);
            let slack = 8.0 * f64::EPSILON * (from.abs().max(to.abs()) + 40.0);
            let (first, last) = Reach::float_cells((below, above, width), from, to, slack);
            prop_assert!(!meets || (first..=last).contains(&Reach::float_cell(key, width)));
        }
    }
}
