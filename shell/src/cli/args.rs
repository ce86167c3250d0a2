//! What can be said on the command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{FromArgMatches, Parser, ValueEnum};
use thetis_cluster::process::CoordinatorSettings;

use super::settings::{DEFAULT_LISTEN, NodeArgs, WorkerOptions};

/// Continuous SQL with theta joins. Without a command and without -c: a prompt, or statements from
/// standard input.
#[derive(Debug, Parser)]
#[command(name = "thetis", version, args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    submit: SubmitArgs,
    /// How logs are written to standard error: for people, or as one JSON object per line
    #[arg(long, value_enum, default_value_t = LogFormat::Text, env = "THETIS_LOG_FORMAT", global = true)]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Todo {
    /// Statements from files and the command line.
    Submit(SubmitCommand),
    /// Statements from a prompt, or line by line from standard input.
    Shell(SubmitArgs),
    /// A coordinator, to its end.
    Coordinator(NodeArgs<CoordinatorSettings>),
    /// A worker, to its end.
    Worker(NodeArgs<WorkerOptions>),
    /// A whole cluster on this machine.
    Cluster(ClusterCommand),
    /// Certificates and tokens.
    Cert(CertCommand),
    /// How a cluster is.
    Status(StatusArgs),
}

/// `status`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    pub(super) connect: ConnectArgs,
    /// With every task of every query
    #[arg(long)]
    pub(super) tasks: bool,
}

/// Which database.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ConnectArgs {
    /// Connects to the coordinator of a cluster, instead of an engine in this process
    #[arg(long, value_name = "HOST:PORT", env = "THETIS_CONNECT")]
    pub(super) connect: Option<String>,
    /// The folder of the client's identity: cert.pem, key.pem, ca.pem; by default that of this machine's coordinator
    #[arg(long, value_name = "DIR", env = "THETIS_IDENTITY")]
    pub(super) identity: Option<PathBuf>,
}

/// `cluster up` and `cluster down`.
#[derive(Debug, Clone, clap::Subcommand)]
pub(super) enum ClusterCommand {
    /// Starts a coordinator and workers on this machine
    Up {
        /// How many workers
        #[arg(long, default_value_t = 2)]
        workers: u32,
        /// Slots of each worker
        #[arg(long, default_value_t = 1)]
        slots: u32,
        /// Where the coordinator listens
        #[arg(long, value_name = "ADDR", default_value = DEFAULT_LISTEN)]
        listen: SocketAddr,
        /// Folder of everything: keys, catalogue, logs
        #[arg(long, value_name = "DIR", env = "THETIS_DATA")]
        data: Option<PathBuf>,
    },
    /// Ends them
    Down {
        /// The folder that `up` was told
        #[arg(long, value_name = "DIR", env = "THETIS_DATA")]
        data: Option<PathBuf>,
    },
}

/// `cert worker`, `cert client`, `cert token`. The authority is in the coordinator's data folder.
#[derive(Debug, Clone, clap::Subcommand)]
pub(super) enum CertCommand {
    /// Issues the identity of a worker
    Worker(IssueArgs),
    /// Issues the identity of a client
    Client(IssueArgs),
    /// Makes a token with which one worker can join within a day
    Token {
        /// The coordinator's data folder
        #[arg(long, value_name = "DIR", env = "THETIS_DATA")]
        data: Option<PathBuf>,
    },
}

/// Whose identity.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct IssueArgs {
    /// Lower-case letters, digits and hyphens
    pub(super) name: String,
    /// The coordinator's data folder
    #[arg(long, value_name = "DIR", env = "THETIS_DATA")]
    pub(super) data: Option<PathBuf>,
    /// Where the identity goes; by default into the data folder
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Command {
    /// Runs SQL files; `-` is standard input
    Submit(SubmitCommand),
    /// Runs the coordinator of a cluster
    Coordinator(NodeArgs<CoordinatorSettings>),
    /// Runs a worker of a cluster
    Worker(NodeArgs<WorkerOptions>),
    /// Starts or ends a whole cluster on this machine, for trying out
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Issues certificates and join tokens of a cluster
    #[command(subcommand)]
    Cert(CertCommand),
    /// Shows the workers, queries and tasks of a cluster
    Status(StatusArgs),
}

/// `submit` with the order in which files and `-c` were given.
#[derive(Debug, Clone)]
pub(super) struct SubmitCommand {
    pub(super) inputs: Vec<Input>,
    pub(super) args: SubmitArgs,
}

/// SQL from the command line or from a file.
#[derive(Debug, Clone)]
pub(super) enum Input {
    Text(String),
    File(String),
}

#[derive(Debug, Clone, clap::Args)]
struct Files {
    /// SQL files, run in the order in which they are given; `-` is standard input
    #[arg(value_name = "FILE", required_unless_present = "sql")]
    files: Vec<String>,
}

#[derive(Debug, Clone, clap::Args)]
pub(super) struct SubmitArgs {
    #[command(flatten)]
    pub(super) connect: ConnectArgs,
    /// Runs this SQL
    #[arg(short = 'c', long = "command", value_name = "SQL", allow_hyphen_values = true)]
    sql: Vec<String>,
    /// Sets a variable: `:name`, `:'name'` and `:"name"` in the SQL stand for its value
    #[arg(short = 'v', long = "variable", value_name = "NAME=VALUE", value_parser = variable)]
    pub(super) variables: Vec<(String, String)>,
    /// How rows are written
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
    /// Writes the changes of each result, epoch by epoch, instead of the result
    #[arg(long)]
    pub(super) changes: bool,
    /// Plans every statement and runs no query; reports all errors
    #[arg(long)]
    pub(super) check: bool,
    /// Goes on after an error; the exit code is 1 at the end
    #[arg(long)]
    pub(super) keep_going: bool,
    /// How errors are written to standard error: for people, or as one JSON object per error
    #[arg(long, value_enum, default_value_t = ErrorFormat::Text)]
    pub(super) error_format: ErrorFormat,
    /// Ends every query that runs longer, as in 10s; what came so far is its result
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub(super) time_limit: Option<Duration>,
    /// Ends every query after this many rows
    #[arg(long = "limit-rows", value_name = "N")]
    pub(super) row_limit: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Table,
    Csv,
    Ndjson,
    Markdown,
}

impl Format {
    /// As `--format` and `\pset format` take it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
            Self::Markdown => "markdown",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ErrorFormat {
    Text,
    Json,
}

fn duration(text: &str) -> Result<Duration, String> {
    thetis::parse_duration(text).map_err(|takes| format!("expected {takes}"))
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let valid = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if valid { Ok((name.to_owned(), value.to_owned())) } else { Err(format!("'{name}' is no name of a variable")) }
}

impl Args {
    /// How logs are written.
    pub(super) fn log_format(&self) -> LogFormat {
        self.log_format
    }

    /// Whether this is to be a process of a cluster.
    pub(super) fn is_node(&self) -> bool {
        matches!(self.command, Some(Command::Coordinator(_) | Command::Worker(_)))
    }

    /// What to do; `thetis -c SQL` is `thetis submit -c SQL`.
    pub(super) fn todo(self) -> Todo {
        match self.command {
            Some(Command::Submit(submit)) => Todo::Submit(submit),
            Some(Command::Coordinator(args)) => Todo::Coordinator(args),
            Some(Command::Worker(args)) => Todo::Worker(args),
            Some(Command::Cluster(command)) => Todo::Cluster(command),
            Some(Command::Cert(command)) => Todo::Cert(command),
            Some(Command::Status(args)) => Todo::Status(args),
            None if self.submit.sql.is_empty() => Todo::Shell(self.submit),
            None => {
                let inputs = self.submit.sql.iter().cloned().map(Input::Text).collect();
                Todo::Submit(SubmitCommand { inputs, args: self.submit })
            }
        }
    }
}

impl FromArgMatches for SubmitCommand {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let args = SubmitArgs::from_arg_matches(matches)?;
        let files = Files::from_arg_matches(matches)?;
        let indexed = |id: &str| matches.indices_of(id).into_iter().flatten().collect::<Vec<_>>();
        let mut inputs: Vec<(usize, Input)> = Vec::new();
        inputs.extend(indexed("sql").into_iter().zip(args.sql.iter().cloned().map(Input::Text)));
        inputs.extend(indexed("files").into_iter().zip(files.files.into_iter().map(Input::File)));
        inputs.sort_by_key(|(index, _)| *index);
        Ok(Self { inputs: inputs.into_iter().map(|(_, input)| input).collect(), args })
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for SubmitCommand {
    fn augment_args(command: clap::Command) -> clap::Command {
        Files::augment_args(SubmitArgs::augment_args(command))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}
