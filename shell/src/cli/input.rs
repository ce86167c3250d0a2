//! SQL text from files and standard input.

use std::io::{self, Read};

use super::args::Input;

/// What standard input is called in messages.
pub(super) const STANDARD_INPUT: &str = "standard input";

/// Longest SQL file, in bytes.
const MAX_FILE: u64 = 64 << 20;

/// The input's name for messages, and its text.
pub(super) fn read(input: &Input) -> Result<(Option<String>, String), String> {
    match input {
        Input::Text(text) => Ok((None, text.clone())),
        Input::File(path) if path == "-" => Ok((Some(STANDARD_INPUT.to_owned()), read_all(path, io::stdin().lock())?)),
        Input::File(path) => Ok((Some(path.clone()), read_file(path)?)),
    }
}

/// The text of a file.
pub(super) fn read_file(path: &str) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| failed(path, &error))?;
    read_all(path, file)
}

fn read_all(path: &str, input: impl Read) -> Result<String, String> {
    let mut text = String::new();
    input.take(MAX_FILE + 1).read_to_string(&mut text).map_err(|error| failed(path, &error))?;
    if text.len() as u64 > MAX_FILE {
        return Err(format!("{path}: is longer than {MAX_FILE} bytes"));
    }
    // A byte order mark is no SQL.
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

/// Why an input cannot be read.
pub(super) fn failed(path: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("{path}: no such file"),
        io::ErrorKind::InvalidData => format!("{path}: is not UTF-8 text"),
        _ => format!("{path}: cannot be read: {error}"),
    }
}
