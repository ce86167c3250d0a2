//! The binary over JSON lines and generated rows.

use std::process::Stdio;

use crate::{csv, fails, file, interrupted, run, text, thetis};

fn ndjson(path: &str, columns: &str, options: &str) -> String {
    format!("CREATE STREAM t {columns} WITH (path = '{path}'{options});")
}

/// A stream of numbers from 1 on.
fn numbers(options: &str) -> String {
    format!(
        "CREATE STREAM g (id BIGINT, v DOUBLE, k VARCHAR, ts TIMESTAMP) WITH (connector = 'generator', seed = 7,
        \"column.id\" = 'sequence(1)', column.v = 'normal(50, 10)', column.k = 'choice(a, b, c)',
        column.ts = 'timestamp(2026-01-01 00:00:00, 1s)'{options});"
    )
}

#[test]
fn json_lines_are_read_by_name() {
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "1.ndjson", b"{\"id\": 1, \"v\": 1.5, \"tags\": [\"x\"]}\n\n{\"v\": 2, \"id\": 2}\n");
    file(folder.path(), "2.ndjson", b"\xef\xbb\xbf{\"id\": 3, \"v\": null, \"more\": {\"id\": 9}}\r\n{\"id\": 4}");
    let glob = folder.path().join("*.ndjson").display().to_string();
    let declared = ndjson(&glob, "(v DOUBLE, id BIGINT NOT NULL, none DATE)", "");
    assert_eq!(csv(&format!("{declared} SELECT id, v, none FROM t")), "id,v,none\n1,1.5,\n2,2.0,\n3,,\n4,,\n");
    // The columns of the first file, by name.
    let inferred = csv(&format!("{} DESCRIBE t", ndjson(&glob, "", "")));
    assert_eq!(inferred, "column,type\nid,BIGINT\ntags,VARCHAR[]\nv,DOUBLE\n");
    assert_eq!(csv(&format!("{} SELECT SUM(id) AS n FROM t", ndjson(&glob, "", ""))), "n\n10\n");
    let shown = csv(&format!("{declared} SHOW STREAMS"));
    assert!(shown.contains("ndjson ") && shown.contains("about "), "{shown}");
}

#[test]
fn a_bad_json_line_is_named_or_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "bad.json", b"{\"id\": 1}\n{\"id\": \"x\"}\n{\"id\": 3\n{\"id\": 4}\n");
    let columns = "(id BIGINT)";
    fails(
        &["-c", &format!("{} SELECT id FROM t", ndjson(&path, columns, ""))],
        &["bad.json, line 2: column id: 'x' is not a BIGINT", "HINT: with on_error = 'skip'"],
    );
    let sql = format!("{} SELECT id FROM t", ndjson(&path, columns, ", on_error = 'skip'"));
    let output = run(&["-c", &sql, "--format", "csv"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "id\n1\n4\n"));
    assert!(text(&output.stderr).contains("NOTICE: 2 records"), "{}", text(&output.stderr));
    fails(&["-c", &ndjson(&path, "", "")], &["bad.json: its columns cannot be inferred", "^"]);
    assert_eq!(csv(&format!("{} DESCRIBE t", ndjson(&path, "", ", on_error = 'skip'"))), "column,type\nid,VARCHAR\n");
    let empty = file(folder.path(), "empty.json", b"\n");
    fails(&["-c", &ndjson(&empty, "", "")], &["declare the columns", "^"]);
    let case = file(folder.path(), "case.json", b"{\"userId\": 1}\n");
    fails(&["-c", &ndjson(&case, "(userId BIGINT)", "")], &["no field 'userid'", "\"userId\" in double quotes"]);
    assert_eq!(csv(&format!("{} SELECT \"userId\" FROM t", ndjson(&case, "(\"userId\" BIGINT)", ""))), "userId\n1\n");
    fails(&["-c", &ndjson(&path, columns, ", delimiter = ';'")], &["option delimiter is for csv files", "^"]);
}

#[test]
fn a_generator_makes_the_rows_that_are_asked_for() {
    let define = numbers(", rows = 50000");
    let query = "SELECT COUNT(*) AS n, MIN(id) AS low, MAX(id) AS high, MAX(ts) AS last, COUNT(DISTINCT k) AS k FROM g";
    assert_eq!(csv(&format!("{define} {query}")), "n,low,high,last,k\n50000,1,50000,2026-01-01 13:53:19,3\n");
    let sum = |before: &str, more: &str| {
        let rows = csv(&format!("{before} {define} SELECT SUM(ROUND(v)) AS v{more} FROM g"));
        rows.lines().nth(1).unwrap().split(',').next().unwrap().to_owned()
    };
    assert_eq!(sum("SET epoch_rows = 777;", ", MIN(k) AS k"), sum("", ""));
    fails(
        &["-c", "CREATE STREAM g (id BIGINT) WITH (connector = 'generator', column.id = 'sequnce(1)')"],
        &["'sequnce(1)' is not a value for option column.id", "did you mean sequence?", "^"],
    );
}

#[test]
fn limit_ends_a_generator_that_never_ends() {
    for pace in ["", ", rows_per_second = 100"] {
        let define = numbers(pace);
        assert_eq!(csv(&format!("{define} SELECT id FROM g LIMIT 3")), "id\n1\n2\n3\n", "{pace}");
    }
    assert_eq!(csv(&format!("{} SELECT id FROM g WHERE id > 100000 LIMIT 1", numbers(""))), "id\n100001\n");
    let plan = csv(&format!("{} EXPLAIN SELECT id FROM g", numbers(", rows_per_second = 1000")));
    assert!(plan.contains("reads: generator, 1000 rows/s, unbounded"), "{plan}");
    let streams = csv(&format!("{} SHOW STREAMS", numbers("")));
    assert!(streams.contains("\"generator, as fast as rows are taken, unbounded\",without end"), "{streams}");
    let sql = format!("{} SELECT id FROM g ORDER BY v", numbers(""));
    fails(&["-c", &sql], &["ORDER BY needs a result that ends"]);
}

#[test]
fn a_generator_whose_rows_are_all_left_out_can_be_interrupted() {
    let sql = format!("{} SELECT COUNT(*) AS n FROM g WHERE id < 0", numbers(""));
    let output = interrupted(thetis().args(["-c", &sql]).stdout(Stdio::null()));
    assert_eq!(output.status.code(), Some(130));
    assert!(text(&output.stderr).contains("cancelled"), "{}", text(&output.stderr));
}
