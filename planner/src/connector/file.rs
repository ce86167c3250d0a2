//! Files as sources.

use serde::{Deserialize, Serialize};

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
    /// One JSON object per line.
    Ndjson(NdjsonFormat),
    /// Apache Parquet.
    Parquet,
}

impl FileFormat {
    /// Name as in `format = '...'`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Csv(_) => "csv",
            Self::Ndjson(_) => "ndjson",
            Self::Parquet => "parquet",
        }
    }
}

/// Longest record that is accepted when nothing is said.
pub(super) const MAX_RECORD_BYTES: u32 = 1 << 20;

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
        Self { header: true, delimiter: b',', quote: b'"', null: String::new(), max_record_bytes: MAX_RECORD_BYTES }
    }
}

/// How a file of JSON lines is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NdjsonFormat {
    /// Longest line in bytes; a longer one is an error.
    pub max_record_bytes: u32,
}

/// What to do with records that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnError {
    /// Stop the query with an error.
    Fail,
    /// Count the record, log a sample, go on.
    Skip,
}
