use super::*;
use crate::statement::ExplainFormat;

fn stream(text: &str) -> CreateStream {
    match parse_statement(text).unwrap() {
        Statement::CreateStream(stream) => *stream,
        other => panic!("not a stream: {other:?}"),
    }
}

#[test]
fn a_stream_with_columns_watermark_and_options() {
    let parsed = stream(
        "CREATE STREAM s (id BIGINT NOT NULL, ts TIMESTAMP, price DECIMAL(10,2),
           WATERMARK FOR ts AS ts - INTERVAL '5 seconds')
         WITH (connector = 'file', path = 'a.csv', header = true, rows = -5)",
    );
    assert_eq!(parsed.name.value, "s");
    assert_eq!(parsed.columns.len(), 3);
    assert!(parsed.columns[0].not_null && !parsed.columns[1].not_null);
    assert_eq!(parsed.watermark.unwrap().column.value, "ts");
    let options: Vec<_> = parsed.options.iter().map(|o| (o.key.value.as_str(), o.value.as_str())).collect();
    assert_eq!(options, [("connector", "file"), ("path", "a.csv"), ("header", "true"), ("rows", "-5")]);
}

#[test]
fn source_is_a_synonym_and_columns_may_be_left_out() {
    let parsed = stream("create or replace source if not exists q with (path = 'x')");
    assert!(parsed.or_replace && parsed.if_not_exists && parsed.columns.is_empty());
}

#[test]
fn the_other_statements() {
    assert!(matches!(parse_statement("SELECT 1"), Ok(Statement::Query(_))));
    assert!(matches!(parse_statement("(SELECT 1) UNION ALL (SELECT 2)"), Ok(Statement::Query(_))));
    assert!(matches!(parse_statement("SHOW streams"), Ok(Statement::Show(Show::Streams))));
    assert!(matches!(parse_statement("show parallelism"), Ok(Statement::Show(Show::Setting(_)))));
    assert!(matches!(parse_statement("DESCRIBE s"), Ok(Statement::Describe { .. })));
    assert!(matches!(parse_statement("SET matrix = '2x3'"), Ok(Statement::Set { value: Some(v), .. }) if v == "2x3"));
    assert!(matches!(parse_statement("SET matrix TO DEFAULT"), Ok(Statement::Set { value: None, .. })));
    assert!(matches!(parse_statement("RESET matrix"), Ok(Statement::Set { value: None, .. })));
    assert!(matches!(
        parse_statement("DROP VIEW IF EXISTS v"),
        Ok(Statement::Drop { kind: DropKind::View, if_exists: true, .. })
    ));
    assert!(
        matches!(parse_statement("CREATE VIEW v (a) AS SELECT 1"), Ok(Statement::CreateView(v)) if v.columns.len() == 1)
    );
}

#[test]
fn errors_have_a_position_and_a_hint() {
    let cases = [
        ("SELEC 1", (1, 1), Some("did you mean SELECT?")),
        ("CREATE STRAEM s", (1, 8), Some("did you mean CREATE STREAM?")),
        ("SELECT a\nFROM t WHERE", (2, 13), None),
        ("SELECT 1 1", (1, 10), None),
        ("CREATE STREAM s (a BIGINT", (1, 26), None),
        ("SELECT 'abc", (1, 8), None),
    ];
    for (text, (line, column), hint) in cases {
        let error = parse_statement(text).unwrap_err();
        if let Some(position) = error.position {
            assert_eq!(position, Position { line, column }, "{text}: {error}");
        } else {
            assert!(text.ends_with("WHERE"), "{text}: {error}");
        }
        if hint.is_some() {
            assert_eq!(error.hint.as_deref(), hint, "{text}");
        }
    }
}

#[test]
fn deep_nesting_is_an_error() {
    let text = format!("SELECT {}1{}", "(".repeat(10_000), ")".repeat(10_000));
    assert!(parse_statement(&text).unwrap_err().message.contains("nested"));
}

#[test]
fn known_but_unsupported_statements_say_so() {
    assert!(parse_statement("MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE").unwrap_err().unsupported);
    assert!(parse_statement("ALTER TABLE t ADD COLUMN a INT").unwrap_err().unsupported);
}

#[test]
fn a_chain_without_end_is_an_error() {
    let text = format!("SELECT 1{}", " + 1".repeat(10_000));
    assert!(parse_statement(&text).unwrap_err().message.contains("in a row"));
    let list = format!("SELECT {}", vec!["-1 + 2"; 5_000].join(", "));
    assert!(parse_statement(&list).is_ok());
}

#[test]
fn tables_and_what_changes_them() {
    let kind = |text: &str| parse_statement(text).map_err(|error| (error.unsupported, error.hint.is_some()));
    assert!(
        matches!(kind("CREATE TABLE t (a BIGINT NOT NULL, b TEXT)"), Ok(Statement::CreateTable(t)) if t.columns.len() == 2)
    );
    assert!(matches!(kind("CREATE TABLE t AS SELECT 1 AS a"), Ok(Statement::CreateTable(t)) if t.query.is_some()));
    assert!(matches!(kind("CREATE TABLE t (a INT) WITH (connector = 'file')"), Ok(Statement::CreateStream(_))));
    assert!(matches!(kind("CREATE MATERIALIZED VIEW v AS SELECT 1"), Ok(Statement::CreateView(v)) if v.materialized));
    assert!(matches!(kind("CREATE SINK s WITH (connector = 'blackhole')"), Ok(Statement::CreateSink(_))));
    assert!(matches!(kind("INSERT INTO t (a, b) VALUES (1, 'x')"), Ok(Statement::Insert(i)) if i.columns.len() == 2));
    assert!(matches!(kind("INSERT INTO t SELECT * FROM s"), Ok(Statement::Insert(_))));
    assert!(
        matches!(kind("UPDATE t SET a = a + 1, b = NULL WHERE a > 3"), Ok(Statement::Update(u)) if u.assignments.len() == 2)
    );
    assert!(
        matches!(kind("DELETE FROM t AS x WHERE x.a IS NULL"), Ok(Statement::Delete(d)) if d.table.name.value == "t")
    );
    assert!(matches!(kind("DROP MATERIALIZED VIEW v"), Ok(Statement::Drop { kind: DropKind::MaterializedView, .. })));
    for text in [
        "INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING",
        "INSERT INTO t VALUES (1) RETURNING a",
        "UPDATE t SET a = 1 FROM s WHERE s.a = t.a",
        "UPDATE t JOIN s ON true SET a = 1",
        "DELETE FROM t USING s WHERE s.a = t.a",
        "INSERT INTO x.t VALUES (1)",
        "DELETE FROM t TABLESAMPLE (1)",
        "INSERT INTO t PARTITION (a = 1) VALUES (1)",
        "CREATE TABLE t (a BIGINT) AS SELECT 1",
    ] {
        assert_eq!(kind(text), Err((true, true)), "{text}");
    }
}

#[test]
fn parameters_are_counted() {
    assert_eq!(parse_parameterized("SELECT ? + ?, '?'").unwrap().1, 2);
    assert_eq!(parse_parameterized("SELECT $3 + $1").unwrap().1, 3);
    assert_eq!(parse_parameterized("SELECT 1").unwrap().1, 0);
    for text in ["SELECT ? + $1", "SELECT $0", "SELECT $x", "SELECT $99999999999999999999"] {
        assert!(parse_parameterized(text).unwrap_err().position.is_some(), "{text}");
    }
}

/// Analyze, verbose, format and the query of an EXPLAIN.
fn explain(text: &str) -> (bool, bool, ExplainFormat, String) {
    match parse_statement(text) {
        Ok(Statement::Explain(explain)) => {
            (explain.analyze, explain.verbose, explain.format, explain.query.to_string())
        }
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn explain_has_words_or_a_list_of_options() {
    use ExplainFormat::{Dot, Json, Text};
    let cases = [
        ("EXPLAIN SELECT 1", (false, false, Text)),
        ("EXPLAIN VERBOSE SELECT 1", (false, true, Text)),
        ("explain analyze select 1", (true, false, Text)),
        ("EXPLAIN ANALYZE VERBOSE SELECT 1", (true, true, Text)),
        ("EXPLAIN (ANALYZE) SELECT 1", (true, false, Text)),
        ("EXPLAIN (FORMAT JSON) SELECT 1", (false, false, Json)),
        ("EXPLAIN (format 'dot', verbose on) SELECT 1", (false, true, Dot)),
        ("EXPLAIN (ANALYZE true, VERBOSE 0, FORMAT text) SELECT 1", (true, false, Text)),
        ("EXPLAIN (ANALYZE, ANALYZE off) SELECT 1", (false, false, Text)),
    ];
    for (text, (analyze, verbose, format)) in cases {
        assert_eq!(explain(text), (analyze, verbose, format, "SELECT 1".to_owned()), "{text}");
    }
}

#[test]
fn explain_takes_a_query_in_parentheses() {
    for query in ["(SELECT 1)", "(WITH a AS (SELECT 1) SELECT * FROM a)", "((SELECT 1)) UNION ALL (SELECT 2)"] {
        assert_eq!(explain(&format!("EXPLAIN {query}")).3, query);
        let (analyze, _, format, found) = explain(&format!("EXPLAIN (ANALYZE, FORMAT JSON) {query}"));
        assert_eq!((analyze, format, found.as_str()), (true, ExplainFormat::Json, query));
        assert_eq!(explain(&format!("EXPLAIN ANALYZE {query}")).3, query);
    }
}

#[test]
fn errors_of_explain_point_at_the_option() {
    let cases = [
        ("EXPLAIN (FROMAT JSON) SELECT 1", 10, "did you mean FORMAT?"),
        ("EXPLAIN (COSTS) SELECT 1", 10, "options are ANALYZE, VERBOSE and FORMAT"),
        ("EXPLAIN (FORMAT JSNO) SELECT 1", 17, "did you mean JSON?"),
        ("EXPLAIN (FORMAT yaml) SELECT 1", 17, "formats are TEXT, JSON and DOT"),
        ("EXPLAIN ANALYSE SELECT 1", 9, "did you mean ANALYZE?"),
        ("EXPLAIN FORMAT JSON SELECT 1", 9, "write EXPLAIN [ANALYZE] [VERBOSE] query, or EXPLAIN (FORMAT JSON) query"),
        ("EXPLAIN ANALYZE SELEC 1", 17, "did you mean SELECT?"),
        ("EXPLAIN CREATE VIEW v AS SELECT 1", 9, ""),
        ("EXPLAIN (ANALYZE maybe) SELECT 1", 18, ""),
        ("EXPLAIN (ANALYZE VERBOSE) SELECT 1", 18, ""),
        ("EXPLAIN (FORMAT) SELECT 1", 16, ""),
        ("EXPLAIN (ANALYZE", 17, ""),
    ];
    for (text, column, hint) in cases {
        let error = parse_statement(text).unwrap_err();
        assert!(error.hint.unwrap_or_default().contains(hint), "{text}");
        assert_eq!(error.position, Some(Position { line: 1, column }), "{text}: {}", error.message);
    }
}
