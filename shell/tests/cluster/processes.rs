//! A cluster of real processes on this machine.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use thetis::{Connection, Driver, Status};

/// The command.
pub(crate) fn thetis() -> Command {
    Command::new(env!("CARGO_BIN_EXE_thetis"))
}

/// A process that is killed when the test ends.
pub(crate) struct Process {
    pub(crate) child: Child,
    out: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a process and waits for the line that says that it is ready; the last word of it.
    pub(crate) fn start(command: &mut Command) -> (Self, String) {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut process = Self { out: BufReader::new(child.stdout.take().unwrap()), child };
        let mut line = String::new();
        process.out.read_line(&mut line).unwrap();
        let word = line.split_whitespace().last().map(str::to_owned);
        (process, word.expect("it says that it is ready"))
    }

    pub(crate) fn signal(&self, name: &str) {
        Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
    }

    /// Bytes that it has in memory.
    pub(crate) fn resident(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap();
        text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    /// Waits for its end; its exit code.
    pub(crate) fn ended(&mut self, within: Duration) -> Option<i32> {
        for _ in 0..within.as_millis() / 20 {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it does not end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A coordinator and its workers.
pub(crate) struct Cluster {
    pub(crate) data: tempfile::TempDir,
    pub(crate) coordinator: Process,
    pub(crate) address: String,
    pub(crate) workers: Vec<Process>,
}

/// A coordinator on a free port, or on the one of `listen`.
pub(crate) fn coordinator(data: &Path, listen: &str, more: &[&str]) -> (Process, String) {
    let mut command = thetis();
    command.args(["coordinator", "--listen", listen, "--data"]).arg(data).args(more);
    Process::start(command.env("THETIS_DATA", data))
}

/// A worker on the coordinator's machine.
pub(crate) fn worker(data: &Path, address: &str, name: &str, more: &[&str]) -> Process {
    let mut command = thetis();
    command.args(["worker", "--coordinator", address, "--name", name, "--slots", "1"]).args(more);
    Process::start(command.env("THETIS_DATA", data)).0
}

impl Cluster {
    pub(crate) fn start(workers: usize) -> Self {
        Self::with(workers, &[])
    }

    pub(crate) fn with(workers: usize, more: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let (coordinator, address) = coordinator(data.path(), "127.0.0.1:0", more);
        let workers = (1..=workers).map(|number| worker(data.path(), &address, &format!("w{number}"), &[]));
        let cluster = Self { workers: workers.collect(), data, coordinator, address };
        cluster.wait_for(|status| status.workers.len() == cluster.workers.len());
        cluster
    }

    pub(crate) fn identity(&self) -> PathBuf {
        self.data.path().join("identities/client-local")
    }

    pub(crate) fn connect(&self) -> Connection {
        Driver::connect(&self.address, Some(&self.identity())).unwrap()
    }

    pub(crate) fn status(&self) -> Status {
        self.connect().status().unwrap()
    }

    /// Waits until the cluster is as wanted.
    pub(crate) fn wait_for(&self, wanted: impl Fn(&Status) -> bool) {
        for _ in 0..200 {
            if wanted(&self.status()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the cluster is not as wanted: {:?}", self.status());
    }

    /// Runs the command as a client of this cluster.
    pub(crate) fn client(&self, arguments: &[&str]) -> Output {
        let mut command = thetis();
        command.args(arguments).env("THETIS_DATA", self.data.path()).env("THETIS_CONNECT", &self.address);
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// What the SQL prints as CSV.
    pub(crate) fn csv(&self, sql: &str) -> String {
        let output = self.client(&["-c", sql, "--format", "csv"]);
        assert_eq!(output.status.code(), Some(0), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
