//! The prompt: a line editor whose lines become statements.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::rc::Rc;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Cmd, CompletionType, Config, Context, Editor, Helper, KeyCode, KeyEvent, Modifiers};
use thetis::{Connection, Open};

use super::Shell;
use super::complete::complete;
use super::feed::Feed;
use super::history::{ENTRIES, HistoryFile};
use crate::cli::report::say;
use crate::cli::run::Stop;
use crate::cli::screen;

/// Reads and runs until the user leaves.
pub(super) fn run(shell: &mut Shell) -> Result<(), Stop> {
    let feed = Rc::new(RefCell::new(Feed::default()));
    let typist = Typist { connection: shell.runner.connection().clone(), feed: Rc::clone(&feed) };
    let mut editor = editor(typist).map_err(|error| lost(&error))?;
    if let Ok(metadata) = shell.runner.connection().metadata() {
        let (name, version) = (metadata.product_name(), metadata.product_version());
        shell.runner.print_text(&format!("{name} {version}: continuous SQL. \\? lists the commands, \\q leaves.\n"))?;
    }
    let mut history = HistoryFile::load(&mut editor);
    loop {
        let waits_for = feed.borrow().open();
        match editor.readline(prompt(waits_for)) {
            Ok(text) => run_lines(shell, &feed, &text, |entry| history.add(&mut editor, entry))?,
            Err(ReadlineError::Interrupted) => feed.borrow_mut().clear(),
            Err(ReadlineError::Eof) => return Ok(()),
            Err(ReadlineError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
                say("what was typed is not UTF-8: it is left out");
            }
            Err(error) => return Err(lost(&error)),
        }
    }
}

/// Runs what was typed or pasted: one line, or a statement of several from the history.
fn run_lines(shell: &mut Shell, feed: &RefCell<Feed>, text: &str, mut remember: impl FnMut(&str)) -> Result<(), Stop> {
    for line in text.split('\n') {
        let entry = feed.borrow_mut().push(line);
        let Some(entry) = entry else { continue };
        remember(entry.text());
        match shell.run_entry(&entry, None) {
            Ok(()) | Err(Stop::Failed) => {}
            Err(Stop::Interrupted) => {
                feed.borrow_mut().clear();
                return Ok(());
            }
            Err(stop) => return Err(stop),
        }
    }
    Ok(())
}

fn lost(error: &ReadlineError) -> Stop {
    say(format!("the terminal cannot be read: {error}"));
    Stop::Failed
}

/// As psql has them: what the text still waits for.
fn prompt(open: Open) -> &'static str {
    match open {
        Open::Nothing => "thetis> ",
        Open::Statement => "     -> ",
        Open::Parenthesis => "     (> ",
        Open::Quote => "     '> ",
        Open::Identifier => "     \"> ",
        Open::Dollar => "     $> ",
        Open::Comment => "     *> ",
    }
}

fn editor(typist: Typist) -> rustyline::Result<Editor<Typist, FileHistory>> {
    let config = Config::builder()
        .max_history_size(ENTRIES)?
        .history_ignore_dups(true)?
        .completion_type(CompletionType::List)
        .completion_prompt_limit(200)
        .bracketed_paste(true)
        .color_mode(if screen::colours() { rustyline::ColorMode::Enabled } else { rustyline::ColorMode::Disabled })
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(typist));
    editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
    Ok(editor)
}

/// Helps with typing: it knows what there is, and what has been typed before this line.
struct Typist {
    connection: Connection,
    feed: Rc<RefCell<Feed>>,
}

impl Helper for Typist {}

impl Completer for Typist {
    type Candidate = String;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let (before, after) = line.split_at(pos);
        // Without an answer there is nothing to offer.
        let Ok(metadata) = self.connection.metadata() else { return Ok((pos, Vec::new())) };
        Ok(complete(&metadata, self.feed.borrow().text(), before, after))
    }
}

impl Hinter for Typist {
    type Hint = String;
}

impl Highlighter for Typist {}

impl Validator for Typist {}
