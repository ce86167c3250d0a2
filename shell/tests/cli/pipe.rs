//! The binary without arguments, when standard input is no terminal.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Output, Stdio};

use crate::{file, text, thetis};

fn piped(folder: &Path, args: &[&str], input: &str) -> Output {
    let mut child = thetis()
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn runs(input: &str, prints: &str) {
    let folder = tempfile::tempdir().unwrap();
    let output = piped(folder.path(), &["--format", "csv"], input);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), prints), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn statements_and_commands_run_without_prompts() {
    runs("", "");
    runs("SELECT 1 AS a;\nSELECT 2 AS b; SELECT\n3 AS c", "a\n1\nb\n2\nc\n3\n");
    runs("SELECT 1 AS a;\n\\q\nSELECT 2 AS b;", "a\n1\n");
    runs("exit;\nSELECT 2 AS b;", "");
    runs(
        "\\pset format ndjson\nSELECT 1 AS a;\n\\pset format markdown\nSELECT 1 AS a;",
        "{\"a\":1}\n| a |\n| ---: |\n| 1 |\n",
    );
    runs(
        "CREATE VIEW v AS SELECT 1::BIGINT AS x;\n\\d\n\\d V\n",
        "name,kind,columns\nv,view,1\ncolumn,type,nullable\nx,BIGINT,\n",
    );
    runs(
        "\\pset format table\n\\x on\nSELECT 1 AS n, 'b' AS name;",
        "-[ RECORD 1 ]---------------------------\nn    | 1\nname | b\n(1 row)\n",
    );
}

#[test]
fn a_statement_runs_when_its_line_has_come() {
    let mut child = thetis().args(["--format", "csv"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    for n in 1..4 {
        writeln!(input, "SELECT {n} AS n;").unwrap();
        assert_eq!(output.next().unwrap().unwrap(), "n");
        assert_eq!(output.next().unwrap().unwrap(), n.to_string());
    }
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_first_error_ends_it_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let output = piped(folder.path(), &[], "\\timing off\n\n  SELECT 1 AS a; SELECT nope;\nSELECT 2 AS b;");
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.starts_with("standard input: ERROR 42703"), "{error}");
    assert!(error.contains("LINE 3:"), "{error}");
    assert!(text(&output.stdout).contains("(1 row)") && !text(&output.stdout).contains(" b"));
    let output = piped(folder.path(), &["--keep-going", "--format", "csv"], "\\tming\nSELECT 2 AS b;");
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), "b\n2\n"));
    assert!(text(&output.stderr).contains("did you mean \\timing?"));
}

#[test]
fn files_nest_and_stop_at_their_first_error() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    file(folder, "inner.sql", b"\xef\xbb\xbfSELECT 2 AS b;\n\\q\nSELECT 9 AS z;");
    file(folder, "outer file.sql", b"SELECT 1 AS a;\n\\i inner.sql\nSELECT 3 AS c");
    let output = piped(folder, &["--format", "csv"], "\\i 'outer file.sql'\nSELECT 4 AS d;");
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "a\n1\nb\n2\nc\n3\nd\n4\n"));
    file(folder, "bad.sql", b"SELECT 1 AS a;\nSELECT nope;\nSELECT 2 AS b;");
    let output = piped(folder, &["--format", "csv"], "\\i bad.sql\nSELECT 4 AS d;");
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), "a\n1\n"));
    assert!(text(&output.stderr).starts_with("bad.sql: ERROR 42703"));
    file(folder, "again.sql", b"\\i again.sql");
    let output = piped(folder, &[], "\\i again.sql");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("nested more than 16 deep"));
    let output = piped(folder, &[], "\\i none.sql");
    assert!(text(&output.stderr).contains("none.sql: no such file"));
}

#[test]
fn results_go_to_a_file_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let input = "\\o out.csv\nSELECT 1 AS a;\nSELECT 2 AS b;\n\\o\nSELECT 3 AS c;";
    let output = piped(folder.path(), &["--format", "csv"], input);
    assert_eq!(text(&output.stdout), "c\n3\n");
    assert_eq!(std::fs::read_to_string(folder.path().join("out.csv")).unwrap(), "a\n1\nb\n2\n");
    let output = piped(folder.path(), &[], "\\o no/such/folder/x");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no/such/folder/x"));
}

#[test]
fn timing_is_told_beside_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let output = piped(folder.path(), &["--format", "csv"], "\\timing on\nSELECT 1 AS a;");
    assert_eq!(text(&output.stdout), "a\n1\n");
    assert!(text(&output.stderr).starts_with("Time: ") && text(&output.stderr).ends_with(" ms\n"));
}
