//! The binary: what it prints, its exit codes, and what it says about bad SQL and bad data.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod contract;
mod explain;
mod newcomer;
mod options;
mod pipe;
mod sources;
mod tables;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// The command.
pub(crate) fn thetis() -> Command {
    Command::new(env!("CARGO_BIN_EXE_thetis"))
}

/// Runs it with these arguments.
pub(crate) fn run(args: &[&str]) -> Output {
    thetis().args(args).stdin(Stdio::null()).output().unwrap()
}

/// Starts it, interrupts it when it is at work, and waits for its end.
pub(crate) fn interrupted(command: &mut Command) -> Output {
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let mut waited = 0;
    while child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(50));
        waited += 1;
        assert!(waited < 200, "Ctrl-C does not end it");
    }
    child.wait_with_output().unwrap()
}

/// Output as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What the SQL prints as CSV.
pub(crate) fn csv(sql: &str) -> String {
    let output = run(&["-c", sql, "--format", "csv"]);
    assert_eq!(output.status.code(), Some(0), "{sql}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The arguments fail with exit code 1, and say all of this.
pub(crate) fn fails(args: &[&str], says: &[&str]) {
    let output = run(args);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
    for part in says {
        assert!(error.contains(part), "{args:?}: {error:?} does not say {part:?}");
    }
}

/// Writes a file; its path.
pub(crate) fn file(folder: &Path, name: &str, bytes: &[u8]) -> String {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.display().to_string()
}
