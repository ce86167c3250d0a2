//! Where streams come from and where sinks go: the typed form of `WITH (connector = ..., ...)`. A table gives the
//! options' names, meanings, checks, and for which connectors they are.

mod file;
mod generator;
mod options;
mod sink;

use std::fmt;

use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};
use thetis_parser::{CreateStream, Position, StreamOption};

pub use file::{CsvFormat, FileFormat, FileSpec, NdjsonFormat, OnError};
pub use generator::{Distribution, GeneratedColumn, GeneratorSpec, Series, whole_limits};
use options::{OptionRow, Seen};
pub use sink::{FileSink, IfExists, SinkFormat, SinkSpec};

use crate::error::{PlanError, PlanErrorKind};
use crate::expr::ScalarExpr;

/// What a source reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SourceSpec {
    /// Files.
    File(FileSpec),
    /// Random rows.
    Generator(GeneratorSpec),
    /// Constant rows, all in epoch 1.
    Values(Vec<Vec<ScalarExpr>>),
    /// A stored table: its rows now, and its changes after that if the source never ends.
    Table(TableId),
}

/// Names a stored table within one engine, also when another one takes its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableId(pub u64);

/// The kinds of source that options are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Csv,
    Ndjson,
    Parquet,
    Generator,
}

impl Kind {
    const FILES: &[Self] = &[Self::Csv, Self::Ndjson, Self::Parquet];
    const TEXTS: &[Self] = &[Self::Csv, Self::Ndjson];
    const ALL: &[Self] = &[Self::Csv, Self::Ndjson, Self::Parquet, Self::Generator];

    fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
            Self::Parquet => "parquet",
            Self::Generator => "generator",
        }
    }

    /// The format of this name.
    fn of_format(text: &str) -> Option<Self> {
        options::format(text, [Self::Csv, Self::Ndjson, Self::Parquet])
    }

    /// The format that a path's ending tells.
    fn of_path(path: &str) -> Self {
        options::ending(path).and_then(Self::of_format).unwrap_or(Self::Csv)
    }

    /// Of a stream with these options.
    fn of(options: &[StreamOption]) -> Self {
        let value = |key: &str| {
            let option = options.iter().find(|option| option.key.value.eq_ignore_ascii_case(key));
            option.map_or("", |option| option.value.as_str())
        };
        if value("connector").eq_ignore_ascii_case("generator") {
            return Self::Generator;
        }
        Self::of_format(value("format")).unwrap_or_else(|| Self::of_path(value("path")))
    }

    /// Says what was chosen.
    fn chosen(self) -> String {
        match self {
            Self::Generator => "the connector is generator".to_owned(),
            format => format!("the format is {}", format.name()),
        }
    }
}

/// What options say, before it is known to be complete.
struct Draft {
    path: Option<String>,
    on_error: OnError,
    csv: CsvFormat,
    max_record_bytes: u32,
    generator: generator::Draft,
}

const TABLE: [OptionRow<Draft, Kind>; 12] = [
    OptionRow {
        name: "connector",
        takes: "'file' or 'generator'",
        of: Kind::ALL,
        set: |_, text| options::named(text, &[("file", ()), ("generator", ())]),
    },
    OptionRow {
        name: "path",
        takes: "a file's path or a glob, as in 'data/*.csv'",
        of: Kind::FILES,
        set: |draft, text| options::path(text).map(|path| draft.path = Some(path)),
    },
    OptionRow {
        name: "format",
        takes: "'csv', 'ndjson' or 'parquet'",
        of: Kind::FILES,
        set: |_, text| Kind::of_format(text).map(|_| ()),
    },
    OptionRow {
        name: "on_error",
        takes: "'fail' or 'skip'",
        of: Kind::FILES,
        set: |draft, text| {
            let names = [("fail", OnError::Fail), ("skip", OnError::Skip)];
            options::named(text, &names).map(|on_error| draft.on_error = on_error)
        },
    },
    OptionRow {
        name: "header",
        takes: "true or false",
        of: &[Kind::Csv],
        set: |draft, text| {
            let yes = ["true", "on", "yes", "1"].map(|name| (name, true));
            let no = ["false", "off", "no", "0"].map(|name| (name, false));
            options::named(text, &[yes, no].concat()).map(|header| draft.csv.header = header)
        },
    },
    OptionRow {
        name: "delimiter",
        takes: "one ASCII character, or '\\t'",
        of: &[Kind::Csv],
        set: |draft, text| one_byte(text).map(|byte| draft.csv.delimiter = byte),
    },
    OptionRow {
        name: "quote",
        takes: "one ASCII character",
        of: &[Kind::Csv],
        set: |draft, text| one_byte(text).map(|byte| draft.csv.quote = byte),
    },
    OptionRow {
        name: "null",
        takes: "the text that stands for NULL, as in 'NA'",
        of: &[Kind::Csv],
        set: |draft, text| {
            text.clone_into(&mut draft.csv.null);
            Some(())
        },
    },
    OptionRow {
        name: "max_record_bytes",
        takes: "a number of bytes from 64 to 1073741824",
        of: Kind::TEXTS,
        set: |draft, text| {
            draft.max_record_bytes = text.parse().ok().filter(|n| (64..=1 << 30).contains(n))?;
            Some(())
        },
    },
    OptionRow {
        name: "rows",
        takes: "how many rows there are, as in 50000; without it they never end",
        of: &[Kind::Generator],
        set: |draft, text| {
            draft.generator.rows = Some(text.parse().ok()?);
            Some(())
        },
    },
    OptionRow {
        name: "rows_per_second",
        takes: "a number from 0.001 to 1000000000, or 'max'",
        of: &[Kind::Generator],
        set: |draft, text| {
            draft.generator.rows_per_second = if text.eq_ignore_ascii_case("max") {
                None
            } else {
                Some(text.parse().ok().filter(|rate| (0.001..=1e9).contains(rate))?)
            };
            Some(())
        },
    },
    OptionRow {
        name: "seed",
        takes: "a whole number: the same seed makes the same rows",
        of: &[Kind::Generator],
        set: |draft, text| {
            draft.generator.seed = text.parse().ok()?;
            Some(())
        },
    },
];

/// Options of a generator's columns begin with this.
const COLUMN: &str = "column.";

fn one_byte(text: &str) -> Option<u8> {
    match text.as_bytes() {
        b"\\t" => Some(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Some(*byte),
        _ => None,
    }
}

impl SourceSpec {
    /// The source of a `CREATE STREAM` whose declared columns are `columns`, if there are any.
    ///
    /// # Errors
    /// Unknown options (with a suggestion) or ones of another connector, values that an option does
    /// not take, no path, no columns where they must be declared.
    pub fn of(stream: &CreateStream, columns: &SchemaRef) -> Result<Self, PlanError> {
        let kind = Kind::of(&stream.options);
        let mut draft = Draft {
            path: None,
            on_error: OnError::Fail,
            csv: CsvFormat::default(),
            max_record_bytes: file::MAX_RECORD_BYTES,
            generator: generator::Draft::default(),
        };
        let mut seen = Seen::default();
        let mut of_columns: Vec<(&str, &StreamOption)> = Vec::new();
        for option in &stream.options {
            let key = option.key.value.to_lowercase();
            let column = option.key.value.get(COLUMN.len()..).filter(|_| key.starts_with(COLUMN));
            let key = column.map_or(key, |column| format!("{COLUMN}{column}"));
            seen.add(key.clone(), option)?;
            match column {
                Some(column) => {
                    is_for(&key, &[Kind::Generator], kind, option)?;
                    of_columns.push((column, option));
                }
                None => apply(&mut draft, &key, kind, option)?,
            }
        }
        match kind {
            Kind::Generator => draft.generator.finish(stream, columns, &of_columns).map(Self::Generator),
            format => draft.file(stream, format).map(Self::File),
        }
    }

    /// Its rows end.
    pub fn is_bounded(&self) -> bool {
        match self {
            Self::File(_) | Self::Values(_) => true,
            Self::Generator(generator) => generator.rows.is_some(),
            Self::Table(_) => false,
        }
    }
}

impl fmt::Display for SourceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "{} {}", file.format.name(), file.path),
            Self::Generator(generator) => generator.fmt(f),
            Self::Values(rows) => write!(f, "{} constant rows", rows.len()),
            Self::Table(_) => f.write_str("stored table"),
        }
    }
}

impl Draft {
    fn file(self, stream: &CreateStream, format: Kind) -> Result<FileSpec, PlanError> {
        let path = self.path.ok_or_else(|| {
            PlanError::new(PlanErrorKind::Setting, format!("stream {} has no path", stream.name.value))
                .at(Position::of_span(stream.name.span))
                .hint(
                    "say where its rows are: WITH (connector = 'file', path = 'data.csv'), or WITH (connector = 'generator')",
                )
        })?;
        let max_record_bytes = self.max_record_bytes;
        let format = match format {
            Kind::Parquet => FileFormat::Parquet,
            Kind::Ndjson => FileFormat::Ndjson(NdjsonFormat { max_record_bytes }),
            Kind::Csv | Kind::Generator => FileFormat::Csv(CsvFormat { max_record_bytes, ..self.csv }),
        };
        Ok(FileSpec { path, format, on_error: self.on_error })
    }
}

fn apply(draft: &mut Draft, key: &str, kind: Kind, option: &StreamOption) -> Result<(), PlanError> {
    let row = TABLE.iter().find(|row| row.name == key).ok_or_else(|| unknown(kind, option))?;
    is_for(key, row.of, kind, option)?;
    row.apply(draft, option)
}

fn unknown(kind: Kind, option: &StreamOption) -> PlanError {
    let names = TABLE.iter().filter(|row| row.of.contains(&kind)).map(|row| row.name);
    match kind {
        Kind::Generator => options::unknown(option, "the generator", names, ", and column.NAME for each column"),
        file => options::unknown(option, &format!("a {} file", file.name()), names, ""),
    }
}

/// An option of some kinds of source is given to one of them.
fn is_for(key: &str, of: &[Kind], kind: Kind, option: &StreamOption) -> Result<(), PlanError> {
    if of.contains(&kind) {
        return Ok(());
    }
    let (whose, hint) = if of == [Kind::Generator] {
        ("the generator".to_owned(), "write connector = 'generator', or leave the option out")
    } else if of == Kind::FILES {
        ("files".to_owned(), "leave it out, or write connector = 'file'")
    } else {
        let names: Vec<&str> = of.iter().map(|kind| kind.name()).collect();
        (format!("{} files", names.join(" and ")), "leave the option out, or say another format")
    };
    let chosen = match (of, kind) {
        ([Kind::Generator], _) => "the connector is file".to_owned(),
        (_, kind) => kind.chosen(),
    };
    Err(PlanError::new(PlanErrorKind::Setting, format!("option {key} is for {whose}, and {chosen}"))
        .hint(hint)
        .at(Position::of_span(option.key.span)))
}

#[cfg(test)]
mod tests;
