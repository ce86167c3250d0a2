//! The binary: formats, exit codes, and what it says about bad SQL and bad data.

use std::io::Write;
use std::process::Stdio;

use crate::{file, interrupted, run, text, thetis};

/// The SQL fails with exit code 1, and says all of this.
fn fails(sql: &str, says: &[&str]) {
    crate::fails(&["-c", sql], says);
}

fn stream(path: &str, columns: &str, options: &str) -> String {
    format!("CREATE STREAM t ({columns}) WITH (path = '{path}', format = 'csv'{options});")
}

#[test]
fn formats() {
    let sql = "SELECT column1 AS n, column2 AS s FROM (VALUES (1, 'a'), (2, NULL)) AS t";
    assert_eq!(text(&run(&["-c", sql, "--format", "csv"]).stdout), "n,s\n1,a\n2,\n");
    assert_eq!(text(&run(&["-c", sql, "--format", "ndjson"]).stdout), "{\"n\":1,\"s\":\"a\"}\n{\"n\":2,\"s\":null}\n");
    assert_eq!(text(&run(&["-c", sql]).stdout), " n | s\n---+------\n 1 | a\n 2 | NULL\n(2 rows)\n");
    let changes = run(&["-c", sql, "--format", "csv", "--changes"]);
    assert_eq!(text(&changes.stdout), "epoch,op,n,s\n1,+,1,a\n1,+,2,\n");
}

#[test]
fn files_commands_and_standard_input_run_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let second = file(folder.path(), "second.sql", b"SELECT :x AS b");
    let args = ["submit", "-c", "SELECT 1 AS a;", &second, "-c", "SELECT 3 AS c", "-v", "x=2", "--format", "csv"];
    assert_eq!(text(&run(&args).stdout), "a\n1\nb\n2\nc\n3\n");
    let mut child =
        thetis().args(["submit", "-", "--format=csv"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"SELECT 7 AS x").unwrap();
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), "x\n7\n");
}

#[test]
fn usage_errors_exit_with_2() {
    assert_eq!(run(&["--no-such-flag"]).status.code(), Some(2));
    assert_eq!(run(&["submit"]).status.code(), Some(2));
}

#[test]
fn sql_errors_point_at_the_text() {
    fails("SELEC 1", &["42601", "LINE 1: SELEC 1\n        ^", "HINT: did you mean SELECT?"]);
    fails("SELECT nosuch FROM (VALUES (1)) AS t(novel)", &["42703", "nosuch", "^"]);
    fails("SELECT 1 FROM nowhere", &["42P01", "nowhere"]);
    fails("SELECT 'abc", &["never closed"]);
    fails("SET paralelism = 2", &["did you mean parallelism?", "^"]);
    fails("CREATE STREAM t (a BIGINT) WITH (pth = 'x')", &["did you mean path?", "^"]);
    fails("CREATE STREAM t (a BIGNIT) WITH (path = 'x')", &["BIGINT", "^"]);
    fails(&format!("SELECT {}1{}", "(".repeat(10_000), ")".repeat(10_000)), &["nested"]);
    fails("SELECT 9223372036854775807 + 1", &["verflow"]);
    fails(
        "SELECT x FROM (VALUES (1)) a(x) WHERE x < (SELECT y FROM (VALUES (2), (3)) b(y))",
        &["0A000", "several rows"],
    );
    fails("SELECT now()", &["0A000", "now"]);
    fails("SELECT row_number() OVER () FROM (VALUES (1)) a(x)", &["0A000", "window"]);
    fails("SELECT 1 FROM (VALUES (1)) a(x) LEFT JOIN (VALUES (2)) b(y) ON x < y", &["0A000", "HINT"]);
}

#[test]
fn data_errors_name_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fails(&stream("/no/such/file.csv", "a BIGINT", ""), &["no such file"]);
    let good = file(folder, "good.csv", b"a,b\n1,0\n9223372036854775807,1\n");
    fails(&stream(&good, "c BIGINT", ""), &["no column 'c'", "a, b"]);
    let define = stream(&good, "a BIGINT, b BIGINT", "");
    fails(&format!("{define} SELECT a / b FROM t"), &["22012", "division by zero", "stream t, row 1"]);
    fails(&format!("{define} SELECT a + b FROM t"), &["22003", "overflow", "row 2"]);
    fails(&format!("{define} SELECT SUM(a) FROM t"), &["22003", "SUM"]);
    let broken = file(folder, "broken.csv", b"a,b\n1,2\n3\n4,x\n5,6\n");
    fails(&format!("{} SELECT a, b FROM t", stream(&broken, "a BIGINT, b BIGINT", "")), &["broken.csv, line 3"]);
    let skip = stream(&broken, "a BIGINT, b BIGINT", ", on_error = 'skip'");
    let output = run(&["-c", &format!("{skip} SELECT SUM(a + b) AS n FROM t"), "--format", "csv"]);
    assert_eq!(text(&output.stdout), "n\n14\n");
    assert!(text(&output.stderr).contains("2 records"));
    let open = file(folder, "open.csv", b"a,b\n1,2\n\"3,4\n5,6\n");
    fails(
        &format!("{} SELECT a FROM t", stream(&open, "a VARCHAR, b VARCHAR", "")),
        &["open.csv, line 3", "never closed"],
    );
    let mut long = b"a,b\n".to_vec();
    long.resize(100 << 20, b'x');
    let long = file(folder, "long.csv", &long);
    fails(
        &format!("{} SELECT a FROM t", stream(&long, "a VARCHAR, b VARCHAR", "")),
        &["long.csv, line 2", "longer than"],
    );
    let binary = file(folder, "binary.csv", &[0_u8, 159, 146, 150, 0, 1, 2]);
    fails(&format!("{} SELECT a FROM t", stream(&binary, "a VARCHAR", "")), &["binary"]);
}

#[test]
fn a_cross_product_runs_with_a_notice_and_streams_until_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let numbers: String = (0..20_000).map(|n| format!("{n}\n")).collect();
    let path = file(folder.path(), "n.csv", format!("n\n{numbers}").as_bytes());
    let sql = format!("{} SELECT x.n AS x, y.n AS y FROM t AS x JOIN t AS y ON true", stream(&path, "n BIGINT", ""));
    let output = interrupted(thetis().args(["-c", &sql, "--format", "csv"]).stdout(Stdio::null()));
    assert_eq!(output.status.code(), Some(130));
    assert!(text(&output.stderr).contains("NOTICE: the query has a cross product"));
}
