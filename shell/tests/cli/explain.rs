//! EXPLAIN in its formats, through the binary.

use crate::{csv, fails, file, interrupted, run, text, thetis};

#[test]
fn json_is_one_row_and_the_other_formats_have_a_row_per_line() {
    let query = "SELECT a.x FROM (VALUES (1), (5)) AS a(x) JOIN (VALUES (3)) AS b(y) ON a.x < b.y";
    let output = run(&["-c", &format!("EXPLAIN (ANALYZE, FORMAT JSON) {query}"), "--format", "ndjson"]);
    let row: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let plan: serde_json::Value = serde_json::from_str(row["plan"].as_str().unwrap()).unwrap();
    assert_eq!(plan["measured"]["rows_out"], 1);
    assert_eq!(plan["operators"].as_array().unwrap().len(), 4);
    let dot = csv(&format!("EXPLAIN (FORMAT DOT) {query}"));
    assert!(dot.starts_with("plan\ndigraph plan {\n") && dot.ends_with("\n}\n"), "{dot}");
    let lines = csv(&format!("EXPLAIN ANALYZE ({query})"));
    assert!(lines.contains("measured: ") && lines.lines().count() > 20, "{lines}");
}

#[test]
fn a_wrong_option_is_pointed_at() {
    fails(
        &["-c", "EXPLAIN (FROMAT JSON) SELECT 1"],
        &[
            "42601",
            "EXPLAIN has no option FROMAT",
            "LINE 1: EXPLAIN (FROMAT",
            "\n                 ^",
            "did you mean FORMAT?",
        ],
    );
}

#[test]
fn an_interrupt_ends_a_measured_query() {
    let folder = tempfile::tempdir().unwrap();
    let numbers: String = (0..200_000).map(|n| format!("{n}\n")).collect();
    let path = file(folder.path(), "n.csv", format!("n\n{numbers}").as_bytes());
    let sql = format!(
        "CREATE STREAM t (n BIGINT) WITH (path = '{path}');
         EXPLAIN ANALYZE SELECT x.n FROM t AS x JOIN t AS y ON (x.n * y.n) % 7 = 8"
    );
    let output = interrupted(thetis().args(["-c", &sql]));
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(130), "cancelled\n"));
}
