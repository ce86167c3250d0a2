use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef, TimeUnit};
use proptest::prelude::*;
use thetis_parser::{Statement, ast, parse_statement};

use super::*;
use crate::catalog::{Conflict, Relation, Sample, Stream, Volume};
use crate::connector::SourceSpec;
use crate::physical::{Join, OperatorKind};
use crate::{Catalog, Output, Settings};

fn columns() -> SchemaRef {
    use arrow::datatypes::DataType as T;
    let columns = [
        ("id", T::Int64),
        ("k", T::Int64),
        ("a", T::Int32),
        ("x", T::Float64),
        ("y", T::Float64),
        ("lat", T::Float64),
        ("lon", T::Float64),
        ("ts", T::Timestamp(TimeUnit::Nanosecond, None)),
        ("name", T::Utf8),
        ("price", T::Decimal128(10, 2)),
        ("flag", T::Boolean),
        ("f", T::Float32),
        ("d", T::Date32),
    ];
    let fields: Vec<_> = columns.into_iter().map(|(name, data_type)| Field::new(name, data_type, true)).collect();
    Arc::new(Schema::new(fields))
}

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    for name in ["r", "s"] {
        let stream = Stream {
            name: name.to_owned(),
            columns: columns(),
            watermark: None,
            spec: SourceSpec::Values(Vec::new()),
            volume: Volume::default(),
            sample: Sample::default(),
        };
        catalog.add(&ast::Ident::new(name), Relation::Stream(Arc::new(stream)), Conflict::Fail).unwrap();
    }
    catalog
}

/// The join of r and s on `condition`; `None` if the optimiser saw that it is never true.
fn find_join(condition: &str) -> Option<Join> {
    let from = if condition.is_empty() { "r CROSS JOIN s".to_owned() } else { format!("r JOIN s ON {condition}") };
    let Statement::Query(query) = parse_statement(&format!("SELECT COUNT(*) FROM {from}")).unwrap() else {
        panic!("{from} is not a query");
    };
    let plan = crate::plan(&query, &catalog(), &Settings::new(2), Output::Result)
        .unwrap_or_else(|error| panic!("{condition}: {error}"));
    plan.dag.operators.into_iter().find_map(|operator| match operator.kind {
        OperatorKind::Join(join) => Some(*join),
        _ => None,
    })
}

fn join_on(condition: &str) -> Join {
    find_join(condition).unwrap_or_else(|| panic!("no join for {condition}"))
}

/// What the bounds of a join's range have to be.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// No range.
    Nothing,
    /// Exactly these.
    Bounds(Bounds),
    /// On both ends at least this far, and not further than the second number.
    Around(f64, f64),
}

const fn exact(lower: Option<i64>, upper: Option<i64>) -> Expected {
    Expected::Bounds(Bounds::Exact { lower, upper })
}

const fn float(lower: Option<f64>, upper: Option<f64>) -> Expected {
    Expected::Bounds(Bounds::Float { lower, upper })
}

const fn ordered(lower: bool, upper: bool) -> Expected {
    Expected::Bounds(Bounds::Ordered { lower, upper })
}

/// Both ends of a band.
fn ends(bounds: Bounds) -> Option<(f64, f64)> {
    match bounds {
        Bounds::Exact { lower, upper } => Some((lower? as f64, upper? as f64)),
        Bounds::Float { lower, upper } => lower.zip(upper),
        Bounds::Ordered { .. } => None,
    }
}

/// Checks a condition's class, its number of equality keys and its bounds.
fn check(condition: &str, class: &str, equality: usize, expected: Expected) {
    let join = join_on(condition);
    assert_eq!(join.report.class.to_string(), class, "class of {condition}");
    assert_eq!(join.equality.len(), equality, "equality keys of {condition}");
    let bounds = join.ranges.first().map(|range| range.bounds);
    match expected {
        Expected::Nothing => assert_eq!(bounds, None, "bounds of {condition}"),
        Expected::Bounds(expected) => assert_eq!(bounds, Some(expected), "bounds of {condition}"),
        Expected::Around(least, most) => {
            let found = bounds.and_then(ends);
            let (lower, upper) = found.unwrap_or_else(|| panic!("{condition} has no band: {bounds:?}"));
            let within = least..=most;
            assert!(within.contains(&-lower) && within.contains(&upper), "{condition}: {bounds:?}, not in {within:?}");
        }
    }
}

fn check_all(table: &[(&str, &str, Expected)]) {
    for (condition, class, expected) in table {
        check(condition, class, 0, *expected);
    }
}

#[test]
fn spelling_and_order_of_a_band_do_not_matter() {
    let five = exact(Some(-5), Some(5));
    check_all(&[
        ("r.k BETWEEN s.k - 5 AND s.k + 5", "band", five),
        ("s.k BETWEEN r.k - 5 AND r.k + 5", "band", five),
        ("r.k >= s.k - 5 AND r.k <= s.k + 5", "band", five),
        ("s.k <= r.k + 5 AND s.k >= r.k - 5", "band", five),
        ("s.k >= r.k - 5 AND s.k <= r.k + 5", "band", five),
        ("NOT (r.k < s.k - 5) AND r.k - s.k <= 5", "band", five),
        ("NOT (r.k < s.k - 5 OR r.k > s.k + 5)", "band", five),
        ("r.k - 5 <= s.k AND r.k + 5 >= s.k", "band", five),
        ("r.k - s.k BETWEEN -5 AND 5", "band", five),
        ("s.k - r.k BETWEEN -5 AND 5", "band", five),
        ("5 >= r.k - s.k AND -5 <= r.k - s.k", "band", five),
        ("r.k + 1 >= s.k - 4 AND 2 + s.k >= r.k - 3", "band", five),
        // Wider by the rounding that a float bound might have.
        ("abs(r.k - s.k) <= 5", "band", Expected::Around(5.0, 7.0)),
        ("abs(s.k - r.k) <= 5", "band", Expected::Around(5.0, 7.0)),
        ("5 >= abs(r.k - s.k)", "band", Expected::Around(5.0, 7.0)),
    ]);
}

#[test]
fn bands_may_be_uneven_or_given_twice() {
    check_all(&[
        ("r.k BETWEEN s.k AND s.k + 10", "band", exact(Some(0), Some(10))),
        ("s.k BETWEEN r.k AND r.k + 10", "band", exact(Some(-10), Some(0))),
        ("r.k >= s.k - 5 AND r.k <= s.k + 5 AND r.k <= s.k + 3", "band", exact(Some(-5), Some(3))),
        ("r.k - s.k = 3", "band", exact(Some(3), Some(3))),
        ("r.k + s.k BETWEEN 0 AND 9", "band", exact(Some(0), Some(9))),
        ("r.x BETWEEN s.x - 1.5 AND s.x + 1.5", "band", float(Some(-1.5), Some(1.5))),
        ("s.x - r.x >= -1.5 AND s.x <= r.x + 1.5", "band", float(Some(-1.5), Some(1.5))),
        ("abs(r.x - s.x) < 2", "band", Expected::Around(2.0, 2.000_001)),
    ]);
}

#[test]
fn one_inequality_bounds_one_end() {
    let at_most = exact(None, Some(0));
    check_all(&[
        ("r.k < s.k", "inequality", exact(None, Some(-1))),
        ("s.k > r.k", "inequality", exact(None, Some(-1))),
        ("r.k <= s.k", "inequality", at_most),
        ("NOT (r.k > s.k)", "inequality", at_most),
        ("r.k > s.k", "inequality", exact(Some(1), None)),
        ("r.a <= s.k + 5", "inequality", exact(None, Some(5))),
        ("r.x < s.x", "inequality", float(None, Some(0.0))),
        // A condition on one side alone is a filter before the join.
        ("r.k <= s.k AND r.a > 3", "inequality", at_most),
    ]);
}

#[test]
fn text_has_an_order_and_no_difference() {
    check_all(&[
        ("r.name < s.name", "inequality", ordered(false, true)),
        ("s.name >= r.name", "inequality", ordered(false, true)),
        ("r.name > s.name", "inequality", ordered(true, false)),
        ("s.name <= r.name", "inequality", ordered(true, false)),
    ]);
}

#[test]
fn times_are_bounded_in_nanoseconds() {
    const MINUTES: i64 = 5 * 60 * 1_000_000_000;
    const HOUR: i64 = 3_600 * 1_000_000_000;
    let five = exact(Some(-MINUTES), Some(MINUTES));
    check_all(&[
        ("r.ts BETWEEN s.ts - INTERVAL '5 minutes' AND s.ts + INTERVAL '5 minutes'", "band", five),
        ("s.ts <= r.ts + INTERVAL '5 minutes' AND r.ts - INTERVAL '300 seconds' <= s.ts", "band", five),
        ("r.ts - s.ts <= INTERVAL '5 minutes' AND s.ts - r.ts <= INTERVAL '5 minutes'", "band", five),
        ("r.ts < s.ts", "inequality", exact(None, Some(-1))),
        // Where clocks are changed, a day may have 25 hours.
        ("r.ts <= s.ts + INTERVAL '1 day'", "inequality", exact(None, Some(25 * HOUR))),
    ]);
}

#[test]
fn decimals_are_whole_numbers_at_their_scale() {
    check_all(&[
        ("r.price < s.price", "inequality", exact(None, Some(-1))),
        ("r.price - s.price <= 5", "inequality", exact(None, Some(500))),
        (
            "r.price BETWEEN s.price - CAST('0.50' AS DECIMAL(10, 2)) AND s.price + CAST('0.50' AS DECIMAL(10, 2))",
            "band",
            exact(Some(-50), Some(50)),
        ),
        // A literal with a point is a DOUBLE, and the comparison is cast back to decimals.
        ("r.price BETWEEN s.price - 0.5 AND s.price + 0.5", "band", Expected::Around(0.5, 0.500_001)),
        ("r.price + 0.25 >= s.price - 0.25 AND r.price <= 0.5 + s.price", "band", Expected::Around(0.5, 0.500_001)),
        ("r.k BETWEEN s.k - 0.5 AND s.k + 0.5", "band", Expected::Around(0.5, 0.500_001)),
        ("abs(r.price - s.price) <= 0.5", "band", Expected::Around(50.0, 53.0)),
    ]);
}

#[test]
fn distances_bound_each_coordinate() {
    let float = Expected::Around(10.0, 10.000_001);
    let whole = Expected::Around(10.0, 12.0);
    check_all(&[
        ("(r.x - s.x) * (r.x - s.x) + (r.y - s.y) * (r.y - s.y) <= 100.0", "distance", float),
        ("power(r.x - s.x, 2) + power(r.y - s.y, 2) < 100", "distance", float),
        ("sqrt(power(r.x - s.x, 2) + power(r.y - s.y, 2)) < 10", "distance", float),
        ("10 >= sqrt((s.x - r.x) * (s.x - r.x) + (s.y - r.y) * (s.y - r.y))", "distance", float),
        ("(r.k - s.k) * (r.k - s.k) + (r.id - s.id) * (r.id - s.id) <= 100", "distance", whole),
        ("sqrt(power(r.k - s.k, 2) + power(r.id - s.id, 2)) <= 10", "distance", whole),
    ]);
}

/// 5 km are this many degrees of latitude on a sphere of radius 6371 km.
const FIVE_KM: f64 = 5.0 / 6_371.0 * 180.0 / std::f64::consts::PI;

fn check_great_circle(condition: &str) {
    check(condition, "great-circle distance", 0, Expected::Around(FIVE_KM, FIVE_KM * 1.01));
    let range = join_on(condition).ranges.remove(0);
    for limit in [range.left.limit, range.right.limit] {
        assert!(limit.is_some_and(|limit| (limit - 90.0).abs() < 1e-6), "{condition}: limit {limit:?}");
    }
}

#[test]
fn haversine_bounds_the_latitude() {
    check_great_circle(
        "2 * 6371 * asin(sqrt(power(sin(radians(s.lat - r.lat) / 2), 2) + cos(radians(r.lat)) \
         * cos(radians(s.lat)) * power(sin(radians(s.lon - r.lon) / 2), 2))) <= 5",
    );
}

#[test]
fn the_law_of_cosines_bounds_the_latitude() {
    check_great_circle(
        "6371 * acos(least(1.0, sin(radians(r.lat)) * sin(radians(s.lat)) + cos(radians(r.lat)) \
         * cos(radians(s.lat)) * cos(radians(s.lon) - radians(r.lon)))) <= 5",
    );
}

#[test]
fn the_rest_is_evaluated_on_every_pair() {
    check_all(&[
        ("", "none (cross product)", Expected::Nothing),
        ("r.k <> s.k", "residual", Expected::Nothing),
        ("r.k < s.k OR r.a > s.a", "residual", Expected::Nothing),
        ("r.k * s.k <= 100", "residual", Expected::Nothing),
        ("abs(r.k - s.k) > 5", "residual", Expected::Nothing),
        ("r.k NOT BETWEEN s.k - 5 AND s.k + 5", "residual", Expected::Nothing),
    ]);
}

#[test]
fn classes_are_combined() {
    let five = exact(Some(-5), Some(5));
    check("r.id = s.id", "equality", 1, Expected::Nothing);
    check("r.k = s.k + 3", "equality", 1, Expected::Nothing);
    check("s.id = r.id AND r.a = s.a", "equality", 2, Expected::Nothing);
    check("r.id = s.id AND r.k BETWEEN s.k - 5 AND s.k + 5", "equality + band", 1, five);
    check("s.k <= r.k + 5 AND s.id = r.id AND s.k >= r.k - 5", "equality + band", 1, five);
    check("r.k <> s.k AND r.id = s.id", "equality + residual", 1, Expected::Nothing);
    // The band is more selective, wherever it stands.
    check("r.id < s.id AND r.k BETWEEN s.k - 5 AND s.k + 5", "band + inequality", 0, five);
}

#[test]
fn an_atom_may_have_several_terms_of_a_side() {
    check("r.k - s.k < r.id + 10", "inequality", 0, exact(None, Some(9)));
    let range = join_on("r.k - s.k < r.id + 10").ranges.remove(0);
    assert_eq!((range.left.terms.len(), range.right.terms.len()), (2, 1));
}

/// Decimal division cuts off digits: 0.99 / 1000000 is 0 at a scale of 6.
#[test]
fn decimal_division_is_bounded_generously() {
    let bounds = join_on("(r.price - s.price) / 1000000 <= 0").ranges.first().map(|range| range.bounds);
    assert!(bounds.is_none_or(|bounds| admits(bounds, 99)), "{bounds:?}");
}

/// 16777216 - 0.95 is 16777215 as a REAL.
#[test]
fn real_differences_are_bounded_generously() {
    let bounds = join_on("r.f - s.f <= 16777215").ranges.first().map(|range| range.bounds);
    let admitted = bounds.is_none_or(
        |bounds| matches!(bounds, Bounds::Float { upper, .. } if upper.is_none_or(|upper| upper >= 16_777_215.05)),
    );
    assert!(admitted, "{bounds:?}");
}

/// A date plus 36 hours is the next day, if it is a date.
#[test]
fn dates_with_hours_are_bounded_generously() {
    const DAY: i64 = 86_400_000_000_000;
    let bounds = join_on("r.d >= s.d + INTERVAL '36 hours'").ranges.first().map(|range| range.bounds);
    assert!(bounds.is_none_or(|bounds| admits(bounds, DAY)), "{bounds:?}");
}

/// Whether the bounds let a pair with this difference of keys through.
fn admits(bounds: Bounds, difference: i64) -> bool {
    match bounds {
        Bounds::Exact { lower, upper } => {
            lower.is_none_or(|lower| lower <= difference) && upper.is_none_or(|upper| difference <= upper)
        }
        Bounds::Float { lower, upper } => {
            let difference = difference as f64;
            lower.is_none_or(|lower| lower <= difference) && upper.is_none_or(|upper| difference <= upper)
        }
        Bounds::Ordered { lower, upper } => (!lower || difference >= 0) && (!upper || difference <= 0),
    }
}

/// A key over plain columns, for a row with this k and an id of 0.
fn key_value(key: &IndexKey, schema: &SchemaRef, k: i64) -> i64 {
    let value = |term: &Term| {
        let ScalarExpr::Column(column) = &term.expr else {
            panic!("{:?} is not a column", term.expr);
        };
        match schema.field(*column as usize).name().as_str() {
            "k" => term.factor * k,
            "id" => 0,
            other => panic!("the condition has no column {other}"),
        }
    };
    key.terms.iter().map(value).sum()
}

/// A condition over r.k and s.k as text, and as a function of their values.
#[derive(Debug, Clone, Copy)]
enum Atom {
    /// `r.k + c1 op s.k + c2`
    Compare { flipped: bool, negated: bool, op: &'static str, c1: i64, c2: i64 },
    /// `r.k [NOT] BETWEEN s.k + c1 AND s.k + c2`
    Between { negated: bool, c1: i64, c2: i64 },
    /// `abs(r.k - s.k + c1) <= c2`
    Abs { flipped: bool, c1: i64, c2: i64 },
    /// The squared distance to (s.k, s.id) is at most `c2`.
    Distance { c1: i64, c2: i64 },
}

impl Atom {
    fn text(self) -> String {
        match self {
            Self::Compare { flipped, negated, op, c1, c2 } => {
                let (left, right) = if flipped { ("s", "r") } else { ("r", "s") };
                let not = if negated { "NOT " } else { "" };
                format!("{not}({left}.k + ({c1}) {op} {right}.k + ({c2}))")
            }
            Self::Between { negated, c1, c2 } => {
                let not = if negated { "NOT " } else { "" };
                format!("(r.k {not}BETWEEN s.k + ({c1}) AND s.k + ({c2}))")
            }
            Self::Abs { flipped, c1, c2 } => {
                let (left, right) = if flipped { ("s", "r") } else { ("r", "s") };
                format!("abs({left}.k - {right}.k + ({c1})) <= ({c2})")
            }
            Self::Distance { c1, c2 } => {
                let k = format!("(r.k - s.k + ({c1}))");
                format!("{k} * {k} + (r.id - s.id) * (r.id - s.id) <= ({c2})")
            }
        }
    }

    fn holds(self, rk: i64, sk: i64) -> bool {
        match self {
            Self::Compare { flipped, negated, op, c1, c2 } => {
                let (left, right) = if flipped { (sk + c1, rk + c2) } else { (rk + c1, sk + c2) };
                let holds = match op {
                    "<" => left < right,
                    "<=" => left <= right,
                    ">" => left > right,
                    ">=" => left >= right,
                    "=" => left == right,
                    _ => left != right,
                };
                holds != negated
            }
            Self::Between { negated, c1, c2 } => (sk + c1 <= rk && rk <= sk + c2) != negated,
            Self::Abs { flipped, c1, c2 } => {
                let difference = if flipped { sk - rk } else { rk - sk };
                (difference + c1).abs() <= c2
            }
            Self::Distance { c1, c2 } => (rk - sk + c1).pow(2) <= c2,
        }
    }
}

fn any_atom() -> impl Strategy<Value = Atom> {
    let op = || prop_oneof![Just("<"), Just("<="), Just(">"), Just(">="), Just("="), Just("<>")];
    prop_oneof![
        4 => (any::<bool>(), any::<bool>(), op(), -20_i64..=20, -20_i64..=20).prop_map(
            |(flipped, negated, op, c1, c2)| Atom::Compare { flipped, negated, op, c1, c2 }
        ),
        1 => (any::<bool>(), -20_i64..=20, -20_i64..=20)
            .prop_map(|(negated, c1, c2)| Atom::Between { negated, c1, c2 }),
        1 => (any::<bool>(), -20_i64..=20, -5_i64..=20)
            .prop_map(|(flipped, c1, c2)| Atom::Abs { flipped, c1, c2 }),
        1 => (-20_i64..=20, -5_i64..=400).prop_map(|(c1, c2)| Atom::Distance { c1, c2 }),
    ]
}

proptest! {
    #[test]
    fn bounds_admit_every_pair_that_meets_the_condition(
        atoms in prop::collection::vec(any_atom(), 1..4), sk in -1_000_i64..1_000,
    ) {
        let condition = atoms.iter().map(|atom| atom.text()).collect::<Vec<_>>().join(" AND ");
        let join = find_join(&condition);
        for rk in sk - 70..=sk + 70 {
            let holds = atoms.iter().all(|atom| atom.holds(rk, sk));
            let Some(join) = &join else {
                prop_assert!(!holds, "{condition}: no join, but ({rk}, {sk}) meets it");
                continue;
            };
            let inside = |range: &Range| {
                let left = key_value(&range.left, &join.inputs[0], rk);
                let right = key_value(&range.right, &join.inputs[1], sk);
                admits(range.bounds, left - right)
            };
            let admitted = join.ranges.iter().all(inside);
            prop_assert!(admitted || !holds, "{condition}: ({rk}, {sk}) is not in {:?}", join.ranges);
            let says_all = join.is_covered() && join.equality.is_empty();
            prop_assert!(holds || !admitted || !says_all, "{condition}: ({rk}, {sk}) is in {:?}", join.ranges);
        }
    }
}
