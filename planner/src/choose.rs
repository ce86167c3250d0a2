//! The layout of a join: which partitioning, how many cells, and what the others would cost.

use crate::error::{PlanError, PlanErrorKind};
use crate::grid::{Samples, grid_for};
use crate::layout::{Layout, Partitioning};
use crate::physical::Alternative;
use crate::settings::{MAX_PARALLELISM, Settings};
use crate::sizing::{Shape, shape_for_cells, shape_for_memory};
use crate::theta::Analysis;

/// A strip that sends every row of a tiny side everywhere is preferred to hashing while it costs
/// at most this much more: no skew can unbalance it.
const STRIP_PREFERENCE: f64 = 1.1;

/// Expected volumes of a join's inputs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Volumes {
    pub(crate) rows: [Option<f64>; 2],
    pub(crate) row_bytes: [f64; 2],
}

impl Volumes {
    /// Rows to reckon with: equal sides when one is unknown.
    fn known_rows(&self) -> [f64; 2] {
        match self.rows {
            [Some(left), Some(right)] => [left.max(1.0), right.max(1.0)],
            _ => [1e6, 1e6],
        }
    }

    fn bytes(&self) -> [f64; 2] {
        let rows = self.known_rows();
        [rows[0] * self.row_bytes[0], rows[1] * self.row_bytes[1]]
    }
}

pub(crate) struct Choice {
    pub(crate) layout: Layout,
    pub(crate) alternatives: Vec<Alternative>,
    pub(crate) reason: String,
}

/// Chooses the layout of a join.
///
/// # Errors
/// `cell_memory` is too small for any matrix.
pub(crate) fn choose(
    settings: &Settings,
    analysis: &Analysis,
    volumes: Volumes,
    samples: Samples<'_>,
) -> Result<Choice, PlanError> {
    let [left, right] = volumes.bytes();
    let rows = volumes.known_rows();
    let key = (!analysis.equality.is_empty()).then(|| key_partitioning(analysis));
    let any_shape = match (settings.matrix, settings.cell_memory) {
        (Some(shape), _) => shape,
        (None, Some(bound)) => shape_for_memory(bound.get() as f64, MAX_PARALLELISM, left, right)
            .ok_or_else(|| too_small(bound.get(), left, right))?,
        (None, None) => shape_for_cells(settings.parallelism, left, right),
    };
    let cells = match settings.cell_memory {
        Some(bound) => ((left + right) / bound.get() as f64).ceil().clamp(1.0, f64::from(MAX_PARALLELISM)) as u32,
        None => settings.parallelism,
    };
    let any = Layout::any(any_shape);
    let grid = || grid_for(&analysis.ranges, rows, cells, samples).map(Partitioning::Grid);
    let bucketed = key.or_else(grid).map(|partitioning| Layout::bucketed(partitioning, cells));
    let network = |layout: &Layout| {
        let copies = layout.replication();
        rows[0] * copies[0] + rows[1] * copies[1]
    };
    let (layout, reason) = match bucketed.clone() {
        _ if settings.matrix.is_some() => (any.clone(), "SET matrix asks for this shape".to_owned()),
        Some(bucketed) if network(&any) > STRIP_PREFERENCE * network(&bucketed) => {
            let why = match &bucketed.partitioning {
                Partitioning::Key { .. } => "equality keys: no row is copied",
                Partitioning::Grid(grid) if grid.to.is_some() => "intervals: a grid copies less than a matrix",
                _ => "a band: a grid copies less than a matrix",
            };
            (bucketed, why.to_owned())
        }
        _ => (any.clone(), reason(any_shape, settings, volumes)),
    };
    let strip = Layout::any(Shape { rows: 1, columns: any_shape.cells() });
    let mut alternatives = Vec::new();
    let mut consider = |name: &str, candidate: Option<&Layout>, note: &str| {
        if candidate.is_some_and(|candidate| *candidate == layout) {
            return;
        }
        alternatives.push(Alternative {
            name: candidate.map_or_else(|| name.to_owned(), Layout::name),
            network_rows: candidate.map(network),
            cell_rows: candidate.map(|layout| {
                let copies = layout.replication();
                (rows[0] * copies[0] + rows[1] * copies[1]) / f64::from(layout.cells())
            }),
            note: note.to_owned(),
        });
    };
    consider("matrix", Some(&any), "whatever the skew");
    if strip != any {
        consider("strip", Some(&strip), "copies the whole left side everywhere");
    }
    match &bucketed {
        Some(bucketed) => consider("hash", Some(bucketed), "balanced only if the keys are"),
        None => consider("hash", None, "not possible: no equality keys"),
    }
    Ok(Choice { layout, alternatives, reason })
}

fn too_small(bound: u64, left: f64, right: f64) -> PlanError {
    PlanError::new(
        PlanErrorKind::Setting,
        format!(
            "cell_memory of {bound} bytes is too small: {MAX_PARALLELISM} cells do not hold {:.0} and {:.0} bytes",
            left, right
        ),
    )
    .hint("SET cell_memory to more, or to 'off'")
}

fn reason(shape: Shape, settings: &Settings, volumes: Volumes) -> String {
    let known = if volumes.rows.iter().all(Option::is_some) { "" } else { " (sizes unknown: taken as equal)" };
    match settings.cell_memory {
        Some(bound) => format!("the fewest cells that hold at most {bound} bytes each{known}"),
        None if shape == Shape::ONE => format!("one cell{known}"),
        None => format!("at most {} cells with the least |R|/r + |S|/c{known}", settings.parallelism),
    }
}

fn key_partitioning(analysis: &Analysis) -> Partitioning {
    let (left, right) = analysis.equality.iter().cloned().unzip();
    Partitioning::Key { left, right }
}
