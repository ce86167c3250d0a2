//! The search for an order: relations and conditions as a hypergraph, orders as binary trees.
//!
//! The cost of a tree is the sum of the sizes of its joins (C_out), where the size of a set of
//! relations does not depend on how they were joined. Up to [`EXACT`] connected relations the
//! best tree is found by dynamic programming over subsets (bushy trees included), beyond them
//! the two parts with the smallest join are joined until one is left. Fewer cross products come
//! before lower cost.

/// A set of relations: bit i stands for relation i.
pub(super) type Set = u64;

/// Most relations of a query that are ordered.
pub(super) const MOST: usize = Set::BITS as usize;

/// Most relations for which all trees are looked at: 3^10 / 2 pairs of subsets.
const EXACT: usize = 10;

/// Costs that differ by less are equal: they are sums of rounded numbers.
const TOLERANCE: f64 = 1e-9;

/// Relations and the conditions between them.
#[derive(Debug, Clone)]
pub(super) struct Graph {
    /// Rows of each relation, at least one.
    pub(super) rows: Vec<f64>,
    /// The conditions; several over the same relations are one.
    pub(super) edges: Vec<Edge>,
}

/// Conditions over two or more relations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub(super) relations: Set,
    /// Share of the combinations of their rows that meet the conditions.
    pub(super) share: f64,
}

/// An order of joins.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Tree {
    Relation(usize),
    Join(Box<Self>, Box<Self>),
}

/// What a tree costs; less is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cost {
    /// Joins of parts that no condition connects.
    pub(super) crosses: u32,
    /// Sum of the sizes of all joins.
    pub(super) rows: f64,
}

impl Cost {
    const NOTHING: Self = Self { crosses: 0, rows: 0.0 };

    fn and(self, other: Self) -> Self {
        Self { crosses: self.crosses + other.crosses, rows: self.rows + other.rows }
    }

    /// Better by more than rounding.
    fn beats(self, other: Self) -> bool {
        self.crosses < other.crosses || (self.crosses == other.crosses && self.rows < other.rows * (1.0 - TOLERANCE))
    }
}

impl Tree {
    pub(super) fn relations(&self) -> Set {
        match self {
            Self::Relation(relation) => 1 << relation,
            Self::Join(left, right) => left.relations() | right.relations(),
        }
    }

    /// The part with the relation that was written first is on the left.
    fn join(a: Self, b: Self) -> Self {
        let first = |tree: &Self| tree.relations().trailing_zeros();
        if first(&a) < first(&b) { Self::Join(Box::new(a), Box::new(b)) } else { Self::Join(Box::new(b), Box::new(a)) }
    }
}

/// A better tree than `written`; `None` if it is as good as any.
pub(super) fn better(graph: &Graph, written: &Tree) -> Option<Tree> {
    let best = graph.best();
    let keep = graph.is_well_formed(written) && !graph.cost(&best).beats(graph.cost(written));
    (!keep && best != *written).then_some(best)
}

impl Graph {
    /// The best tree that was found.
    pub(super) fn best(&self) -> Tree {
        let mut parts: Vec<Tree> =
            self.components()
                .into_iter()
                .map(|component| {
                    if component.count_ones() as usize <= EXACT {
                        self.exact(component)
                    } else {
                        self.greedy(component)
                    }
                })
                .collect();
        // Nothing connects the parts: cross products, the smallest parts first.
        parts.sort_by(|a, b| self.size(a.relations()).total_cmp(&self.size(b.relations())));
        parts.into_iter().reduce(Tree::join).unwrap_or(Tree::Relation(0))
    }

    pub(super) fn cost(&self, tree: &Tree) -> Cost {
        let Tree::Join(left, right) = tree else {
            return Cost::NOTHING;
        };
        self.cost(left).and(self.cost(right)).and(self.step(left.relations(), right.relations()))
    }

    /// Whether cross products are between whole components only, and every other join is within one.
    pub(super) fn is_well_formed(&self, tree: &Tree) -> bool {
        let Tree::Join(left, right) = tree else {
            return true;
        };
        let set = tree.relations();
        let whole = |component: &Set| set & component == 0 || set & component == *component;
        let components = self.components();
        (components.iter().all(whole) || components.iter().any(|component| set & !component == 0))
            && self.is_well_formed(left)
            && self.is_well_formed(right)
    }

    /// Expected rows of the join of a set.
    pub(super) fn size(&self, set: Set) -> f64 {
        // By logarithms: a product of 64 sizes is beyond a float.
        let rows: f64 = each(set).map(|relation| self.rows[relation].ln()).sum();
        let shares: f64 = self.edges.iter().filter(|edge| edge.relations & !set == 0).map(|edge| edge.share.ln()).sum();
        (rows + shares).min(600.0).exp()
    }

    /// Whether a condition becomes complete when the two are joined.
    pub(super) fn connects(&self, a: Set, b: Set) -> bool {
        self.edges
            .iter()
            .any(|edge| edge.relations & !(a | b) == 0 && edge.relations & a != 0 && edge.relations & b != 0)
    }

    fn step(&self, a: Set, b: Set) -> Cost {
        Cost { crosses: u32::from(!self.connects(a, b)), rows: self.size(a | b) }
    }

    /// The connected parts, in the order of their first relations.
    pub(super) fn components(&self) -> Vec<Set> {
        let mut components: Vec<Set> = (0..self.rows.len()).map(|relation| 1 << relation).collect();
        for edge in &self.edges {
            let (touched, rest): (Vec<Set>, Vec<Set>) =
                components.into_iter().partition(|component| component & edge.relations != 0);
            components = rest;
            components.push(touched.into_iter().fold(0, |all, part| all | part));
        }
        components.sort_by_key(|component| component.trailing_zeros());
        components
    }

    /// The best tree of a component, by dynamic programming.
    fn exact(&self, component: Set) -> Tree {
        let members: Vec<usize> = each(component).collect();
        let whole = |part: usize| members.iter().enumerate().filter(move |(bit, _)| part >> bit & 1 == 1);
        let sets: Vec<Set> = (0..1_usize << members.len())
            .map(|part| whole(part).fold(0, |set, (_, member)| set | 1 << member))
            .collect();
        // Per part, its best cost and the left half of its best split.
        let mut best = vec![(Cost::NOTHING, 0_usize); sets.len()];
        for part in 1..sets.len() {
            if part.is_power_of_two() {
                continue;
            }
            let size = self.size(sets[part]);
            let mut found: Option<(Cost, usize)> = None;
            for left in splits(part) {
                let right = part & !left;
                let crosses = u32::from(!self.connects(sets[left], sets[right]));
                let cost = best[left].0.and(best[right].0).and(Cost { crosses, rows: size });
                if found.is_none_or(|(least, _)| cost.beats(least)) {
                    found = Some((cost, left));
                }
            }
            best[part] = found.unwrap_or(best[part]);
        }
        tree_of(sets.len() - 1, &best, &members)
    }

    /// A tree of a component, by joining the two parts with the smallest result again and again.
    fn greedy(&self, component: Set) -> Tree {
        let mut parts: Vec<Tree> = each(component).map(Tree::Relation).collect();
        while parts.len() > 1 {
            let sets: Vec<Set> = parts.iter().map(Tree::relations).collect();
            let mut found: Option<((u8, f64), usize, usize)> = None;
            for (i, a) in sets.iter().enumerate() {
                for (j, b) in sets.iter().enumerate().skip(i + 1) {
                    let Some(distance) = self.distance(*a, *b) else { continue };
                    let key = (distance, self.size(a | b));
                    if found.is_none_or(|(least, ..)| (key.0, key.1 * (1.0 + TOLERANCE)) < least) {
                        found = Some((key, i, j));
                    }
                }
            }
            // A component is connected: some two parts share a condition.
            let (_, i, j) = found.unwrap_or(((2, 0.0), 0, 1));
            let right = parts.remove(j);
            let left = std::mem::replace(&mut parts[i], Tree::Relation(0));
            parts[i] = Tree::join(left, right);
        }
        parts.pop().unwrap_or(Tree::Relation(0))
    }

    /// 0 if a condition becomes complete when the two are joined, 1 if one then needs yet more
    /// relations, nothing if no condition reads both.
    fn distance(&self, a: Set, b: Set) -> Option<u8> {
        let both = self.edges.iter().filter(|edge| edge.relations & a != 0 && edge.relations & b != 0);
        both.map(|edge| u8::from(edge.relations & !(a | b) != 0)).min()
    }
}

/// The relations of a set.
fn each(set: Set) -> impl Iterator<Item = usize> {
    (0..MOST).filter(move |relation| set >> relation & 1 == 1)
}

/// The left halves of all splits of `part` in two. The left half has the first member; the split
/// of the order that was written, all but the last, comes first.
fn splits(part: usize) -> impl Iterator<Item = usize> {
    let first = part & part.wrapping_neg();
    let written = part & !(1 << part.ilog2());
    let rest = part & !first;
    // All subsets of the rest but itself, in descending order.
    let subsets = std::iter::successors(Some(rest), move |subset| (*subset > 0).then(|| (subset - 1) & rest)).skip(1);
    std::iter::once(written).chain(subsets.map(move |subset| subset | first).filter(move |left| *left != written))
}

fn tree_of(part: usize, best: &[(Cost, usize)], members: &[usize]) -> Tree {
    if part.is_power_of_two() {
        return Tree::Relation(members[part.ilog2() as usize]);
    }
    let left = best[part].1;
    Tree::join(tree_of(left, best, members), tree_of(part & !left, best, members))
}

#[cfg(test)]
mod tests;
