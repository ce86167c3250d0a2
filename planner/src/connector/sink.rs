//! Where `INSERT INTO sink` sends rows: the typed form of `CREATE SINK ... WITH (...)`.

use serde::{Deserialize, Serialize};
use thetis_parser::{CreateSink, Position, StreamOption};

use super::options::{self, OptionRow, Seen};
use crate::error::{PlanError, PlanErrorKind};

/// What a sink is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SinkSpec {
    /// A file.
    File(FileSink),
    /// Standard output of this process.
    Stdout(SinkFormat),
    /// Nowhere: rows are counted.
    Blackhole,
}

/// A file that rows are written to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSink {
    /// Its path.
    pub path: String,
    /// Its format.
    pub format: SinkFormat,
    /// What an INSERT does when the file is there.
    pub if_exists: IfExists,
}

/// Formats of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SinkFormat {
    /// Comma-separated values with a header.
    Csv,
    /// One JSON object per line.
    Ndjson,
    /// Apache Parquet.
    Parquet,
}

impl SinkFormat {
    /// Name as in `format = '...'`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
            Self::Parquet => "parquet",
        }
    }

    fn of(name: &str) -> Option<Self> {
        options::format(name, [Self::Csv, Self::Ndjson, Self::Parquet])
    }

    /// The format that a path's ending names.
    fn of_path(path: &str) -> Option<Self> {
        options::ending(path).and_then(Self::of)
    }
}

/// What an INSERT does with a file that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IfExists {
    /// Adds rows at its end: csv and ndjson can.
    Append,
    /// Begins it anew.
    Replace,
    /// Refuses.
    Fail,
}

#[derive(Default)]
struct Draft {
    connector: Option<Connector>,
    path: Option<String>,
    format: Option<SinkFormat>,
    if_exists: Option<IfExists>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Connector {
    File,
    Stdout,
    Blackhole,
}

const TABLE: [OptionRow<Draft, Connector>; 4] = [
    OptionRow {
        name: "connector",
        takes: "'file', 'stdout' or 'blackhole'",
        of: &[Connector::File, Connector::Stdout, Connector::Blackhole],
        set: |draft, text| {
            let names = [("file", Connector::File), ("stdout", Connector::Stdout), ("blackhole", Connector::Blackhole)];
            options::named(text, &names).map(|connector| draft.connector = Some(connector))
        },
    },
    OptionRow {
        name: "path",
        takes: "a file's path, as in 'out.csv'",
        of: &[Connector::File],
        set: |draft, text| options::path(text).map(|path| draft.path = Some(path)),
    },
    OptionRow {
        name: "format",
        takes: "'csv', 'ndjson' or 'parquet'",
        of: &[Connector::File, Connector::Stdout],
        set: |draft, text| SinkFormat::of(text).map(|format| draft.format = Some(format)),
    },
    OptionRow {
        name: "if_exists",
        takes: "'append', 'replace' or 'fail'",
        of: &[Connector::File],
        set: |draft, text| {
            let names = [("append", IfExists::Append), ("replace", IfExists::Replace), ("fail", IfExists::Fail)];
            options::named(text, &names).map(|if_exists| draft.if_exists = Some(if_exists))
        },
    },
];

impl SinkSpec {
    /// The sink of a `CREATE SINK`.
    ///
    /// # Errors
    /// Unknown options (with a suggestion), values that an option does not take, no path.
    pub fn of(sink: &CreateSink) -> Result<Self, PlanError> {
        let mut draft = Draft::default();
        let mut seen = Seen::default();
        for option in &sink.options {
            seen.add(option.key.value.to_lowercase(), option)?;
            row(option)?.apply(&mut draft, option)?;
        }
        let at = Position::of_span(sink.name.span);
        let connector = draft.connector.or(draft.path.as_ref().map(|_| Connector::File)).ok_or_else(|| {
            PlanError::new(PlanErrorKind::Setting, format!("sink {} goes nowhere", sink.name.value))
                .at(at)
                .hint("say where: WITH (connector = 'file', path = 'out.csv'), or 'stdout', or 'blackhole'")
        })?;
        for option in &sink.options {
            let row = row(option)?;
            if !row.of.contains(&connector) {
                let message = format!("option {} is not one of this connector", row.name);
                return Err(PlanError::new(PlanErrorKind::Setting, message).at(Position::of_span(option.key.span)));
            }
        }
        match connector {
            Connector::Blackhole => Ok(Self::Blackhole),
            Connector::Stdout if draft.format == Some(SinkFormat::Parquet) => {
                Err(PlanError::unsupported("parquet on standard output is not supported", "write it to a file").at(at))
            }
            Connector::Stdout => Ok(Self::Stdout(draft.format.unwrap_or(SinkFormat::Csv))),
            Connector::File => draft.file(sink),
        }
    }

    /// As `SHOW SINKS` describes it.
    pub fn describe(&self) -> String {
        match self {
            Self::File(file) => format!("{} {}", file.format.name(), file.path),
            Self::Stdout(format) => format!("{} on standard output", format.name()),
            Self::Blackhole => "blackhole".to_owned(),
        }
    }
}

impl Draft {
    fn file(self, sink: &CreateSink) -> Result<SinkSpec, PlanError> {
        let at = Position::of_span(sink.name.span);
        let path = self.path.ok_or_else(|| {
            PlanError::new(PlanErrorKind::Setting, format!("sink {} has no path", sink.name.value))
                .at(at)
                .hint("say where its rows go: WITH (connector = 'file', path = 'out.csv')")
        })?;
        let format = self.format.or_else(|| SinkFormat::of_path(&path)).unwrap_or(SinkFormat::Csv);
        let if_exists = match (format, self.if_exists) {
            (SinkFormat::Parquet, Some(IfExists::Append)) => {
                return Err(PlanError::unsupported(
                    "a parquet file cannot be appended to",
                    "use if_exists = 'replace' or 'fail', or write csv or ndjson",
                )
                .at(at));
            }
            (SinkFormat::Parquet, None) => IfExists::Fail,
            (_, chosen) => chosen.unwrap_or(IfExists::Append),
        };
        Ok(SinkSpec::File(FileSink { path, format, if_exists }))
    }
}

fn row(option: &StreamOption) -> Result<&'static OptionRow<Draft, Connector>, PlanError> {
    let row = TABLE.iter().find(|row| option.key.value.eq_ignore_ascii_case(row.name));
    row.ok_or_else(|| options::unknown(option, "a sink", TABLE.iter().map(|row| row.name), ""))
}
