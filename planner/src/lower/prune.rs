//! Joins emit only what is read of their pairs: columns that the condition alone needs stay
//! behind.

use std::collections::BTreeSet;

use super::{Lowering, project_schema};
use crate::expr::ScalarExpr;
use crate::physical::{OperatorId, OperatorKind, Step};

impl Lowering<'_> {
    /// Narrows the output of every join to the columns that the steps after it read.
    pub(super) fn prune_joins(&mut self) {
        for (id, operator) in (0..).map(OperatorId).zip(&mut self.operators) {
            let OperatorKind::Join(join) = &mut operator.kind else { continue };
            let mut used = BTreeSet::new();
            let edges = self.edges.iter().filter(|edge| edge.from == id);
            if !edges.fold(true, |all, edge| all & reads(&edge.steps, &mut used)) {
                continue;
            }
            let used: Vec<u32> = used.into_iter().collect();
            operator.schema = project_schema(&operator.schema, &used);
            join.output.clone_from(&used);
            for edge in self.edges.iter_mut().filter(|edge| edge.from == id) {
                renumber(&mut edge.steps, &|column| used.partition_point(|other| *other < column) as u32);
            }
        }
    }
}

/// Adds the columns that the steps up to the first projection read. False if there is no
/// projection: then all are needed.
fn reads(steps: &[Step], used: &mut BTreeSet<u32>) -> bool {
    let mut add = |exprs: &[ScalarExpr]| {
        exprs.iter().for_each(|expr| {
            expr.for_each_column(&mut |column| {
                used.insert(column);
            });
        });
    };
    for step in steps {
        match step {
            Step::Filter(exprs) => add(exprs),
            Step::Project { exprs, .. } => {
                add(exprs);
                return true;
            }
            Step::Negate => {}
            Step::Unnest { .. } => return false,
        }
    }
    false
}

/// Gives the columns up to the first projection their new positions.
fn renumber(steps: &mut [Step], map: &impl Fn(u32) -> u32) {
    for step in steps {
        match step {
            Step::Filter(exprs) => exprs.iter_mut().for_each(|expr| *expr = expr.map_columns(map)),
            Step::Project { exprs, .. } => {
                exprs.iter_mut().for_each(|expr| *expr = expr.map_columns(map));
                return;
            }
            Step::Negate => {}
            Step::Unnest { .. } => return,
        }
    }
}
