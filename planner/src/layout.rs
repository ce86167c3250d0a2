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
    /// By the grid cell of a band's key: the home side goes to the cell of its key, the other
    /// to every cell that its band touches.
    Grid(Grid),
}

/// A grid over the keys of a band L - R in [lower, upper], in the units of its [`IndexKey`]s.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    /// The side whose rows go to one bucket each.
    pub home: Side,
    /// Left key.
    pub left: IndexKey,
    /// Right key.
    pub right: IndexKey,
    /// Least L - R.
    pub lower: i64,
    /// Greatest L - R.
    pub upper: i64,
    /// Width of a grid cell.
    pub width: i64,
}

impl Grid {
    /// The keys of the home side that a row of the other side with `key` can meet: first, last.
    pub fn reach(&self, key: i128) -> (i128, i128) {
        let (lower, upper) = (i128::from(self.lower), i128::from(self.upper));
        match self.home {
            Side::Left => (key + lower, key + upper),
            Side::Right => (key - upper, key - lower),
        }
    }

    /// [`Self::reach`] of a key that is at most [`crate::theta::SURE`].
    pub fn reach_of_sure(&self, key: i64) -> (i64, i64) {
        let (below, above) = match self.home {
            Side::Left => (self.lower, self.upper),
            Side::Right => (self.upper.saturating_neg(), self.lower.saturating_neg()),
        };
        (key.saturating_add(below), key.saturating_add(above))
    }

    /// Number of the grid cell that holds `key`.
    pub fn cell(&self, key: i128) -> i128 {
        key.div_euclid(i128::from(self.width))
    }

    /// Expected copies of a row of the other side: the grid cells that its band touches, less those
    /// that hash to the same one of `cells` cells of the join.
    pub fn expected_copies(&self, cells: u32) -> f64 {
        let touched = 1.0 + (self.upper - self.lower) as f64 / self.width as f64;
        let cells = f64::from(cells);
        cells * (1.0 - (1.0 - 1.0 / cells).powf(touched))
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
                format!("grid of width {}, {} cells of 1x1", grid.width, self.cells())
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
        fn a_band_reaches_the_cells_of_all_its_partners(
            left in -1_000_i128..1_000, right in -1_000_i128..1_000, lower in -20_i64..20, span in 0_i64..40,
            width in 1_i64..50, home_left: bool,
        ) {
            let key = || IndexKey { terms: vec![], limit: None };
            let home = if home_left { Side::Left } else { Side::Right };
            let grid = Grid { home, left: key(), right: key(), lower, upper: lower + span, width };
            let meets = (i128::from(lower)..=i128::from(lower + span)).contains(&(left - right));
            let (own, other) = if home_left { (left, right) } else { (right, left) };
            let (first, last) = grid.reach(other);
            let cells = grid.cell(first)..=grid.cell(last);
            prop_assert!(!meets || cells.contains(&grid.cell(own)));
        }
    }
}
