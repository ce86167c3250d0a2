//! The client library: cancelling, dropped futures, errors that are not lost.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use thetis::{Driver, ErrorKind};
use thetis_tests::block_on;

const ENDLESS: &str = "SELECT a.column1 AS a, b.column1 AS b, c.column1 AS c FROM (SELECT UNNEST(range(0, 5000)) AS column1) AS a
    JOIN (SELECT UNNEST(range(0, 5000)) AS column1) AS b ON true JOIN (SELECT UNNEST(range(0, 5000)) AS column1) AS c ON true";

#[test]
fn an_error_is_not_lost_when_a_waiting_call_is_dropped() {
    block_on(async {
        let connection = Driver::open("thetis:").unwrap();
        for _ in 0..200 {
            let mut statement = connection.statement();
            let mut result = statement.query("SELECT 1 / column1 AS x FROM (VALUES (0)) AS t").await.unwrap();
            let error = loop {
                // A call that is dropped at once, as in a select with a timer.
                let polled = tokio::select! {
                    biased;
                    batch = result.next_batch() => Some(batch),
                    () = tokio::task::yield_now() => None,
                };
                match polled {
                    Some(Ok(None)) => panic!("the error was lost"),
                    Some(Err(error)) => break error,
                    _ => {}
                }
            };
            assert_eq!(error.sqlstate(), "22012");
        }
    });
}

#[test]
fn cancel_ends_a_flood_from_another_thread() {
    block_on(async {
        let connection = Driver::open("thetis:").unwrap();
        let mut statement = connection.statement();
        let cancel = statement.cancel_handle();
        let mut result = statement.query(ENDLESS).await.unwrap();
        assert_eq!(result.schema().fields().len(), 3);
        assert!(result.next_batch().await.unwrap().is_some());
        std::thread::Builder::new().spawn(move || cancel.cancel()).unwrap().join().unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(10), async {
            loop {
                match result.next_batch().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("ended without an error"),
                    Err(error) => return error,
                }
            }
        });
        assert_eq!(ended.await.unwrap().kind(), ErrorKind::Cancelled);
    });
}
