//! The examples run, say what they should, and the README shows one of them to the letter.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What an example prints.
fn run(name: &str) -> String {
    // Tests are built to `deps`, examples beside it.
    let folder = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples");
    let output = Command::new(folder.join(name)).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_readme_shows_the_example_of_forty_lines() {
    let example = std::fs::read_to_string(root().join("examples/theta_join.rs")).unwrap();
    assert!(example.lines().count() <= 40, "{} lines", example.lines().count());
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains(&format!("```rust\n{example}```")));
}

#[test]
fn a_continuous_theta_join_is_cancelled() {
    let output = run("theta_join");
    assert_eq!(output.matches(" has bike ").count(), 5, "{output}");
    assert!(output.ends_with("then: the query was cancelled\n"), "{output}");
}

#[test]
fn a_view_counts_the_alarms_of_shifts() {
    assert_eq!(run("materialized_view"), "Ada: 2\nGrace: 2\n");
}

#[test]
fn parameters_find_prices() {
    assert_eq!(run("prepared"), "2.7: [\"zinc\"]\n9: [\"copper\"]\n100: []\n");
}

#[test]
fn a_subscription_follows_orders() {
    let output = run("subscription");
    assert!(output.contains("epoch 4, weights [-1, -1, 1]"), "{output}");
}
