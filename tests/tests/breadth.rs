//! Set operations, IN and EXISTS, and joins of several relations over small random tables with
//! NULLs and duplicates: after every epoch they are what the query says as it was written.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use thetis_parser::ExplainFormat;
use thetis_planner::Output;
use thetis_tests::prefixes::{Evaluated, Setup};
use thetis_tests::{Value, block_on, query};

/// Values of columns k, v and w; w is a text.
type Row = (Option<u8>, Option<u8>, Option<u8>);

#[derive(Debug, Clone)]
struct Tables([Vec<Row>; 4]);

const NAMES: [&str; 4] = ["r", "s", "t", "u"];

fn tables() -> impl Strategy<Value = Tables> {
    let value = |most: u8| prop_oneof![1 => Just(None), 6 => (0..most).prop_map(Some)];
    let table = |most: usize| vec((value(4), value(3), value(2)), 0..most);
    // Without NULLs, NOT IN has more to say.
    let whole = vec((0..4_u8, 0..3_u8, 0..2_u8).prop_map(|(k, v, w)| (Some(k), Some(v), Some(w))), 0..9);
    (table(10), prop_oneof![table(10), whole], table(7), table(5)).prop_map(|(r, s, t, u)| Tables([r, s, t, u]))
}

fn define(folder: &Path, tables: &Tables) -> Vec<String> {
    let number = |value: &Option<u8>| value.map_or_else(String::new, |value| value.to_string());
    let text = |value: &Option<u8>| value.map_or("", |value| ["a", "b"][usize::from(value)]).to_owned();
    let definitions = NAMES.iter().zip(&tables.0).map(|(name, rows)| {
        let mut csv = "id,k,v,w\n".to_owned();
        for (id, (k, v, w)) in rows.iter().enumerate() {
            writeln!(csv, "{id},{},{},{}", number(k), number(v), text(w)).unwrap();
        }
        let path = folder.join(format!("{name}.csv"));
        std::fs::write(&path, csv).unwrap();
        format!("CREATE STREAM {name} (id BIGINT, k BIGINT, v BIGINT, w VARCHAR) WITH (path = '{}')", path.display())
    });
    definitions.collect()
}

/// Checks all queries over random tables.
fn check(cases: u32, queries: &[&str]) {
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(cases) });
    let checked = runner.run(&tables(), |tables| {
        let folder = tempfile::tempdir().unwrap();
        let definitions = define(folder.path(), &tables);
        block_on(async {
            for setting in ["SET parallelism = 1", "SET parallelism = 3"] {
                let setup = Setup::new(&definitions, &[setting], 3).await;
                for sql in queries {
                    setup.check(sql, Evaluated::Written).await;
                }
            }
        });
        Ok(())
    });
    checked.unwrap();
}

#[test]
fn set_operations_count_rows() {
    check(
        12,
        &[
            "SELECT k, v FROM r INTERSECT SELECT k, v FROM s",
            "SELECT k, v FROM r INTERSECT ALL SELECT k, v FROM s",
            "SELECT k, v FROM r EXCEPT SELECT k, v FROM s",
            "SELECT k, v FROM r EXCEPT ALL SELECT k, v FROM s",
            "SELECT w FROM r EXCEPT ALL SELECT w FROM r",
            "SELECT DISTINCT k FROM r INTERSECT ALL SELECT k FROM s",
            "SELECT DISTINCT k FROM r EXCEPT ALL SELECT k FROM s",
            // Names and types of the left side, types of both.
            "SELECT k AS a, w AS b FROM r EXCEPT SELECT v AS c, w AS d FROM s",
            "SELECT k, 1 AS one FROM r INTERSECT SELECT k, 1.0 AS one FROM s",
            "SELECT k FROM r EXCEPT ALL SELECT v / 2.0 FROM s",
            "SELECT k, NULL AS n FROM r INTERSECT SELECT v, k FROM s",
            // INTERSECT binds closer than UNION and EXCEPT.
            "SELECT k FROM r UNION SELECT v FROM s INTERSECT SELECT v FROM t",
            "SELECT k FROM r EXCEPT SELECT v FROM s UNION ALL SELECT v FROM t",
            "(SELECT k FROM r UNION ALL SELECT k FROM s) EXCEPT ALL SELECT v FROM t",
            "SELECT k FROM r EXCEPT ALL (SELECT v FROM s INTERSECT ALL SELECT v FROM t)",
            "SELECT k FROM r EXCEPT SELECT k FROM s EXCEPT SELECT v FROM t",
            "SELECT k FROM r INTERSECT SELECT k FROM s INTERSECT ALL SELECT k FROM t",
            // Nothing on a side.
            "SELECT k FROM r WHERE k > 100 INTERSECT SELECT k FROM s",
            "SELECT k FROM r EXCEPT ALL SELECT k FROM s WHERE false",
            "SELECT k FROM r WHERE false EXCEPT SELECT k FROM s",
            "SELECT 1 AS x INTERSECT ALL SELECT 1",
            // Inputs and users that take rows back.
            "SELECT k, COUNT(*) AS n FROM r GROUP BY k EXCEPT SELECT k, COUNT(*) FROM s GROUP BY k",
            "SELECT k, COUNT(*) AS n FROM (SELECT k FROM r EXCEPT ALL SELECT v FROM s) AS q GROUP BY k",
            "SELECT q.k, t.v FROM (SELECT k FROM r INTERSECT ALL SELECT k FROM s) AS q JOIN t ON q.k <= t.v",
            "SELECT a.k FROM r AS a JOIN (SELECT k, v FROM s EXCEPT SELECT k, v FROM t) AS b ON a.k = b.k AND a.v <> b.v",
        ],
    );
}

#[test]
fn exists_and_in_are_semi_joins() {
    check(
        12,
        &[
            "SELECT id FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.k = r.k)",
            "SELECT id FROM r WHERE EXISTS (SELECT * FROM s WHERE s.k = r.k AND s.v = r.v AND s.v > 0 AND r.v < 2 LIMIT 1)",
            "SELECT id, w FROM r WHERE k IN (SELECT v FROM s)",
            "SELECT id FROM r WHERE k + 1 IN (SELECT v + 2 FROM s WHERE s.w = r.w)",
            "SELECT id FROM r WHERE k IN (SELECT k FROM s) AND v IN (SELECT v FROM t)",
            "SELECT id FROM r WHERE 1 IN (SELECT v FROM s)",
            "SELECT id FROM r WHERE v / 2.0 IN (SELECT k FROM s)",
            "SELECT id FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.k IS NOT DISTINCT FROM r.k)",
            "SELECT id FROM r WHERE EXISTS (SELECT 1 FROM s)",
            "SELECT id FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.k = 2 LIMIT 5)",
            "SELECT id FROM r WHERE k IN (SELECT k FROM s GROUP BY k HAVING COUNT(*) > 1)",
            "SELECT id FROM r WHERE EXISTS (SELECT s.v FROM s WHERE s.k = r.k GROUP BY s.v HAVING COUNT(*) > 1)",
            "SELECT id FROM r WHERE k IN (SELECT k FROM s EXCEPT SELECT v FROM t)",
            "SELECT id FROM r WHERE k IN (SELECT k FROM s WHERE v IN (SELECT v FROM t WHERE t.k = s.k))",
            "SELECT k, COUNT(*) AS n FROM r GROUP BY k HAVING COUNT(*) IN (SELECT v FROM s)",
            "SELECT a.id, b.id FROM r AS a JOIN t AS b ON a.v < b.v WHERE EXISTS (SELECT 1 FROM s WHERE s.k = a.k AND s.v = b.v)",
            "SELECT id FROM r AS a WHERE EXISTS (SELECT 1 FROM r AS b WHERE b.k = a.k AND b.v = a.v AND b.id > 2)",
            "SELECT q.id FROM (SELECT id, k FROM r WHERE v IN (SELECT v FROM s)) AS q JOIN t ON q.k <= t.k",
        ],
    );
}

#[test]
fn not_exists_and_not_in_are_anti_joins() {
    check(
        16,
        &[
            "SELECT id FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.k = r.k)",
            "SELECT id FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.k = r.k AND s.v = r.v AND s.v > 0 AND r.v < 2)",
            "SELECT id FROM r WHERE NOT EXISTS (SELECT 1 FROM s)",
            "SELECT id FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.k = 3)",
            "SELECT id FROM r WHERE k NOT IN (SELECT v FROM s)",
            "SELECT id FROM r WHERE NOT (k IN (SELECT v FROM s WHERE k > 1))",
            "SELECT id FROM r WHERE k NOT IN (SELECT v FROM s WHERE false)",
            "SELECT id FROM r WHERE k NOT IN (SELECT v FROM s WHERE s.w = r.w)",
            "SELECT id FROM r WHERE k + v NOT IN (SELECT k FROM s WHERE k IS NOT NULL)",
            "SELECT id FROM r WHERE 1 NOT IN (SELECT v FROM s)",
            "SELECT id FROM r WHERE 1 NOT IN (SELECT k FROM s WHERE s.k = r.k)",
            "SELECT id FROM r WHERE NULL NOT IN (SELECT v FROM s)",
            "SELECT id FROM r WHERE k NOT IN (SELECT k FROM s) AND v NOT IN (SELECT v FROM t)",
            "SELECT id FROM r WHERE k NOT IN (SELECT k FROM s EXCEPT ALL SELECT k FROM t)",
            "SELECT k, COUNT(*) AS n FROM r GROUP BY k HAVING COUNT(*) NOT IN (SELECT v FROM s)",
            "SELECT w, COUNT(*) AS n, MAX(v) AS m FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.k = r.k) GROUP BY w",
            "SELECT q.id, t.id FROM (SELECT id, k FROM r WHERE k NOT IN (SELECT k FROM s)) AS q JOIN t ON q.k < t.k",
            "SELECT k FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.k = r.k) UNION ALL SELECT k FROM s",
        ],
    );
}

#[test]
fn marks_stand_in_any_condition() {
    check(
        12,
        &[
            "SELECT id FROM r WHERE k IN (SELECT k FROM s) OR v > 1",
            "SELECT id FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.k = r.k) OR k IN (SELECT v FROM t)",
            "SELECT id FROM r WHERE v = 0 OR NOT EXISTS (SELECT 1 FROM s WHERE s.k = r.k)",
            "SELECT id FROM r WHERE v = 0 OR EXISTS (SELECT 1 FROM s)",
            "SELECT id FROM r WHERE v = 0 OR k NOT IN (SELECT k FROM s)",
            "SELECT id FROM r WHERE NOT (v = 0 OR k IN (SELECT k FROM s))",
            "SELECT id FROM r WHERE NOT (v = 0 AND k NOT IN (SELECT k FROM s WHERE s.w = r.w))",
            "SELECT id FROM r WHERE (k IN (SELECT k FROM s)) IS NULL",
            "SELECT id FROM r WHERE (k NOT IN (SELECT k FROM s)) IS NOT TRUE",
            "SELECT id FROM r WHERE CASE WHEN k IN (SELECT k FROM s) THEN v = 1 ELSE w = 'a' END",
            "SELECT id FROM r WHERE (k IN (SELECT k FROM s)) = (v IN (SELECT v FROM t))",
        ],
    );
}

#[test]
fn joins_of_several_relations_in_any_order() {
    check(
        10,
        &[
            "SELECT r.id, s.id, t.id FROM r, s, t WHERE r.k < t.k AND t.v = s.v",
            "SELECT * FROM r, s, t WHERE r.k = t.k AND t.v <= s.v AND s.w = 'a'",
            "SELECT r.id, s.id, t.id FROM r, s, t WHERE r.k + s.k = t.k AND r.v = 1",
            "SELECT a.id, b.id, c.id FROM r AS a, r AS b, r AS c WHERE a.k < c.k AND c.v = b.v",
            "SELECT r.id, u.k FROM r, s, t, u WHERE r.k = u.k AND u.v < s.v AND s.k = t.k AND t.w = r.w",
            "SELECT k, COUNT(*) AS n FROM r JOIN s USING (k) CROSS JOIN (SELECT v AS a, w AS b FROM t) AS t
           JOIN (SELECT v AS a, w AS c FROM u) AS u ON r.v < u.a AND u.c = t.b GROUP BY k",
            "SELECT * FROM t, u, r JOIN s USING (k, v) WHERE u.k < s.id AND t.v = r.v",
            "SELECT q.k, p.k, u.id FROM (SELECT r.k, s.v FROM r JOIN s ON r.v < s.v) AS q, t, u,
           (SELECT r.k FROM r JOIN s ON r.k = s.k) AS p WHERE q.v = t.v AND t.k = p.k AND u.v = q.k",
            "SELECT r.id, s.id, u.id FROM r, s, t, u WHERE r.k = t.k AND s.v = t.v",
            "SELECT r.id, t.id FROM r, t, s WHERE r.v > (SELECT AVG(v) FROM s) AND s.k = t.k AND r.k < s.k",
            "SELECT r.id, g.n, t.id FROM r, (SELECT k, COUNT(*) AS n FROM s GROUP BY k) AS g, t
           WHERE r.k < t.k AND t.v = g.n AND r.v = 1",
            "SELECT r.id, s.id, t.id FROM r, s, t WHERE r.k < t.k AND t.v = s.v AND s.k IN (SELECT k FROM u)
           AND NOT EXISTS (SELECT 1 FROM u WHERE u.v = r.v)",
            // A subquery whose columns have each other's names.
            "SELECT * FROM (SELECT r.v AS k, r.k AS v FROM r JOIN s ON s.id < s.v) AS r JOIN t ON t.id = r.k",
        ],
    );
}

/// Streams with a few rows each.
async fn small(folder: &Path) -> Setup {
    let row = |k, v, w| (Some(k), Some(v), Some(w));
    let r = vec![row(1, 1, 0), row(1, 1, 0), row(2, 0, 1), (None, Some(2), None), row(3, 1, 0)];
    let s = vec![row(1, 1, 0), row(2, 2, 1), (None, Some(2), None), (None, Some(1), None)];
    let t = vec![row(1, 2, 0), row(3, 1, 1)];
    let definitions = define(folder, &Tables([r, s, t, vec![row(0, 0, 0)]]));
    Setup::new(&definitions, &["SET parallelism = 2"], 2).await
}

fn values(rows: &[&[&str]]) -> Vec<Vec<Value>> {
    let value = |text: &&str| if text.is_empty() { Value::Null } else { Value::Text((*text).to_owned()) };
    rows.iter().map(|row| row.iter().map(value).collect()).collect()
}

#[test]
fn results_in_order() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let setup = small(folder.path()).await;
        let answer = async |sql: &str| query(setup.connection(), sql).await.unwrap();
        let sql = "SELECT k AS a FROM r INTERSECT ALL SELECT k FROM s ORDER BY a DESC NULLS LAST";
        assert_eq!(answer(sql).await, values(&[&["2"], &["1"], &[""]]));
        let sql = "SELECT k AS a FROM r EXCEPT ALL SELECT k FROM s ORDER BY a LIMIT 1";
        assert_eq!(answer(sql).await, values(&[&["1"]]));
        let sql = "SELECT k, id FROM r WHERE k NOT IN (SELECT k FROM t) ORDER BY id OFFSET 0";
        assert_eq!(answer(sql).await, values(&[&["2", "2"]]));
        let sql = "SELECT id FROM r LEFT SEMI JOIN s ON r.k = s.k ORDER BY id";
        assert_eq!(answer(sql).await, values(&[&["0"], &["1"], &["2"]]));
        let sql = "SELECT id FROM r LEFT ANTI JOIN s ON r.k = s.k AND r.v = s.v ORDER BY id";
        assert_eq!(answer(sql).await, values(&[&["2"], &["3"], &["4"]]));
        let sql = "SELECT s.id FROM r RIGHT SEMI JOIN s ON r.k = s.k ORDER BY s.id";
        assert_eq!(answer(sql).await, values(&[&["0"], &["1"]]));
        let sql = "SELECT s.id FROM r RIGHT ANTI JOIN s ON r.k = s.k ORDER BY s.id";
        assert_eq!(answer(sql).await, values(&[&["2"], &["3"]]));
    });
}

#[test]
fn what_is_not_an_equality_is_refused_with_what_works() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let setup = small(folder.path()).await;
        for (sql, says, hint) in [
            ("SELECT id FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.k < r.k)", "theta EXISTS", "SELECT DISTINCT"),
            ("SELECT id FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.k = r.k AND s.v < r.v)", "theta", "DISTINCT"),
            ("SELECT id FROM r WHERE k IN (SELECT k FROM s WHERE s.v <> r.v)", "theta EXISTS", "SELECT DISTINCT"),
            ("SELECT id FROM r WHERE EXISTS (SELECT MAX(v) FROM s WHERE s.k = r.k)", "without GROUP BY", "GROUP BY"),
            ("SELECT k IN (SELECT k FROM s) AS hit FROM r", "in this place", "WHERE"),
            ("SELECT r.id FROM r LEFT JOIN s ON r.k = s.k", "outer joins", "inner join"),
        ] {
            let error = query(setup.connection(), sql).await.unwrap_err();
            assert_eq!(error.sqlstate(), "0A000", "{sql}: {error}");
            let text = format!("{error} {}", error.hint().unwrap_or_default());
            assert!(text.contains(says) && text.contains(hint), "{sql}: {text}");
        }
    });
}

#[test]
fn a_badly_written_order_has_no_cross_product() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let setup = small(folder.path()).await;
        for sql in [
            "SELECT r.id FROM r, s, t WHERE r.k < t.k AND t.v < s.v",
            "SELECT r.id FROM r CROSS JOIN s JOIN t ON r.k = t.k AND s.v = t.v",
            "SELECT r.id FROM r, s, t, u WHERE r.k < u.k AND s.v > t.v AND u.v <> s.v",
            "SELECT r.id FROM r, s, (SELECT k, MAX(v) AS m FROM t GROUP BY k) AS g WHERE r.k < g.k AND g.m < s.v",
        ] {
            let plan = setup.plan(sql, Output::Result);
            let text = plan.explain(true, ExplainFormat::Text, None);
            assert!(!text.contains("cross product"), "{sql}\n{text}");
        }
        let plan = setup.plan("SELECT r.id FROM r, s, t WHERE r.k < s.k", Output::Result);
        assert!(plan.explain(true, ExplainFormat::Text, None).contains("notice: the query has a cross product"));
    });
}
