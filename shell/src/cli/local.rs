//! `thetis cluster up` and `down`: a whole cluster on this machine, for trying out.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt;
use thetis::Driver;

use super::args::ClusterCommand;
use super::exit;
use super::node::failed;
use super::report::say;

/// The cluster is up, or down, within this time.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);

/// Runs the command; its exit code.
pub(super) fn run(command: &ClusterCommand) -> u8 {
    let done = match command {
        ClusterCommand::Up { workers, slots, listen, data } => {
            let data = data.clone().unwrap_or_else(thetis::data_folder);
            up(&data, *listen, *workers, *slots)
        }
        ClusterCommand::Down { data } => down(&data.clone().unwrap_or_else(thetis::data_folder)),
    };
    match done {
        Ok(()) => 0,
        Err(Failure::Io(error)) => failed(&error),
        Err(Failure::Message(message)) => {
            say(format!("ERROR: {message}"));
            exit::FAILED
        }
    }
}

enum Failure {
    Io(std::io::Error),
    Message(String),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<thetis::Error> for Failure {
    fn from(error: thetis::Error) -> Self {
        Self::Message(error.message().to_owned())
    }
}

/// The processes that were started in a data folder and live: their names and ids.
fn processes(data: &Path) -> std::io::Result<Vec<(String, Pid, PathBuf)>> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(data.join("run")) else { return Ok(found) };
    for entry in entries {
        let path = entry?.path();
        let Some(name) = path.file_stem().map(|name| name.to_string_lossy().into_owned()) else { continue };
        let id = fs::read_to_string(&path)?.trim().parse().ok().map(Pid::from_raw);
        // Its number may be another process's by now.
        let own = |id: &Pid| {
            fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| {
                let mut words = line.split(|byte| *byte == 0);
                words.any(|word| word == b"coordinator" || word == b"worker")
            })
        };
        match id.filter(own) {
            Some(id) => found.push((name, id, path)),
            None => fs::remove_file(&path)?,
        }
    }
    Ok(found)
}

/// Starts this program with other arguments, so that it outlives this process.
fn start(data: &Path, name: &str, arguments: &[&str]) -> Result<(), Failure> {
    let log = data.join("logs").join(format!("{name}.log"));
    let out = File::options().create(true).append(true).open(&log)?;
    let child = Command::new(std::env::current_exe()?)
        .args(arguments)
        .env("THETIS_DATA", data)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .process_group(0)
        .spawn()?;
    fs::write(data.join("run").join(format!("{name}.pid")), child.id().to_string())?;
    Ok(())
}

fn up(data: &Path, listen: SocketAddr, workers: u32, slots: u32) -> Result<(), Failure> {
    for folder in ["run", "logs"] {
        fs::create_dir_all(data.join(folder))?;
    }
    let data = &data.canonicalize()?;
    if let Some((name, id, _)) = processes(data)?.first() {
        let message = format!("{name} runs already, as process {id}; `thetis cluster down` ends it");
        return Err(Failure::Message(message));
    }
    let (address, slots) = (listen.to_string(), slots.to_string());
    let folder = data.display().to_string();
    start(data, "coordinator", &["coordinator", "--listen", &address, "--data", &folder])?;
    let identity = data.join("identities").join("client-local");
    // The authority must be there before workers take their identities from it.
    let connection = eventually(data, || Driver::connect(&address, Some(&identity)).ok())?;
    for number in 1..=workers {
        let name = format!("w{number}");
        start(data, &name, &["worker", "--coordinator", &address, "--name", &name, "--slots", &slots])?;
    }
    let there = || connection.status().ok().filter(|status| status.workers.len() >= workers as usize);
    eventually(data, there)?;
    say(format!("{workers} workers are up; try: thetis --connect {address}"));
    if data != &thetis::data_folder() {
        say(format!("with THETIS_DATA={folder}, so that the client finds its identity"));
    }
    Ok(())
}

/// Asks until there is an answer.
fn eventually<T>(data: &Path, mut ask: impl FnMut() -> Option<T>) -> Result<T, Failure> {
    for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        std::thread::sleep(PAUSE);
    }
    let message = format!("the cluster does not come up; see the logs in {}", data.join("logs").display());
    Err(Failure::Message(message))
}

/// Ends the workers, then the coordinator.
fn down(data: &Path) -> Result<(), Failure> {
    let mut all = processes(data)?;
    if all.is_empty() {
        say(format!("nothing runs in {}", data.display()));
        return Ok(());
    }
    all.sort_by_key(|(name, ..)| name == "coordinator");
    for (name, id, path) in all {
        let _ = kill(id, Signal::SIGTERM);
        let mut waited = Duration::ZERO;
        while is_alive(id) {
            if waited == PATIENCE {
                say(format!("{name} does not end: it is killed"));
                let _ = kill(id, Signal::SIGKILL);
            }
            std::thread::sleep(PAUSE);
            waited += PAUSE;
        }
        fs::remove_file(path)?;
    }
    say("the cluster is down");
    Ok(())
}

/// Whether a process runs; one that has ended and that nobody has asked about does not.
fn is_alive(id: Pid) -> bool {
    let state = fs::read_to_string(format!("/proc/{id}/stat"));
    state.is_ok_and(|line| !line.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}
