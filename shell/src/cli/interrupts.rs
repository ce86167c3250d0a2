//! Ctrl-C and SIGTERM, as signals. At the prompt it is a key, and the line editor's.

use std::io::{self, Write};
use std::time::Duration;

use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use thetis::CancelHandle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::exit;

/// Time for a cancelled query to end by itself, before the process does.
const GRACE: Duration = Duration::from_millis(500);

/// What a Ctrl-C does besides cancelling the statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing.
    Stay,
    /// The process ends soon, also when it is stuck: it may be waiting for a reader of its output.
    Leave,
}

/// Tells of Ctrl-C.
#[derive(Debug)]
pub(super) struct Interrupts {
    count: watch::Receiver<u64>,
}

/// How the terminal was before the line editor took it.
struct Terminal(Option<Termios>);

impl Terminal {
    fn now() -> Self {
        Self(tcgetattr(io::stdin()).ok())
    }

    fn restore(&self) {
        if let Some(termios) = &self.0 {
            // Bracketed paste off.
            let _ = io::stdout().write_all(b"\x1b[?2004l").and_then(|()| io::stdout().flush());
            let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, termios);
        }
    }
}

impl Interrupts {
    /// Every Ctrl-C cancels what `cancel` stands for.
    pub(super) fn watch(cancel: CancelHandle, then: Then) -> Self {
        let (sender, count) = watch::channel(0);
        let (ready, is_ready) = std::sync::mpsc::channel();
        let terminal = Terminal::now();
        let watch = move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
                return;
            };
            runtime.block_on(async {
                let (Ok(mut interrupts), Ok(mut ends)) =
                    (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
                else {
                    return;
                };
                let _ = ready.send(());
                loop {
                    let code = tokio::select! {
                        Some(()) = interrupts.recv() => exit::INTERRUPTED,
                        Some(()) = ends.recv() => exit::TERMINATED,
                        else => return,
                    };
                    sender.send_modify(|count| *count += 1);
                    cancel.cancel();
                    if then == Then::Leave || code == exit::TERMINATED {
                        // What a cancelled query fills is made whole meanwhile.
                        tokio::time::sleep(GRACE).await;
                        terminal.restore();
                        let _ = io::stderr().write_all(b"cancelled\n");
                        std::process::exit(i32::from(code));
                    }
                }
            });
        };
        // A thread of its own: the main one may be stuck in a write.
        let _ = std::thread::Builder::new().name("interrupts".to_owned()).spawn(watch);
        // The line editor puts the handler back that it finds: ours must be there first.
        let _ = is_ready.recv();
        Self { count }
    }

    /// Forgets what came before.
    pub(super) fn begin(&mut self) {
        self.count.mark_unchanged();
    }

    /// Whether one has come since.
    pub(super) fn is_told(&self) -> bool {
        self.count.has_changed().unwrap_or(false)
    }

    /// Waits for one.
    pub(super) async fn told(&self) {
        let mut count = self.count.clone();
        if count.changed().await.is_err() {
            std::future::pending().await
        }
    }
}
