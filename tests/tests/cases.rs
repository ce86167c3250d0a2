//! The shared cases: their answers at any parallelism and shape, and at every prefix.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use thetis::Driver;
use thetis_tests::prefixes::{Evaluated, Setup};
use thetis_tests::{answer, block_on, cases, difference, query, run_all, statements};

const EPOCH_ROWS: u64 = 100;

fn answers_with(settings: &[&str]) {
    block_on(async {
        for case in cases() {
            let (definitions, sql) = statements(&case);
            for setting in settings {
                let connection = Driver::open("thetis:").unwrap();
                run_all(&connection, &[(*setting).to_owned()]).await;
                run_all(&connection, &definitions).await;
                let found = query(&connection, &sql).await.unwrap();
                let wrong = difference(found, answer(&case));
                assert_eq!(wrong, None, "{} with {setting}", case.display());
            }
        }
    });
}

#[test]
fn answers_at_any_parallelism() {
    answers_with(&["SET parallelism = 1", "SET parallelism = 2", "SET parallelism = 4", "SET parallelism = 6"]);
}

#[test]
fn answers_in_any_matrix() {
    answers_with(&["SET matrix = '2x3'", "SET matrix = '3x1'", "SET matrix = '4x4'"]);
}

async fn prefixes_are_right(case: &Path, setting: &str) {
    let (definitions, sql) = statements(case);
    let setup = Setup::new(&definitions, &[setting], EPOCH_ROWS).await;
    setup.check(&sql, Evaluated::Optimized).await;
}

#[test]
fn answers_at_every_prefix_of_every_case() {
    block_on(async {
        let settings = ["SET parallelism = 2", "SET matrix = '2x3'", "SET parallelism = 3", "SET matrix = '1x1'"];
        for (number, case) in cases().iter().enumerate() {
            // Each case in a chosen layout and in a given matrix; all of them are tried.
            for setting in [settings[number % 4], settings[(number + 1) % 4]] {
                prefixes_are_right(case, setting).await;
            }
        }
    });
}
