//! EXPLAIN of every shared case is a stored text (`UPDATE_GOLDEN=1` rewrites them), and the
//! copies that are counted while a case runs are those that it predicts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use thetis_cluster::{Engine, Reply};
use thetis_parser::{ExplainFormat, parse_statement};
use thetis_planner::Output;
use thetis_planner::physical::{Exchange, OperatorKind};
use thetis_tests::{block_on, cases, statements};

#[test]
fn explain_is_as_stored() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for case in cases() {
        let (definitions, sql) = statements(&case);
        let engine = Engine::start().unwrap();
        let session = engine.session();
        for statement in definitions.iter().map(String::as_str).chain(["SET parallelism = 4"]) {
            session.handle(&parse_statement(statement).unwrap(), Output::Result).unwrap();
        }
        let Reply::Query(plan) = session.handle(&parse_statement(&sql).unwrap(), Output::Result).unwrap() else {
            panic!("not a query: {sql}")
        };
        let text = plan.explain(false, ExplainFormat::Text, None).replace(&format!("{}/", root.display()), "");
        let golden = root.join("cases/explain").join(case.with_extension("txt").file_name().unwrap());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&golden, &text).unwrap();
        }
        if std::fs::read_to_string(&golden).ok().as_deref() != Some(text.as_str()) {
            wrong.push(golden.display().to_string());
        }
    }
    assert!(wrong.is_empty(), "differ (UPDATE_GOLDEN=1 rewrites them): {wrong:?}");
}

#[test]
fn rows_are_copied_as_often_as_predicted() {
    block_on(async {
        for case in cases() {
            for setting in ["SET parallelism = 4", "SET matrix = '2x3'"] {
                copies_are_as_predicted(&case, setting).await;
            }
        }
    });
}

async fn copies_are_as_predicted(case: &Path, setting: &str) {
    let (definitions, sql) = statements(case);
    let engine = Engine::start().unwrap();
    let session = engine.session();
    for statement in definitions.iter().map(String::as_str).chain([setting]) {
        session.handle(&parse_statement(statement).unwrap(), Output::Result).unwrap();
    }
    let sql = format!("EXPLAIN ANALYZE {sql}");
    let Reply::Analyze(explained) = session.handle(&parse_statement(&sql).unwrap(), Output::Result).unwrap() else {
        panic!("not a query: {sql}")
    };
    let dag = &explained.plan.dag;
    let measured = engine.database().analyze(&explained.plan).await.unwrap().measured().await.unwrap();
    assert_eq!(measured.edges.len(), dag.edges.len());
    for (edge, run) in dag.edges.iter().zip(&measured.edges) {
        let (Exchange::Matrix(side), OperatorKind::Join(join)) = (&edge.exchange, &dag.operator(edge.to).kind) else {
            assert_eq!(run.routed, run.delivered);
            continue;
        };
        let Some(counted) = run.replication() else { continue };
        let predicted = join.layout.replication()[side.index()];
        let near = (counted - predicted).abs() <= 0.05 * predicted;
        assert!(near, "{} with {setting}: {side:?} copied {counted} times, predicted {predicted}", case.display());
    }
}
