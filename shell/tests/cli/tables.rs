//! Stored tables, materialized views and sinks at the binary.

use crate::{csv, fails, file, run, text};

const TABLE: &str = "CREATE TABLE t (id BIGINT NOT NULL, v BIGINT, s VARCHAR);
    INSERT INTO t VALUES (1, 10, 'a'), (2, NULL, 'b'), (2, NULL, 'b');";

/// What the last query of `sql` prints, after the table above.
fn last(sql: &str) -> String {
    csv(&format!("{TABLE} {sql}"))
}

#[test]
fn rows_are_inserted_changed_and_deleted() {
    assert_eq!(last("SELECT id, v, s FROM t"), "id,v,s\n1,10,a\n2,,b\n2,,b\n");
    let swapped = "CREATE TABLE p (a BIGINT, b BIGINT); INSERT INTO p VALUES (1, 2); UPDATE p SET a = b, b = a;";
    assert_eq!(csv(&format!("{swapped} SELECT a, b FROM p")), "a,b\n2,1\n");
    assert_eq!(last("INSERT INTO t (s, id) VALUES ('c', 3); SELECT * FROM t WHERE id = 3"), "id,v,s\n3,,c\n");
    assert_eq!(last("INSERT INTO t SELECT id + 10, v, s FROM t; SELECT COUNT(*) AS n FROM t"), "n\n6\n");
    assert_eq!(last("DELETE FROM t AS x WHERE x.s = 'b'; SELECT id FROM t"), "id\n1\n");
    assert_eq!(last("UPDATE t SET v = (SELECT MAX(id) FROM t) WHERE v IS NULL; SELECT SUM(v) AS n FROM t"), "n\n14\n");
    assert_eq!(last("DELETE FROM t; SELECT COUNT(*) AS n FROM t"), "n\n0\n");
    let defaults = "INSERT INTO t VALUES (4, DEFAULT, 'd'); UPDATE t SET s = DEFAULT WHERE id = 4; SELECT v, s FROM t WHERE id = 4";
    assert_eq!(last(defaults), "v,s\n,\n");
    fails(&["-c", &format!("{TABLE} DELETE t")], &["expected FROM", "^"]);
    assert_eq!(
        csv("CREATE TABLE c AS SELECT 1::BIGINT AS x; DROP TABLE c; CREATE TABLE c (y INT); SELECT * FROM c"),
        "y\n"
    );
}

#[test]
fn values_become_what_the_column_is_or_are_refused() {
    let numbers = "CREATE TABLE n (x BIGINT, d DOUBLE, day DATE);";
    let stored = csv(&format!("{numbers} INSERT INTO n VALUES (1.6, 2, '2020-02-29'); SELECT x, d, day FROM n"));
    assert_eq!(stored, "x,d,day\n2,2.0,2020-02-29\n");
    // Each row by itself, to the digit.
    for (column, values, stored) in [
        ("VARCHAR", "('007'), (5), (1.50), (NULL)", "007\n5\n1.50\n\"\"\n"),
        ("BIGINT", "(9007199254740993), (2.5), (-2.5)", "9007199254740993\n3\n-3\n"),
        (
            "DECIMAL(30,10)",
            "(12345678901234567890.123456789), (-1)",
            "12345678901234567890.1234567890\n-1.0000000000\n",
        ),
    ] {
        let sql = format!("CREATE TABLE e (x {column}); INSERT INTO e VALUES {values}; SELECT x FROM e");
        assert_eq!(csv(&sql), format!("x\n{stored}"), "{column}");
    }
    let twice = "CREATE TABLE w (a INT, b INT, c INT); INSERT INTO w SELECT 1, NULL, NULL; INSERT INTO w SELECT a, a, b FROM w;";
    assert_eq!(csv(&format!("{twice} SELECT a, a, c FROM w")), "a,a_1,c\n1,1,\n1,1,\n");
    for (sql, says) in [
        ("INSERT INTO n (x) VALUES (true)", "column 'x' is BIGINT, and the value is BOOLEAN"),
        ("INSERT INTO n (x) VALUES (DATE '2020-01-01')", "the value is DATE"),
        ("INSERT INTO n (day) VALUES (7)", "column 'day' is DATE"),
        ("INSERT INTO n (x) VALUES ('many')", "many"),
        ("INSERT INTO n VALUES (1)", "1 values for 3 columns"),
        ("INSERT INTO n (x, x) VALUES (1, 2)", "named twice"),
        ("INSERT INTO n (z) VALUES (1)", "there is no column 'z'"),
        ("UPDATE n SET x = 1, x = 2", "assigned twice"),
        ("INSERT INTO m VALUES (1)", "'m'"),
    ] {
        fails(&["-c", &format!("{numbers} {sql}")], &[says]);
    }
    fails(&["-c", &format!("{TABLE} INSERT INTO t VALUES (NULL, 1, 'x')")], &["23502", "'id'"]);
    fails(&["-c", &format!("{TABLE} UPDATE t SET id = NULL")], &["23502", "'id'"]);
}

#[test]
fn a_view_of_views_shows_what_was_written_before() {
    let views = "CREATE MATERIALIZED VIEW a AS SELECT s, COUNT(*) AS n FROM t GROUP BY s;
        CREATE MATERIALIZED VIEW b (most) AS SELECT MAX(n) FROM a;
        CREATE VIEW c AS SELECT most + 1 AS more FROM b;";
    assert_eq!(last(&format!("{views} SELECT most FROM b")), "most\n2\n");
    assert_eq!(last(&format!("{views} INSERT INTO t VALUES (9, 9, 'b'); SELECT more FROM c")), "more\n4\n");
    assert_eq!(last(&format!("{views} DELETE FROM t; SELECT COUNT(most) AS n FROM b")), "n\n0\n");
    fails(&["-c", &format!("{TABLE} {views} DROP TABLE t")], &["'a' uses table 't'", "DROP MATERIALIZED VIEW a"]);
    fails(&["-c", &format!("{TABLE} {views} INSERT INTO a VALUES ('x', 1)")], &["cannot be changed"]);
    fails(&["-c", &format!("{TABLE} {views} CREATE OR REPLACE TABLE t (x INT)")], &["follows table 't'"]);
}

#[test]
fn volatile_functions_do_not_reach_rows_that_change() {
    fails(
        &["-c", &format!("{TABLE} CREATE MATERIALIZED VIEW v AS SELECT id, random() AS r FROM t")],
        &["0A000", "random()"],
    );
    assert_eq!(last("SELECT COUNT(*) AS n FROM t WHERE random() < 2"), "n\n3\n");
}

#[test]
fn sinks_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["csv", "ndjson", "parquet"] {
        let path = folder.path().join(format!("out.{format}")).display().to_string();
        let sink = format!("CREATE SINK o WITH (path = '{path}'); INSERT INTO o SELECT id, v, s FROM t;");
        let back = format!("CREATE STREAM back (id BIGINT, v BIGINT, s VARCHAR) WITH (path = '{path}');");
        assert_eq!(
            last(&format!("{sink} {back} SELECT id, v, s FROM back")),
            "id,v,s\n1,10,a\n2,,b\n2,,b\n",
            "{format}"
        );
    }
}

#[test]
fn a_file_is_added_to_replaced_or_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "x.csv", b"x\n1");
    let sink = |options: &str| format!("CREATE SINK o WITH (path = '{path}'{options});");
    let contents = || std::fs::read_to_string(&path).unwrap();
    csv(&format!("{} INSERT INTO o SELECT 2 AS x", sink("")));
    assert_eq!(contents(), "x\n1\n2\n");
    fails(&["-c", &format!("{} INSERT INTO o SELECT 2 AS y", sink(""))], &["has other columns: x"]);
    fails(&["-c", &format!("{} INSERT INTO o SELECT 2 AS x", sink(", if_exists = 'fail'"))], &["is there already"]);
    let broken = "SELECT 1 / column1 AS x FROM (VALUES (0)) AS t";
    fails(&["-c", &format!("{} INSERT INTO o {broken}", sink(", if_exists = 'replace'"))], &["division by zero"]);
    assert_eq!(contents(), "x\n1\n2\n");
    csv(&format!("{} INSERT INTO o SELECT 3 AS y", sink(", if_exists = 'replace'")));
    assert_eq!(contents(), "y\n3\n");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn an_endless_query_fills_a_sink_until_its_time_is_over_or_it_has_enough() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("g.parquet").display().to_string();
    let stream = "CREATE STREAM g (id BIGINT) WITH (connector = 'generator', rows_per_second = 1000, column.id = 'sequence(1)');";
    let sink = format!("CREATE SINK o WITH (path = '{path}', if_exists = 'replace');");
    let output = run(&["-c", &format!("{stream} {sink} INSERT INTO o SELECT id FROM g"), "--for", "1s"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let back = format!("CREATE STREAM back WITH (path = '{path}'); SELECT COUNT(*) = MAX(id) AS whole FROM back");
    assert_eq!(csv(&back), "whole\ntrue\n");
    let enough = csv(&format!(
        "{stream} {sink} INSERT INTO o SELECT id FROM g LIMIT 7; CREATE STREAM back WITH (path = '{path}'); SELECT COUNT(*) AS n FROM back"
    ));
    assert_eq!(enough, "n\n7\n");
    let table = csv(&format!(
        "{stream} CREATE TABLE t AS SELECT id FROM g LIMIT 5; INSERT INTO t SELECT id FROM g LIMIT 2; SELECT COUNT(*) AS n FROM t"
    ));
    assert_eq!(table, "n\n7\n");
    fails(&["-c", &format!("{stream} CREATE TABLE t AS SELECT id FROM g")], &["never ends", "MATERIALIZED VIEW"]);
}

#[test]
fn a_table_follows_beside_a_stream_that_is_cut_by_rows() {
    let sql = "SET epoch_rows = 10;
        CREATE STREAM g (id BIGINT) WITH (connector = 'generator', rows = 1000, rows_per_second = 2000, column.id = 'sequence(1)');
        CREATE TABLE t (x BIGINT); INSERT INTO t VALUES (5);
        CREATE MATERIALIZED VIEW v AS SELECT COUNT(*) AS n FROM g JOIN t ON g.id <= t.x;
        INSERT INTO t VALUES (3);
        SELECT n FROM v; DELETE FROM t WHERE x = 5;";
    let output = csv(&format!("{sql} SELECT n FROM v"));
    assert_eq!(output, "n\n8\nn\n3\n");
}

#[test]
fn checking_runs_nothing_and_knows_what_was_defined() {
    let sql = "CREATE TABLE t AS SELECT 1 / column1 AS x FROM (VALUES (0)) AS z;
        CREATE MATERIALIZED VIEW v AS SELECT x + 1 AS y FROM t; INSERT INTO t VALUES (1); SELECT y FROM v";
    let output = run(&["-c", sql, "--check"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), ""), "{}", text(&output.stderr));
    fails(&["-c", &format!("{sql}; SELECT nope FROM v"), "--check"], &["'nope'"]);
}
