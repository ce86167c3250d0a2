use proptest::prelude::*;

use super::*;
use crate::join::keys::float_order;

/// A row as a test sees it: prefix, key (`None` is wild), NULL.
type Plain<T> = (u64, Option<T>, bool);

fn keys<T: Copy>(rows: &[Plain<T>], ranges: impl Fn(Vec<Option<T>>) -> Ranges) -> Keys {
    Keys {
        rows: rows.len(),
        prefixes: Some(rows.iter().map(|row| row.0).collect()),
        ranges: Some(ranges(rows.iter().map(|row| row.1).collect())),
        null: rows.iter().map(|row| row.2).collect(),
    }
}

/// All candidates, found with a small limit per call.
fn probe_all(index: &dyn LocalIndex, keys: &Keys, limit: usize) -> Vec<(u32, u32)> {
    let mut cursor = Cursor::default();
    let mut pairs = Vec::new();
    loop {
        let mut out = Candidates::default();
        let step = index.probe(keys, &mut cursor, limit, &mut out);
        assert!(out.len() <= limit);
        pairs.extend(out.probes.into_iter().zip(out.stored));
        if step == Probe::Done {
            return pairs;
        }
        assert!(!pairs.is_empty());
    }
}

/// `found` has every expected pair, none twice, and none with a NULL or another prefix.
fn check<T: Copy>(
    found: &[(u32, u32)],
    probes: &[Plain<T>],
    stored: &[Plain<T>],
    matches: impl Fn(&Plain<T>, &Plain<T>) -> bool,
) {
    let mut sorted = found.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), found.len(), "a pair was found twice");
    for (i, probe) in probes.iter().enumerate() {
        for (j, row) in stored.iter().enumerate() {
            let possible = !probe.2 && !row.2 && probe.0 == row.0;
            let has = sorted.binary_search(&(i as u32, j as u32)).is_ok();
            assert!(!has || possible, "{i} and {j} cannot match");
            assert!(has || !(possible && matches(probe, row)), "{i} and {j} were missed");
        }
    }
}

fn insert_in_two(index: &mut dyn LocalIndex, first: &Keys, second: &Keys) {
    index.insert(first, 0);
    index.insert(second, first.rows as u32);
}

fn whole() -> impl Strategy<Value = i64> {
    prop_oneof![8 => -20_i64..20, 1 => Just(i64::MIN), 1 => Just(i64::MAX)]
}

fn rows<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<Plain<T>>> {
    let row = (0_u64..3, prop::option::weighted(0.9, value), prop::bool::weighted(0.1));
    prop::collection::vec(row, 0..25)
}

proptest! {
    #[test]
    fn sorted_index_misses_no_whole_number(
        stored in rows(whole()), more in rows(whole()), probes in rows(whole()),
        lower in prop::option::of(-10_i64..10), upper in prop::option::of(-10_i64..10),
        left: bool, limit in 1_usize..5,
    ) {
        let side = if left { Side::Left } else { Side::Right };
        let mut index = SortedIndex::new(side, Bounds::Exact { lower, upper });
        insert_in_two(&mut index, &keys(&stored, Ranges::Exact), &keys(&more, Ranges::Exact));
        let all: Vec<_> = stored.into_iter().chain(more).collect();
        let found = probe_all(&index, &keys(&probes, Ranges::Exact), limit);
        check(&found, &probes, &all, |probe, row| {
            // A wild key may match anything.
            let (Some(probe), Some(row)) = (probe.1, row.1) else { return true };
            let (l, r) = if left { (row, probe) } else { (probe, row) };
            let difference = i128::from(l) - i128::from(r);
            lower.is_none_or(|lower| i128::from(lower) <= difference)
                && upper.is_none_or(|upper| difference <= i128::from(upper))
        });
    }

    #[test]
    fn sorted_index_misses_no_float(
        stored in rows(prop_oneof![-5.0..5.0_f64, Just(-0.0), Just(0.0), Just(1e300), Just(f64::MAX)]),
        probes in rows(prop_oneof![-5.0..5.0_f64, Just(-0.0), Just(-1e300), Just(f64::MAX)]),
        lower in prop::option::of(-3.0..3.0_f64), upper in prop::option::of(-3.0..3.0_f64), left: bool,
    ) {
        let side = if left { Side::Left } else { Side::Right };
        let floats = |keys| Ranges::Float(keys, 0.0);
        let mut index = SortedIndex::new(side, Bounds::Float { lower, upper });
        index.insert(&keys(&stored, floats), 0);
        let found = probe_all(&index, &keys(&probes, floats), 3);
        check(&found, &probes, &stored, |probe, row| {
            let (Some(probe), Some(row)) = (probe.1, row.1) else { return true };
            let (l, r) = if left { (row, probe) } else { (probe, row) };
            // As a condition would compute it.
            lower.is_none_or(|lower| l >= r + lower) && upper.is_none_or(|upper| l <= r + upper)
        });
    }

    #[test]
    fn hash_index_finds_equal_prefixes(stored in rows(whole()), more in rows(whole()), probes in rows(whole()), limit in 1_usize..5) {
        let mut index = HashIndex::default();
        insert_in_two(&mut index, &keys(&stored, Ranges::Exact), &keys(&more, Ranges::Exact));
        let all: Vec<_> = stored.into_iter().chain(more).collect();
        let found = probe_all(&index, &keys(&probes, Ranges::Exact), limit);
        check(&found, &probes, &all, |_, _| true);
    }

    #[test]
    fn float_order_is_the_total_order(a: f64, b: f64) {
        prop_assert_eq!(float_order(a).cmp(&float_order(b)), a.total_cmp(&b));
    }
}
