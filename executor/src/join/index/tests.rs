use std::fmt::Debug;

use proptest::prelude::*;

use super::*;

/// Prefix, range key, whether the row has a NULL key.
type Row<K> = (u64, K, bool);

#[derive(Debug, Clone)]
struct Case<K> {
    stored: Vec<Row<K>>,
    probing: Vec<Row<K>>,
    /// The stored rows are inserted in two parts.
    split: usize,
    prefixed: bool,
    limit: usize,
}

fn cases<K: Debug + Clone + 'static>(key: BoxedStrategy<K>) -> BoxedStrategy<Case<K>> {
    let prefix = prop_oneof![Just(0_u64), Just(1_u64), Just(u64::MAX)];
    let row = (prefix, key, prop::bool::weighted(0.1)).boxed();
    let stored = prop::collection::vec(row.clone(), 0..25);
    let probing = prop::collection::vec(row, 0..12);
    (stored, probing, 0_usize..25, any::<bool>(), 1_usize..6)
        .prop_map(|(stored, probing, split, prefixed, limit)| Case { stored, probing, split, prefixed, limit })
        .boxed()
}

fn keys_of<K: Copy>(rows: &[Row<K>], prefixed: bool, ranges: &impl Fn(Vec<K>) -> Option<Ranges>) -> Keys {
    Keys {
        rows: rows.len(),
        prefixes: prefixed.then(|| rows.iter().map(|row| row.0).collect()),
        ranges: ranges(rows.iter().map(|row| row.1).collect()),
        null: rows.iter().map(|row| row.2).collect(),
    }
}

/// Finds the candidates in small portions and holds them against all pairs. `matches` gets the
/// stored key and the probing one.
fn check<K: Copy + Debug>(
    case: &Case<K>,
    mut index: impl LocalIndex,
    ranges: impl Fn(Vec<K>) -> Option<Ranges>,
    matches: impl Fn(K, K) -> bool,
) -> Result<(), TestCaseError> {
    let split = case.split.min(case.stored.len());
    let (first, second) = case.stored.split_at(split);
    index.insert(&keys_of(first, case.prefixed, &ranges), 0);
    index.insert(&keys_of(second, case.prefixed, &ranges), split as u32);

    let probing = keys_of(&case.probing, case.prefixed, &ranges);
    let mut found: BTreeSet<(u32, u32)> = BTreeSet::new();
    let mut cursor = Cursor::default();
    loop {
        let mut out = Candidates::default();
        let probe = index.probe(&probing, &mut cursor, case.limit, &mut out);
        prop_assert_eq!(out.probes.len(), out.stored.len());
        prop_assert!(out.len() <= case.limit);
        for pair in out.probes.iter().copied().zip(out.stored.iter().copied()) {
            prop_assert!(found.insert(pair), "{:?} found twice", pair);
        }
        if probe == Probe::Done {
            break;
        }
        prop_assert_eq!(out.len(), case.limit);
    }

    for (p, probe) in case.probing.iter().enumerate() {
        for (s, stored) in case.stored.iter().enumerate() {
            let possible = !probe.2 && !stored.2 && (!case.prefixed || probe.0 == stored.0);
            let is_found = found.contains(&(p as u32, s as u32));
            prop_assert!(possible || !is_found, "{:?} and {:?} cannot match", stored, probe);
            let must = possible && matches(stored.1, probe.1);
            prop_assert!(!must || is_found, "stored {:?} is not found by {:?}", stored, probe);
        }
    }
    // Nothing but pairs of existing rows.
    let existing = |(p, s): &(u32, u32)| (*p as usize) < case.probing.len() && (*s as usize) < case.stored.len();
    prop_assert!(found.iter().all(existing));
    Ok(())
}

/// (left, right) of a stored and a probing key.
fn oriented<K>(stored_side: Side, stored: K, probe: K) -> (K, K) {
    if stored_side == Side::Left { (stored, probe) } else { (probe, stored) }
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Left), Just(Side::Right)]
}

fn integer() -> BoxedStrategy<i64> {
    let extreme = prop_oneof![
        Just(i64::MIN),
        Just(i64::MIN + 1),
        Just(i64::MIN + 5),
        Just(i64::MAX - 5),
        Just(i64::MAX - 1),
        Just(i64::MAX),
    ];
    prop_oneof![5 => -8_i64..8, 1 => extreme].boxed()
}

fn float() -> BoxedStrategy<f64> {
    let special = prop_oneof![
        Just(0.0),
        Just(-0.0),
        Just(f64::MAX),
        Just(f64::MIN),
        Just(f64::MIN_POSITIVE),
        Just(f64::from_bits(1)),
        Just(1e16),
        Just(1e16 + 2.0),
    ];
    let tenth = (-60_i32..60).prop_map(|n| f64::from(n) * 0.1);
    prop_oneof![5 => tenth, 2 => -5.0_f64..5.0, 2 => special, 1 => prop::num::f64::NORMAL].boxed()
}

/// Also what is wild.
fn float_key() -> BoxedStrategy<f64> {
    let wild = prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY)];
    prop_oneof![8 => float(), 1 => wild].boxed()
}

proptest! {
    #[test]
    fn hash_finds_exactly_the_rows_of_the_same_prefix(case in cases(Just(()).boxed())) {
        check(&case, HashIndex::default(), |_| None, |(), ()| true)?;
    }

    #[test]
    fn exact_ranges_miss_nothing(
        case in cases(prop_oneof![7 => integer().prop_map(Some), 1 => Just(None)].boxed()),
        side in side(),
        lower in prop::option::of(integer()),
        upper in prop::option::of(integer()),
    ) {
        let index = SortedIndex::new(side, Bounds::Exact { lower, upper });
        check(&case, index, |keys| Some(Ranges::Exact(keys)), |stored, probe| {
            let (Some(left), Some(right)) = oriented(side, stored, probe) else { return true };
            let difference = i128::from(left) - i128::from(right);
            lower.is_none_or(|lower| difference >= i128::from(lower))
                && upper.is_none_or(|upper| difference <= i128::from(upper))
        })?;
    }

    /// Keys are off by up to the error; the condition may be spelled in several ways, which round
    /// differently.
    #[test]
    fn float_ranges_miss_nothing(
        case in cases((float_key(), -0.99_f64..0.99).boxed()),
        side in side(),
        lower in prop::option::of(float()),
        upper in prop::option::of(float()),
        error in prop_oneof![2 => Just(0.0), 1 => 0.0_f64..2.0],
    ) {
        let index = SortedIndex::new(side, Bounds::Float { lower, upper });
        let ranges = |keys: Vec<(f64, f64)>| {
            let key = |(value, off): (f64, f64)| Some(value + off * error).filter(|key| key.is_finite());
            Some(Ranges::Float(keys.into_iter().map(key).collect(), error))
        };
        check(&case, index, ranges, |(stored, _), (probe, _)| {
            let (left, right) = oriented(side, stored, probe);
            if !left.is_finite() || !right.is_finite() {
                return true;
            }
            lower.is_none_or(|b| left - right >= b || left >= right + b || right <= left - b)
                && upper.is_none_or(|b| left - right <= b || left <= right + b || right >= left - b)
        })?;
    }

    #[test]
    fn ordered_ranges_miss_nothing(
        case in cases(integer()), side in side(), lower: bool, upper: bool,
    ) {
        let index = SortedIndex::new(side, Bounds::Ordered { lower, upper });
        check(&case, index, |keys| Some(Ranges::Ordered(keys)), |stored, probe| {
            let (left, right) = oriented(side, stored, probe);
            (!lower || left >= right) && (!upper || left <= right)
        })?;
    }

    #[test]
    fn float_order_is_the_order_of_floats(a in float(), b in float()) {
        use crate::join::keys::float_order;
        prop_assert_eq!(float_order(a).cmp(&float_order(b)), a.total_cmp(&b));
    }
}
