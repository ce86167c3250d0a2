//! The shape of a join matrix, by the isoperimetric rule.
//!
//! A cell of an r x c matrix stores |R|/r + |S|/c (half the perimeter of its rectangle of the
//! pair space) and examines |R||S|/(rc) pairs (its area). Among rectangles of a given area the
//! square has the least perimeter, so the best integer shape is the one whose cells are nearest
//! to squares. Volumes are in any one unit (rows or bytes). The search is exact and over all
//! integers, not powers of two only.

use serde::{Deserialize, Serialize};

/// Rows and columns of a join matrix; both at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Shares of the left input (R).
    pub rows: u32,
    /// Shares of the right input (S).
    pub columns: u32,
}

impl Shape {
    /// A single cell.
    pub const ONE: Self = Self { rows: 1, columns: 1 };

    /// Number of cells.
    pub fn cells(self) -> u32 {
        self.rows * self.columns
    }

    /// Volume that one cell stores: |R|/r + |S|/c.
    pub fn cell_cost(self, left: f64, right: f64) -> f64 {
        left / f64::from(self.rows) + right / f64::from(self.columns)
    }

    /// Volume that the exchange delivers: c|R| + r|S|.
    pub fn network_cost(self, left: f64, right: f64) -> f64 {
        left * f64::from(self.columns) + right * f64::from(self.rows)
    }
}

/// The shape with at most `cells` cells whose cells store least; ties go to the lesser network
/// cost, then to fewer rows.
pub fn shape_for_cells(cells: u32, left: f64, right: f64) -> Shape {
    let cells = cells.max(1);
    let shapes = (1..=cells).map(|rows| Shape { rows, columns: cells / rows });
    best(shapes, |shape| (shape.cell_cost(left, right), shape.network_cost(left, right))).unwrap_or(Shape::ONE)
}

/// The shape with the fewest cells that each store at most `bound`, ties to the lesser network
/// cost; `None` when even `limit` cells are not enough.
pub fn shape_for_memory(bound: f64, limit: u32, left: f64, right: f64) -> Option<Shape> {
    let shapes = (1..=limit).filter_map(|rows| {
        let room = bound - left / f64::from(rows);
        let columns = if right <= 0.0 { 1.0 } else { (right / room).ceil().max(1.0) };
        let fits = room >= 0.0 && columns.is_finite() && columns * f64::from(rows) <= f64::from(limit);
        fits.then(|| least_columns(Shape { rows, columns: columns as u32 }, bound, left, right, limit)).flatten()
    });
    best(shapes, |shape| (f64::from(shape.cells()), shape.network_cost(left, right)))
}

/// Mends the rounding of the division that proposed `shape`: the fewest columns that fit.
fn least_columns(shape: Shape, bound: f64, left: f64, right: f64, limit: u32) -> Option<Shape> {
    (shape.columns.saturating_sub(1).max(1)..=shape.columns + 1)
        .map(|columns| Shape { columns, ..shape })
        .find(|shape| shape.cell_cost(left, right) <= bound && shape.cells() <= limit)
}

fn best(shapes: impl Iterator<Item = Shape>, cost: impl Fn(Shape) -> (f64, f64)) -> Option<Shape> {
    shapes.min_by(|a, b| {
        let (a_cost, b_cost) = (cost(*a), cost(*b));
        a_cost.0.total_cmp(&b_cost.0).then(a_cost.1.total_cmp(&b_cost.1))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn every_shape(limit: u32) -> impl Iterator<Item = Shape> {
        (1..=limit).flat_map(move |rows| (1..=limit / rows).map(move |columns| Shape { rows, columns }))
    }

    #[test]
    fn equal_sides_make_squares_and_a_tiny_side_a_strip() {
        assert_eq!(shape_for_cells(16, 1e6, 1e6), Shape { rows: 4, columns: 4 });
        assert_eq!(shape_for_cells(6, 3.0, 1e6), Shape { rows: 1, columns: 6 });
        assert_eq!(shape_for_cells(6, 1e6, 3.0), Shape { rows: 6, columns: 1 });
        assert_eq!(shape_for_cells(7, 1e6, 1e6), Shape { rows: 1, columns: 7 }.min_by_cost(1e6));
    }

    impl Shape {
        fn min_by_cost(self, side: f64) -> Self {
            every_shape(self.cells())
                .min_by(|a, b| {
                    let key = |s: &Self| (s.cell_cost(side, side), s.network_cost(side, side));
                    let (x, y) = (key(a), key(b));
                    x.0.total_cmp(&y.0).then(x.1.total_cmp(&y.1))
                })
                .unwrap()
        }
    }

    proptest! {
        #[test]
        fn no_shape_of_as_many_cells_is_better(
            cells in 1_u32..60, left in 0_u32..100_000, right in 0_u32..100_000,
        ) {
            let (left, right) = (f64::from(left), f64::from(right));
            let chosen = shape_for_cells(cells, left, right);
            prop_assert!(chosen.cells() <= cells);
            for other in every_shape(cells) {
                prop_assert!(chosen.cell_cost(left, right) <= other.cell_cost(left, right));
            }
        }

        #[test]
        fn no_smaller_shape_fits_the_memory(
            bound in 1_u32..50_000, left in 0_u32..100_000, right in 0_u32..100_000,
        ) {
            let (bound, left, right) = (f64::from(bound), f64::from(left), f64::from(right));
            let fits = |s: &Shape| s.cell_cost(left, right) <= bound;
            let brute = every_shape(64).filter(fits).map(Shape::cells).min();
            let chosen = shape_for_memory(bound, 64, left, right);
            prop_assert_eq!(chosen.map(Shape::cells), brute);
            if let Some(chosen) = chosen {
                prop_assert!(fits(&chosen));
                for other in every_shape(64).filter(fits).filter(|s| s.cells() == chosen.cells()) {
                    prop_assert!(chosen.network_cost(left, right) <= other.network_cost(left, right));
                }
            }
        }
    }
}
