//! `thetis submit`: statements in order, rows on standard output, everything else on standard
//! error.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Read, Write};
use std::time::Duration;

use thetis::{CancelHandle, Driver, Error, ErrorKind, Open, Piece, Position, Response, ResultSet, split, substitute};

use super::args::{Input, SubmitArgs, SubmitCommand};
use super::exit;
use super::output::Writer;
use super::progress::{INTERVAL, ProgressLine};

/// Time for a cancelled query to end by itself, before the process does.
const GRACE: Duration = Duration::from_millis(500);

/// Longest SQL file, in bytes.
const MAX_FILE: u64 = 64 << 20;

enum Failure {
    /// To be shown with the text that it points into.
    Sql(Box<Error>),
    /// Standard output is closed or broken.
    Output(io::Error),
}

/// Runs the command; its exit code.
pub(super) async fn run(command: &SubmitCommand) -> u8 {
    let connection = match Driver::open("thetis:") {
        Ok(connection) => connection,
        Err(error) => {
            eprintln!("{}", error.render("", Position::START));
            return exit::FAILED;
        }
    };
    let mut statement = connection.statement();
    watch_for_interrupts(statement.cancel_handle());
    let variables: BTreeMap<String, String> = command.args.variables.iter().cloned().collect();
    for input in &command.inputs {
        let (name, text) = match read(input) {
            Ok(read) => read,
            Err(message) => {
                eprintln!("{message}");
                return exit::FAILED;
            }
        };
        let text = substitute(&text, &variables);
        for piece in split(&text) {
            let result = match unfinished(&piece) {
                Some(error) => Err(Failure::Sql(Box::new(error))),
                None => run_piece(&mut statement, &piece, &command.args).await,
            };
            match result {
                Ok(()) => {}
                Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return 0;
                }
                Err(Failure::Output(error)) => {
                    eprintln!("standard output cannot be written: {error}");
                    return exit::FAILED;
                }
                Err(Failure::Sql(error)) if error.kind() == ErrorKind::Cancelled => {
                    eprintln!("cancelled");
                    return exit::INTERRUPTED;
                }
                Err(Failure::Sql(error)) => {
                    let place = name.as_ref().map_or_else(String::new, |name| format!("{name}: "));
                    eprintln!("{place}{}", error.render(&text, piece.start));
                    return exit::FAILED;
                }
            }
        }
    }
    0
}

/// A piece that ends inside of a quote or comment; a missing semicolon at the end is fine.
fn unfinished(piece: &Piece<'_>) -> Option<Error> {
    let what = match piece.open {
        Open::Nothing | Open::Statement | Open::Parenthesis => return None,
        Open::Quote => "a quote (') is opened and never closed",
        Open::Identifier => "a quoted name (\") is opened and never closed",
        Open::Dollar => "a dollar quote is opened and never closed",
        Open::Comment => "a comment (/*) is opened and never closed",
    };
    Some(thetis::SqlError::new(what).at(Some(Position::START)).into())
}

/// The input's name for messages, and its text.
fn read(input: &Input) -> Result<(Option<String>, String), String> {
    let path = match input {
        Input::Text(text) => return Ok((None, text.clone())),
        Input::File(path) => path,
    };
    let mut text = String::new();
    let outcome = if path == "-" {
        io::stdin().lock().take(MAX_FILE + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text))
    };
    outcome.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{path}: no such file"),
        io::ErrorKind::InvalidData => format!("{path}: is not UTF-8 text"),
        _ => format!("{path}: cannot be read: {error}"),
    })?;
    if text.len() as u64 > MAX_FILE {
        return Err(format!("{path}: is longer than {MAX_FILE} bytes"));
    }
    // A byte order mark is no SQL.
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    let name = if path == "-" { "standard input".to_owned() } else { path.clone() };
    Ok((Some(name), text))
}

async fn run_piece(statement: &mut thetis::Statement, piece: &Piece<'_>, args: &SubmitArgs) -> Result<(), Failure> {
    let sql = |error: Error| Failure::Sql(Box::new(error));
    let response = match args.changes {
        true => statement.execute_changes(piece.text).await,
        false => statement.execute(piece.text).await,
    };
    match response.map_err(sql)? {
        Response::Done(_) => Ok(()),
        Response::Rows(rows) => print(rows, args).await,
    }
}

async fn print(mut rows: ResultSet, args: &SubmitArgs) -> Result<(), Failure> {
    for notice in rows.notices() {
        eprintln!("NOTICE: {notice}");
    }
    let line = ProgressLine::new();
    let mut writer = Writer::new(args.format, rows.schema(), BufWriter::new(io::stdout()));
    let mut ticks = tokio::time::interval(INTERVAL);
    let outcome = loop {
        let progress = rows.progress();
        tokio::select! {
            batch = rows.next_batch() => match batch {
                Ok(Some(batch)) => line.suspend(|| writer.write(&batch)).map_err(Failure::Output)?,
                Ok(None) => break Ok(()),
                Err(error) => break Err(Failure::Sql(Box::new(error))),
            },
            _ = ticks.tick() => line.show(&progress),
        }
    };
    line.clear();
    outcome?;
    writer.finish().map_err(Failure::Output)?;
    writer.into_inner().flush().map_err(Failure::Output)?;
    let skipped = rows.progress().skipped;
    if skipped > 0 {
        let records = if skipped == 1 { "record" } else { "records" };
        eprintln!("NOTICE: {skipped} {records} that could not be read: skipped");
    }
    Ok(())
}

/// Ctrl-C cancels the query. If the process does not end by itself then (it may be waiting for
/// a reader of its output, or still be planning), it is ended.
fn watch_for_interrupts(cancel: CancelHandle) {
    let watch = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        runtime.block_on(async {
            if tokio::signal::ctrl_c().await.is_ok() {
                cancel.cancel();
                tokio::time::sleep(GRACE).await;
                let _ = io::stderr().write_all(b"cancelled\n");
                std::process::exit(i32::from(exit::INTERRUPTED));
            }
        });
    };
    // A thread of its own: the main one may be stuck in a write.
    let _ = std::thread::Builder::new().name("interrupts".to_owned()).spawn(watch);
}
