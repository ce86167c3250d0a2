//! An error that points at the SQL text: position, source line with a caret, hint.

use std::fmt;

use serde::{Deserialize, Serialize};
use sqlparser::tokenizer::{Location, Span};

/// A place in a text: line and column, both counted from 1, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
}

impl Position {
    /// The first character of a text.
    pub const START: Self = Self { line: 1, column: 1 };

    /// The position of a sqlparser location; `None` for the empty location 0:0.
    pub fn of(location: Location) -> Option<Self> {
        (location.line > 0).then_some(Self { line: location.line, column: location.column })
    }

    /// The start of a sqlparser span; `None` for an empty span.
    pub fn of_span(span: Span) -> Option<Self> {
        Self::of(span.start)
    }

    /// A position inside a piece of text, seen from the text that holds the piece at `base`.
    pub fn within(self, base: Self) -> Self {
        if self.line == 1 {
            Self { line: base.line, column: base.column + self.column - 1 }
        } else {
            Self { line: base.line + self.line - 1, column: self.column }
        }
    }
}

/// Why a text is not a statement, or not a statement that is supported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    /// What is wrong, without position.
    pub message: String,
    /// Where, if known.
    pub position: Option<Position>,
    /// What to do about it.
    pub hint: Option<String>,
    /// The statement is well formed, and Thetis does not do it.
    pub unsupported: bool,
}

impl SqlError {
    /// A syntax error.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), position: None, hint: None, unsupported: false }
    }

    /// A statement that is understood but not supported.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self { unsupported: true, ..Self::new(message) }
    }

    /// The same error at a place.
    pub fn at(mut self, position: Option<Position>) -> Self {
        self.position = position.or(self.position);
        self
    }

    /// The same error with advice.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The source line of `position` in `text` with a caret under the column, or `None` if the
    /// text has no such line. Long lines are cut to a window around the caret.
    pub fn excerpt(text: &str, position: Position) -> Option<String> {
        const WINDOW: usize = 100;
        let line = text.lines().nth(usize::try_from(position.line).ok()?.checked_sub(1)?)?;
        let column = usize::try_from(position.column).ok()?.saturating_sub(1);
        let start = column.saturating_sub(WINDOW / 2);
        // Control characters would be commands to a terminal: their pictures stand for them.
        let picture = |c: char| match c {
            '\t' => ' ',
            c if c.is_control() => char::from_u32(0x2400 + c as u32).filter(|_| c < ' ').unwrap_or('\u{fffd}'),
            c => c,
        };
        let shown: String = line.chars().skip(start).take(WINDOW).map(picture).collect();
        let prefix = format!("LINE {}: ", position.line);
        let caret = prefix.chars().count() + column - start;
        Some(format!("{prefix}{shown}\n{}^", " ".repeat(caret)))
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SqlError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_points_at_the_column() {
        let text = "SELECT a\nFROM nowhere";
        let shown = SqlError::excerpt(text, Position { line: 2, column: 6 }).unwrap();
        assert_eq!(shown, "LINE 2: FROM nowhere\n             ^");
    }

    #[test]
    fn excerpt_of_a_long_line_is_a_window() {
        let text = format!("{}x{}", "a".repeat(5_000), "b".repeat(5_000));
        let shown = SqlError::excerpt(&text, Position { line: 1, column: 5_001 }).unwrap();
        let (line, caret) = shown.split_once('\n').unwrap();
        assert_eq!(line.chars().nth(caret.len() - 1), Some('x'));
        assert!(line.len() < 120);
    }

    #[test]
    fn positions_compose() {
        let base = Position { line: 4, column: 3 };
        assert_eq!(Position { line: 1, column: 2 }.within(base), Position { line: 4, column: 4 });
        assert_eq!(Position { line: 2, column: 2 }.within(base), Position { line: 5, column: 2 });
    }
}
