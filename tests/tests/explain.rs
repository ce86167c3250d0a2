//! EXPLAIN of every shared case is a stored text (`UPDATE_GOLDEN=1` rewrites them), and the
//! copies that are counted while a case runs are those that it predicts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use thetis::Driver;
use thetis_cluster::{Engine, Reply};
use thetis_parser::parse_statement;
use thetis_planner::Output;
use thetis_planner::physical::{OperatorId, OperatorKind};
use thetis_tests::{block_on, cases, run_all, statements};

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
        let text = plan.explain(false).replace(&format!("{}/", root.display()), "");
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
    let connection = Driver::open("thetis:").unwrap();
    run_all(&connection, &definitions).await;
    run_all(&connection, &[setting.to_owned()]).await;
    for statement in definitions.iter().map(String::as_str).chain([setting]) {
        session.handle(&parse_statement(statement).unwrap(), Output::Result).unwrap();
    }
    let Reply::Query(plan) = session.handle(&parse_statement(&sql).unwrap(), Output::Result).unwrap() else {
        panic!("not a query: {sql}")
    };
    let mut statement = connection.statement();
    let mut result = statement.query(&sql).await.unwrap();
    while result.next_batch().await.unwrap().is_some() {}
    for (_, join, port, counted) in result.replication() {
        let OperatorKind::Join(join) = &plan.dag.operator(OperatorId(join)).kind else { panic!("not a join") };
        let predicted = join.layout.replication()[usize::from(port)];
        let near = (counted - predicted).abs() <= 0.05 * predicted;
        assert!(near, "{} with {setting}: port {port} copied {counted} times, predicted {predicted}", case.display());
    }
}
