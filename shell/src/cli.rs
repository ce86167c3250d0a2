//! The command line: `thetis submit FILE...`, `thetis -c SQL`, and the prompt. It is built on the
//! client library and on nothing else.
//!
//! ```text
//! files, -c ---- submit --+
//!                         +--> run (pieces of text) --> print --> output | live
//! prompt, pipe -- repl ---+
//! ```

mod args;
mod input;
mod interrupts;
mod live;
mod local;
mod node;
mod output;
mod print;
mod progress;
mod repl;
mod report;
mod run;
mod screen;
mod settings;
mod status;
mod submit;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use self::args::{Args, LogFormat, Todo};

/// Exit codes; 2 is for a wrong command line.
mod exit {
    /// The SQL or the data is wrong.
    pub(super) const FAILED: u8 = 1;
    /// Ctrl-C.
    pub(super) const INTERRUPTED: u8 = 130;
    /// SIGTERM.
    pub(super) const TERMINATED: u8 = 143;
}

pub(crate) fn main() -> ExitCode {
    if let Err(missing) = cpu_is_supported() {
        eprintln!("thetis was built for processors with {missing}, and this one has none; build it with RUSTFLAGS=''");
        return ExitCode::from(exit::FAILED);
    }
    let args = Args::parse();
    start_logs(&args);
    let todo = args.todo();
    match &todo {
        Todo::Coordinator(args) => return ExitCode::from(node::coordinator(args)),
        Todo::Worker(args) => return ExitCode::from(node::worker(args)),
        Todo::Cluster(command) => return ExitCode::from(local::run(command)),
        Todo::Cert(command) => return ExitCode::from(node::cert(command)),
        Todo::Status(args) => return ExitCode::from(status::run(args)),
        Todo::Submit(_) | Todo::Shell(_) => {}
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("thetis cannot start: {error}");
            return ExitCode::from(exit::FAILED);
        }
    };
    let code = match todo {
        Todo::Submit(submit) => submit::run(runtime, &submit),
        Todo::Shell(args) => repl::run(runtime, &args),
        _ => exit::FAILED,
    };
    ExitCode::from(code)
}

/// Logs go to standard error: processes of a cluster tell what happens to them, others only of trouble.
fn start_logs(args: &Args) {
    let level = if args.is_node() { "info" } else { "warn" };
    let filter = EnvFilter::try_from_env("THETIS_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let logs = tracing_subscriber::fmt()
        .with_ansi(std::io::stderr().is_terminal() && screen::colours())
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match args.log_format() {
        LogFormat::Json => logs.json().init(),
        LogFormat::Text if args.is_node() => logs.init(),
        LogFormat::Text => logs.without_time().init(),
    }
}

/// Whether this processor has what the build uses; the name of what it lacks.
#[cfg(target_arch = "x86_64")]
fn cpu_is_supported() -> Result<(), &'static str> {
    #[cfg(target_feature = "avx2")]
    if !(std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("bmi2")
        && std::is_x86_feature_detected!("fma"))
    {
        return Err("AVX2, BMI2 and FMA (x86-64-v3)");
    }
    Ok(())
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu_is_supported() -> Result<(), &'static str> {
    Ok(())
}
