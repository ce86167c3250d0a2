//! Points in intervals over a grid of cells: the pairs are those of one cell, for every type of keys, also
//! for intervals that are empty, endless, or longer than the grid, and ends that are no numbers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::sample::select;
use thetis::{Connection, Driver};
use thetis_tests::{block_on, query, run_all};

/// Type of the keys, a condition, and whether it makes a grid.
const CASES: [(&str, &str, bool); 16] = [
    ("BIGINT", "l.x BETWEEN r.a AND r.b", true),
    ("INT", "r.a <= l.x AND l.x < r.b", true),
    ("BIGINT", "l.x - r.a >= -3 AND NOT l.x > r.b + 2", true),
    ("BIGINT", "2 * l.x > 2 * r.a AND 2 * r.b >= 2 * l.x", true),
    ("DECIMAL(12, 2)", "l.x BETWEEN r.a - 1 AND r.b", true),
    // One end is compared as a float, the other exactly.
    ("DECIMAL(12, 2)", "l.x BETWEEN r.a - 0.25 AND r.b", false),
    ("DECIMAL(12, 2)", "l.x >= r.a AND l.x <= r.b AND (l.id + r.id) % 3 <> 1", true),
    ("TIMESTAMP", "l.x BETWEEN r.a AND r.b + INTERVAL '2' SECOND", true),
    ("DATE", "l.x > r.a AND l.x <= r.b", true),
    ("DOUBLE", "l.x BETWEEN r.a AND r.b", true),
    ("DOUBLE", "l.x >= r.a - 0.5 AND l.x <= r.b + 0.25", true),
    // NaN is more than any number: on one side of both of these it is true with all of them.
    ("DOUBLE", "l.x - r.a >= 0 AND r.b - l.x >= 0", false),
    ("DOUBLE", "l.x + 0.0 BETWEEN r.a AND r.b", true),
    ("BIGINT", "l.x >= r.a AND l.x + 1 <= r.b", true),
    ("BIGINT", "l.x >= r.a AND -l.x <= r.b", false),
    ("BIGINT", "l.x >= r.a AND l.x >= r.b", false),
];

/// A number of the type, as it stands in a file.
fn text(data_type: &str, number: i64) -> String {
    match data_type {
        "DOUBLE" => format!("{}", number as f64 / 4.0),
        "DECIMAL(12, 2)" => format!("{}.{:02}", number / 4, number % 4 * 25),
        "TIMESTAMP" => format!("2026-11-30 {:02}:{:02}:{:02}", number / 3600, number / 60 % 60, number % 60),
        "DATE" => format!("20{:02}-{:02}-{:02}", 10 + number / 336, 1 + number / 28 % 12, 1 + number % 28),
        _ => number.to_string(),
    }
}

/// What is no number of the type, or an unusual one.
fn odd(data_type: &str, which: u8) -> &'static str {
    match (data_type, which) {
        ("DOUBLE", 0) => "NaN",
        ("DOUBLE", 1) => "inf",
        ("DOUBLE", 2) => "-inf",
        ("DOUBLE", 3) => "1e300",
        ("DOUBLE", 4) => "-0.0",
        ("BIGINT", 0) => "4611686018427387000",
        ("BIGINT", 1) => "-4611686018427387000",
        _ => "",
    }
}

/// A number, or what is none.
type Key = Result<i64, u8>;

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![12 => (0_i64..2400).prop_map(Ok), 1 => (0_u8..6).prop_map(Err)]
}

/// Where an interval begins, and its length.
fn interval() -> impl Strategy<Value = (Key, Key)> {
    let length = prop_oneof![12 => 0_i64..20, 2 => select(vec![-5, 0, 400, 2400])];
    prop_oneof![
        12 => ((0_i64..2400), length).prop_map(|(from, length)| (Ok(from), Ok((from + length).clamp(0, 4000)))),
        1 => (key(), key()),
    ]
}

fn file(folder: &tempfile::TempDir, name: &str, data_type: &str, rows: &[Vec<Key>]) -> String {
    let path = folder.path().join(format!("{name}.csv"));
    let columns = if name == "l" { ["x"].as_slice() } else { &["a", "b"] };
    let mut lines = format!("id,{}\n", columns.join(","));
    for (id, keys) in rows.iter().enumerate() {
        write!(lines, "{id}").unwrap();
        for key in keys {
            let key = key.map_or_else(|which| odd(data_type, which).to_owned(), |number| text(data_type, number));
            write!(lines, ",{key}").unwrap();
        }
        lines.push('\n');
    }
    std::fs::write(&path, lines).unwrap();
    let declared: Vec<String> = columns.iter().map(|column| format!("{column} {data_type}")).collect();
    format!(
        "CREATE OR REPLACE STREAM {name} (id BIGINT, {}) WITH (path = '{}', format = 'csv')",
        declared.join(", "),
        path.display()
    )
}

async fn pairs(connection: &Connection, sql: &str, settings: &str) -> String {
    run_all(connection, &[settings.to_owned()]).await;
    format!("{:?}", query(connection, sql).await.unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn a_grid_finds_the_points_of_all_intervals(
        points in prop::collection::vec(key(), 60..100), intervals in prop::collection::vec(interval(), 60..100),
        swapped: bool,
    ) {
        let points: Vec<Vec<Key>> = points.into_iter().map(|key| vec![key]).collect();
        let intervals: Vec<Vec<Key>> = intervals.into_iter().map(|(from, to)| vec![from, to]).collect();
        block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let connection = Driver::open("thetis:").unwrap();
            for (data_type, condition, is_grid) in CASES {
                let streams = [file(&folder, "l", data_type, &points), file(&folder, "r", data_type, &intervals)];
                run_all(&connection, &streams).await;
                let from = if swapped { "r JOIN l" } else { "l JOIN r" };
                let sql = format!("SELECT l.id AS a, r.id AS b FROM {from} ON {condition} ORDER BY a, b");
                let expected = pairs(&connection, &sql, "SET parallelism = 1").await;
                let found = pairs(&connection, &sql, "SET parallelism = 5").await;
                let plan = format!("{:?}", query(&connection, &format!("EXPLAIN {sql}")).await.unwrap());
                assert_eq!(plan.contains("layout: grid"), is_grid, "{data_type} {condition}: {plan}");
                assert_eq!(found, expected, "{data_type} {condition}");
            }
        });
    }
}
