//! What can be said on the command line.

use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};

/// Continuous SQL with theta joins.
#[derive(Debug, Parser)]
#[command(name = "thetis", version, args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    submit: SubmitArgs,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub(super) enum Command {
    /// Runs SQL files; `-` is standard input
    Submit(SubmitCommand),
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Table,
    Csv,
    Ndjson,
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let valid = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if valid { Ok((name.to_owned(), value.to_owned())) } else { Err(format!("'{name}' is no name of a variable")) }
}

impl Args {
    /// What to do; `thetis -c SQL` is `thetis submit -c SQL`.
    pub(super) fn command(self) -> Option<Command> {
        match self.command {
            Some(command) => Some(command),
            None if self.submit.sql.is_empty() => None,
            None => {
                let inputs = self.submit.sql.iter().cloned().map(Input::Text).collect();
                Some(Command::Submit(SubmitCommand { inputs, args: self.submit }))
            }
        }
    }
}

pub(super) fn usage() -> String {
    <Args as CommandFactory>::command().render_help().to_string()
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
