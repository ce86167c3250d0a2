//! What the tests share: running SQL through the client library, comparing results, and the
//! [oracle]: a naive evaluation of a query over a prefix of its input.

#![allow(clippy::unwrap_used, reason = "a test helper that cannot go on is a failed test")]

pub mod oracle;
pub mod prefixes;
pub mod random;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::DataType;
use arrow::util::display::array_value_to_string;
use thetis::{Connection, Response};

/// A value that can be compared: floats within a tolerance, all else as text.
#[derive(Debug, Clone)]
pub enum Value {
    /// NULL.
    Null,
    /// A floating value.
    Float(f64),
    /// Anything else.
    Text(String),
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => close(*a, *b),
            (Self::Float(a), Self::Text(b)) | (Self::Text(b), Self::Float(a)) => b.parse().is_ok_and(|b| close(*a, b)),
            _ => false,
        }
    }
}

fn close(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

impl Value {
    /// Rows are sorted by this: floats that are nearly equal sort alike.
    fn sort_key(&self) -> String {
        match self {
            Self::Null => String::new(),
            Self::Float(value) => format!("{value:.5e}"),
            Self::Text(text) => match text.parse::<f64>() {
                Ok(value) => format!("{value:.5e} {text}"),
                Err(_) => text.clone(),
            },
        }
    }
}

/// The value of a cell.
pub fn value(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) || *array.data_type() == DataType::Null {
        return Value::Null;
    }
    let text = array_value_to_string(array, row).expect("every type has a text");
    match array.data_type() {
        DataType::Float32 | DataType::Float64 => text.parse().map_or(Value::Text(text), Value::Float),
        DataType::Timestamp(..) => Value::Text(text.replace('T', " ")),
        _ => Value::Text(text),
    }
}

/// The rows of a batch, from a column on.
pub fn rows(batch: &RecordBatch, first_column: usize) -> Vec<Vec<Value>> {
    let columns = &batch.columns()[first_column..];
    (0..batch.num_rows()).map(|row| columns.iter().map(|column| value(column.as_ref(), row)).collect()).collect()
}

/// Compares as multisets of rows; what differs, if anything does.
pub fn difference(mut found: Vec<Vec<Value>>, mut expected: Vec<Vec<Value>>) -> Option<String> {
    if found.len() != expected.len() {
        return Some(format!(
            "{} rows instead of {}: {:?}… / {:?}…",
            found.len(),
            expected.len(),
            found.first(),
            expected.first()
        ));
    }
    let key = |row: &Vec<Value>| row.iter().map(Value::sort_key).collect::<Vec<_>>();
    found.sort_by_cached_key(key);
    expected.sort_by_cached_key(key);
    let pair = found.iter().zip(&expected).find(|(found, expected)| found != expected)?;
    Some(format!("{:?} instead of {:?}", pair.0, pair.1))
}

/// The shared cases: the SQL file of each, with the answer beside it.
pub fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/joins");
    let entries = std::fs::read_dir(folder).expect("the cases are there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "sql"));
    files.sort();
    assert_eq!(files.len(), 34);
    files
}

/// A case's statements, its paths made absolute: the definitions, then the query.
pub fn statements(case: &Path) -> (Vec<String>, String) {
    let folder = case.parent().expect("a case is in a folder").join("data");
    let text = std::fs::read_to_string(case).expect("a case is readable");
    let text = text.replace("'data/", &format!("'{}/", folder.display()));
    let mut all: Vec<String> = thetis::split(&text).into_iter().map(|piece| piece.text.to_owned()).collect();
    let query = all.pop().expect("a case ends with its query");
    (all, query)
}

/// The answer beside a case.
pub fn answer(case: &Path) -> Vec<Vec<Value>> {
    let text = std::fs::read_to_string(case.with_extension("csv")).expect("a case has its answer");
    let file = std::io::Cursor::new(text);
    let format = arrow_csv::reader::Format::default().with_header(true);
    let (schema, _) = format.infer_schema(file.clone(), None).expect("an answer is CSV");
    let reader = arrow_csv::ReaderBuilder::new(schema.into()).with_format(format).build(file);
    reader.expect("an answer is CSV").flat_map(|batch| rows(&batch.expect("an answer is CSV"), 0)).collect()
}

/// Runs statements that give no rows.
pub async fn run_all(connection: &Connection, statements: &[String]) {
    for sql in statements {
        let response = connection.statement().execute(sql).await;
        assert!(matches!(response, Ok(Response::Done(_))), "{sql}: {response:?}");
    }
}

/// All rows of a query's result.
///
/// # Errors
/// Whatever the query says.
pub async fn query(connection: &Connection, sql: &str) -> Result<Vec<Vec<Value>>, thetis::Error> {
    let mut statement = connection.statement();
    let mut result = statement.query(sql).await?;
    let mut all = Vec::new();
    while let Some(batch) = result.next_batch().await? {
        all.extend(rows(&batch, 0));
    }
    Ok(all)
}

/// The changes of a query by epoch: rows with their signs.
pub async fn changes(connection: &Connection, sql: &str) -> BTreeMap<u64, Vec<(bool, Vec<Value>)>> {
    let mut statement = connection.statement();
    let mut result = statement.changes(sql).await.expect("the query is right");
    let mut changes: BTreeMap<u64, Vec<(bool, Vec<Value>)>> = BTreeMap::new();
    while let Some(batch) = result.next_batch().await.expect("the query runs") {
        for (row, mut head) in rows(&batch, 2).into_iter().zip(rows(&batch, 0)) {
            head.truncate(2);
            let [Value::Text(epoch), Value::Text(op)] = head.as_slice() else { panic!("epoch and op: {head:?}") };
            changes.entry(epoch.parse().expect("a number")).or_default().push((op == "+", row));
        }
    }
    changes
}

/// A result that follows its changes.
#[derive(Debug, Default)]
pub struct Accumulated(BTreeMap<String, (Vec<Value>, i64)>);

impl Accumulated {
    /// Adds the changes of an epoch. A delete must take away a row that is there, to the letter.
    pub fn add(&mut self, changes: Vec<(bool, Vec<Value>)>) {
        for (insert, row) in changes {
            let entry = self.0.entry(format!("{row:?}")).or_insert((row, 0));
            entry.1 += if insert { 1 } else { -1 };
        }
        assert!(self.0.values().all(|(_, weight)| *weight >= 0), "a row was deleted that was not there");
        self.0.retain(|_, (_, weight)| *weight != 0);
    }

    /// The rows.
    pub fn rows(&self) -> Vec<Vec<Value>> {
        self.0.values().flat_map(|(row, weight)| std::iter::repeat_n(row.clone(), *weight as usize)).collect()
    }
}

/// Runs a test on a runtime of its own.
pub fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test)
}
