//! Any number of random queries: `cargo run --bin random_sql -- --queries 10000 --seed 7`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: u64| {
        let place = arguments.iter().position(|argument| argument == name);
        place.map_or(Some(default), |place| arguments.get(place + 1)?.parse().ok())
    };
    let (Some(queries), Some(seed)) = (number("--queries", 1_000), number("--seed", 1)) else {
        eprintln!("usage: random_sql [--queries N] [--seed N]");
        return ExitCode::from(2);
    };
    match thetis_tests::block_on(thetis_tests::random::run(seed, queries as usize)) {
        Ok(()) => {
            println!("{queries} queries from seed {seed} on: all as SQLite says");
            ExitCode::SUCCESS
        }
        Err(difference) => {
            eprintln!("{difference}");
            ExitCode::FAILURE
        }
    }
}
