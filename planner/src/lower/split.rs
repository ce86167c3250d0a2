//! Aggregates in two phases: the first one near the rows, in the cells of a join or in tasks among
//! which a source spreads its frames, the second one after the exchange.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};

use super::Lowering;
use crate::compile;
use crate::expr::ScalarExpr;
use crate::physical::{
    Aggregate, AggregateCall, AggregateFunction, Edge, Exchange, Fold, FoldCall, FoldGroups, FoldKind, FoldSide, Join,
    Operator, OperatorId, OperatorKind, PairAggregate, Phase, Side, SinkMode, Step, has_codes,
};
use crate::theta::{Bounds, IndexKey, Term};

impl Lowering<'_> {
    /// Splits the aggregates that can be, where it saves something.
    pub(super) fn split_aggregates(&mut self) {
        for number in 0..self.edges.len() {
            self.split_behind(number);
        }
    }

    /// Aggregates whose results only the end of the query reads need not tell them before.
    pub(super) fn defer_results(&mut self) {
        let is_end = |id: OperatorId| match &self.operators[id.0 as usize].kind {
            OperatorKind::Sink(sink) => matches!(sink.mode, SinkMode::Final { .. }),
            _ => false,
        };
        let is_aggregate = |id: OperatorId| matches!(self.operators[id.0 as usize].kind, OperatorKind::Aggregate(_));
        // An aggregate that waits for the end reads nothing before either. Edges lead to higher ids.
        let mut deferred = vec![false; self.operators.len()];
        for id in (0..self.operators.len() as u32).rev().map(OperatorId) {
            let waits = |to: OperatorId| is_end(to) || is_aggregate(to) && deferred[to.0 as usize];
            deferred[id.0 as usize] = self.edges.iter().filter(|edge| edge.from == id).all(|edge| waits(edge.to));
        }
        let leads_to: Vec<Option<OperatorId>> = (0..self.operators.len() as u32)
            .map(|id| self.edges.iter().find(|edge| edge.from == OperatorId(id)).map(|edge| edge.to))
            .collect();
        // A first phase has one second phase.
        for ((operator, own), next) in self.operators.iter_mut().zip(&deferred).zip(leads_to) {
            let of_next = next.is_some_and(|next| deferred[next.0 as usize]);
            match &mut operator.kind {
                OperatorKind::Aggregate(aggregate) if matches!(aggregate.phase, Phase::Partial(_)) => {
                    aggregate.at_end = of_next;
                }
                OperatorKind::Aggregate(aggregate) => aggregate.at_end = *own,
                OperatorKind::Join(join) => {
                    if let Some(aggregate) = &mut join.aggregate {
                        aggregate.partial.at_end = of_next;
                        // What an epoch adds to such groups cannot wait for the other side.
                        aggregate.fold.take_if(|fold| !of_next && matches!(fold.groups, FoldGroups::Side(..)));
                    }
                }
                OperatorKind::Source(_) | OperatorKind::Sink(_) => {}
            }
        }
    }

    /// Splits the aggregate that this edge leads to, if nothing else leads to it.
    fn split_behind(&mut self, number: usize) {
        let Edge { from, to, ref steps, ref exchange, .. } = self.edges[number];
        let OperatorKind::Aggregate(aggregate) = &self.operators[to.0 as usize].kind else { return };
        let output = Arc::clone(&self.operators[to.0 as usize].schema);
        let Some(schema) = aggregate.partial_schema(&output) else { return };
        if aggregate.phase != Phase::Whole || self.edges.iter().filter(|edge| edge.to == to).count() > 1 {
            return;
        }
        let mut partial = Aggregate { phase: Phase::Partial(steps.clone()), ..aggregate.clone() };
        let keys: Vec<ScalarExpr> = (0..aggregate.groups.len() as u32).map(ScalarExpr::Column).collect();
        let exchange = if *exchange == Exchange::Gather { Exchange::Gather } else { Exchange::Hash(keys.clone()) };
        let rows = self.operators[to.0 as usize].rows;
        let sender_feeds_this_only = self.edges.iter().filter(|edge| edge.from == from).count() == 1;
        let sender = &mut self.operators[from.0 as usize];
        match &mut sender.kind {
            OperatorKind::Join(join) if sender_feeds_this_only => {
                let fold = fold(join, &partial);
                join.aggregate = Some(PairAggregate { partial, fold });
                // Epochs add up: a partial row is never taken back.
                (sender.schema, sender.retracts) = (schema, false);
                let edge = &mut self.edges[number];
                (edge.steps, edge.exchange) = (Vec::new(), exchange);
            }
            OperatorKind::Source(source) if self.settings.parallelism > 1 && !partial.groups.is_empty() => {
                // Half of the cores read for those that count.
                source.readers = source.readers.min(self.settings.parallelism / 2).max(1);
                partial.phase = Phase::Partial(std::mem::take(&mut self.edges[number].steps));
                let operator = Operator {
                    kind: OperatorKind::Aggregate(partial),
                    tasks: self.settings.parallelism,
                    schema,
                    retracts: false,
                    rows,
                };
                self.insert_before(to, operator);
                let after = OperatorId(to.0 + 1);
                let edge = &mut self.edges[number];
                (edge.to, edge.exchange) = (to, Exchange::Spread);
                self.edges.push(Edge { from: to, to: after, port: 0, steps: Vec::new(), exchange });
                self.finish_at(after, keys);
                return;
            }
            _ => return,
        }
        self.finish_at(to, keys);
    }

    fn finish_at(&mut self, id: OperatorId, keys: Vec<ScalarExpr>) {
        if let OperatorKind::Aggregate(aggregate) = &mut self.operators[id.0 as usize].kind {
            (aggregate.phase, aggregate.groups) = (Phase::Final, keys);
        }
    }

    /// Makes room at `id`: edges lead from lower to higher ids.
    fn insert_before(&mut self, id: OperatorId, operator: Operator) {
        let after = |other: OperatorId| if other >= id { OperatorId(other.0 + 1) } else { other };
        for edge in &mut self.edges {
            (edge.from, edge.to) = (after(edge.from), after(edge.to));
        }
        self.operators.insert(id.0 as usize, operator);
    }
}

/// How to compute `partial` over the pairs of `join` from sums of each side; `None` if it takes the
/// pairs.
fn fold(join: &Join, partial: &Aggregate) -> Option<Fold> {
    let Phase::Partial(steps) = &partial.phase else { return None };
    let structure = match (join.equality.is_empty(), join.ranges.as_slice()) {
        (false, []) => join.equality.iter().all(|key| has_exact_equality(join, key)),
        (true, [range]) => !matches!(range.bounds, Bounds::Ordered { .. }),
        _ => false,
    };
    // Doubtful pairs of floats are known by their numbers in the stores, which deletes can change.
    let float = join.ranges.iter().any(|range| matches!(range.bounds, Bounds::Float { .. }));
    if !join.is_covered() || !structure || (float && join.retracts.contains(&true)) {
        return None;
    }
    let mut columns: Vec<ScalarExpr> = join.output.iter().copied().map(ScalarExpr::Column).collect();
    for step in steps {
        let Step::Project { exprs, .. } = step else { return None };
        columns = exprs.iter().map(|expr| expr.with_columns(&columns)).collect();
    }
    let pairs = Pairs { join, schema: super::nullable(pair_fields(join)) };
    let groups: Vec<ScalarExpr> = partial.groups.iter().map(|group| group.with_columns(&columns)).collect();
    let keys = groups.iter().map(|group| pairs.equality_key(group)).collect::<Option<_>>().map(FoldGroups::Keys);
    Some(Fold {
        groups: keys.or_else(|| pairs.groups_of_side(&groups))?,
        calls: partial.aggregates.iter().map(|call| pairs.call(call, &columns)).collect::<Option<_>>()?,
    })
}

fn pair_fields(join: &Join) -> impl Iterator<Item = &arrow::datatypes::Field> {
    join.inputs.iter().flat_map(|schema| schema.fields().iter().map(AsRef::as_ref))
}

/// Whether values of a key are equal if they are the same value, as cells have them.
fn has_exact_equality(join: &Join, (left, right): &(ScalarExpr, ScalarExpr)) -> bool {
    let of = |expr, side: Side| {
        let schema = &join.inputs[side.index()];
        compile(expr, schema).and_then(|expr| expr.data_type(schema)).ok()
    };
    match (of(left, Side::Left), of(right, Side::Right)) {
        (Some(left), Some(right)) => left == right && !left.is_nested(),
        _ => false,
    }
}

/// The columns of a join's pairs.
struct Pairs<'a> {
    join: &'a Join,
    schema: SchemaRef,
}

impl Pairs<'_> {
    fn left_columns(&self) -> u32 {
        self.join.inputs[0].fields().len() as u32
    }

    /// `expr` over the columns of the one side that it reads.
    fn one_sided(&self, expr: &ScalarExpr) -> Option<(Side, ScalarExpr)> {
        let mut sides = [false; 2];
        expr.for_each_column(&mut |column| sides[usize::from(column >= self.left_columns())] = true);
        match sides {
            [true, false] => Some((Side::Left, expr.clone())),
            [false, true] => Some((Side::Right, expr.map_columns(&|column| column - self.left_columns()))),
            _ => None,
        }
    }

    fn equality_key(&self, expr: &ScalarExpr) -> Option<u32> {
        let (side, expr) = self.one_sided(expr)?;
        let same = |(left, right): &(ScalarExpr, ScalarExpr)| *if side == Side::Left { left } else { right } == expr;
        self.join.equality.iter().position(same).map(|position| position as u32)
    }

    /// Groups by columns of one side.
    fn groups_of_side(&self, groups: &[ScalarExpr]) -> Option<FoldGroups> {
        let groups = groups.iter().map(|group| self.one_sided(group)).collect::<Option<Vec<_>>>()?;
        let (side, _) = groups.first()?;
        let same = groups.iter().all(|(other, _)| other == side);
        same.then(|| FoldGroups::Side(*side, groups.iter().map(|(_, group)| group.clone()).collect()))
    }

    fn call(&self, call: &AggregateCall, columns: &[ScalarExpr]) -> Option<FoldCall> {
        let arguments: Vec<_> = call.arguments.iter().map(|argument| argument.with_columns(columns)).collect();
        let mut sides = [FoldSide::default(), FoldSide::default()];
        if call.filter.is_some() || call.distinct {
            return None;
        }
        match (call.function, arguments.as_slice()) {
            (AggregateFunction::Count, arguments) => {
                for argument in arguments {
                    let (side, expr) = self.one_sided(argument)?;
                    sides[side.index()].required.push(expr);
                }
                Some(FoldCall { kind: FoldKind::Count, sides })
            }
            (AggregateFunction::Sum | AggregateFunction::Avg, [argument]) => {
                let mut sum = TermSum { keys: Default::default(), least_maximum: 6e18 };
                self.add_terms(argument, 1, scale(&self.type_of(argument)?)?, &mut sum)?;
                let terms = sum.keys.iter().map(|key| key.terms.len()).sum::<usize>();
                let limit = Some(sum.least_maximum / terms as f64);
                for (side, key) in sides.iter_mut().zip(sum.keys) {
                    side.required = key.terms.iter().map(|term| term.expr.clone()).collect();
                    side.term = IndexKey { limit, ..key };
                }
                Some(FoldCall { kind: FoldKind::Sum, sides })
            }
            (AggregateFunction::Min | AggregateFunction::Max, [argument]) => {
                let (side, expr) = self.one_sided(argument)?;
                if self.join.retracts.contains(&true) || !has_codes(&self.type_of(argument)?) {
                    return None;
                }
                let own = &mut sides[side.index()];
                own.required.push(expr.clone());
                own.term.terms.push(Term { factor: 1, expr });
                let least = call.function == AggregateFunction::Min;
                Some(FoldCall { kind: if least { FoldKind::Min } else { FoldKind::Max }, sides })
            }
            _ => None,
        }
    }

    /// Adds `sign * expr`, in units of 10^-`unit`, as terms of one side each.
    fn add_terms(&self, expr: &ScalarExpr, sign: i64, unit: i8, sum: &mut TermSum) -> Option<()> {
        let data_type = self.type_of(expr)?;
        if let Some((side, expr)) = self.one_sided(expr) {
            let finer = u32::try_from(unit.checked_sub(scale(&data_type)?)?).ok()?;
            let factor = sign.checked_mul(10_i64.checked_pow(finer)?)?;
            sum.keys[side.index()].terms.push(Term { factor, expr });
            return Some(());
        }
        match expr {
            ScalarExpr::Binary { op, left, right } if op == "+" || op == "-" => {
                sum.least_maximum = sum.least_maximum.min(largest(&data_type)?);
                self.add_terms(left, sign, unit, sum)?;
                self.add_terms(right, if op == "-" { -sign } else { sign }, unit, sum)
            }
            ScalarExpr::Cast { expr, to, safe: false } if keeps_values(&self.type_of(expr)?, to) => {
                self.add_terms(expr, sign, unit, sum)
            }
            _ => None,
        }
    }

    fn type_of(&self, expr: &ScalarExpr) -> Option<DataType> {
        compile(expr, &self.schema).and_then(|expr| expr.data_type(&self.schema)).ok()
    }
}

/// A sum over pairs, taken apart.
struct TermSum {
    /// Left terms, right terms.
    keys: [IndexKey; 2],
    /// The largest number that all types in which the query adds can hold.
    least_maximum: f64,
}

/// Digits after the point of whole numbers.
fn scale(data_type: &DataType) -> Option<i8> {
    match data_type {
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => Some(*scale),
        data_type if data_type.is_integer() && *data_type != DataType::UInt64 => Some(0),
        _ => None,
    }
}

/// About the largest sum that fits.
fn largest(data_type: &DataType) -> Option<f64> {
    match data_type {
        DataType::Int32 => Some(f64::from(i32::MAX)),
        DataType::Int64 | DataType::Decimal128(..) => Some(6e18),
        _ => None,
    }
}

/// Whether a cast changes no value that fits.
fn keeps_values(from: &DataType, to: &DataType) -> bool {
    match (scale(from), scale(to)) {
        (Some(from_scale), Some(to_scale)) => from_scale <= to_scale && from.primitive_width() <= to.primitive_width(),
        _ => false,
    }
}
