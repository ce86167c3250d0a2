//! Typing, recalling, completing, pasting.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::terminal::{CTRL_C, CTRL_D, Terminal, UP};

/// A statement of so many lines, and what it prints.
fn long_statement(lines: usize) -> (String, String) {
    let rows: Vec<String> = (1..=lines).map(|n| format!("({n})")).collect();
    let text = format!("SELECT COUNT(*) AS n, SUM(x) AS total FROM (VALUES\n{}\n) AS t(x);", rows.join(",\n"));
    (text, format!("{lines} | {}", lines * (lines + 1) / 2))
}

#[test]
fn each_continuation_prompt_shows_what_is_open() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::start(home.path());
    assert!(terminal.screen().contains("\\? lists the commands"));
    for (line, prompt) in [
        ("SELECT", "     -> "),
        ("(1 +", "     (> "),
        ("2) AS n, 'a", "     '> "),
        ("b' /* c", "     *> "),
        ("*/ AS \"x", "     \"> "),
        ("y\", $$d", "     $> "),
    ] {
        terminal.keys(&format!("{line}\r"));
        terminal.wait(prompt, |screen| screen.trim_end().ends_with(prompt.trim_end()));
    }
    terminal.keys("e$$ AS z;\r");
    let screen = terminal.wait_for_prompt_after("(1 row)");
    assert!(screen.contains(" 3 | a\\nb | d\\ne"), "{screen}");
    terminal.keys("SELECT 'one' AS a; SELECT 'two' AS b; SELECT\r");
    terminal.wait("two results", |screen| screen.contains(" two\n") && screen.trim_end().ends_with("     ->"));
    terminal.keys("'three' AS c;\r");
    terminal.wait_for_prompt_after(" three\n");
    terminal.keys("quit\r");
    assert_eq!(terminal.leave(), 0);
}

#[test]
fn tab_completes() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::start(home.path());
    terminal.keys("CREATE VIEW shipments AS SELECT 4.0 AS weight;\r");
    terminal.wait_for_prompt_after("CREATE VIEW\n");
    terminal.keys("sel\t sqr\t");
    terminal.wait_for("thetis> select sqrt");
    terminal.keys("(weight) AS root FROM shi\t;\r");
    terminal.wait_for_prompt_after("FROM shipments;\n root");
    terminal.keys("\\ti\t");
    terminal.wait_for("thetis> \\timing");
    terminal.keys(CTRL_C);
    terminal.wait_for_prompt_after("thetis> \\timing\n");
    terminal.keys("s\t\t");
    terminal.wait("candidates", |screen| screen.contains("select") && screen.contains("settings"));
}

#[test]
fn history_keeps_whole_statements_from_session_to_session() {
    let home = tempfile::tempdir().unwrap();
    let mut first = Terminal::start(home.path());
    first.keys("SELECT 6 * 7\r");
    first.wait_for("     ->");
    first.keys("AS answer;\r");
    first.wait_for_prompt_after(" 42\n");
    first.keys(CTRL_D);
    assert_eq!(first.leave(), 0);
    let file = home.path().join("state/thetis/history");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    let mut second = Terminal::start(home.path());
    second.keys(UP);
    second.wait_for("thetis> SELECT 6 * 7\nAS answer;");
    second.keys("\r");
    second.wait_for_prompt_after(" 42\n");
    // A recalled statement can be edited anywhere in its lines.
    second.keys(&format!("{UP}\x01+ 1 \r"));
    second.wait_for_prompt_after(" 43\n");
    second.keys("\\q\r");
    assert_eq!(second.leave(), 0);
}

#[test]
fn a_history_that_cannot_be_written_is_said_once() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("state"), "not a folder").unwrap();
    let mut terminal = Terminal::start(home.path());
    assert_eq!(terminal.screen().matches("the history is not kept").count(), 1);
    terminal.keys("SELECT 5 AS five;\r");
    assert_eq!(terminal.wait_for_prompt_after(" 5\n").matches("the history is not kept").count(), 1);
}

#[test]
fn ctrl_c_clears_what_is_typed() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::start(home.path());
    terminal.keys("SELECT (1\r");
    terminal.wait_for("     (>");
    terminal.keys(&format!("+ nonsense{CTRL_C}"));
    terminal.wait_for("nonsense\nthetis>");
    terminal.keys("SELECT 7 AS seven;\r");
    terminal.wait_for_prompt_after(" 7\n");
    terminal.keys(CTRL_D);
    assert_eq!(terminal.leave(), 0);
}

#[test]
fn ten_thousand_lines_can_be_pasted() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::start(home.path());
    let (text, prints) = long_statement(10_000);
    terminal.keys(&format!("\x1b[200~{text}\x1b[201~\r"));
    terminal.wait_for_prompt_after(&prints);
    let many: String = (1..=50).map(|n| format!("SELECT {n} AS n;\n")).collect();
    terminal.keys(&format!("\x1b[200~{many}\x1b[201~\r"));
    terminal.wait_for_prompt_after(" 50\n(1 row)");
}

#[test]
fn ten_thousand_lines_can_be_typed_at_once() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::start(home.path());
    let (text, prints) = long_statement(10_000);
    terminal.keys(&format!("{}\r", text.replace('\n', "\r")));
    terminal.wait_for_prompt_after(&prints);
}
