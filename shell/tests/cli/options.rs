//! The options of `submit` and `-c`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::{fails, file, run, text};

/// A stream of so many numbers.
fn numbers(folder: &Path, count: usize) -> String {
    let rows: String = (0..count).map(|n| format!("{n}\n")).collect();
    let path = file(folder, "numbers.csv", format!("n\n{rows}").as_bytes());
    format!("CREATE STREAM t (n BIGINT) WITH (path = '{path}');")
}

/// A stream that never sends anything, and never ends.
fn idle(folder: &Path) -> String {
    let path = folder.join("idle.csv");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    format!("CREATE STREAM idle (n BIGINT) WITH (path = '{}');", path.display())
}

fn exits(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
}

#[test]
fn markdown_is_a_table_that_github_shows() {
    let sql = "SELECT column1 AS n, column2 AS s FROM (VALUES (1, 'a|b'), (2, NULL)) AS t";
    let output = run(&["-c", sql, "--format", "markdown"]);
    assert_eq!(text(&output.stdout), "| n | s |\n| ---: | --- |\n| 1 | a\\|b |\n| 2 | NULL |\n");
    let output = run(&["-c", "SELECT 1 AS n WHERE false", "--format", "markdown"]);
    assert_eq!(text(&output.stdout), "| n |\n| ---: |\n");
}

#[test]
fn check_plans_everything_and_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let define = format!("{} CREATE VIEW v AS SELECT n AS m FROM idle;", idle(folder.path()));
    let output = run(&["--check", "-c", &format!("{define} SELECT COUNT(m) AS c FROM v")]);
    exits(&output, 0);
    assert_eq!((text(&output.stdout), text(&output.stderr)), (String::new(), String::new()));
    let bad = "SELECT nope FROM v; SELECT m FROM v; SELEC 1; CREATE VIEW w AS SELECT m FROM v; SELECT x FROM w";
    let script = file(folder.path(), "bad.sql", format!("{define}\n{bad};\nSELECT 'open").as_bytes());
    let output = run(&["submit", "--check", &script, "-c", "SELECT 1 / 0 FROM nowhere"]);
    exits(&output, 1);
    assert_eq!(text(&output.stdout), "");
    let errors = text(&output.stderr);
    for says in ["nope", "SELECT?", "no column 'x'", "never closed", "LINE 3: SELECT 'open", "nowhere"] {
        assert!(errors.contains(says), "{errors} does not say {says}");
    }
    assert_eq!(errors.matches("ERROR").count(), 5, "{errors}");
    fails(&["--check", "--changes", "-c", &format!("{define} SELECT m FROM v LIMIT 1")], &["LIMIT"]);
}

#[test]
fn a_pipe_without_a_writer_does_not_hold_up_a_query_on_one_core() {
    let folder = tempfile::tempdir().unwrap();
    let define = format!("SET parallelism = 1; {} {}", idle(folder.path()), numbers(folder.path(), 20));
    let sql = format!("{define} SELECT n FROM idle UNION ALL SELECT n FROM t WHERE n > 10 LIMIT 3");
    let output = run(&["--format", "csv", "-c", &sql]);
    exits(&output, 0);
    assert_eq!(text(&output.stdout), "n\n11\n12\n13\n");
}

#[test]
fn keep_going_runs_what_comes_after_an_error() {
    let sql = "SELECT 1 AS a; SELECT nope; SELECT 2 AS b";
    let output = run(&["--keep-going", "-c", sql, "-c", "SELECT 3 AS c", "--format", "csv"]);
    exits(&output, 1);
    assert_eq!(text(&output.stdout), "a\n1\nb\n2\nc\n3\n");
    let output = run(&["submit", "--keep-going", "no-such.sql", "-c", "SELECT 3 AS c", "--format", "csv"]);
    exits(&output, 1);
    assert_eq!(text(&output.stdout), "c\n3\n");
    exits(&run(&["--keep-going", "-c", "SELECT 1 AS a"]), 0);
}

#[test]
fn errors_as_json_are_one_object_per_line() {
    let folder = tempfile::tempdir().unwrap();
    let bad = file(folder.path(), "bad.sql", b"SELECT 1 AS a;\n  SELECT uper(1);\nSELECT 'abc");
    let output = run(&["submit", "--keep-going", "--error-format", "json", "no-such.sql", &bad]);
    exits(&output, 1);
    let errors: Vec<Value> = text(&output.stderr).lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(errors.len(), 3);
    assert!(errors.iter().all(|error| error["severity"] == "ERROR" && error["message"].is_string()));
    assert_eq!(errors[0]["sqlstate"], "58P01");
    assert_eq!((&errors[1]["file"], &errors[1]["line"]), (&Value::from(bad.as_str()), &Value::from(2)));
    assert_eq!((&errors[1]["sqlstate"], &errors[1]["column"]), (&Value::from("42883"), &Value::from(10)));
    assert!(errors[1]["hint"].as_str().unwrap().contains("upper"));
    assert_eq!((&errors[2]["line"], &errors[2]["column"]), (&Value::from(3), &Value::from(1)));
}

#[test]
fn for_ends_queries_that_run_longer() {
    let folder = tempfile::tempdir().unwrap();
    let sql = format!("{} SELECT n FROM idle; SELECT 1 AS a", idle(folder.path()));
    let output = run(&["--for", "300ms", "-c", &sql, "--format", "csv"]);
    exits(&output, 0);
    assert_eq!(text(&output.stdout), "n\na\n1\n");
    assert!(text(&output.stderr).contains("NOTICE: the time is over"));
    let cross = format!("{} SELECT a.n AS a, b.n AS b FROM t AS a JOIN t AS b ON true", numbers(folder.path(), 50_000));
    let output = run(&["--for", "0.5s", "-c", &cross, "--format", "csv"]);
    exits(&output, 0);
    let printed = text(&output.stdout);
    assert!(printed.lines().count() > 100);
    assert!(printed.ends_with('\n') && printed.lines().all(|line| line.split(',').count() == 2));
    assert_eq!(run(&["--for", "soon", "-c", "SELECT 1"]).status.code(), Some(2));
}

#[test]
fn limit_rows_ends_a_query_after_so_many_rows() {
    let folder = tempfile::tempdir().unwrap();
    let sql = format!(
        "{} SELECT a.n AS a, b.n AS b FROM t AS a JOIN t AS b ON true; SELECT 1 AS x",
        numbers(folder.path(), 50_000)
    );
    let output = run(&["--limit-rows", "1500", "-c", &sql, "--format", "csv"]);
    exits(&output, 0);
    assert_eq!(text(&output.stdout).lines().count(), 1 + 1500 + 2);
    assert_eq!(text(&output.stderr).matches("there are more rows than the limit").count(), 1);
    let values = "SELECT column1 AS x FROM (VALUES (1), (2), (3)) AS t";
    for (limit, rows, notice) in [("0", 0, true), ("2", 2, true), ("3", 3, false), ("4", 3, false)] {
        let output = run(&["--limit-rows", limit, "-c", values]);
        exits(&output, 0);
        assert!(text(&output.stdout).ends_with(&format!("({rows} rows)\n")), "{limit}");
        assert_eq!(text(&output.stderr).contains("NOTICE"), notice, "{limit}");
    }
}

#[test]
fn a_result_that_changes_for_ever_is_its_changes() {
    let define = "CREATE STREAM g (id BIGINT) WITH (connector = 'generator', rows_per_second = 200)";
    let sql = format!("{define}; SELECT COUNT(*) AS n FROM g");
    let output = run(&["--for", "1500ms", "-c", &sql]);
    exits(&output, 0);
    let printed = text(&output.stdout);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0].split('|').map(str::trim).collect::<Vec<_>>(), ["epoch", "op", "n"]);
    assert!(lines.len() > 6 && lines[lines.len() - 1].ends_with("rows)"), "{printed}");
    assert!(!printed.contains('\x1b'), "{printed:?}");
    fails(&["-c", &format!("{sql} LIMIT 1")], &["changes for ever", "HINT"]);
}
