//! The aggregate functions in SQL: values computed by hand, what is refused, and the oracle at every
//! prefix.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write;

use thetis::{Connection, Driver};
use thetis_tests::prefixes::{Evaluated, Setup};
use thetis_tests::{Value, block_on, query};

/// Groups, a whole number, a decimal, a double, a boolean and a text.
const ROWS: &str = "(VALUES
    ('a', 2, 0.5, 1e0, true, 'x'), ('a', 4, 1.5, 2e0, true, 'z'), ('a', 4, 1.5, 2e0, NULL, 'y'), ('a', 4, NULL, 4e0, true, 'x'),
    ('a', 5, NULL, NULL, true, NULL), ('a', 5, NULL, NULL, true, 'z'), ('a', 7, NULL, NULL, true, 'it''s'), ('a', 9, NULL, NULL, true, ''),
    ('b', 3, 2.25, 'NaN'::DOUBLE, false, 'w'), ('b', NULL, NULL, NULL, true, NULL),
    ('c', NULL, NULL, NULL, NULL, NULL)) AS t(g, n, d, f, b, s)";

/// The rows that `select` gives over [`ROWS`], as text, in their order.
async fn rows_of(connection: &Connection, select: &str, rest: &str) -> Vec<String> {
    let sql = format!("SELECT {select} FROM {ROWS} {rest}");
    let rows = query(connection, &sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let text = |value: &Value| match value {
        Value::Null => "NULL".to_owned(),
        Value::Float(value) => value.to_string(),
        Value::Text(text) => text.clone(),
    };
    rows.iter().map(|row| row.iter().map(text).collect::<Vec<_>>().join("|")).collect()
}

async fn groups(connection: &Connection, select: &str) -> Vec<String> {
    rows_of(connection, select, "GROUP BY g ORDER BY g").await
}

#[test]
fn variances_and_deviations() {
    block_on(async {
        let connection = Driver::open("thetis:").unwrap();
        // 2 4 4 4 5 5 7 9: mean 5, squares around it 32.
        let of_whole = "VAR_POP(n), STDDEV_POP(n), VARIANCE(n) = 32e0 / 7, STDDEV(n) = sqrt(32e0 / 7)";
        assert_eq!(groups(&connection, of_whole).await, ["4|2|true|true", "0|0|NULL|NULL", "NULL|NULL|NULL|NULL"]);
        let names = "VAR(n) = VARIANCE(n) AND VAR_SAMP(n) = VAR(n) AND STDDEV_SAMP(n) = STDDEV(n)";
        assert_eq!(groups(&connection, names).await, ["true", "NULL", "NULL"]);
        // 0.5 1.5 1.5: squares around the mean 2/3; distinct: 0.5.
        let of_decimals = "VARIANCE(d) = 1e0 / 3, VARIANCE(DISTINCT d), VAR_POP(d) FILTER (WHERE n > 2)";
        assert_eq!(groups(&connection, of_decimals).await, ["true|0.5|0", "NULL|NULL|0", "NULL|NULL|NULL"]);
        // 1 2 2 4: mean 2.25, squares around it 4.75.
        let of_doubles = "VAR_POP(f), VAR_POP(f * 1e200), VAR_POP(1e15 + f), VAR_POP(DISTINCT f) = 14e0 / 9";
        assert_eq!(
            groups(&connection, of_doubles).await,
            ["1.1875|inf|1.1875|true", "NaN|NaN|NaN|false", "NULL|NULL|NULL|NULL"]
        );
        let of_nothing = "VARIANCE(n), STDDEV_POP(f), COUNT(*)";
        assert_eq!(rows_of(&connection, of_nothing, "WHERE g = 'd'").await, ["NULL|NULL|0"]);
        // Whole numbers that no DOUBLE tells apart.
        let far = "VAR_POP(9007199254740992 + n), VARIANCE(NULL)";
        assert_eq!(rows_of(&connection, far, "WHERE g = 'a'").await, ["4|NULL"]);
        assert_eq!(rows_of(&connection, "g", "GROUP BY g HAVING STDDEV_POP(n) < 1").await, ["b"]);
        assert_eq!(groups(&connection, "ROUND(STDDEV(n ORDER BY s), 3)").await, ["2.138", "NULL", "NULL"]);
    });
}

#[test]
fn booleans() {
    block_on(async {
        let connection = Driver::open("thetis:").unwrap();
        let select = "BOOL_AND(b), EVERY(b), BOOL_OR(b), BOOL_OR(DISTINCT NOT b)";
        assert_eq!(
            groups(&connection, select).await,
            ["true|true|true|false", "false|false|true|true", "NULL|NULL|NULL|NULL"]
        );
        let select = "BOOL_AND(n > 2), BOOL_AND(n > 2) FILTER (WHERE n <> 2), BOOL_OR(n > 9)";
        assert_eq!(groups(&connection, select).await, ["false|true|false", "true|true|false", "NULL|NULL|NULL"]);
        assert_eq!(rows_of(&connection, "g", "GROUP BY g HAVING NOT BOOL_AND(b)").await, ["b"]);
    });
}

#[test]
fn strings() {
    block_on(async {
        let connection = Driver::open("thetis:").unwrap();
        assert_eq!(groups(&connection, "STRING_AGG(s, ',')").await, [",it's,x,x,y,z,z", "w", "NULL"]);
        assert_eq!(groups(&connection, "LISTAGG(s, NULL)").await, ["it'sxxyzz", "w", "NULL"]);
        assert_eq!(
            groups(&connection, "STRING_AGG(s, ', ' ORDER BY n DESC, s DESC)").await,
            [", it's, z, z, y, x, x", "w", "NULL"]
        );
        // Equal keys: in the order of the values.
        assert_eq!(groups(&connection, "STRING_AGG(s, '' ORDER BY f NULLS FIRST)").await, ["it'szxyzx", "w", "NULL"]);
        assert_eq!(
            groups(&connection, "STRING_AGG(DISTINCT s, '-' ORDER BY s DESC)").await,
            ["z-y-x-it's-", "w", "NULL"]
        );
        let select = "STRING_AGG(s, '' || '+') FILTER (WHERE n BETWEEN 4 AND 5), STRING_AGG(CAST(n AS VARCHAR), '<')";
        assert_eq!(groups(&connection, select).await, ["x+y+z+z|2<4<4<4<5<5<7<9", "NULL|3", "NULL|NULL"]);
        assert_eq!(rows_of(&connection, "g", "GROUP BY g HAVING STRING_AGG(s, '') LIKE 'w%'").await, ["b"]);
        let length = "CHAR_LENGTH(STRING_AGG(s, ',')) AS l";
        assert_eq!(rows_of(&connection, length, "WHERE g = 'a'").await, ["15"]);
    });
}

#[test]
fn counts_of_tuples() {
    block_on(async {
        let connection = Driver::open("thetis:").unwrap();
        let select =
            "COUNT(n, b), COUNT(DISTINCT n, b), COUNT(1), COUNT(NULL), SUM(n ORDER BY s), MAX(n ORDER BY s DESC)";
        assert_eq!(groups(&connection, select).await, ["7|5|8|0|40|9", "1|1|2|0|3|3", "0|0|1|0|NULL|NULL"]);
    });
}

#[test]
fn what_is_refused_says_what_works() {
    block_on(async {
        let connection = Driver::open("thetis:").unwrap();
        for (select, says) in [
            ("COUNT(DISTINCT *)", "COUNT(DISTINCT a, b)"),
            ("MEDIAN(n)", "STRING_AGG are supported"),
            ("CORR(n, f)", "SUM(x * y)"),
            ("ARRAY_AGG(s)", "STRING_AGG(x, ',')"),
            ("LISTAGG(s, ',') WITHIN GROUP (ORDER BY n)", "ORDER BY y"),
            ("STRING_AGG(s, s)", "STRING_AGG(x || delimiter, '')"),
            ("STRING_AGG(DISTINCT s, ',' ORDER BY n)", "subquery with GROUP BY"),
        ] {
            let error = query(&connection, &format!("SELECT {select} FROM {ROWS}")).await.unwrap_err();
            assert_eq!(error.sqlstate(), "0A000", "{select}: {error}");
            assert!(error.hint().is_some_and(|hint| hint.contains(says)), "{select}: {error:?}");
        }
        for select in ["STDDEV(s)", "BOOL_AND(n, b)", "VARIANCE()", "STRING_AGG(s)"] {
            assert!(query(&connection, &format!("SELECT {select} FROM {ROWS}")).await.is_err(), "{select}");
        }
    });
}

#[test]
fn explain_shows_the_calls_as_they_are_run() {
    block_on(async {
        let connection = Driver::open("thetis:").unwrap();
        let select = "STRING_AGG(s, ' ''' ORDER BY n DESC, f) FILTER (WHERE b), VARIANCE(DISTINCT n), EVERY(DISTINCT b), COUNT(n, s)";
        let text = query(&connection, &format!("EXPLAIN SELECT {select} FROM {ROWS}")).await.unwrap();
        let text = format!("{text:?}");
        for call in
            ["string_agg(s, ' ''' ORDER BY n DESC, f) FILTER (b)", "var(DISTINCT n)", "bool_and(b)", "count(n, s)"]
        {
            assert!(text.contains(call), "{text} does not show {call}");
        }
    });
}

#[test]
fn every_prefix_is_what_the_oracle_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let mut lines = String::from("g,n,f,d,s\n");
    let mut state = 1_u64;
    for _ in 0..240 {
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let row = [
            next(5).to_string(),
            (next(40) as i64 - 20).to_string(),
            format!("{}e{}", next(1000), next(4)),
            format!("{}.{:02}", next(50), next(100)),
            format!("s{}", next(12)),
        ];
        // The empty field is NULL.
        let row = row.map(|value| if next(8) == 0 { String::new() } else { value });
        writeln!(lines, "{}", row.join(",")).unwrap();
    }
    std::fs::write(&path, lines).unwrap();
    let define = format!(
        "CREATE STREAM t (g BIGINT, n BIGINT, f DOUBLE, d DECIMAL(10, 2), s VARCHAR) WITH (path = '{}')",
        path.display()
    );
    let queries = [
        "SELECT g, VARIANCE(n), STDDEV_POP(d), STDDEV(f), VAR_POP(DISTINCT n), VARIANCE(f) FILTER (WHERE n > 0) FROM t GROUP BY g",
        "SELECT BOOL_AND(n < 19), BOOL_OR(n > 19), STRING_AGG(s, ',' ORDER BY f DESC, n), COUNT(DISTINCT g, s) FROM t",
        "SELECT STRING_AGG(DISTINCT s, '; ' ORDER BY s DESC) FILTER (WHERE n <> 3), STRING_AGG(s, ''), g FROM t GROUP BY g",
        // Over aggregates, whose rows are deleted and inserted.
        "SELECT c % 3, STDDEV(total), VAR_POP(DISTINCT c), BOOL_AND(total > 0), STRING_AGG(s, '|' ORDER BY total), COUNT(*)
         FROM (SELECT s, COUNT(*) AS c, SUM(n) AS total FROM t GROUP BY s) AS u GROUP BY c % 3",
        "SELECT a.g, b.names FROM t AS a JOIN (SELECT g, STRING_AGG(s, '') AS names, STDDEV_POP(n) AS spread FROM t GROUP BY g) AS b
         ON a.g = b.g AND a.n > b.spread + 5 WHERE a.n > 15",
    ];
    block_on(async {
        for setting in ["SET parallelism = 1", "SET parallelism = 3"] {
            let setup = Setup::new(std::slice::from_ref(&define), &[setting], 30).await;
            for sql in queries {
                setup.check(sql, Evaluated::Optimized).await;
            }
        }
    });
}
