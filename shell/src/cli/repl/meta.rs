//! Backslash commands: one table has their names, what they take, what they do, and what is
//! completed after them.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use clap::ValueEnum;
use thetis::closest;

use super::Shell;
use crate::cli::args::Format;
use crate::cli::output::{Expanded, Out};
use crate::cli::report::say;
use crate::cli::run::Stop;

/// A command.
pub(super) struct Meta {
    /// Its name, with the backslash.
    pub(super) name: &'static str,
    /// What it takes, for people.
    arguments: &'static str,
    /// What it does.
    help: &'static str,
    /// What comes behind it.
    pub(super) takes: Takes,
    run: fn(&mut Shell, &str) -> Result<(), Wrong>,
}

/// What can be completed behind a command.
#[derive(Debug, Clone, Copy)]
pub(super) enum Takes {
    Nothing,
    /// One word for each place.
    Words(&'static [&'static [&'static str]]),
    Relation,
    File,
}

/// Why a command does not do what it should.
enum Wrong {
    /// To be reported.
    Message(String),
    Stop(Stop),
}

impl From<Stop> for Wrong {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

const SWITCH: &[&str] = &["on", "off"];

/// All commands.
pub(super) static TABLE: [Meta; 9] = [
    Meta { name: "\\?", arguments: "", help: "lists the commands", takes: Takes::Nothing, run: help },
    Meta {
        name: "\\d",
        arguments: "[NAME]",
        help: "lists streams, tables, views and sinks, or the columns of one",
        takes: Takes::Relation,
        run: describe,
    },
    Meta {
        name: "\\h",
        arguments: "",
        help: "shows what SQL statements look like",
        takes: Takes::Nothing,
        run: sql_help,
    },
    Meta {
        name: "\\i",
        arguments: "FILE",
        help: "runs a file of statements and commands, up to its first error",
        takes: Takes::File,
        run: include,
    },
    Meta {
        name: "\\o",
        arguments: "[FILE]",
        help: "sends results to a file, or back to standard output",
        takes: Takes::File,
        run: output,
    },
    Meta {
        name: "\\pset",
        arguments: "[format table|csv|ndjson|markdown]",
        help: "sets how results are printed, or shows it",
        takes: Takes::Words(&[&["format"], &["table", "csv", "ndjson", "markdown"]]),
        run: pset,
    },
    Meta { name: "\\q", arguments: "", help: "leaves, as exit, quit and Ctrl-D do", takes: Takes::Nothing, run: quit },
    Meta {
        name: "\\timing",
        arguments: "[on|off]",
        help: "tells how long each statement takes",
        takes: Takes::Words(&[SWITCH]),
        run: timing,
    },
    Meta {
        name: "\\x",
        arguments: "[on|off|auto]",
        help: "prints tables as records; auto: if they are wider than the terminal",
        takes: Takes::Words(&[&["on", "off", "auto"]]),
        run: expanded,
    },
];

/// Runs a line that starts with a backslash.
pub(super) fn run(shell: &mut Shell, line: &str) -> Result<(), Stop> {
    let line = line.trim_end_matches(';').trim_end();
    let (name, arguments) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let outcome = match TABLE.iter().find(|meta| meta.name == name) {
        Some(meta) => (meta.run)(shell, arguments.trim()),
        None => Err(Wrong::Message(unknown(name))),
    };
    match outcome {
        Ok(()) => Ok(()),
        Err(Wrong::Stop(stop)) => Err(stop),
        Err(Wrong::Message(message)) => shell.runner.fail("42601", &message),
    }
}

fn unknown(name: &str) -> String {
    let near = closest(name, TABLE.iter().map(|meta| meta.name)).filter(|_| name.len() > 2);
    match near {
        Some(near) => format!("there is no command {name}; did you mean {near}?"),
        None => format!("there is no command {name}; \\? lists them"),
    }
}

/// An argument without the quotes around it.
fn unquoted(text: &str) -> &str {
    let inner = |quote| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    inner('\'').or_else(|| inner('"')).unwrap_or(text)
}

/// A path whose `~` is spelled out.
fn at_home(path: &str) -> String {
    let home = path.strip_prefix("~/").and_then(|rest| Some(dirs::home_dir()?.join(rest)));
    home.map_or_else(|| path.to_owned(), |path| path.display().to_string())
}

/// Says what is set now, to someone at a prompt.
fn confirm(shell: &Shell, text: impl AsRef<str>) {
    if shell.runner.at_prompt {
        say(text);
    }
}

fn help(shell: &mut Shell, _: &str) -> Result<(), Wrong> {
    let mut text = String::new();
    for meta in &TABLE {
        let command = format!("{} {}", meta.name, meta.arguments);
        let _ = writeln!(text, "  {command:<41} {}", meta.help);
    }
    text += "\nA statement ends with ; and may have many lines. Tab completes, Up recalls whole statements, Alt-Enter\n\
             adds a line inside of one, Ctrl-C cancels a query or clears what is typed.\n";
    Ok(shell.runner.print_text(&text)?)
}

fn sql_help(shell: &mut Shell, _: &str) -> Result<(), Wrong> {
    const TEXT: &str = "\
  CREATE STREAM name (column TYPE, ...) WITH (connector = 'file' | 'generator', path = '...', ...)
  CREATE TABLE name (column TYPE [NOT NULL], ...)
  CREATE TABLE name AS SELECT ...
  CREATE [MATERIALIZED] VIEW name AS SELECT ...
  CREATE SINK name WITH (connector = 'file' | 'stdout' | 'blackhole', path = '...', ...)
  INSERT INTO name [(column, ...)] VALUES (...), ... | SELECT ...
  UPDATE name SET column = value, ... [WHERE condition]
  DELETE FROM name [WHERE condition]
  SELECT ... FROM a JOIN b ON any condition WHERE ... GROUP BY ... HAVING ... ORDER BY ... LIMIT n
  EXPLAIN [ANALYZE] [VERBOSE] SELECT ..., EXPLAIN (FORMAT JSON | DOT) SELECT ...
  SHOW STREAMS | TABLES | VIEWS | SINKS | SETTINGS | name
  DESCRIBE name
  SET name = value, RESET name
  DROP STREAM | TABLE | [MATERIALIZED] VIEW | SINK [IF EXISTS] name
";
    Ok(shell.runner.print_text(TEXT)?)
}

fn quit(_: &mut Shell, _: &str) -> Result<(), Wrong> {
    Err(Wrong::Stop(Stop::Quit))
}

fn describe(shell: &mut Shell, name: &str) -> Result<(), Wrong> {
    let metadata = shell.runner.connection().metadata();
    let metadata = metadata.map_err(|error| Wrong::Message(error.message().to_owned()))?;
    if name.is_empty() {
        let rows: Vec<[String; 3]> = metadata
            .relations()
            .iter()
            .map(|known| [known.name.clone(), known.kind.name().to_owned(), known.columns.len().to_string()])
            .collect();
        return Ok(shell.runner.print_table(&table(["name", "kind", "columns"], &rows)?)?);
    }
    let folded = name.strip_prefix('"').map_or_else(|| unquoted(name).to_lowercase(), |_| unquoted(name).to_owned());
    let Some(columns) = metadata.columns(&folded) else {
        let near = closest(&folded, metadata.relations().iter().map(|known| known.name.as_str()));
        let hint = near.map_or_else(|| "\\d lists what is there".to_owned(), |near| format!("did you mean {near}?"));
        return Err(Wrong::Message(format!("there is no stream, table or view '{folded}'; {hint}")));
    };
    let rows: Vec<[String; 3]> = columns
        .iter()
        .map(|column| {
            let nullable = if column.nullable { "" } else { "not null" };
            [column.name.clone(), column.type_name.clone(), nullable.to_owned()]
        })
        .collect();
    Ok(shell.runner.print_table(&table(["column", "type", "nullable"], &rows)?)?)
}

fn table<const N: usize>(names: [&str; N], rows: &[[String; N]]) -> Result<RecordBatch, Wrong> {
    let schema = Schema::new(names.map(|name| Field::new(name, DataType::Utf8, false)).to_vec());
    let column =
        |column: usize| Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row[column]))) as ArrayRef;
    let batch = RecordBatch::try_new(Arc::new(schema), (0..N).map(column).collect());
    batch.map_err(|error| Wrong::Message(error.to_string()))
}

fn include(shell: &mut Shell, path: &str) -> Result<(), Wrong> {
    if path.is_empty() {
        return Err(Wrong::Message("\\i takes a file".to_owned()));
    }
    Ok(shell.run_file(&at_home(unquoted(path)))?)
}

fn output(shell: &mut Shell, path: &str) -> Result<(), Wrong> {
    if path.is_empty() {
        shell.runner.out = Out::stdout();
        return Ok(());
    }
    if path.starts_with('|') {
        return Err(Wrong::Message("\\o writes to a file; to feed a command run thetis in a pipe".to_owned()));
    }
    let path = &at_home(unquoted(path));
    shell.runner.out =
        Out::file(path).map_err(|error| Wrong::Message(format!("{path}: cannot be written: {error}")))?;
    Ok(())
}

/// `on` or `off`; nothing means the other one.
fn switch(now: bool, text: &str, name: &str) -> Result<bool, Wrong> {
    match text.to_ascii_lowercase().as_str() {
        "" => Ok(!now),
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Wrong::Message(format!("'{text}' is not a value for {name}: it takes on or off"))),
    }
}

fn timing(shell: &mut Shell, text: &str) -> Result<(), Wrong> {
    shell.runner.display.timing = switch(shell.runner.display.timing, text, "\\timing")?;
    confirm(shell, format!("timing is {}", if shell.runner.display.timing { "on" } else { "off" }));
    Ok(())
}

fn expanded(shell: &mut Shell, text: &str) -> Result<(), Wrong> {
    let now = shell.runner.display.expanded;
    shell.runner.display.expanded = if text.eq_ignore_ascii_case("auto") {
        Expanded::Auto
    } else {
        match switch(now != Expanded::Off, text, "\\x") {
            Ok(on) => {
                if on {
                    Expanded::On
                } else {
                    Expanded::Off
                }
            }
            Err(_) => return Err(Wrong::Message(format!("'{text}' is not a value for \\x: it takes on, off or auto"))),
        }
    };
    confirm(shell, format!("expanded display is {}", expanded_name(shell.runner.display.expanded)));
    Ok(())
}

fn expanded_name(expanded: Expanded) -> &'static str {
    match expanded {
        Expanded::Off => "off",
        Expanded::On => "on",
        Expanded::Auto => "auto",
    }
}

fn pset(shell: &mut Shell, text: &str) -> Result<(), Wrong> {
    let mut words = text.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (None, ..) => {
            let display = shell.runner.display;
            let timing = if display.timing { "on" } else { "off" };
            let (format, expanded) = (display.format.name(), expanded_name(display.expanded));
            let output = shell.runner.out.name();
            let text = format!("format   {format}\nexpanded {expanded}\ntiming   {timing}\noutput   {output}\n");
            Ok(shell.runner.print_text(&text)?)
        }
        (Some("format"), Some(name), None) => {
            let format = Format::from_str(name, true)
                .map_err(|_| Wrong::Message(format!("'{name}' is no format: there are {}", formats())))?;
            shell.runner.display.format = format;
            confirm(shell, format!("the format is {}", format.name()));
            Ok(())
        }
        _ => Err(Wrong::Message(format!("\\pset takes nothing, or format and one of {}", formats()))),
    }
}

fn formats() -> String {
    Format::value_variants().iter().map(|format| format.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_complete() {
        assert!(TABLE.iter().map(|meta| meta.name).is_sorted());
        for meta in &TABLE {
            assert!(meta.name.starts_with('\\') && !meta.help.is_empty(), "{}", meta.name);
            let takes_something = !matches!(meta.takes, Takes::Nothing);
            assert_eq!(takes_something, !meta.arguments.is_empty(), "{}", meta.name);
            if let Takes::Words(places) = meta.takes {
                for word in places.iter().copied().flatten() {
                    assert!(meta.arguments.contains(word), "{} {word}", meta.name);
                }
            }
        }
        assert!(Format::value_variants().iter().all(|format| TABLE[5].arguments.contains(format.name())));
    }

    #[test]
    fn unknown_commands_get_a_suggestion_if_one_is_near() {
        assert!(unknown("\\tming").contains("did you mean \\timing?"));
        assert!(unknown("\\psat").contains("did you mean \\pset?"));
        assert!(unknown("\\z").contains("\\? lists them"));
    }

    #[test]
    fn quotes_around_arguments_are_no_part_of_them() {
        assert_eq!(unquoted("'a b.sql'"), "a b.sql");
        assert_eq!(unquoted("\"a\""), "a");
        assert_eq!(unquoted("a'b"), "a'b");
    }
}
