//! Parquet files, by row groups.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::SchemaRef;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use thetis_planner::physical::Source;

use super::files::{ColumnOrder, failure, open, position_of};
use super::{FileReader, Format, SourceCounters};
use crate::error::ExecError;
use crate::frame::FRAME_ROWS;
use crate::steps::batch_of;

/// How the files of a parquet stream are read.
#[derive(Debug)]
pub(super) struct Parquet {
    output: SchemaRef,
    /// Columns that are declared NOT NULL, by position in the output.
    not_null: Vec<usize>,
    counters: Arc<SourceCounters>,
}

struct ParquetFile {
    parquet: Arc<Parquet>,
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    columns: ColumnOrder,
    bytes_per_row: u64,
}

impl std::fmt::Debug for ParquetFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetFile").field("path", &self.path).finish_non_exhaustive()
    }
}

pub(super) fn builder(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>, ExecError> {
    let file = open(path)?;
    ParquetRecordBatchReaderBuilder::try_new(file)
        .map_err(|error| failure(path, format!("is not a parquet file: {error}"), None))
}

impl Parquet {
    pub(super) fn new(source: &Source, counters: &Arc<SourceCounters>) -> Self {
        let declared = source.projection.iter().map(|column| source.columns.field(*column as usize));
        let not_null = declared.enumerate().filter(|(_, field)| !field.is_nullable()).map(|(place, _)| place).collect();
        Self { output: source.schema(), not_null, counters: Arc::clone(counters) }
    }
}

impl Format for Arc<Parquet> {
    fn open(&self, path: PathBuf) -> Result<Box<dyn FileReader>, ExecError> {
        let builder = builder(&path)?;
        let names: Vec<String> = builder.schema().fields().iter().map(|field| field.name().clone()).collect();
        let fields = self.output.fields().iter();
        let positions = fields.map(|field| position_of(&path, &names, field.name())).collect::<Result<Vec<_>, _>>()?;
        let columns = ColumnOrder::of(&positions);
        let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0).max(1);
        let bytes = path.metadata().map_or(0, |meta| meta.len());
        let mask = ProjectionMask::roots(builder.parquet_schema(), columns.read.clone());
        let reader = builder
            .with_projection(mask)
            .with_batch_size(FRAME_ROWS)
            .build()
            .map_err(|error| failure(&path, format!("cannot be read: {error}"), None))?;
        let parquet = Self::clone(self);
        Ok(Box::new(ParquetFile { parquet, path, reader, columns, bytes_per_row: bytes / rows }))
    }
}

impl ParquetFile {
    fn convert(&self, batch: &RecordBatch) -> Result<RecordBatch, ExecError> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let output = &self.parquet.output;
        let columns = self.columns.order.iter().zip(output.fields()).map(|(place, field)| {
            cast_with_options(batch.column(*place), field.data_type(), &options)
                .map_err(|error| failure(&self.path, format!("column {}: {error}", field.name()), None))
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        if let Some(place) = self.parquet.not_null.iter().find(|place| columns[**place].null_count() > 0) {
            let name = output.field(*place).name();
            return Err(failure(&self.path, format!("column {name} has a NULL, and it is declared NOT NULL"), None));
        }
        batch_of(output, columns, batch.num_rows())
    }
}

impl FileReader for ParquetFile {
    fn next(&mut self) -> Result<Option<RecordBatch>, ExecError> {
        let Some(batch) = self.reader.next() else {
            return Ok(None);
        };
        let batch = batch.map_err(|error| failure(&self.path, format!("cannot be read: {error}"), None))?;
        self.parquet.counters.add_bytes(self.bytes_per_row * batch.num_rows() as u64);
        self.convert(&batch).map(Some)
    }
}
