//! `thetis submit`: statements in order, rows on standard output, everything else on standard
//! error.

use tokio::runtime::Runtime;

use super::args::SubmitCommand;
use super::exit;
use super::input;
use super::interrupts::Then;
use super::report::Text;
use super::run::Runner;

/// Runs the command; its exit code.
pub(super) fn run(runtime: Runtime, command: &SubmitCommand) -> u8 {
    let Ok(mut runner) = Runner::start(runtime, &command.args, Then::Leave) else {
        return exit::FAILED;
    };
    for input in &command.inputs {
        let outcome = match input::read(input) {
            Ok((name, text)) => runner.run(&Text::whole(name.as_deref(), &text)),
            Err(message) => runner.fail("58P01", &message),
        };
        if let Err(stop) = outcome {
            return stop.code();
        }
    }
    runner.code()
}
