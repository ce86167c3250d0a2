use super::*;
use crate::backend::Backend;
use crate::{Driver, ErrorKind};

const GENERATOR: &str = "CREATE STREAM g (id BIGINT) WITH (connector = 'generator', rows_per_second = 1000)";

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn a_result_that_changes_for_ever_is_its_changes() {
    block_on(async {
        let mut statement = Driver::open("thetis:").unwrap().statement();
        statement.execute(GENERATOR).await.unwrap();
        let error = statement.query("SELECT COUNT(*) AS n FROM g").await.unwrap_err();
        assert!(error.hint().unwrap().contains("changes"));
        let Response::Rows(mut rows) = statement.execute("SELECT COUNT(*) AS n FROM g").await.unwrap() else {
            panic!("a query gives rows");
        };
        assert!(rows.is_changelog() && !rows.is_bounded());
        assert_eq!(rows.schema().fields().len(), 3);
        assert_eq!(rows.progress().epoch, None);
        let mut last = None;
        for _ in 0..5 {
            let row = rows.next_row().await.unwrap().unwrap();
            // Nothing of an epoch comes after it is complete.
            assert!(rows.progress().epoch.map(|epoch| epoch as i64) < Some(row.get::<i64>("epoch").unwrap()));
            assert!(rows.progress().epoch >= last);
            last = rows.progress().epoch;
        }
        assert!(last.is_some());
        statement.cancel_handle().cancel();
        while let Some(outcome) = rows.next_batch().await.transpose() {
            if let Err(error) = outcome {
                assert_eq!(error.kind(), ErrorKind::Cancelled);
                return;
            }
        }
        panic!("a cancelled query ends with an error");
    });
}

#[test]
fn checking_defines_and_runs_nothing() {
    block_on(async {
        let mut statement = Driver::open("thetis:").unwrap().statement();
        statement.check(GENERATOR).await.unwrap();
        statement.check("SELECT id FROM g").await.unwrap();
        statement.check_changes("SELECT COUNT(*) AS n FROM g").await.unwrap();
        assert_eq!(statement.check("SELECT nope FROM g").await.unwrap_err().sqlstate(), "42703");
        assert!(!statement.query("SELECT 1 AS x").await.unwrap().is_changelog());
    });
}

#[test]
fn a_statement_can_be_cancelled_before_it_is_planned() {
    let connection = Driver::open("thetis:").unwrap();
    let mut statement = connection.statement();
    let cancel = statement.cancel_handle();
    let Backend::Embedded { session, .. } = connection.backend.clone() else { unreachable!() };
    let planning = session.settings();
    let outcome = block_on(async {
        let mut execute = std::pin::pin!(statement.execute("SELECT 1 AS x"));
        assert!(poll_once(execute.as_mut()).await.is_none());
        cancel.cancel();
        execute.await
    });
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Cancelled);
    drop(planning);
    assert!(block_on(statement.query("SELECT 1 AS x")).is_ok());
}

/// Polls once.
async fn poll_once<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
