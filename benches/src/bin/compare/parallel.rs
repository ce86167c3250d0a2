//! What a second task gains, beside what two copies of a plain loop over memory gain on this machine.

use std::error::Error;
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use super::{Case, Files, median, sql, thetis_command, whole};

/// Words of each copy's list: far more than the caches hold.
const WORDS: usize = 32 << 20;
const PASSES: usize = 8;

/// How many times as much two copies of the loop do in the same time as one.
pub(crate) fn loop_gain() -> f64 {
    let lists = [vec![1_u64; WORDS], vec![2_u64; WORDS]];
    let (one, two) = (seconds(&lists[..1]), seconds(&lists));
    2.0 * one / two
}

/// The wall time in which each list is summed up several times, side by side.
#[allow(clippy::disallowed_methods, reason = "a loop is measured by the wall clock, outside of any runtime")]
fn seconds(lists: &[Vec<u64>]) -> f64 {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for list in lists {
            scope.spawn(move || (0..PASSES).map(|_| black_box(list).iter().sum::<u64>()).max());
        }
    });
    started.elapsed().as_secs_f64()
}

/// The columns of the table.
pub(crate) const HEADER: &str = "| input | one task on one core, wall s | one task | two | gain over one task | over one core \
    | of the loop |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |";

/// A line of the table. Sources read beside the one task, so that it takes more than one core unless it is
/// kept on one.
///
/// # Errors
/// The answers differ.
pub(crate) fn compare(case: &Case, files: &Files, rounds: usize) -> Result<String, Box<dyn Error>> {
    let (mut core, mut one, mut two, mut loops) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        for (tasks, kept, runs) in [(1, true, &mut core), (1, false, &mut one), (2, false, &mut two)] {
            let text = format!("SET parallelism = {tasks}; {}", sql(case, files)?);
            let mut command = thetis_command()?;
            if kept {
                let mut on_one = Command::new("taskset");
                on_one.args(["-c", "0"]).arg(command.get_program());
                command = on_one;
            }
            runs.push(whole(command.args(["--format", "csv", "-c", &text]))?);
        }
        loops.push(loop_gain());
    }
    if one[0].answer != two[0].answer {
        return Err(format!("{}: {} is not {}", case.input, one[0].answer, two[0].answer).into());
    }
    loops.sort_by(f64::total_cmp);
    let (core, one, two) = (median(core).wall, median(one).wall, median(two).wall);
    let (name, bound) = (case.name(), loops[loops.len() / 2]);
    Ok(format!("| {name} | {core:.2} | {one:.2} | {two:.2} | {:.2} | {:.2} | {bound:.2} |", one / two, core / two))
}
