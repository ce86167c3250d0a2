//! Lines become statements and commands.

use thetis::{Open, Position, Splitter, split};

/// Something to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// `\q`, in words.
    Quit,
    /// A line that starts with a backslash.
    Meta(String),
    /// Statements, and where they start in all lines.
    Sql { text: String, start: Position },
}

impl Entry {
    /// As it was typed.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Quit => "quit",
            Self::Meta(line) => line,
            Self::Sql { text, .. } => text.trim(),
        }
    }
}

/// What has been typed and not yet run.
#[derive(Debug, Default)]
pub(super) struct Feed {
    splitter: Splitter,
}

impl Feed {
    /// Takes a line; what it completes.
    pub(super) fn push(&mut self, line: &str) -> Option<Entry> {
        let trimmed = line.trim();
        // Outside of quotes and comments no SQL starts with a backslash: commands work within a statement.
        if matches!(self.splitter.open(), Open::Nothing | Open::Statement | Open::Parenthesis)
            && trimmed.starts_with('\\')
        {
            self.splitter.skip_line();
            return Some(Entry::Meta(trimmed.to_owned()));
        }
        if self.splitter.open() == Open::Nothing {
            let word = trimmed.trim_end_matches(';').trim_end();
            if word.eq_ignore_ascii_case("exit") || word.eq_ignore_ascii_case("quit") {
                self.splitter.skip_line();
                return Some(Entry::Quit);
            }
            if word.eq_ignore_ascii_case("help") {
                self.splitter.skip_line();
                return Some(Entry::Meta("\\?".to_owned()));
            }
        }
        self.splitter.push(line);
        let (text, start) = self.splitter.take()?;
        (!split(&text).is_empty()).then_some(Entry::Sql { text, start })
    }

    /// What is left at the end of the input: its last `;` may be missing.
    pub(super) fn rest(&mut self) -> Option<Entry> {
        let (text, start) = self.splitter.take_rest();
        (!split(&text).is_empty()).then_some(Entry::Sql { text, start })
    }

    /// What it waits for.
    pub(super) fn open(&self) -> Open {
        self.splitter.open()
    }

    /// What has been typed.
    pub(super) fn text(&self) -> &str {
        self.splitter.text()
    }

    /// Forgets what has been typed.
    pub(super) fn clear(&mut self) {
        self.splitter.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_statements_commands_or_both_in_turn() {
        let mut feed = Feed::default();
        assert_eq!(feed.push("\\timing"), Some(Entry::Meta("\\timing".to_owned())));
        assert_eq!(feed.push("SELECT 'a"), None);
        assert_eq!(feed.open(), Open::Quote);
        // Inside of a quote nothing is a command.
        assert_eq!(feed.push("\\q"), None);
        let start = Position { line: 2, column: 1 };
        let text = "SELECT 'a\n\\q\nquit';".to_owned();
        assert_eq!(feed.push("quit'; SELECT"), Some(Entry::Sql { text, start }));
        assert_eq!(feed.open(), Open::Statement);
        assert_eq!(feed.push("quit"), None);
        // A command does not end the statement around it.
        assert_eq!(feed.push("\\timing"), Some(Entry::Meta("\\timing".to_owned())));
        assert_eq!(feed.open(), Open::Statement);
        feed.clear();
        assert_eq!(feed.push("help;"), Some(Entry::Meta("\\?".to_owned())));
        assert_eq!(feed.push("QUIT;"), Some(Entry::Quit));
        assert_eq!(feed.push(";; -- nothing"), None);
        assert_eq!(feed.open(), Open::Nothing);
        assert_eq!(feed.push("SELECT 1"), None);
        assert_eq!(feed.rest().map(|entry| entry.text().to_owned()), Some("SELECT 1".to_owned()));
        assert_eq!(feed.rest(), None);
    }
}
