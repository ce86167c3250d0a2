//! A pseudo-terminal with the shell in it, and a screen to look at.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use vt100::Parser;

const STEP: Duration = Duration::from_millis(20);
/// Steps that are waited for: 30 seconds.
const STEPS: usize = 1_500;

/// Keys.
pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_D: &str = "\x04";
pub(crate) const UP: &str = "\x1b[A";

/// The shell at work.
pub(crate) struct Terminal {
    screen: Arc<Mutex<Parser>>,
    keys: Box<dyn Write + Send>,
    master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
}

fn size(rows: u16, columns: u16) -> PtySize {
    PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }
}

fn cells(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).unwrap()
}

impl Terminal {
    /// Starts the shell with `home` as its home and working folder, and waits for its prompt.
    pub(crate) fn start(home: &Path) -> Self {
        let terminal = Self::with(home, "xterm-256color", 24, 100);
        terminal.wait_for("thetis> ");
        terminal
    }

    pub(crate) fn with(home: &Path, term: &str, rows: u16, columns: u16) -> Self {
        let pair = native_pty_system().openpty(size(rows, columns)).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_thetis"));
        command.env_clear();
        command.env("TERM", term);
        command.env("HOME", home);
        command.env("XDG_STATE_HOME", home.join("state"));
        command.cwd(home);
        let child = pair.slave.spawn_command(command).unwrap();
        let mut output = pair.master.try_clone_reader().unwrap();
        let screen = Arc::new(Mutex::new(Parser::new(cells(rows), cells(columns), 1_000)));
        let shown = Arc::clone(&screen);
        let read = move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..count]);
            }
        };
        std::thread::Builder::new().spawn(read).unwrap();
        Self { screen, keys: pair.master.take_writer().unwrap(), master: pair.master, child }
    }

    /// Types.
    pub(crate) fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// What is on the screen.
    pub(crate) fn screen(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen is as is wanted.
    pub(crate) fn wait(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        for _ in 0..STEPS {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            std::thread::sleep(STEP);
        }
        panic!("there is no {what:?} on the screen:\n{}", self.screen());
    }

    /// Waits until the screen shows this text.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    /// Waits for an empty prompt on the last line, with this text above.
    pub(crate) fn wait_for_prompt_after(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text) && screen.trim_end().ends_with("\nthetis>"))
    }

    /// Another size.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        self.screen.lock().unwrap().set_size(cells(rows), cells(columns));
        self.master.resize(size(rows, columns)).unwrap();
    }

    /// Waits until the shell has left; its exit code.
    pub(crate) fn leave(mut self) -> u32 {
        for _ in 0..STEPS {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.exit_code();
            }
            std::thread::sleep(STEP);
        }
        panic!("the shell does not leave:\n{}", self.screen());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
