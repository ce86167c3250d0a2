//! Runs Thetis against other engines on the same files, in turn, and prints wall and CPU seconds with
//! their ratios. Thetis counts as a whole process; DuckDB and Polars from connect to the last row, without
//! the start of Python; Flink as a whole process, for which a second does not matter.
//!
//! ```text
//! benches/peers/install.sh ../peers
//! cargo build --release --workspace --bins && target/release/compare --peers ../peers --data ../data
//! ```
//!
//! With `--prefix`, the answer of an epoch is checked; with `--parallel`, two tasks are held against one.

mod inputs;
mod parallel;
mod prefix;

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Parser;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

const EQUALITY: &str = "SELECT COUNT(*), SUM(r.v + s.v) FROM r JOIN s ON r.k = s.k";
const BAND: &str = "SELECT COUNT(*), SUM(r.v + s.v) FROM r JOIN s ON r.k BETWEEN s.k - 5 AND s.k + 5";
const INEQUALITIES: &str = "SELECT COUNT(*), SUM(r.a - s.a + r.b - s.b) FROM r JOIN s \
                            ON r.a < s.a AND r.b > s.b AND r.a > s.a - 1000";
const DISTANCE: &str = "SELECT COUNT(*), SUM(r.id + s.id) FROM r JOIN s \
                        ON (r.x - s.x) * (r.x - s.x) + (r.y - s.y) * (r.y - s.y) <= 1.0";
const WORDS: &str = "SELECT word, COUNT(*) AS n FROM (SELECT UNNEST(string_to_array(line, ' ')) AS word FROM words) \
                     AS w GROUP BY word ORDER BY n DESC, word LIMIT 10";
const INTERVALS: &str = "SELECT COUNT(*), SUM(r.id + s.id) FROM r JOIN s ON r.t BETWEEN s.a AND s.b";
const GROUPED: &str = "SELECT MAX(n), SUM(t), MIN(m) FROM (SELECT s.v, COUNT(*) AS n, SUM(r.v) AS t, MIN(r.id) AS m \
                       FROM r JOIN s ON r.k BETWEEN s.k - 5 AND s.k + 5 GROUP BY s.v) AS g";
const LISTED: &str = "SELECT COUNT(*) FROM r JOIN s ON r.k BETWEEN s.k - 5 AND s.k + 5 AND (r.v * s.v) % 7 <> 3";
/// The rewrites by which a batch engine joins on buckets instead of all pairs.
const INEQUALITIES_BUCKETS: &str = "WITH a AS (SELECT *, a // 1000 AS g FROM r), \
    b AS (SELECT *, a // 1000 + d AS g FROM s, (VALUES (0), (-1)) AS t(d)) \
    SELECT COUNT(*), SUM(r.a - s.a + r.b - s.b) FROM a AS r JOIN b AS s \
    ON r.g = s.g AND r.a < s.a AND r.b > s.b AND r.a > s.a - 1000";
const DISTANCE_BUCKETS: &str = "WITH a AS (SELECT *, floor(x)::BIGINT AS gx, floor(y)::BIGINT AS gy FROM r), \
    b AS (SELECT *, floor(x)::BIGINT + dx AS gx, floor(y)::BIGINT + dy AS gy FROM s, \
    (VALUES (-1), (0), (1)) AS t(dx), (VALUES (-1), (0), (1)) AS u(dy)) \
    SELECT COUNT(*), SUM(r.id + s.id) FROM a AS r JOIN b AS s ON r.gx = s.gx AND r.gy = s.gy \
    AND (r.x - s.x) * (r.x - s.x) + (r.y - s.y) * (r.y - s.y) <= 1.0";

/// The same for a band, as Flink takes it.
const BAND_BUCKETS: &str = "SELECT COUNT(*), SUM(r.v + s.v) FROM (SELECT *, k / 11 AS g FROM r) AS r JOIN \
    (SELECT *, k / 11 AS g FROM s UNION ALL SELECT *, k / 11 - 1 AS g FROM s UNION ALL SELECT *, k / 11 + 1 AS g FROM s) \
    AS s ON r.g = s.g AND r.k BETWEEN s.k - 5 AND s.k + 5";

/// Input, query, and the engine that it is held against.
struct Case {
    input: &'static str,
    query: &'static str,
    peer: Peer,
    /// The query of that engine, if it is another.
    rewrite: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    DuckDb,
    Polars,
    Flink,
}

impl Case {
    /// The input, and what is done with it if that is not the usual.
    fn name(&self) -> String {
        let done = match self.query {
            LISTED => ", listed",
            GROUPED => ", grouped",
            _ => "",
        };
        format!("{}{done}", self.input)
    }

    fn peer_query(&self) -> &'static str {
        self.rewrite.unwrap_or(self.query)
    }
}

fn case(input: &'static str, query: &'static str, peer: Peer) -> Case {
    Case { input, query, peer, rewrite: None }
}

fn cases() -> Vec<Case> {
    let rewritten = |rewrite, case| Case { rewrite: Some(rewrite), ..case };
    vec![
        case("band_100000", BAND, Peer::DuckDb),
        case("band_1000000", BAND, Peer::DuckDb),
        case("bandskew_1000000", BAND, Peer::DuckDb),
        case("ineq_20000", INEQUALITIES, Peer::DuckDb),
        case("geo_20000", DISTANCE, Peer::DuckDb),
        case("zipf_0_1000000", EQUALITY, Peer::DuckDb),
        case("zipf_1.0_100000", EQUALITY, Peer::DuckDb),
        case("zipf_1.5_100000", EQUALITY, Peer::DuckDb),
        case("words_2000000", WORDS, Peer::DuckDb),
        rewritten(INEQUALITIES_BUCKETS, case("ineq_100000", INEQUALITIES, Peer::DuckDb)),
        case("ineq_100000", INEQUALITIES, Peer::Polars),
        rewritten(DISTANCE_BUCKETS, case("geo_100000", DISTANCE, Peer::DuckDb)),
        case("bandskew_1000000", LISTED, Peer::DuckDb),
        case("bandskew_1000000", GROUPED, Peer::DuckDb),
        case("interval_100000", INTERVALS, Peer::DuckDb),
        case("interval_1000000", INTERVALS, Peer::DuckDb),
        case("band_20000", BAND, Peer::Flink),
        case("ineq_20000", INEQUALITIES, Peer::Flink),
        case("geo_20000", DISTANCE, Peer::Flink),
        rewritten(BAND_BUCKETS, case("band_1000000", BAND, Peer::Flink)),
    ]
}

/// Those in which the join is most of the work.
fn heavy_cases() -> Vec<Case> {
    let queries = [
        ("bandskew_1000000", LISTED),
        ("ineq_1000000", INEQUALITIES),
        ("geo_1000000", DISTANCE),
        ("interval_1000000", INTERVALS),
        ("band_10000000", BAND),
    ];
    queries.map(|(input, query)| case(input, query, Peer::DuckDb)).into()
}

#[derive(Debug, Parser)]
#[command(about = "Runs Thetis against other engines on the same files")]
struct Options {
    /// Folder of the other engines, as benches/peers/install.sh fills it
    #[arg(long)]
    peers: PathBuf,
    /// Folder of the inputs; those that are not there are made
    #[arg(long)]
    data: PathBuf,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Inputs; all without it
    #[arg(long)]
    only: Vec<String>,
    /// With Flink, which takes a minute for each case and round
    #[arg(long)]
    flink: bool,
    /// Instead: checks the answer by the end of one epoch, chosen by this seed, against DuckDB
    #[arg(long, value_name = "SEED")]
    prefix: Option<u64>,
    /// Instead: holds two tasks against one, and a loop over memory likewise
    #[arg(long)]
    parallel: bool,
    /// A setting for Thetis, as in 'epoch_rows = 10000'
    #[arg(long)]
    set: Vec<String>,
}

/// Seconds, and what was answered.
#[derive(Debug, Clone, Default)]
struct Run {
    wall: f64,
    cpu: f64,
    answer: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    std::fs::create_dir_all(&options.data)?;
    let asked = |case: &Case| options.only.is_empty() || options.only.iter().any(|only| only == case.input);
    if options.parallel {
        println!("{}", parallel::HEADER);
        for case in heavy_cases().iter().filter(|case| asked(case)) {
            println!("{}", parallel::compare(case, &inputs::files(&options.data, case.input)?, options.rounds)?);
        }
        return Ok(());
    }
    let cases = cases().into_iter().filter(|case| asked(case) && (options.flink || case.peer != Peer::Flink));
    if let Some(seed) = options.prefix {
        println!("| input | epoch | answer of both |\n| --- | --- | --- |");
        for (case, seed) in cases.filter(|case| case.query != WORDS && case.query != GROUPED).zip(seed..) {
            println!("{}", prefix::check(&case, &inputs::files(&options.data, case.input)?, &options, seed)?);
        }
        return Ok(());
    }
    println!("| input | against | Thetis CPU / wall s | other CPU / wall s | ratio CPU | ratio wall |");
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    for case in cases {
        println!("{}", compare(&case, &options)?);
    }
    Ok(())
}

fn compare(case: &Case, options: &Options) -> Result<String, Box<dyn Error>> {
    let files = inputs::files(&options.data, case.input)?;
    let rounds = if case.peer == Peer::Flink { 1 } else { options.rounds };
    let (mut own, mut other) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        own.push(thetis(case, &files, options)?);
        other.push(peer(case, &files, options)?);
    }
    if own[0].answer != other[0].answer {
        return Err(format!("{}: {} is not {}", case.input, own[0].answer, other[0].answer).into());
    }
    let (own, other) = (median(own), median(other));
    let name = match case.peer {
        Peer::DuckDb => "DuckDB",
        Peer::Polars => "Polars join_where",
        Peer::Flink => "Flink SQL",
    };
    let rewritten = if case.rewrite.is_some() { ", rewritten to buckets" } else { "" };
    let mut line = format!("| {} | {name}{rewritten} | {:.2} / {:.2} ", case.name(), own.cpu, own.wall);
    write!(line, "| {:.2} / {:.2} ", other.cpu, other.wall)?;
    write!(line, "| {:.3} | {:.3} |", own.cpu / other.cpu, own.wall / other.wall)?;
    Ok(line)
}

/// Wall and CPU each for itself.
fn median(mut runs: Vec<Run>) -> Run {
    let middle = runs.len() / 2;
    runs.sort_by(|a, b| a.cpu.total_cmp(&b.cpu));
    let cpu = runs[middle].cpu;
    runs.sort_by(|a, b| a.wall.total_cmp(&b.wall));
    Run { cpu, ..runs[middle].clone() }
}

type Files = [(&'static str, PathBuf)];

fn thetis(case: &Case, files: &Files, options: &Options) -> Result<Run, Box<dyn Error>> {
    let settings: String = options.set.iter().map(|setting| format!("SET {setting}; ")).collect();
    let mut run = whole(thetis_command()?.args(["--format", "csv", "-c", &(settings + &sql(case, files)?)]))?;
    // The header, and what definitions say.
    let rows = run.answer.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit() || c == 'w'));
    run.answer = rows.filter(|line| !line.starts_with("word")).collect::<Vec<_>>().join("\n");
    Ok(run)
}

fn thetis_command() -> std::io::Result<Command> {
    Ok(Command::new(std::env::current_exe()?.with_file_name("thetis")))
}

/// The definitions of a case's streams, and its query.
fn sql(case: &Case, files: &Files) -> Result<String, std::fmt::Error> {
    let mut sql = String::new();
    for (table, path) in files {
        let (path, columns) = (path.display(), inputs::columns(case.input, table));
        write!(sql, "CREATE STREAM {table} ({columns}) WITH (connector = 'file', path = '{path}', format = 'csv'); ")?;
    }
    Ok(sql + case.query)
}

/// `NAME=PATH` of each file.
fn tables(files: &Files) -> impl Iterator<Item = String> {
    files.iter().map(|(table, file)| format!("{table}={}", file.display()))
}

fn duckdb(query: &str, files: &Files, options: &Options) -> Result<Run, Box<dyn Error>> {
    let python = options.peers.join("bin/python");
    timed_inside(Command::new(python).arg(script("run_duckdb.py")).arg(query).args(tables(files)))
}

fn peer(case: &Case, files: &Files, options: &Options) -> Result<Run, Box<dyn Error>> {
    let query = case.peer_query();
    match case.peer {
        Peer::DuckDb => duckdb(query, files, options),
        Peer::Polars => {
            let files = files.iter().map(|(_, file)| file);
            timed_inside(Command::new(options.peers.join("bin/python")).arg(script("run_polars.py")).args(files))
        }
        Peer::Flink => {
            let tables = tables(files).map(|table| format!("{table}:{}", inputs::columns(case.input, &table[..1])));
            let python = options.peers.join("flink/bin/python");
            timed_inside(Command::new(python).arg(script("run_flink.py")).arg(query).args(tables))
        }
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name)
}

#[allow(clippy::disallowed_methods, reason = "it is the wall clock that is measured here")]
/// A command with its start and end.
fn whole(command: &mut Command) -> Result<Run, Box<dyn Error>> {
    let used = children_cpu()?;
    let started = Instant::now();
    let answer = output(command)?;
    Ok(Run { wall: started.elapsed().as_secs_f64(), cpu: children_cpu()? - used, answer })
}

/// A command whose first line has its wall and CPU seconds.
fn timed_inside(command: &mut Command) -> Result<Run, Box<dyn Error>> {
    let output = output(command)?;
    let (first, answer) = output.split_once('\n').ok_or("nothing was printed")?;
    let (wall, cpu) = first.split_once(' ').ok_or("two times were expected")?;
    Ok(Run { wall: wall.parse()?, cpu: cpu.parse()?, answer: answer.trim_end().to_owned() })
}

fn output(command: &mut Command) -> Result<String, Box<dyn Error>> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

fn children_cpu() -> Result<f64, nix::Error> {
    let used = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok((used.user_time().num_microseconds() + used.system_time().num_microseconds()) as f64 / 1e6)
}
