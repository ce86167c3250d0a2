//! Results, errors and commands on the screen.

use std::path::Path;
use std::process::Command;

use crate::terminal::{CTRL_C, Terminal};

/// A stream that never sends anything.
fn idle(home: &Path) -> &'static str {
    assert!(Command::new("mkfifo").arg(home.join("idle.csv")).status().unwrap().success());
    "CREATE STREAM idle (n BIGINT) WITH (path = 'idle.csv');\r"
}

#[test]
fn errors_have_a_caret_and_do_not_leave() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::start(home.path());
    terminal.keys("SELECT nope; SELECT 8 AS eight;\r");
    let screen = terminal.wait_for_prompt_after(" 8\n");
    assert!(screen.contains("ERROR 42703") && screen.contains("LINE 1: SELECT nope"), "{screen}");
    assert!(screen.lines().any(|line| line.trim() == "^"), "{screen}");
    terminal.keys("\\tming\r");
    terminal.wait_for_prompt_after("did you mean \\timing?");
}

#[test]
fn ctrl_c_cancels_an_idle_query_also_after_a_resize() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::start(home.path());
    terminal.keys(idle(home.path()));
    terminal.wait_for_prompt_after("CREATE STREAM\n");
    terminal.keys("SELECT n FROM idle;\r");
    terminal.wait_for("0 rows in");
    terminal.resize(20, 60);
    std::thread::sleep(std::time::Duration::from_millis(500));
    terminal.keys(CTRL_C);
    terminal.wait_for_prompt_after("cancelled\n");
    terminal.resize(24, 100);
    terminal.keys("SELECT 9 AS nine;\r");
    terminal.wait_for_prompt_after(" 9\n");
}

/// The number in front of a word of the footer.
fn footer(screen: &str, word: &str) -> u64 {
    let line = screen.lines().find(|line| line.contains("rows in, ")).unwrap_or_default();
    let part = line.split(", ").find(|part| part.contains(word)).unwrap_or_default();
    part.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
}

#[test]
fn a_result_that_changes_for_ever_is_redrawn_in_place() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::start(home.path());
    terminal.keys("CREATE STREAM g (id BIGINT) WITH (connector = 'generator', rows_per_second = 200,\r");
    terminal.wait_for("     (>");
    terminal.keys("column.id = 'sequence(1)');\r");
    terminal.wait_for_prompt_after("CREATE STREAM\n");
    terminal.keys("SELECT id % 3 AS k, COUNT(*) AS n FROM g GROUP BY id % 3;\r");
    let screen = terminal.wait("twenty epochs", |screen| footer(screen, "epoch") > 20);
    assert_eq!(screen.matches("rows in, ").count(), 1, "{screen}");
    let keys: Vec<&str> = screen.lines().filter_map(|line| line.split_once(" | ")).map(|(k, _)| k.trim()).collect();
    assert_eq!(keys, ["k", "0", "1", "2"], "{screen}");
    terminal.keys(CTRL_C);
    terminal.wait_for_prompt_after("cancelled\n");
    terminal.keys("SELECT id, COUNT(*) AS n FROM g GROUP BY id;\r");
    terminal.wait("more rows than fit", |screen| screen.contains(" more rows\n"));
    terminal.resize(12, 40);
    let screen = terminal.wait("the smaller table", |screen| {
        let rows = screen.lines().filter(|line| line.contains(" | ")).count();
        rows == 8 && screen.contains("rows in, ") && screen.contains(" more rows\n")
    });
    assert!(screen.lines().any(|line| line.ends_with('…')), "{screen}");
    terminal.keys(CTRL_C);
    terminal.wait_for_prompt_after("cancelled\n");
    terminal.resize(24, 100);
    terminal.keys("SELECT id FROM g;\r");
    terminal.wait("rows as they come", |screen| screen.lines().any(|line| line.trim() == "30"));
    terminal.keys(CTRL_C);
    terminal.wait_for_prompt_after("cancelled\n");
}

#[test]
fn ctrl_c_cancels_a_flood() {
    let home = tempfile::tempdir().unwrap();
    let rows: String = (0..20_000).map(|n| format!("{n}\n")).collect();
    std::fs::write(home.path().join("n.csv"), format!("n\n{rows}")).unwrap();
    let mut terminal = Terminal::start(home.path());
    terminal.keys("CREATE STREAM t (n BIGINT) WITH (path = 'n.csv');\r");
    terminal.wait_for_prompt_after("CREATE STREAM\n");
    terminal.keys("SELECT a.n AS a, b.n AS b FROM t AS a JOIN t AS b ON true;\r");
    terminal.wait("rows", |screen| screen.lines().filter(|line| line.contains(" | ")).count() > 20);
    terminal.keys(CTRL_C);
    terminal.wait_for_prompt_after("cancelled\n");
    terminal.keys("SELECT 'still here' AS s;\r");
    terminal.wait_for_prompt_after(" still here\n");
}

#[test]
fn commands_set_how_results_are_printed() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("two.sql"), "SELECT 'first' AS a;\nSELECT nope;\nSELECT 'third' AS c;\n").unwrap();
    let mut terminal = Terminal::start(home.path());
    terminal.keys("\\timing\r");
    terminal.wait_for_prompt_after("timing is on\n");
    terminal.keys("SELECT 1 AS one;\r");
    terminal.wait_for_prompt_after("Time: ");
    terminal.keys("\\timing off\r");
    terminal.wait_for_prompt_after("timing is off\n");
    terminal.keys("\\x auto\r");
    terminal.wait_for_prompt_after("expanded display is auto\n");
    terminal.keys("SELECT 'narrow' AS a, 'too' AS b;\r");
    terminal.wait_for_prompt_after(" narrow | too\n");
    terminal.keys("SELECT repeat('w', 70) AS a, repeat('v', 70) AS b;\r");
    terminal.wait_for_prompt_after("-[ RECORD 1 ]-");
    terminal.keys("\\o out.txt\r");
    terminal.wait("the next prompt", |screen| screen.trim_end().ends_with("\\o out.txt\nthetis>"));
    terminal.keys("SELECT 'into the file' AS s;\r");
    terminal.wait("the next prompt", |screen| screen.trim_end().ends_with("AS s;\nthetis>"));
    terminal.keys("\\o\r");
    terminal.wait("the next prompt", |screen| screen.trim_end().ends_with("\\o\nthetis>"));
    assert!(std::fs::read_to_string(home.path().join("out.txt")).unwrap().contains("into the file\n"));
    terminal.keys("\\i two.sql\r");
    let screen = terminal.wait_for_prompt_after("two.sql: ERROR");
    assert!(screen.contains("first") && !screen.contains("third"), "{screen}");
    terminal.keys("\\?\r");
    let screen = terminal.wait_for_prompt_after("Tab completes");
    assert!(screen.contains("\\pset [format table|csv|ndjson|markdown]"), "{screen}");
}

#[test]
fn a_dumb_terminal_gets_lines_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::with(home.path(), "dumb", 24, 100);
    terminal.wait_for("thetis> ");
    terminal.keys("SELECT 1\r");
    terminal.wait_for("     -> ");
    terminal.keys("AS one;\r");
    terminal.wait_for_prompt_after(" 1\n");
    terminal.keys("\\q\r");
    assert_eq!(terminal.leave(), 0);
}
