//! Bands of floats in a grid of cells: the pairs are those of one cell, also of NaN, infinities and
//! numbers at which a band is less than their rounding.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use proptest::prelude::*;
use thetis::{Connection, Driver};
use thetis_tests::{block_on, query, run_all};

/// Conditions, and whether they make a grid: where NaN or an infinity may match a number, they do not.
const CONDITIONS: [(&str, bool); 9] = [
    ("l.x BETWEEN r.x - 0.3 AND r.x + 0.2", true),
    ("l.x - r.x <= 0.3 AND l.x - r.x >= -0.2", true),
    ("abs(l.x - r.x) < 0.25", true),
    ("(l.x - r.x) * (l.x - r.x) + (l.y - r.y) * (l.y - r.y) <= 0.1", true),
    ("sqrt(power(l.x - r.x, 2) + power(l.y - r.y, 2)) < 0.4", true),
    ("l.x <= r.x + 0.2 AND l.x - r.x > -0.2", false),
    ("r.x >= l.x - 0.2 AND l.x - r.x >= -0.2", false),
    ("NOT l.x > r.x + 0.2 AND NOT r.x > l.x + 0.2", true),
    ("power(-(l.x - r.x), 2) <= 0.1", true),
];

fn float() -> impl Strategy<Value = &'static str> {
    let common =
        vec!["0.1", "0.2", "0.30000000000000004", "0.3", "-0.1", "0", "-0.0", "1.5", "1.7", "1.9", "3.2", "3.3"];
    let special =
        vec!["'NaN'", "0.0 / 0.0", "'Infinity'", "'-Infinity'", "1e300", "-1e300", "1e17", "1.7e308", "5e-324", "NULL"];
    prop_oneof![3 => prop::sample::select(common), 1 => prop::sample::select(special)]
}

async fn fill(connection: &Connection, table: &str, rows: &[(&'static str, &'static str)]) {
    let values: Vec<String> =
        (0..).zip(rows).map(|(id, (x, y))| format!("({id}, CAST({x} AS DOUBLE), CAST({y} AS DOUBLE))")).collect();
    let create = format!("CREATE TABLE {table} (id BIGINT, x DOUBLE, y DOUBLE)");
    run_all(connection, &[create, format!("INSERT INTO {table} VALUES {}", values.join(", "))]).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_grid_finds_the_pairs_of_one_cell(
        left in prop::collection::vec((float(), float()), 1..30), right in prop::collection::vec((float(), float()), 1..30),
    ) {
        block_on(async {
            let connection = Driver::open("thetis:").unwrap();
            fill(&connection, "l", &left).await;
            fill(&connection, "r", &right).await;
            for (condition, is_grid) in CONDITIONS {
                let sql = format!("SELECT l.id AS a, r.id AS b FROM l JOIN r ON {condition} ORDER BY a, b");
                run_all(&connection, &["SET matrix = '1x1'".to_owned()]).await;
                let expected = format!("{:?}", query(&connection, &sql).await.unwrap());
                run_all(&connection, &["RESET matrix".to_owned(), "SET parallelism = 5".to_owned()]).await;
                let plan = format!("{:?}", query(&connection, &format!("EXPLAIN {sql}")).await.unwrap());
                assert_eq!(plan.contains("layout: grid"), is_grid, "{condition}: {plan}");
                assert_eq!(format!("{:?}", query(&connection, &sql).await.unwrap()), expected, "{condition}");
            }
        });
    }
}
