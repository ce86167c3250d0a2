//! Runs pieces of SQL text and prints what they give: the one way for files, `-c` and the prompt.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use arrow::array::RecordBatch;
use thetis::{
    Connection, Driver, Error, ErrorKind, Open, Piece, Position, Response, SqlError, Statement, split, substitute,
};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use super::args::SubmitArgs;
use super::exit;
use super::interrupts::{Interrupts, Then};
use super::output::{Display, Out, print_whole};
use super::print::{Limits, Printing, print};
use super::report::{Reporter, Text, say};

/// Why nothing more is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// A statement or command failed; it is reported.
    Failed,
    /// Ctrl-C.
    Interrupted,
    /// Nobody reads the output any more.
    Closed,
    /// The user wants to leave.
    Quit,
}

impl Stop {
    /// The exit code of a process that ends for this.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Failed => exit::FAILED,
            Self::Interrupted => exit::INTERRUPTED,
            Self::Closed | Self::Quit => 0,
        }
    }
}

/// Why a statement does not come to its end.
#[derive(Debug)]
pub(super) enum Failure {
    /// To be shown with the text that it points into.
    Sql(Box<Error>),
    /// The output is closed or broken.
    Output(io::Error),
    /// Ctrl-C.
    Interrupted,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Cancelled => Self::Interrupted,
            _ => Self::Sql(Box::new(error)),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Runs statements on an engine of its own.
pub(super) struct Runner {
    runtime: Rc<Runtime>,
    connection: Connection,
    statement: Statement,
    interrupts: Interrupts,
    args: SubmitArgs,
    variables: BTreeMap<String, String>,
    reporter: Reporter,
    /// How results are printed.
    pub(super) display: Display,
    /// Where they go.
    pub(super) out: Out,
    /// Someone is at a prompt: commands are confirmed.
    pub(super) at_prompt: bool,
    /// An error does not keep the statements behind it from running.
    pub(super) goes_on: bool,
    failed: bool,
}

impl Runner {
    /// Starts an engine. `then` is what Ctrl-C does besides cancelling. A failure is reported.
    pub(super) fn start(runtime: Runtime, args: &SubmitArgs, then: Then) -> Result<Self, Stop> {
        let reporter = Reporter { format: args.error_format };
        let connect = &args.connect;
        let opened = match &connect.connect {
            Some(address) => Driver::connect(address, connect.identity.as_deref()),
            None => Driver::open("thetis:"),
        };
        let connection = opened.map_err(|error| {
            reporter.sql(&error, &Text::whole(None, ""), Position::START);
            Stop::Failed
        })?;
        let statement = connection.statement();
        Ok(Self {
            runtime: Rc::new(runtime),
            interrupts: Interrupts::watch(statement.cancel_handle(), then),
            connection,
            statement,
            variables: args.variables.iter().cloned().collect(),
            reporter,
            display: Display::new(args.format),
            out: Out::stdout(),
            at_prompt: then == Then::Stay,
            goes_on: args.check || args.keep_going,
            failed: false,
            args: args.clone(),
        })
    }

    /// The connection that statements run on.
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Whether the user wants to go on after errors, wherever they are.
    pub(super) fn keeps_going(&self) -> bool {
        self.args.check || self.args.keep_going
    }

    /// The exit code when everything has been run.
    pub(super) fn code(&self) -> u8 {
        if self.failed { exit::FAILED } else { 0 }
    }

    /// Runs the statements of a text, in order. Errors are reported.
    pub(super) fn run(&mut self, source: &Text<'_>) -> Result<(), Stop> {
        let text = substitute(source.text, &self.variables);
        let source = Text { text: &text, ..*source };
        self.interrupts.begin();
        for piece in split(&text) {
            let started = Instant::now();
            let runtime = Rc::clone(&self.runtime);
            let outcome = runtime.block_on(self.run_piece(&piece, started));
            let took = started.elapsed();
            match outcome {
                Ok(()) => self.say_time(took),
                Err(Failure::Sql(error)) => {
                    self.reporter.sql(&error, &source, piece.start);
                    self.say_time(took);
                    self.failure()?;
                }
                Err(Failure::Output(error)) => return Err(self.output_failed(&error)),
                Err(Failure::Interrupted) => {
                    say("cancelled");
                    self.say_time(took);
                    return Err(Stop::Interrupted);
                }
            }
        }
        Ok(())
    }

    fn say_time(&self, took: Duration) {
        if self.display.timing {
            say(format!("Time: {:.3} ms", took.as_secs_f64() * 1e3));
        }
    }

    /// Reports an error that is of no statement.
    pub(super) fn fail(&mut self, sqlstate: &str, message: &str) -> Result<(), Stop> {
        self.reporter.other(sqlstate, message, None);
        self.failure()
    }

    /// Prints a table that no query made.
    pub(super) fn print_table(&mut self, batch: &RecordBatch) -> Result<(), Stop> {
        print_whole(&mut self.out, &self.display, batch).map_err(|error| self.output_failed(&error))
    }

    /// Prints text.
    pub(super) fn print_text(&mut self, text: &str) -> Result<(), Stop> {
        self.out.write_text(text).map_err(|error| self.output_failed(&error))
    }

    fn failure(&mut self) -> Result<(), Stop> {
        self.failed = true;
        if self.goes_on { Ok(()) } else { Err(Stop::Failed) }
    }

    fn output_failed(&self, error: &io::Error) -> Stop {
        if error.kind() == io::ErrorKind::BrokenPipe && self.out.is_stdout() {
            return Stop::Closed;
        }
        self.reporter.other("58030", &format!("{} cannot be written: {error}", self.out.name()), None);
        Stop::Failed
    }

    async fn run_piece(&mut self, piece: &Piece<'_>, started: Instant) -> Result<(), Failure> {
        if let Some(error) = unfinished(piece) {
            return Err(error.into());
        }
        if self.interrupts.is_told() {
            return Err(Failure::Interrupted);
        }
        let until = self.args.time_limit.and_then(|limit| started.checked_add(limit));
        let response = match (self.args.check, self.args.changes) {
            (true, false) => return Ok(self.statement.check(piece.text).await?),
            (true, true) => return Ok(self.statement.check_changes(piece.text).await?),
            (false, _) => self.execute(piece.text, until).await?,
        };
        let rows = match response {
            None => return Ok(()),
            Some(Response::Done(done)) => {
                self.statement.warnings().iter().for_each(|warning| say(format!("NOTICE: {warning}")));
                if self.at_prompt {
                    say(done.to_string());
                }
                return Ok(());
            }
            Some(Response::Rows(rows)) => rows,
        };
        let printing = Printing {
            display: &self.display,
            out: &self.out,
            interrupts: &self.interrupts,
            limits: Limits { until, rows: self.args.row_limit },
            // Who asks for changes wants to see them.
            live: !self.args.changes,
        };
        print(rows, &printing).await
    }

    /// Executes a statement; `None` if its time was over before it was done, as of one that fills a sink
    /// for ever.
    async fn execute(&mut self, sql: &str, until: Option<Instant>) -> Result<Option<Response>, Failure> {
        let cancel = self.statement.cancel_handle();
        let changes = self.args.changes;
        let statement = &mut self.statement;
        let executed = async move {
            match changes {
                false => statement.execute(sql).await,
                true => statement.execute_changes(sql).await,
            }
        };
        let mut executed = pin!(executed);
        tokio::select! {
            response = &mut executed => return Ok(Some(response?)),
            () = reached(until) => cancel.cancel(),
        }
        match executed.await {
            Err(error) if error.kind() == ErrorKind::Cancelled => {
                say("NOTICE: the time of --for is over");
                Ok(None)
            }
            response => Ok(Some(response?)),
        }
    }
}

/// For ever, if there is no such time.
async fn reached(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
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
    Some(SqlError::new(what).at(Some(Position::START)).into())
}
