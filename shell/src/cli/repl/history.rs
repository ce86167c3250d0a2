//! What was typed, kept from session to session: one entry per statement, however many lines.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Editor, Helper};

use crate::cli::report::say;

/// Most entries that are kept.
pub(super) const ENTRIES: usize = 2_000;

/// Longest entry that is kept, in bytes.
const MAX_ENTRY: usize = 256 << 10;

/// The file of the history; none when it cannot be kept.
pub(super) struct HistoryFile {
    path: Option<PathBuf>,
}

impl HistoryFile {
    /// Loads the user's history. What goes wrong is said once, here or at the first entry.
    pub(super) fn load<H: Helper>(editor: &mut Editor<H, FileHistory>) -> Self {
        let Some(folder) = dirs::state_dir().or_else(dirs::data_local_dir).map(|folder| folder.join("thetis")) else {
            return Self { path: None };
        };
        let path = folder.join("history");
        let mut history = Self { path: Some(path.clone()) };
        if let Err(error) = create(&folder, &path) {
            history.give_up(&error);
        } else if let Err(error) = editor.load_history(&path) {
            history.start_anew(&error);
        }
        history
    }

    /// Adds an entry, and writes it.
    pub(super) fn add<H: Helper>(&mut self, editor: &mut Editor<H, FileHistory>, entry: &str) {
        if entry.len() > MAX_ENTRY || !matches!(editor.add_history_entry(entry), Ok(true)) {
            return;
        }
        if let Some(path) = &self.path
            && let Err(error) = editor.append_history(path)
        {
            self.give_up(&error);
        }
    }

    /// Puts a file aside that cannot be read.
    fn start_anew(&mut self, error: &dyn std::error::Error) {
        let Some(path) = &self.path else { return };
        let aside = path.with_extension("unreadable");
        match std::fs::rename(path, &aside) {
            Ok(()) => say(format!("the history starts anew: {error}; the old one is {}", aside.display())),
            Err(_) => self.give_up(error),
        }
    }

    fn give_up(&mut self, error: &dyn std::error::Error) {
        if let Some(path) = self.path.take() {
            say(format!("the history is not kept: {}: {error}", path.display()));
        }
    }
}

/// Only the user may read what was typed.
fn create(folder: &Path, path: &Path) -> Result<(), ReadlineError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    opened.map(|_| ()).map_err(|error: io::Error| error.into())
}
