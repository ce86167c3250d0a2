//! The binary as a newcomer meets it: positions, `on_error`, variables, globs and NULLs.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::{csv, fails, file, run, text, thetis};

fn stream(path: &str, options: &str) -> String {
    format!("CREATE STREAM t (id BIGINT, v BIGINT) WITH (path = '{path}'{options});")
}

#[test]
fn an_error_in_a_file_names_the_file_the_line_and_the_column() {
    let folder = tempfile::tempdir().unwrap();
    let bad = file(folder.path(), "bad.sql", b"SELECT 1 AS a;\n\n  SELECT 'abc;\n");
    let output = run(&["submit", &bad, "--format", "csv"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "a\n1\n");
    let error = text(&output.stderr);
    assert!(error.starts_with(&format!("{bad}: ERROR 42601")), "{error}");
    assert!(error.contains("LINE 3:   SELECT 'abc;\n          ^"), "{error}");
    fails(&["submit", "no-such.sql"], &["no-such.sql: no such file"]);
    let latin = file(folder.path(), "latin.sql", b"SELECT '\xe9'");
    fails(&["submit", &latin], &["latin.sql: is not UTF-8 text"]);
}

#[test]
fn statements_after_an_error_do_not_run() {
    let output = run(&["-c", "SELECT 1 AS a; SELECT nope; SELECT 2 AS b", "--format", "csv"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "a\n1\n");
}

#[test]
fn standard_input_is_named_in_errors() {
    let mut child = thetis().args(["submit", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"SELEC 1").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("standard input: ERROR 42601"));
}

#[test]
fn nothing_to_do_is_no_error() {
    for sql in ["", ";;", " \n "] {
        let output = run(&["-c", sql]);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), ""), "{sql:?}");
    }
}

#[test]
fn bad_arguments_exit_with_2() {
    for args in [
        &["-c", "SELECT 1", "--format", "xml"][..],
        &["-c", "SELECT 1", "-v", "x"],
        &["frobnicate"],
        &["--fromat", "csv"],
    ] {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn misspelt_names_get_a_suggestion() {
    let define = "CREATE VIEW words AS SELECT column1 AS word FROM (VALUES ('a')) AS t;";
    for (sql, near) in [
        ("SELECT wrod FROM words", "did you mean word"),
        ("SELECT word FROM wrods", "did you mean words?"),
        ("SELECT uper(word) FROM words", "did you mean upper?"),
        ("CREATE STREM s (a BIGINT)", "did you mean CREATE STREAM?"),
        ("CREATE STREAM s (a BIGINT) WITH (connector = 'flie', path = 'x')", "connector takes 'file'"),
        ("SET parallelism = 'x'", "a whole number from 1 to 256"),
        ("DROP STREAM words", "write DROP VIEW words"),
    ] {
        fails(&["-c", &format!("{define} {sql}")], &[near, "^"]);
    }
}

#[test]
fn what_is_not_supported_says_what_to_do() {
    let define = "CREATE VIEW a AS SELECT column1 AS x FROM (VALUES (1)) AS t;";
    for sql in [
        "SELECT x FROM a WHERE EXISTS (SELECT 1 FROM a AS b WHERE b.x < a.x)",
        "SELECT x FROM a FULL JOIN a AS b USING (x)",
        "MERGE INTO a USING a AS b ON true WHEN MATCHED THEN DELETE",
        "CREATE TABLE t (x INT); INSERT INTO t VALUES (1) RETURNING x",
    ] {
        fails(&["-c", &format!("{define} {sql}")], &["0A000", "not supported", "HINT"]);
    }
}

#[test]
fn skipped_records_are_left_out_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bad) in [("few", &b"3"[..]), ("many", b"3,4,5"), ("type", b"3,x"), ("big", b"9223372036854775808,1")] {
        let rows = [b"id,v\n1,2\n", bad, b"\n5,6\n"].concat();
        let path = file(folder.path(), &format!("{name}.csv"), &rows);
        fails(
            &["-c", &format!("{} SELECT id, v FROM t", stream(&path, ""))],
            &[&format!("{name}.csv, line 3"), "HINT: with on_error = 'skip'"],
        );
        let sql = format!("{} SELECT id, v FROM t", stream(&path, ", on_error = 'skip'"));
        let output = run(&["-c", &sql, "--format", "csv"]);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "id,v\n1,2\n5,6\n"), "{name}");
        assert!(text(&output.stderr).contains("NOTICE: 1 record"), "{name}");
    }
}

#[test]
fn a_long_record_is_skipped_too() {
    let folder = tempfile::tempdir().unwrap();
    let long = [b"id,v\n".to_vec(), vec![b'7'; 100_000_000], b"\n1,2\n".to_vec()].concat();
    let path = file(folder.path(), "long.csv", &long);
    assert_eq!(csv(&format!("{} SELECT id, v FROM t", stream(&path, ", on_error = 'skip'"))), "id,v\n1,2\n");
}

#[test]
fn files_of_a_glob_are_read_by_the_names_of_their_columns() {
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "1.csv", b"id,v\n1,10\n");
    file(folder.path(), "2.csv", b"\xef\xbb\xbfv,id\r\n20,2\r\n");
    let glob = folder.path().join("*.csv").display().to_string();
    assert_eq!(csv(&format!("{} SELECT id, v FROM t", stream(&glob, ""))), "id,v\n1,10\n2,20\n");
    let none = folder.path().join("*.txt").display().to_string();
    fails(&["-c", &stream(&none, "")], &["no file matches", "^"]);
    fails(&["-c", &format!("{} SELECT id FROM t", stream(&folder.path().display().to_string(), ""))], &["directory"]);
}

#[test]
fn nulls_do_not_join_and_delimiters_are_options() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "n.csv", b"id;v\n1;NA\n2;5\n3;\n");
    let define = stream(&path, ", delimiter = ';', null = 'NA'");
    assert_eq!(csv(&format!("{define} SELECT id, v FROM t")), "id,v\n1,\n2,5\n3,\n");
    let join = |on: &str| csv(&format!("{define} SELECT a.id AS a, b.id AS b FROM t AS a JOIN t AS b ON {on}"));
    assert_eq!(join("a.v = b.v"), "a,b\n2,2\n");
    assert_eq!(join("a.v <= b.v"), "a,b\n2,2\n");
    let counts = csv(&format!("{define} SELECT COUNT(*) AS n, COUNT(v) AS v, SUM(v) AS s FROM t"));
    assert_eq!(counts, "n,v,s\n3,1,5\n");
}

#[test]
fn variables_stand_for_values_texts_and_names() {
    let sql = "SELECT :x AS a, :'n' AS b, ':x' AS c, 1::BIGINT AS :\"q\"";
    let output = run(&["-v", "x=7", "-v", "n=o'k", "-v", "q=d e", "-c", sql, "--format", "csv"]);
    assert_eq!(text(&output.stdout), "a,b,c,d e\n7,o'k,:x,1\n");
    fails(&["-c", "SELECT :y"], &[":y", "HINT"]);
}

#[test]
fn changes_are_signed_epoch_by_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "c.csv", b"id,v\n1,10\n2,20\n3,30\n");
    let sql = format!("SET epoch_rows = 2; {} SELECT COUNT(*) AS n, SUM(v) AS s FROM t", stream(&path, ""));
    let output = run(&["-c", &sql, "--changes", "--format", "csv"]);
    assert_eq!(text(&output.stdout), "epoch,op,n,s\n1,+,2,30\n2,-,2,30\n2,+,3,60\n");
}

#[test]
fn a_view_keeps_what_it_uses() {
    let define = "CREATE VIEW a AS SELECT column1 AS x FROM (VALUES (1)) AS t; CREATE VIEW b (y) AS SELECT x FROM a;";
    assert_eq!(csv(&format!("{define} SELECT y FROM b")), "y\n1\n");
    fails(&["-c", &format!("{define} DROP VIEW a")], &["'b'", "DROP VIEW b"]);
}

#[test]
fn a_reader_that_goes_away_ends_a_join_of_a_hundred_million_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let rows: String = (0..10_000).map(|n| format!("{n},{n}\n")).collect();
    let path = file(folder.path(), "n.csv", format!("id,v\n{rows}").as_bytes());
    let sql = format!(
        "{} SELECT a.id AS a, b.id AS b FROM t AS a JOIN t AS b ON a.id <= b.id OR a.id > b.id",
        stream(&path, "")
    );
    let mut child = thetis().args(["-c", &sql, "--format", "csv"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "a,b\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
