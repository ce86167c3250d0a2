//! Everything that is not data goes to standard error, and nothing happens if that is closed.

use std::borrow::Cow;
use std::io::{self, Write};

use serde_json::{Value, json};
use thetis::{Error, Position};

use super::args::ErrorFormat;

/// Writes a line.
pub(super) fn say(text: impl AsRef<str>) {
    let _ = writeln!(io::stderr(), "{}", text.as_ref());
}

/// SQL text, and where it comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    /// The file, for messages.
    pub(super) name: Option<&'a str>,
    pub(super) text: &'a str,
    /// Where the text starts in its file.
    pub(super) start: Position,
}

impl<'a> Text<'a> {
    /// The whole of a file or of an argument.
    pub(super) fn whole(name: Option<&'a str>, text: &'a str) -> Self {
        Self { name, text, start: Position::START }
    }
}

/// Writes errors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reporter {
    pub(super) format: ErrorFormat,
}

impl Reporter {
    /// An error of the statement that starts at `statement` in `source`.
    pub(super) fn sql(&self, error: &Error, source: &Text<'_>, statement: Position) {
        match self.format {
            ErrorFormat::Text => {
                let line = statement.within(source.start).line;
                let place = match (source.name, error.position()) {
                    (None, _) => String::new(),
                    (Some(name), Some(_)) => format!("{name}: "),
                    // Nothing points into the text: the statement's line does.
                    (Some(name), None) => format!("{name}, line {line}: "),
                };
                let text = from_the_top(source);
                say(format!("{place}{}", error.render(&text, statement.within(source.start))));
            }
            ErrorFormat::Json => {
                let position = error.position().unwrap_or(Position::START);
                say(as_json(error, source.name, Some(position.within(statement).within(source.start))));
            }
        }
    }

    /// An error that is of no statement.
    pub(super) fn other(&self, sqlstate: &str, message: &str, file: Option<&str>) {
        match self.format {
            ErrorFormat::Text => say(message),
            ErrorFormat::Json => say(object(sqlstate, message, None, file, None)),
        }
    }
}

/// The text with as much in front of it as makes the positions in it those of its file.
fn from_the_top<'a>(source: &Text<'a>) -> Cow<'a, str> {
    if source.start == Position::START {
        return Cow::Borrowed(source.text);
    }
    let before = |count: u64, with: &str| with.repeat(usize::try_from(count - 1).unwrap_or(0));
    let (lines, columns) = (before(source.start.line, "\n"), before(source.start.column, " "));
    Cow::Owned(format!("{lines}{columns}{}", source.text))
}

fn as_json(error: &Error, file: Option<&str>, position: Option<Position>) -> String {
    object(error.sqlstate(), error.message(), error.hint(), file, position)
}

fn object(sqlstate: &str, message: &str, hint: Option<&str>, file: Option<&str>, position: Option<Position>) -> String {
    let value: Value = json!({
        "severity": "ERROR",
        "sqlstate": sqlstate,
        "message": message,
        "hint": hint,
        "file": file,
        "line": position.map(|position| position.line),
        "column": position.map(|position| position.column),
    });
    value.to_string()
}
