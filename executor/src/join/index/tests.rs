use std::collections::BTreeSet;
use std::fmt::Debug;

use proptest::prelude::*;

use super::*;
use crate::join::keys::{Ranges, reach};

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

/// The ranges of some keys, and which of them are wild.
type Ranged = (Vec<Ranges>, Vec<bool>);

fn keys_of<K: Copy>(
    rows: &[Row<K>],
    prefixed: bool,
    stripes: Option<Stripes>,
    ranges: &impl Fn(Vec<K>) -> Ranged,
) -> Keys {
    let (ranges, wild) = ranges(rows.iter().map(|row| row.1).collect());
    let mut keys = Keys {
        rows: rows.len(),
        prefixes: prefixed.then(|| rows.iter().map(|row| row.0).collect()),
        ranges,
        null: rows.iter().map(|row| row.2).collect(),
        wild,
        ..Keys::default()
    };
    if let Some(stripes) = stripes {
        keys.stripe(stripes);
    }
    keys.sort();
    keys
}

/// Finds the candidates in small portions and holds them against all pairs. `matches` gets the
/// stored key and the probing one.
fn check<K: Copy + Debug>(
    case: &Case<K>,
    (mut index, stripes): (impl LocalIndex, Option<Stripes>),
    ranges: impl Fn(Vec<K>) -> Ranged,
    matches: impl Fn(K, K) -> bool,
) -> Result<(), TestCaseError> {
    let prefixed = case.prefixed && stripes.is_none();
    let split = case.split.min(case.stored.len());
    let (first, second) = case.stored.split_at(split);
    index.insert(&keys_of(first, prefixed, stripes, &ranges), 0);
    index.insert(&keys_of(second, prefixed, stripes, &ranges), split as u32);

    let probing = keys_of(&case.probing, prefixed, stripes, &ranges);
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
            let possible = !probe.2 && !stored.2 && (!prefixed || probe.0 == stored.0);
            let wild = ranges(vec![probe.1, stored.1]).1.contains(&true);
            let is_found = found.contains(&(p as u32, s as u32));
            prop_assert!(possible || wild || !is_found, "{:?} and {:?} cannot match", stored, probe);
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

fn exact_ranges(keys: Vec<Option<i64>>) -> Ranged {
    let wild = keys.iter().map(Option::is_none).collect();
    (vec![Ranges::Exact(keys.into_iter().map(Option::unwrap_or_default).collect())], wild)
}

fn float_ranges(keys: &[(f64, f64)], error: f64) -> Ranged {
    let key = |(value, off): &(f64, f64)| Some(value + off * error).filter(|key| key.is_finite());
    let wild = keys.iter().map(|pair| key(pair).is_none()).collect();
    (vec![Ranges::Float(keys.iter().map(|pair| key(pair).unwrap_or(0.0)).collect(), error)], wild)
}

fn within(left: i64, right: i64, lower: Option<i64>, upper: Option<i64>) -> bool {
    let difference = i128::from(left) - i128::from(right);
    lower.is_none_or(|lower| difference >= i128::from(lower))
        && upper.is_none_or(|upper| difference <= i128::from(upper))
}

proptest! {
    #[test]
    fn hash_finds_exactly_the_rows_of_the_same_prefix(case in cases(Just(()).boxed())) {
        check(&case, (HashIndex::default(), None), |_| (Vec::new(), Vec::new()), |(), ()| true)?;
    }

    #[test]
    fn exact_ranges_miss_nothing(
        case in cases(prop_oneof![7 => integer().prop_map(Some), 1 => Just(None)].boxed()),
        side in side(),
        lower in prop::option::of(integer()),
        upper in prop::option::of(integer()),
    ) {
        let index = SortedIndex::new(side, &[Bounds::Exact { lower, upper }], None);
        check(&case, (index, None), exact_ranges, |stored, probe| {
            let (Some(left), Some(right)) = oriented(side, stored, probe) else { return true };
            within(left, right, lower, upper)
        })?;
    }

    /// Two bands make a plane; a third range filters.
    #[test]
    fn several_ranges_find_exactly_what_is_in_reach(
        case in cases([-30_i64..30, -30_i64..30, -30_i64..30].boxed()),
        side in side(), low in -9_i64..9, high in -9_i64..9, y in -9_i64..9, to_y in -9_i64..9,
        least in prop::option::of(-9_i64..9), driver in 0_usize..3,
    ) {
        let exact = |lower, upper| Bounds::Exact { lower, upper };
        let bounds = [exact(Some(low), Some(high)), exact(Some(y), Some(to_y)), exact(least, None)];
        let ranges = |keys: Vec<[i64; 3]>| {
            ((0..3).map(|i| Ranges::Exact(keys.iter().map(|key| key[i]).collect())).collect(), Vec::new())
        };
        let matches = |stored, probe| {
            let (left, right): ([i64; 3], [i64; 3]) = oriented(side, stored, probe);
            within(left[0], right[0], Some(low), Some(high))
                && within(left[1], right[1], Some(y), Some(to_y))
                && within(left[2], right[2], least, None)
        };
        for stripes in [None, Stripes::of_band(&bounds[1])] {
            check(&case, (SortedIndex::new(side, &bounds, stripes), stripes), ranges, matches)?;
            // Nothing else is found: whole keys need no further look.
            let mut index = SortedIndex::new(side, &bounds, stripes);
            index.insert(&keys_of(&case.stored, false, stripes, &ranges), 0);
            if stripes.is_none() {
                index.drive_by(driver);
            }
            let (probing, mut found) = (keys_of(&case.probing, false, stripes, &ranges), Candidates::default());
            index.probe(&probing, &mut Cursor::default(), usize::MAX, &mut found);
            for (probe, stored) in found.probes.iter().zip(&found.stored) {
                prop_assert!(matches(case.stored[*stored as usize].1, case.probing[*probe as usize].1));
            }
        }
    }

    /// Intervals hold points, or begin before and end after others; whichever end makes the order.
    #[test]
    fn two_inequalities_find_exactly_what_is_in_reach(
        case in cases((integer(), integer()).boxed()), side in side(), drivers in (0_usize..2, 0_usize..2),
        bounds in (integer(), integer()), point: bool,
    ) {
        let bounds = [
            Bounds::Exact { lower: Some(bounds.0), upper: None },
            Bounds::Exact { lower: None, upper: Some(bounds.1) },
        ];
        let ranges = |keys: Vec<(i64, i64)>| {
            let second = keys.iter().map(|key| if point { key.0 } else { key.1 }).collect();
            (vec![Ranges::Exact(keys.iter().map(|key| key.0).collect()), Ranges::Exact(second)], Vec::new())
        };
        let mut index = SortedIndex::new(side, &bounds, None);
        let (first, second) = case.stored.split_at(case.split.min(case.stored.len()));
        let keys = |rows: &[Row<(i64, i64)>]| keys_of(rows, case.prefixed, None, &ranges);
        index.insert(&keys(first), 0);
        index.drive_by(drivers.0);
        index.insert(&keys(second), first.len() as u32);
        index.drive_by(drivers.1);
        let (probing, mut found, mut cursor) = (keys(&case.probing), BTreeSet::new(), Cursor::default());
        loop {
            let mut out = Candidates::default();
            let probe = index.probe(&probing, &mut cursor, case.limit, &mut out);
            found.extend(out.probes.iter().copied().zip(out.stored.iter().copied()));
            if probe == Probe::Done {
                break;
            }
        }
        let mut expected = BTreeSet::new();
        for (p, probe) in case.probing.iter().enumerate() {
            for (s, stored) in case.stored.iter().enumerate() {
                let in_reach = (0..2).all(|range| {
                    let [own, other] = [probe.1, stored.1].map(|key| if range == 0 || point { key.0 } else { key.1 });
                    let (low, high) = reach(&Ranges::Exact(vec![own]), 0, &bounds[range], side, 0.0);
                    (low..=high).contains(&other)
                });
                if in_reach && !probe.2 && !stored.2 && (!case.prefixed || probe.0 == stored.0) {
                    expected.insert((p as u32, s as u32));
                }
            }
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn stripes_of_floats_miss_nothing(
        case in cases((float_key(), float_key()).boxed()), side in side(),
        x in -3.0_f64..3.0, to_x in -3.0_f64..3.0, y in float(), span in prop_oneof![0.001_f64..4.0, Just(1e300)],
    ) {
        let bounds = [(x, to_x), (y, y + span)].map(|(lower, upper)| {
            Bounds::Float { lower: Some(lower), upper: Some(upper) }
        });
        let ranges = |keys: Vec<(f64, f64)>| {
            let (xs, mut wild) = float_ranges(&keys.iter().map(|key| (key.0, 0.0)).collect::<Vec<_>>(), 0.0);
            let (ys, wild_ys) = float_ranges(&keys.iter().map(|key| (key.1, 0.0)).collect::<Vec<_>>(), 0.0);
            // What is beyond all stripes is wild too.
            wild_ys.iter().zip(&keys).zip(&mut wild).for_each(|((y, key), wild)| *wild |= y | (key.1.abs() > 1e300_f64.min(span * 2e12)));
            ([xs, ys].into_iter().flatten().collect(), wild)
        };
        let stripes = Stripes::of_band(&bounds[1]);
        check(&case, (SortedIndex::new(side, &bounds, stripes), stripes), ranges, |stored, probe| {
            let (left, right): ((f64, f64), (f64, f64)) = oriented(side, stored, probe);
            let inside = |left: f64, right: f64, low: f64, high: f64| {
                !left.is_finite() || !right.is_finite() || (low..=high).contains(&(left - right))
            };
            inside(left.0, right.0, x, to_x) && inside(left.1, right.1, y, y + span)
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
        let bounds = Bounds::Float { lower, upper };
        let ranges = |keys: Vec<(f64, f64)>| float_ranges(&keys, error);
        let matches = |(stored, _), (probe, _)| {
            let (left, right): (f64, f64) = oriented(side, stored, probe);
            if !left.is_finite() || !right.is_finite() {
                return true;
            }
            lower.is_none_or(|b| left - right >= b || left >= right + b || right <= left - b)
                && upper.is_none_or(|b| left - right <= b || left <= right + b || right >= left - b)
        };
        check(&case, (SortedIndex::new(side, &[bounds], None), None), ranges, matches)?;
    }

    #[test]
    fn ordered_ranges_miss_nothing(
        case in cases(integer()), side in side(), lower: bool, upper: bool,
    ) {
        let index = SortedIndex::new(side, &[Bounds::Ordered { lower, upper }], None);
        check(&case, (index, None), |keys| (vec![Ranges::Ordered(keys)], Vec::new()), |stored, probe| {
            let (left, right) = oriented(side, stored, probe);
            (!lower || left >= right) && (!upper || left <= right)
        })?;
    }

    #[test]
    fn float_order_is_the_order_of_floats(a in float(), b in float()) {
        use crate::exact::float_order;
        prop_assert_eq!(float_order(a).cmp(&float_order(b)), a.total_cmp(&b));
    }
}

/// The order follows what rows ask for, back and forth.
#[test]
fn the_range_that_selects_most_makes_the_order() {
    let bounds = [Bounds::Exact { lower: Some(0), upper: None }; 2];
    let frame = |keys: &dyn Fn(i64) -> (i64, i64)| {
        let keys: Vec<Row<(i64, i64)>> = (0..500).map(|row| (0, keys(row), false)).collect();
        keys_of(&keys, false, None, &|keys: Vec<(i64, i64)>| {
            let of = |key: fn(&(i64, i64)) -> i64| Ranges::Exact(keys.iter().map(key).collect());
            (vec![of(|key| key.0), of(|key| key.1)], Vec::new())
        })
    };
    let mut index = SortedIndex::new(Side::Left, &bounds, None);
    index.insert(&frame(&|row| (row, row * 7 % 500)), 0);
    for (asked, driver) in [((0, 490), 1), ((490, 0), 0), ((250, 250), 0)] {
        let probing = frame(&|_| asked);
        (0..200).for_each(|_| index.observe(&probing));
        assert_eq!(index.driver, driver, "{asked:?}");
        let mut found = Candidates::default();
        index.probe(&probing, &mut Cursor::default(), usize::MAX, &mut found);
        let expected = (0..500).filter(|row| *row >= asked.0 && row * 7 % 500 >= asked.1).count();
        assert_eq!(found.len(), 500 * expected);
    }
}
