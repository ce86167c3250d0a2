//! Settings of coordinators and workers: one table gives flags, environment variables and the keys of the
//! configuration file. A flag wins over the environment, that over the file, that over the default.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, FromArgMatches};
use thetis_cluster::process::CoordinatorSettings;

/// Where a coordinator listens unless it is told.
pub(super) const DEFAULT_LISTEN: &str = "127.0.0.1:7171";

const CONFIG: &str = "config";

/// One setting.
pub(super) struct Setting<T> {
    name: &'static str,
    value: &'static str,
    meaning: &'static str,
    default: Option<&'static str>,
    set: fn(&mut T, &str) -> Result<(), String>,
}

/// Processes that have settings.
pub(super) trait Configured: Sized + Clone + Send + Sync + 'static {
    /// Its section in the configuration file, and the beginning of its environment variables.
    const SECTION: &'static str;
    fn table() -> &'static [Setting<Self>]
    where
        Self: Sized;
    fn empty() -> Self;
}

/// A worker's settings, as they are given.
#[derive(Debug, Clone)]
pub(super) struct WorkerOptions {
    pub(super) coordinator: String,
    pub(super) name: Option<String>,
    pub(super) token: Option<String>,
    pub(super) listen: SocketAddr,
    pub(super) advertise: Option<String>,
    pub(super) data: Option<PathBuf>,
    pub(super) slots: Option<u32>,
    pub(super) drain: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    thetis::parse_duration(text).map_err(|takes| format!("expected {takes}"))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an address and a port, as in 127.0.0.1:7171".to_owned())
}

static COORDINATOR: [Setting<CoordinatorSettings>; 4] = [
    Setting {
        name: "listen",
        value: "ADDR",
        meaning: "Where workers and clients connect to",
        default: Some(DEFAULT_LISTEN),
        set: |settings, text| address(text).map(|address| settings.listen = address),
    },
    Setting {
        name: "data",
        value: "DIR",
        meaning: "Folder of keys and catalogue; by default $THETIS_DATA, or thetis in the user's data folder",
        default: None,
        set: |settings, text| {
            settings.data = text.into();
            Ok(())
        },
    },
    Setting {
        name: "worker-timeout",
        value: "DURATION",
        meaning: "A worker that is not heard of for so long is lost",
        default: Some("10s"),
        set: |settings, text| duration(text).map(|timeout| settings.worker_timeout = timeout),
    },
    Setting {
        name: "metrics",
        value: "ADDR",
        meaning: "Serves metrics for Prometheus there, over plain HTTP",
        default: None,
        set: |settings, text| address(text).map(|address| settings.metrics = Some(address)),
    },
];

static WORKER: [Setting<WorkerOptions>; 8] = [
    Setting {
        name: "coordinator",
        value: "HOST:PORT",
        meaning: "Where the coordinator is",
        default: Some(DEFAULT_LISTEN),
        set: |settings, text| {
            text.clone_into(&mut settings.coordinator);
            Ok(())
        },
    },
    Setting {
        name: "slots",
        value: "N",
        meaning: "Share of the tasks that it wants; by default the number of cores",
        default: None,
        set: |settings, text| {
            let slots = text.parse().ok().filter(|slots| (1..=1024).contains(slots));
            settings.slots = Some(slots.ok_or("expected a whole number from 1 to 1024")?);
            Ok(())
        },
    },
    Setting {
        name: "listen",
        value: "ADDR",
        meaning: "Where other workers connect to; port 0 is any that is free",
        default: Some("127.0.0.1:0"),
        set: |settings, text| address(text).map(|address| settings.listen = address),
    },
    Setting {
        name: "advertise",
        value: "HOST:PORT",
        meaning: "Where other workers reach it, if that is not where it listens",
        default: None,
        set: |settings, text| {
            settings.advertise = Some(text.to_owned());
            Ok(())
        },
    },
    Setting {
        name: "data",
        value: "DIR",
        meaning: "Folder of its identity; by default workers/NAME in the coordinator's data folder",
        default: None,
        set: |settings, text| {
            settings.data = Some(text.into());
            Ok(())
        },
    },
    Setting {
        name: "name",
        value: "NAME",
        meaning: "The name that a new worker gets; by default a new one",
        default: None,
        set: |settings, text| {
            settings.name = Some(text.to_owned());
            Ok(())
        },
    },
    Setting {
        name: "token",
        value: "TOKEN",
        meaning: "The join token of a new worker, as `thetis cert token` makes it; better in the environment",
        default: None,
        set: |settings, text| {
            settings.token = Some(text.to_owned());
            Ok(())
        },
    },
    Setting {
        name: "drain",
        value: "DURATION",
        meaning: "How long it waits for its queries when it is to end",
        default: Some("30s"),
        set: |settings, text| duration(text).map(|drain| settings.drain = drain),
    },
];

impl Configured for CoordinatorSettings {
    const SECTION: &'static str = "coordinator";

    fn table() -> &'static [Setting<Self>] {
        &COORDINATOR
    }

    fn empty() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            data: thetis::data_folder(),
            worker_timeout: Duration::ZERO,
            metrics: None,
        }
    }
}

impl Configured for WorkerOptions {
    const SECTION: &'static str = "worker";

    fn table() -> &'static [Setting<Self>] {
        &WORKER
    }

    fn empty() -> Self {
        Self {
            coordinator: String::new(),
            name: None,
            token: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            data: None,
            slots: None,
            drain: Duration::ZERO,
        }
    }
}

/// What the command line says of a process's settings, and where the rest is.
#[derive(Debug, Clone)]
pub(super) struct NodeArgs<T> {
    given: BTreeMap<&'static str, (String, bool)>,
    config: Option<PathBuf>,
    of: PhantomData<T>,
}

fn variable(section: &str, name: &str) -> String {
    format!("THETIS_{section}_{name}").to_uppercase().replace('-', "_")
}

impl<T: Configured> NodeArgs<T> {
    /// The settings.
    ///
    /// # Errors
    /// A value that a setting does not take, a configuration file that cannot be read or says something else.
    pub(super) fn settings(&self) -> Result<T, String> {
        let file = match &self.config {
            Some(path) => section(path, T::SECTION)?,
            None => BTreeMap::new(),
        };
        if let Some(unknown) = file.keys().find(|key| !T::table().iter().any(|setting| setting.name == **key)) {
            let near = thetis::closest(unknown, T::table().iter().map(|setting| setting.name));
            let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            return Err(format!("there is no setting '{unknown}' in [{}]{near}", T::SECTION));
        }
        let mut settings = T::empty();
        for setting in T::table() {
            let given = self.given.get(setting.name);
            let from_file = file.get(setting.name).map(|value| (value.clone(), false));
            let value = match given {
                Some((value, false)) => Some(value.clone()),
                default => from_file.map(|(value, _)| value).or_else(|| default.map(|(value, _)| value.clone())),
            };
            if let Some(value) = value {
                (setting.set)(&mut settings, &value)
                    .map_err(|takes| format!("{}: '{value}': {takes}", setting.name))?;
            }
        }
        Ok(settings)
    }
}

/// A section of the configuration file, its values as texts.
fn section(path: &Path, name: &str) -> Result<BTreeMap<String, String>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let table: toml::Table = text.parse().map_err(|error| format!("{}: {error}", path.display()))?;
    let Some(section) = table.get(name) else { return Ok(BTreeMap::new()) };
    let section = section.as_table().ok_or_else(|| format!("{}: {name} is no section", path.display()))?;
    let text = |value: &toml::Value| match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Ok(section.iter().map(|(key, value)| (key.replace('_', "-"), text(value))).collect())
}

impl<T: Configured> clap::Args for NodeArgs<T> {
    fn augment_args(command: clap::Command) -> clap::Command {
        let command = command.arg(
            Arg::new(CONFIG)
                .long(CONFIG)
                .value_name("FILE")
                .env("THETIS_CONFIG")
                .value_parser(clap::value_parser!(PathBuf))
                .help(format!("A TOML file with these settings in [{}]", T::SECTION)),
        );
        T::table().iter().fold(command, |command, setting| {
            let argument = Arg::new(setting.name)
                .long(setting.name)
                .value_name(setting.value)
                .env(variable(T::SECTION, setting.name))
                .hide_env_values(true)
                .help(setting.meaning);
            command.arg(match setting.default {
                Some(default) => argument.default_value(default),
                None => argument,
            })
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl<T: Configured> FromArgMatches for NodeArgs<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = T::table().iter().filter_map(|setting| {
            let value = matches.get_one::<String>(setting.name)?.clone();
            let is_default = matches.value_source(setting.name) == Some(ValueSource::DefaultValue);
            Some((setting.name, (value, is_default)))
        });
        Ok(Self { given: given.collect(), config: matches.get_one::<PathBuf>(CONFIG).cloned(), of: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
