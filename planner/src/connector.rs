//! Where streams come from: the typed form of `WITH (connector = ..., ...)`. One table gives the
//! options' names, meanings and checks.

use serde::{Deserialize, Serialize};
use thetis_parser::{CreateStream, Position, StreamOption};

use crate::error::{PlanError, PlanErrorKind};
use crate::expr::ScalarExpr;

/// What a source reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SourceSpec {
    /// Files.
    File(FileSpec),
    /// Constant rows, all in epoch 1.
    Values(Vec<Vec<ScalarExpr>>),
    /// A stored table: its rows now, and its changes after that if the source never ends.
    Table(TableId),
}

/// Names a stored table within one engine, also when another one takes its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableId(pub u64);

/// Files of one format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSpec {
    /// Path or glob; files are read in the order of their names.
    pub path: String,
    /// Format.
    pub format: FileFormat,
    /// What to do with records that cannot be read.
    pub on_error: OnError,
}

/// File formats.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileFormat {
    /// Comma-separated values (RFC 4180).
    Csv(CsvFormat),
    /// Apache Parquet.
    Parquet,
}

impl FileFormat {
    /// Name as in `format = '...'`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Csv(_) => "csv",
            Self::Parquet => "parquet",
        }
    }
}

/// How a CSV file is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsvFormat {
    /// The first line has the columns' names; columns are then found by name.
    pub header: bool,
    /// Between fields.
    pub delimiter: u8,
    /// Around fields.
    pub quote: u8,
    /// Text that stands for NULL, besides the empty field.
    pub null: String,
    /// Longest record in bytes; a longer one is an error.
    pub max_record_bytes: u32,
}

impl Default for CsvFormat {
    fn default() -> Self {
        Self { header: true, delimiter: b',', quote: b'"', null: String::new(), max_record_bytes: 1 << 20 }
    }
}

/// What to do with records that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnError {
    /// Stop the query with an error.
    Fail,
    /// Count the record, log a sample, go on.
    Skip,
}

#[derive(Default)]
struct Draft {
    path: Option<String>,
    format: Option<String>,
    csv: CsvFormat,
    on_error: Option<OnError>,
    csv_only: Vec<&'static str>,
}

struct OptionRow {
    name: &'static str,
    takes: &'static str,
    csv_only: bool,
    set: fn(&mut Draft, &str) -> Option<()>,
}

const TABLE: [OptionRow; 9] = [
    OptionRow {
        name: "connector",
        takes: "'file'",
        csv_only: false,
        set: |_, text| text.eq_ignore_ascii_case("file").then_some(()),
    },
    OptionRow {
        name: "path",
        takes: "a file's path or a glob, as in 'data/*.csv'",
        csv_only: false,
        set: |draft, text| {
            draft.path = Some(text.to_owned()).filter(|text| !text.is_empty());
            draft.path.as_ref().map(|_| ())
        },
    },
    OptionRow {
        name: "format",
        takes: "'csv' or 'parquet'",
        csv_only: false,
        set: |draft, text| {
            draft.format = Some(text.to_lowercase());
            matches!(draft.format.as_deref(), Some("csv" | "parquet")).then_some(())
        },
    },
    OptionRow {
        name: "on_error",
        takes: "'fail' or 'skip'",
        csv_only: false,
        set: |draft, text| {
            draft.on_error = Some(match text.to_lowercase().as_str() {
                "fail" => OnError::Fail,
                "skip" => OnError::Skip,
                _ => return None,
            });
            Some(())
        },
    },
    OptionRow {
        name: "header",
        takes: "true or false",
        csv_only: true,
        set: |draft, text| {
            draft.csv.header = match text.to_lowercase().as_str() {
                "true" | "on" | "yes" | "1" => true,
                "false" | "off" | "no" | "0" => false,
                _ => return None,
            };
            Some(())
        },
    },
    OptionRow {
        name: "delimiter",
        takes: "one ASCII character, or '\\t'",
        csv_only: true,
        set: |draft, text| one_byte(text).map(|byte| draft.csv.delimiter = byte),
    },
    OptionRow {
        name: "quote",
        takes: "one ASCII character",
        csv_only: true,
        set: |draft, text| one_byte(text).map(|byte| draft.csv.quote = byte),
    },
    OptionRow {
        name: "null",
        takes: "the text that stands for NULL, as in 'NA'",
        csv_only: true,
        set: |draft, text| {
            text.clone_into(&mut draft.csv.null);
            Some(())
        },
    },
    OptionRow {
        name: "max_record_bytes",
        takes: "a number of bytes from 64 to 1073741824",
        csv_only: true,
        set: |draft, text| {
            draft.csv.max_record_bytes = text.parse().ok().filter(|n| (64..=1 << 30).contains(n))?;
            Some(())
        },
    },
];

fn one_byte(text: &str) -> Option<u8> {
    match text.as_bytes() {
        b"\\t" => Some(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Some(*byte),
        _ => None,
    }
}

impl SourceSpec {
    /// Its rows end.
    pub fn is_bounded(&self) -> bool {
        match self {
            Self::File(_) | Self::Values(_) => true,
            Self::Table(_) => false,
        }
    }

    /// The source of a `CREATE STREAM`.
    ///
    /// # Errors
    /// Unknown options (with a suggestion), values that an option does not take, no path.
    pub fn of(stream: &CreateStream) -> Result<Self, PlanError> {
        let mut draft = Draft::default();
        let mut seen: Vec<String> = Vec::new();
        for option in &stream.options {
            let key = option.key.value.to_lowercase();
            if seen.contains(&key) {
                return Err(PlanError::new(PlanErrorKind::Setting, format!("option {key} is given twice"))
                    .at(Position::of_span(option.key.span)));
            }
            apply(&mut draft, &key, option)?;
            seen.push(key);
        }
        let name_position = Position::of_span(stream.name.span);
        let path = draft.path.ok_or_else(|| {
            PlanError::new(PlanErrorKind::Setting, format!("stream {} has no path", stream.name.value))
                .at(name_position)
                .hint("say where its rows are: WITH (connector = 'file', path = 'data.csv')")
        })?;
        let parquet = match draft.format.as_deref() {
            Some(format) => format == "parquet",
            None => path.to_lowercase().ends_with(".parquet"),
        };
        if let (true, Some(option)) = (parquet, draft.csv_only.first()) {
            return Err(PlanError::new(
                PlanErrorKind::Setting,
                format!("option {option} is for csv files, and the format is parquet"),
            )
            .at(name_position));
        }
        let format = if parquet { FileFormat::Parquet } else { FileFormat::Csv(draft.csv) };
        Ok(Self::File(FileSpec { path, format, on_error: draft.on_error.unwrap_or(OnError::Fail) }))
    }
}

fn apply(draft: &mut Draft, key: &str, option: &StreamOption) -> Result<(), PlanError> {
    let row = TABLE.iter().find(|row| row.name == key).ok_or_else(|| {
        let names = TABLE.iter().map(|row| row.name);
        PlanError::new(PlanErrorKind::Setting, format!("there is no option '{}'", option.key.value))
            .hint(format!("the options of a file are {}", names.clone().collect::<Vec<_>>().join(", ")))
            .suggest(key, names)
            .at(Position::of_span(option.key.span))
    })?;
    if row.csv_only {
        draft.csv_only.push(row.name);
    }
    (row.set)(draft, &option.value).ok_or_else(|| {
        PlanError::new(PlanErrorKind::Setting, format!("'{}' is not a value for option {key}", option.value))
            .hint(format!("{key} takes {}", row.takes))
            .at(option.position)
    })
}
