use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema};
use serde_json::{Value, json};
use thetis_parser::{ExplainFormat, Statement, ast, parse_statement};

use super::*;
use crate::catalog::{Conflict, Relation, Sample, Stream, Volume};
use crate::connector::{CsvFormat, FileFormat, FileSpec, OnError, SourceSpec};
use crate::physical::OperatorKind;
use crate::{Catalog, Output, Settings};

/// The streams `r` and `s` (k BIGINT, v VARCHAR) of 1,000 and 10 rows, and one with awful names.
fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    let awful = r#"a"b{c}<d>|\e"#;
    for (name, columns, rows) in [("r", ["k", "v"], 1e3), ("s", ["k", "v"], 10.0), ("x{\"&lt;", [awful, "v"], 1.0)] {
        let fields = [(columns[0], DataType::Int64), (columns[1], DataType::Utf8)];
        let fields = fields.map(|(name, data_type)| Field::new(name, data_type, true));
        let path = format!("data/{name}.csv");
        let file = FileSpec { path, format: FileFormat::Csv(CsvFormat::default()), on_error: OnError::Fail };
        let stream = Stream {
            name: name.to_owned(),
            columns: Arc::new(Schema::new(fields.to_vec())),
            watermark: None,
            spec: SourceSpec::File(file),
            volume: Volume { rows: Some(rows), ..Volume::default() },
            sample: Sample::default(),
        };
        catalog.add(&ast::Ident::with_quote('"', name), Relation::Stream(Arc::new(stream)), Conflict::Fail).unwrap();
    }
    catalog
}

fn planned(sql: &str, output: Output) -> Plan {
    let Ok(Statement::Query(query)) = parse_statement(sql) else { panic!("not a query: {sql}") };
    crate::plan(&query, &catalog(), &Settings::new(4), output).unwrap()
}

const QUERIES: [&str; 7] = [
    "SELECT r.v FROM r JOIN s ON r.k BETWEEN s.k - 5 AND s.k + 5 WHERE s.v <> 'a' LIMIT 3",
    "SELECT r.k, COUNT(*), SUM(DISTINCT s.k) FILTER (WHERE s.v = 'x') AS n FROM r JOIN s ON r.v = s.v AND r.k < s.k
     GROUP BY r.k HAVING COUNT(*) > 1 ORDER BY n DESC LIMIT 2 OFFSET 1",
    "SELECT DISTINCT r.v || s.v AS p FROM r JOIN s ON (r.k * s.k) % 7 = 1",
    "SELECT v FROM r UNION ALL SELECT v FROM s",
    "SELECT UNNEST(make_array(k, 2)) AS u FROM r WHERE v = 'two\nlines {and} \"quotes\" \\ & <tags>'",
    r#"SELECT x."a""b{c}<d>|\e" AS "q""{}", s.v FROM "x{""&lt;" AS x JOIN s ON x."a""b{c}<d>|\e" > s.k"#,
    "SELECT a.column1 AS a FROM (VALUES (1), (2)) AS a JOIN (VALUES (3)) AS b ON true",
];

/// A run in which every counter of a plan has a value.
fn run_of(plan: &Plan) -> Measured {
    let task = |operator: &crate::physical::Operator| TaskMeasured {
        queue: 0,
        rows_in: 1_000,
        frames_in: 1,
        rows_out: 7,
        frames_out: 2,
        busy: Duration::from_micros(1_500),
        blocked: Duration::from_secs(2),
        join: matches!(operator.kind, OperatorKind::Join(_)).then_some(JoinMeasured {
            examined: 5_000,
            kept: 7,
            stored: [40, 2],
            state_bytes: 4_200,
        }),
        source: matches!(operator.kind, OperatorKind::Source(_)).then_some(SourceMeasured {
            bytes: 12_345,
            skipped: 1,
            left_out: 0,
        }),
    };
    let operators = plan.dag.operators.iter();
    Measured {
        wall: Duration::from_millis(12),
        epochs: 3,
        rows_out: 7,
        tasks: operators.map(|operator| vec![task(operator); operator.tasks as usize]).collect(),
        edges: vec![EdgeMeasured { routed: 1_000, delivered: 2_000, ..EdgeMeasured::default() }; plan.dag.edges.len()],
    }
}

fn json(plan: &Plan, verbose: bool, measured: Option<&Measured>) -> Value {
    let text = plan.explain(verbose, ExplainFormat::Json, measured);
    assert_eq!(text.lines().count(), 1);
    serde_json::from_str(&text).unwrap()
}

#[test]
fn json_has_the_operators_and_edges_of_the_text() {
    for sql in QUERIES {
        for output in [Output::Result, Output::Changes] {
            if output == Output::Changes && sql.contains("LIMIT") {
                continue;
            }
            let plan = planned(sql, output);
            let document = json(&plan, false, None);
            let text = plan.explain(false, ExplainFormat::Text, None);
            let operators = document["operators"].as_array().unwrap();
            let labels: Vec<&str> = operators.iter().map(|operator| operator["label"].as_str().unwrap()).collect();
            let heads = text.lines().filter(|line| !line.starts_with(' ') && line.contains(" rows"));
            let heads: Vec<&str> = heads.map(|line| line.rsplit_once(" (").unwrap().0).collect();
            assert_eq!(labels, heads, "{sql}");
            let edges = document["edges"].as_array().unwrap();
            assert_eq!(edges.len(), text.lines().filter(|line| line.starts_with("  <- ")).count(), "{sql}");
            for (id, operator) in operators.iter().enumerate() {
                assert_eq!(operator["id"], id);
                assert!(operator[operator["kind"].as_str().unwrap()].is_object(), "{operator}");
            }
            assert!(document.get("logical_plan").is_none() && document.get("measured").is_none());
        }
    }
}

#[test]
fn json_has_the_facts_as_typed_fields() {
    let plan = planned(QUERIES[0], Output::Result);
    let document = json(&plan, true, None);
    assert!(document["logical_plan"][0].is_string());
    assert_eq!(document["epochs"], json!({ "interval_ms": 100.0 }));
    let [source, _, join, sink] = document["operators"].as_array().unwrap().as_slice() else { panic!("{document}") };
    assert_eq!(source["schema"], json!([{ "name": "k", "type": "BIGINT" }, { "name": "v", "type": "VARCHAR" }]));
    assert_eq!(source["expected_rows"], 1_000.0);
    assert_eq!(
        source["source"],
        json!({ "stream": "r", "connector": "file", "format": "csv", "path": "data/r.csv", "readers": 2,
                "columns": ["k", "v"], "bounded": true })
    );
    let facts = &join["join"];
    assert_eq!(facts["condition"], json!(["L.k >= (R.k - 5)", "L.k <= (R.k + 5)"]));
    assert_eq!(facts["class"], "band");
    assert_eq!(facts["layout"]["cells"], join["tasks"]);
    assert_eq!(facts["local_index"]["kind"], "sorted");
    assert!(facts["replication"]["left"].is_f64() && facts["per_cell"]["bytes"].is_f64());
    assert!(!facts["alternatives"].as_array().unwrap().is_empty());
    assert_eq!(facts["unbounded"], json!({ "left": false, "right": false }));
    assert_eq!(sink["sink"], json!({ "delivers": "rows", "skip": 0, "limit": 3 }));
    let right = document["edges"].as_array().unwrap().iter().find(|edge| edge["port"] == 1).unwrap();
    assert_eq!(right["exchange"], json!({ "kind": "matrix", "side": "right" }));
    assert_eq!(right["steps"][0], json!({ "step": "filter", "conditions": ["v != 'a'"] }));
    assert_eq!(right["replication"], facts["replication"]["right"]);
}

#[test]
fn a_run_is_shown_in_every_format() {
    let plan = planned(QUERIES[0], Output::Result);
    let run = run_of(&plan);
    let document = json(&plan, false, Some(&run));
    assert_eq!(document["measured"], json!({ "wall_ms": 12.0, "epochs": 3, "rows_out": 7 }));
    let join = &document["operators"][2];
    let tasks = join["tasks"].as_u64().unwrap();
    assert_eq!(join["measured"]["tasks"].as_array().unwrap().len() as u64, tasks);
    assert_eq!(join["measured"]["pairs"], json!({ "examined": 5_000 * tasks, "kept": 7 * tasks }));
    assert_eq!(join["measured"]["stored"], json!({ "left": 40 * tasks, "right": 2 * tasks }));
    assert_eq!(join["measured"]["tasks"][0]["busy_ms"], 1.5);
    assert_eq!(document["operators"][0]["measured"]["skipped"], 1);
    assert_eq!(document["edges"][0]["measured"]["replication"], 2.0);
    let text = plan.explain(false, ExplainFormat::Text, Some(&run));
    for part in [
        "\n  measured: 1,000 rows read (12,345 bytes, 1 record skipped), 7 rows out (2 frames); busy 1.5 ms, blocked 2.00 s\n",
        "\n    task 3: 1,000 rows in (1 frame), 7 rows out (2 frames); 5,000 pairs examined, 7 kept; stored 40 left, 2 right in 4,200 bytes, 100 a row; busy",
        "\n     measured: 1,000 rows, 2,000 delivered: 2.00 copies of each, ",
        "\nmeasured: 12.0 ms, 3 epochs, 7 rows out\n",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let dot = plan.explain(false, ExplainFormat::Dot, Some(&run));
    assert!(dot.contains("2,000 delivered") && dot.contains("label=\"measured: 12.0 ms"));
}

/// Reads a digraph as far as the writer uses the language: its nodes and edges, with their labels.
fn read_dot(dot: &str) -> Vec<(Vec<String>, String)> {
    let mut tokens = dot_tokens(dot).into_iter().peekable();
    let mut next = || tokens.next().unwrap_or_default();
    assert_eq!([next(), next(), next()], ["digraph", "plan", "{"]);
    let mut statements = Vec::new();
    loop {
        let mut ids = vec![next()];
        if ids[0] == "}" {
            assert_eq!(next(), "");
            return statements;
        }
        assert!(ids[0].chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{ids:?}");
        let mut token = next();
        if token == "->" {
            ids.push(next());
            token = next();
        }
        let mut label = String::new();
        if token == "=" {
            label = next();
        } else {
            assert_eq!(token, "[");
            while token != "]" {
                let (key, equals, value) = (next(), next(), next());
                assert_eq!(equals, "=");
                if key == "label" {
                    label = value;
                }
                token = next();
                assert!(token == "," || token == "]", "{token}");
            }
        }
        assert_eq!(next(), ";");
        statements.push((ids, label));
    }
}

/// Words, strings with their quotes, and signs.
fn dot_tokens(dot: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut chars = dot.chars().peekable();
    while let Some(c) = chars.next() {
        let mut token = String::from(c);
        match c {
            c if c.is_whitespace() => continue,
            '"' => loop {
                let c = chars.next().expect("a string is closed");
                token.push(c);
                match c {
                    '\\' => token.push(chars.next().expect("an escape is complete")),
                    '"' => break,
                    c => assert!(!c.is_control(), "a control character in {token}"),
                }
            },
            '-' => token.extend(chars.next()),
            c if c.is_ascii_alphanumeric() => {
                while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    token.push(c);
                }
            }
            _ => {}
        }
        tokens.push(token);
    }
    tokens
}

#[test]
fn dot_is_well_formed_whatever_the_names() {
    for sql in QUERIES {
        let plan = planned(sql, Output::Result);
        let run = run_of(&plan);
        for (verbose, measured) in [(false, None), (true, None), (true, Some(&run))] {
            let statements = read_dot(&plan.explain(verbose, ExplainFormat::Dot, measured));
            let is_operator = |ids: &[String]| ids[0].starts_with("operator_");
            let (nodes, edges): (Vec<_>, Vec<_>) =
                statements.iter().filter(|(ids, _)| is_operator(ids)).partition(|(ids, _)| ids.len() == 1);
            assert_eq!((nodes.len(), edges.len()), (plan.dag.operators.len(), plan.dag.edges.len()), "{sql}");
            assert!(nodes.iter().chain(&edges).all(|(_, label)| label.ends_with("\\l\"")), "{statements:?}");
            assert_eq!(statements.iter().any(|(ids, _)| ids[0] == "logical_plan"), verbose);
        }
    }
    let label = |sql, node: &str| {
        let statements = read_dot(&planned(sql, Output::Result).explain(false, ExplainFormat::Dot, None));
        let (_, label) = statements.into_iter().find(|(ids, _)| ids.join(" ") == node).unwrap();
        label
    };
    let filter = label(QUERIES[4], "operator_0 operator_1");
    assert!(filter.contains(r#"'two\\nlines {and} \"quotes\" \\ &amp; <tags>'"#), "{filter}");
    let source = label(QUERIES[5], "operator_1");
    assert!(source.starts_with(r#""source 1 x{\"&amp;lt;\l"#), "{source}");
}

#[test]
fn a_query_ends_with_its_input_or_with_its_limit() {
    let unbounded = |sql| {
        let mut plan = planned(sql, Output::Result);
        for operator in &mut plan.dag.operators {
            if let OperatorKind::Source(source) = &mut operator.kind {
                source.bounded = false;
            }
        }
        plan
    };
    let (all, some) = ("SELECT v FROM r", "SELECT v FROM r LIMIT 3");
    assert!(planned(all, Output::Result).check_ends().is_ok());
    assert!(unbounded(some).check_ends().is_ok());
    for sql in [all, "SELECT COUNT(*) AS n FROM r", "SELECT v, COUNT(*) AS n FROM r GROUP BY v LIMIT 3"] {
        let error = unbounded(sql).check_ends().unwrap_err();
        assert_eq!(error.message, "EXPLAIN ANALYZE needs a query that ends");
        assert!(error.hint.unwrap().contains("LIMIT"));
    }
}
