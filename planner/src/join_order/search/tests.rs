use proptest::prelude::*;

use super::*;

/// Every tree over a set, sides in either order.
fn all_trees(set: Set) -> Vec<Tree> {
    if set.is_power_of_two() {
        return vec![Tree::Relation(set.trailing_zeros() as usize)];
    }
    let mut trees = Vec::new();
    let mut left = (set - 1) & set;
    while left > 0 {
        if left & 1 << set.trailing_zeros() != 0 {
            for l in all_trees(left) {
                for r in all_trees(set & !left) {
                    trees.push(Tree::Join(Box::new(l.clone()), Box::new(r)));
                }
            }
        }
        left = (left - 1) & set;
    }
    trees
}

fn written(relations: usize) -> Tree {
    (0..relations).map(Tree::Relation).reduce(|a, b| Tree::Join(Box::new(a), Box::new(b))).unwrap()
}

/// Relations in the order of a walk from the left.
fn leaves(tree: &Tree) -> Vec<usize> {
    match tree {
        Tree::Relation(relation) => vec![*relation],
        Tree::Join(left, right) => [leaves(left), leaves(right)].concat(),
    }
}

fn joins(tree: &Tree, visit: &mut impl FnMut(Set, Set)) {
    if let Tree::Join(left, right) = tree {
        joins(left, visit);
        joins(right, visit);
        visit(left.relations(), right.relations());
    }
}

fn graph(relations: std::ops::Range<usize>) -> impl Strategy<Value = Graph> {
    relations.prop_flat_map(|count| {
        let rows = prop::collection::vec(1_u32..100_000, count);
        let edge = (prop::collection::btree_set(0..count, 2..=3_usize.min(count)), 1_u32..1_000);
        let edges = prop::collection::vec(edge, 0..=count + 2);
        (rows, edges).prop_map(|(rows, edges)| {
            let mut graph = Graph { rows: rows.into_iter().map(f64::from).collect(), edges: Vec::new() };
            for (members, share) in edges {
                let relations = members.into_iter().fold(0, |set, member| set | 1 << member);
                if graph.edges.iter().all(|edge| edge.relations != relations) {
                    graph.edges.push(Edge { relations, share: f64::from(share) / 1_000.0 });
                }
            }
            graph
        })
    })
}

/// Each relation stands once, and each condition becomes complete in exactly one join.
fn is_complete(graph: &Graph, tree: &Tree) -> bool {
    let mut relations = leaves(tree);
    relations.sort_unstable();
    let mut completed = vec![0; graph.edges.len()];
    joins(tree, &mut |left, right| {
        for (edge, count) in graph.edges.iter().zip(&mut completed) {
            let inside = |set: Set| edge.relations & !set == 0;
            *count += u32::from(inside(left | right) && !inside(left) && !inside(right));
        }
    });
    relations == (0..graph.rows.len()).collect::<Vec<_>>() && completed.iter().all(|count| *count == 1)
}

proptest! {
    #[test]
    fn the_best_tree_is_that_of_brute_force(graph in graph(2..7)) {
        let best = graph.best();
        prop_assert!(is_complete(&graph, &best));
        prop_assert!(graph.is_well_formed(&best));
        if graph.components().len() > 1 {
            return Ok(());
        }
        let all = (1 << graph.rows.len()) - 1;
        let costs = all_trees(all).into_iter().map(|tree| graph.cost(&tree));
        let least = costs.reduce(|a, b| if b.beats(a) { b } else { a }).unwrap();
        let found = graph.cost(&best);
        prop_assert!(!least.beats(found), "{least:?} beats {found:?}");
    }

    #[test]
    fn no_avoidable_cross_product(graph in graph(2..20)) {
        let best = graph.best();
        prop_assert!(is_complete(&graph, &best));
        prop_assert!(graph.is_well_formed(&best));
        let hyper = graph.edges.iter().any(|edge| edge.relations.count_ones() > 2);
        if !hyper {
            prop_assert_eq!(graph.cost(&best).crosses as usize, graph.components().len() - 1);
        }
    }

    #[test]
    fn what_is_written_stays_unless_another_is_better(graph in graph(2..7)) {
        let written = written(graph.rows.len());
        match better(&graph, &written) {
            None => prop_assert!(graph.is_well_formed(&written) && !graph.cost(&graph.best()).beats(graph.cost(&written))),
            Some(tree) => {
                prop_assert!(!graph.is_well_formed(&written) || graph.cost(&tree).beats(graph.cost(&written)));
                prop_assert_eq!(better(&graph, &tree), None);
            }
        }
    }
}

fn edge(relations: &[usize], share: f64) -> Edge {
    Edge { relations: relations.iter().fold(0, |set, relation| set | 1 << relation), share }
}

#[test]
fn equal_relations_keep_the_written_order() {
    let edges = (1..6).map(|i| edge(&[i - 1, i], 1e-6)).collect();
    assert_eq!(better(&Graph { rows: vec![1e6; 6], edges }, &written(6)), None);
    let star = (1..6).map(|i| edge(&[0, i], 1e-6)).collect();
    assert_eq!(better(&Graph { rows: vec![1e6; 6], edges: star }, &written(6)), None);
}

#[test]
fn a_chain_of_the_outer_two_is_not_crossed() {
    // a - c, c - b
    let graph = Graph { rows: vec![10.0, 10.0, 1_000.0], edges: vec![edge(&[0, 2], 0.4), edge(&[2, 1], 0.4)] };
    let tree = better(&graph, &written(3)).unwrap();
    assert_eq!((graph.cost(&tree).crosses, leaves(&tree)), (0, vec![0, 2, 1]));
}

#[test]
fn a_bushy_tree_is_found() {
    // Two selective pairs, and a weak condition between them.
    let edges = vec![edge(&[0, 1], 1e-6), edge(&[2, 3], 1e-6), edge(&[1, 2], 0.4)];
    let tree = Graph { rows: vec![1e3; 4], edges }.best();
    let Tree::Join(left, right) = tree else { panic!("a join") };
    assert_eq!((left.relations(), right.relations()), (0b0011, 0b1100));
}

#[test]
fn unconnected_parts_are_crossed_smallest_first() {
    let graph = Graph { rows: vec![1e6, 10.0, 100.0, 5.0], edges: vec![edge(&[1, 2], 0.001)] };
    let tree = graph.best();
    let mut sets = Vec::new();
    joins(&tree, &mut |left, right| sets.push(left | right));
    assert_eq!(sets, [0b0110, 0b1110, 0b1111]);
}

#[test]
fn a_condition_of_three_is_met_by_one_cross_product() {
    let graph = Graph { rows: vec![1e6, 10.0, 100.0], edges: vec![edge(&[0, 1, 2], 0.001)] };
    let tree = graph.best();
    assert_eq!(graph.cost(&tree).crosses, 1);
    assert_eq!(graph.cost(&tree).rows, graph.size(0b110) + graph.size(0b111));
}

#[test]
fn sixty_four_relations_are_ordered_at_once() {
    let chain: Vec<Edge> = (1..MOST).map(|i| edge(&[i - 1, i], 1e-6)).collect();
    let graph = Graph { rows: vec![1e6; MOST], edges: chain };
    let tree = graph.best();
    assert!(is_complete(&graph, &tree));
    assert_eq!(graph.cost(&tree).crosses, 0);
    let graph = Graph { rows: vec![1e6; MOST], edges: vec![Edge { relations: Set::MAX, share: 0.4 }] };
    assert!(is_complete(&graph, &graph.best()));
}
