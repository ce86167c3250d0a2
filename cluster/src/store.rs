//! What the coordinator must not forget: the catalogue's definitions, in a file that survives `kill -9`.
//!
//! One entry per relation: its name, and its definition as bincode behind a format number. Queries are kept as
//! SQL text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use arrow::datatypes::SchemaRef;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};
use thetis_executor::source::FileProbe;
use thetis_parser::{Statement, parse_statement};
use thetis_planner::catalog::{Definition, Relation, Sample, Sink, Stream, Table, View, Volume};
use thetis_planner::connector::{SinkSpec, SourceSpec, TableId};

use crate::sync::locked;
use crate::wire::{self, WireError};

/// Version of the entries.
const FORMAT: u8 = 1;
const RELATIONS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("relations");

/// The catalogue cannot be kept or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file.
    #[error("{path}: the catalogue cannot be kept", path = path.display())]
    File {
        /// Where.
        path: PathBuf,
        /// Why.
        source: Box<redb::Error>,
    },
    /// An entry.
    #[error("the catalogue's entry '{name}' cannot be read: {reason}")]
    Entry {
        /// The relation.
        name: String,
        /// Why.
        reason: String,
    },
    /// An entry that is too large.
    #[error("a definition cannot be kept")]
    Encode(#[from] WireError),
}

/// Keeps definitions by name.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// All that was kept, by name.
    ///
    /// # Errors
    /// It cannot be read.
    fn load(&self) -> Result<BTreeMap<String, Vec<u8>>, StoreError>;

    /// Keeps an entry, or forgets it. When this returns, it is done for good.
    ///
    /// # Errors
    /// It cannot be written: then nothing has changed.
    fn put(&self, name: &str, entry: Option<&[u8]>) -> Result<(), StoreError>;
}

/// Keeps nothing beyond the life of the process.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<BTreeMap<String, Vec<u8>>>);

impl Store for MemoryStore {
    fn load(&self) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        Ok(locked(&self.0).clone())
    }

    fn put(&self, name: &str, entry: Option<&[u8]>) -> Result<(), StoreError> {
        let mut entries = locked(&self.0);
        match entry {
            Some(entry) => drop(entries.insert(name.to_owned(), entry.to_vec())),
            None => drop(entries.remove(name)),
        }
        Ok(())
    }
}

/// Keeps entries in a file.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    database: Database,
}

impl FileStore {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// It cannot be opened: another process has it, or it is none of ours.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let failure = |error: redb::Error| StoreError::File { path: path.to_owned(), source: Box::new(error) };
        let database = Database::create(path).map_err(|error| failure(error.into()))?;
        let store = Self { path: path.to_owned(), database };
        store.write(|_| Ok(()))?;
        Ok(store)
    }

    fn write(
        &self,
        change: impl FnOnce(&mut redb::Table<'_, &'static str, &'static [u8]>) -> Result<(), redb::Error>,
    ) -> Result<(), StoreError> {
        let write = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            change(&mut transaction.open_table(RELATIONS)?)?;
            Ok(transaction.commit()?)
        };
        write().map_err(|source| StoreError::File { path: self.path.clone(), source: Box::new(source) })
    }
}

impl Store for FileStore {
    fn load(&self) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        let read = || -> Result<BTreeMap<String, Vec<u8>>, redb::Error> {
            let table = self.database.begin_read()?.open_table(RELATIONS)?;
            let mut entries = BTreeMap::new();
            for entry in table.iter()? {
                let (name, bytes) = entry?;
                entries.insert(name.value().to_owned(), bytes.value().to_vec());
            }
            Ok(entries)
        };
        read().map_err(|source| StoreError::File { path: self.path.clone(), source: Box::new(source) })
    }

    fn put(&self, name: &str, entry: Option<&[u8]>) -> Result<(), StoreError> {
        self.write(|table| {
            match entry {
                Some(entry) => drop(table.insert(name, entry)?),
                None => drop(table.remove(name)?),
            }
            Ok(())
        })
    }
}

/// A relation as it is kept.
#[derive(Debug, Serialize, Deserialize)]
enum Kept {
    Stream {
        columns: SchemaRef,
        watermark: Option<(String, String)>,
        spec: SourceSpec,
        rows: Option<f64>,
        bytes: Option<u64>,
    },
    Table {
        columns: SchemaRef,
        view: Option<(String, Vec<String>)>,
    },
    View {
        columns: Vec<String>,
        query: String,
        schema: SchemaRef,
        uses: Vec<String>,
    },
    Sink(SinkSpec),
}

/// The entry of a relation.
///
/// # Errors
/// It is too large.
pub(crate) fn entry_of(relation: &Relation) -> Result<Vec<u8>, StoreError> {
    let kept = match relation {
        Relation::Stream(stream) => Kept::Stream {
            columns: Arc::clone(&stream.columns),
            watermark: stream.watermark.clone(),
            spec: stream.spec.clone(),
            rows: stream.volume.rows,
            bytes: stream.volume.bytes,
        },
        Relation::Table(table) => Kept::Table {
            columns: Arc::clone(&table.columns),
            view: table.definition.as_ref().map(|kept| (kept.query.to_string(), kept.uses.clone())),
        },
        Relation::View(view) => Kept::View {
            columns: view.columns.clone(),
            query: view.query.to_string(),
            schema: Arc::clone(&view.schema),
            uses: view.uses.clone(),
        },
        Relation::Sink(sink) => Kept::Sink(sink.spec.clone()),
    };
    let mut entry = vec![FORMAT];
    entry.extend(wire::encode(&kept)?);
    Ok(entry)
}

/// The relation of an entry; `create` makes the table that its rows are in.
///
/// # Errors
/// The entry is of another version, or damaged.
pub(crate) fn relation_of(
    name: &str,
    entry: &[u8],
    create: impl FnOnce(SchemaRef) -> (TableId, Arc<AtomicU64>),
) -> Result<Relation, StoreError> {
    let unreadable = |reason: String| StoreError::Entry { name: name.to_owned(), reason };
    let kept = match entry.split_first() {
        Some((&FORMAT, bytes)) => wire::decode(bytes).map_err(|error| unreadable(crate::error::chain(&error)))?,
        Some((format, _)) => return Err(unreadable(format!("it has format {format}, this is for format {FORMAT}"))),
        None => return Err(unreadable("it is empty".to_owned())),
    };
    let query = |text: &str| match parse_statement(text) {
        Ok(Statement::Query(query)) => Ok(query),
        Ok(_) => Err(unreadable("its query is none".to_owned())),
        Err(error) => Err(unreadable(error.message)),
    };
    let owned = name.to_owned();
    Ok(match kept {
        Kept::Stream { columns, watermark, spec, rows, bytes } => {
            let volume = Volume { rows, bytes };
            let sample = Sample::of(FileProbe, &spec, &columns);
            Relation::Stream(Arc::new(Stream { name: owned, columns, watermark, spec, volume, sample }))
        }
        Kept::Table { columns, view } => {
            let definition =
                view.map(|(text, uses)| Ok::<_, StoreError>(Definition { query: query(&text)?, uses })).transpose()?;
            let (id, rows) = create(Arc::clone(&columns));
            Relation::Table(Arc::new(Table { name: owned, columns, id, rows, definition }))
        }
        Kept::View { columns, query: text, schema, uses } => {
            Relation::View(Arc::new(View { name: owned, columns, query: query(&text)?, schema, uses }))
        }
        Kept::Sink(spec) => Relation::Sink(Arc::new(Sink { name: owned, spec })),
    })
}
