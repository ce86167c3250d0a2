//! What the terminal can do, and its size now.

use std::io::{self, IsTerminal};

use rustyline::history::MemHistory;
use rustyline::{Config, Editor};

/// Columns and rows of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// The size of the terminal that standard output is; `None` if it is none.
pub(super) fn size() -> Option<Size> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let history = MemHistory::new();
    let (columns, rows) = Editor::<(), _>::with_history(Config::default(), history).ok()?.dimensions()?;
    Some(Size { columns: columns.into(), rows: rows.into() })
}

/// Whether the cursor can be moved.
pub(super) fn moves_cursor() -> bool {
    !std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term.eq_ignore_ascii_case("dumb"))
}

/// Whether colours are welcome.
pub(super) fn colours() -> bool {
    moves_cursor() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
