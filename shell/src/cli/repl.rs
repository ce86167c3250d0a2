//! Statements and backslash commands from a prompt, a pipe or a file.

mod complete;
mod feed;
mod history;
mod meta;
mod prompt;

use std::io::{self, BufRead, IsTerminal};

use tokio::runtime::Runtime;

use self::feed::{Entry, Feed};
use super::args::SubmitArgs;
use super::exit;
use super::input::{self, STANDARD_INPUT};
use super::interrupts::Then;
use super::report::Text;
use super::run::{Runner, Stop};

/// Most files that `\i` may open inside of each other.
const MAX_DEPTH: usize = 16;

/// A runner, and the files that are being read.
pub(super) struct Shell {
    runner: Runner,
    depth: usize,
}

/// Reads from a prompt if there is a terminal, else from standard input; the exit code.
pub(super) fn run(runtime: Runtime, args: &SubmitArgs) -> u8 {
    let at_prompt = io::stdin().is_terminal() && io::stdout().is_terminal();
    let Ok(runner) = Runner::start(runtime, args, if at_prompt { Then::Stay } else { Then::Leave }) else {
        return exit::FAILED;
    };
    let mut shell = Shell { runner, depth: 0 };
    let outcome = if at_prompt {
        shell.runner.goes_on = true;
        prompt::run(&mut shell)
    } else {
        shell.run_lines(io::stdin().lock(), STANDARD_INPUT)
    };
    match outcome {
        Ok(()) | Err(Stop::Quit) if at_prompt => 0,
        Ok(()) | Err(Stop::Quit) => shell.runner.code(),
        Err(stop) => stop.code(),
    }
}

impl Shell {
    /// Runs lines as they come.
    fn run_lines(&mut self, mut lines: impl BufRead, name: &str) -> Result<(), Stop> {
        let mut feed = Feed::default();
        let mut line = String::new();
        let mut first = true;
        loop {
            line.clear();
            match lines.read_line(&mut line) {
                Ok(0) => break,
                // A byte order mark is no SQL.
                Ok(_) if first && line.starts_with('\u{feff}') => drop(line.remove(0)),
                Ok(_) => {}
                Err(error) => return self.runner.fail("58030", &input::failed(name, &error)).and(Err(Stop::Failed)),
            }
            first = false;
            if let Some(entry) = feed.push(&line) {
                self.run_entry(&entry, Some(name))?;
            }
        }
        match feed.rest() {
            Some(entry) => self.run_entry(&entry, Some(name)),
            None => Ok(()),
        }
    }

    /// Runs a file, for `\i`: up to its first error, and `\q` leaves the file.
    fn run_file(&mut self, path: &str) -> Result<(), Stop> {
        if self.depth == MAX_DEPTH {
            return self.runner.fail("54000", &format!("{path}: files are nested more than {MAX_DEPTH} deep"));
        }
        let text = match input::read_file(path) {
            Ok(text) => text,
            Err(message) => return self.runner.fail("58P01", &message),
        };
        let keeps_going = self.runner.keeps_going();
        let goes_on = std::mem::replace(&mut self.runner.goes_on, keeps_going);
        self.depth += 1;
        let outcome = self.run_lines(text.as_bytes(), path);
        self.depth -= 1;
        self.runner.goes_on = goes_on;
        match outcome {
            Err(Stop::Quit) => Ok(()),
            // It is reported; whether it ends the file around this one is for that file to say.
            Err(Stop::Failed) if goes_on => Ok(()),
            other => other,
        }
    }

    /// Runs statements or a command. `name` is that of their file.
    fn run_entry(&mut self, entry: &Entry, name: Option<&str>) -> Result<(), Stop> {
        match entry {
            Entry::Quit => Err(Stop::Quit),
            Entry::Meta(line) => meta::run(self, line),
            // Lines of a prompt have no numbers: positions are those in the statements.
            Entry::Sql { text, start } => match name {
                Some(_) => self.runner.run(&Text { name, text, start: *start }),
                None => self.runner.run(&Text::whole(None, text)),
            },
        }
    }
}
