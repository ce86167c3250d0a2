//! Parquet files, by row groups.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{Field, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use thetis_planner::physical::Source;

use super::csv::position_of;
use super::files::{failure, open};
use super::{Reader, SourceCounters};
use crate::error::ExecError;
use crate::frame::FRAME_ROWS;
use crate::steps::batch_of;

#[derive(Debug)]
pub(super) struct ParquetReader {
    output: SchemaRef,
    /// Columns that are declared NOT NULL, by position in the output.
    not_null: Vec<usize>,
    paths: VecDeque<PathBuf>,
    current: Option<ParquetFile>,
    counters: Arc<SourceCounters>,
}

struct ParquetFile {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    /// For each output column, its place in the batches.
    order: Vec<usize>,
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

impl ParquetReader {
    pub(super) fn new(source: &Source, paths: Vec<PathBuf>, counters: &Arc<SourceCounters>) -> Self {
        let fields = source.projection.iter().map(|column| {
            let field = source.columns.field(*column as usize);
            Field::new(field.name(), field.data_type().clone(), true)
        });
        let output = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let declared = source.projection.iter().map(|column| source.columns.field(*column as usize));
        let not_null = declared.enumerate().filter(|(_, field)| !field.is_nullable()).map(|(place, _)| place).collect();
        Self { output, not_null, paths: paths.into(), current: None, counters: Arc::clone(counters) }
    }

    fn open(&self, path: PathBuf) -> Result<ParquetFile, ExecError> {
        let builder = builder(&path)?;
        let names: Vec<String> = builder.schema().fields().iter().map(|field| field.name().clone()).collect();
        let positions = self
            .output
            .fields()
            .iter()
            .map(|field| position_of(&path, &names, field.name()))
            .collect::<Result<Vec<_>, _>>()?;
        let mut read = positions.clone();
        read.sort_unstable();
        read.dedup();
        let order = positions.iter().map(|position| read.partition_point(|other| other < position)).collect();
        let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0).max(1);
        let bytes = path.metadata().map_or(0, |meta| meta.len());
        let mask = ProjectionMask::roots(builder.parquet_schema(), read);
        let reader = builder
            .with_projection(mask)
            .with_batch_size(FRAME_ROWS)
            .build()
            .map_err(|error| failure(&path, format!("cannot be read: {error}"), None))?;
        Ok(ParquetFile { path, reader, order, bytes_per_row: bytes / rows })
    }

    fn convert(&self, file: &ParquetFile, batch: &RecordBatch) -> Result<RecordBatch, ExecError> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let columns = file
            .order
            .iter()
            .zip(self.output.fields())
            .map(|(place, field)| {
                cast_with_options(batch.column(*place), field.data_type(), &options)
                    .map_err(|error| failure(&file.path, format!("column {}: {error}", field.name()), None))
            })
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(place) = self.not_null.iter().find(|place| columns[**place].null_count() > 0) {
            let name = self.output.field(*place).name();
            return Err(failure(&file.path, format!("column {name} has a NULL, and it is declared NOT NULL"), None));
        }
        batch_of(&self.output, columns, batch.num_rows())
    }
}

impl Reader for ParquetReader {
    fn next(&mut self) -> Result<Option<RecordBatch>, ExecError> {
        loop {
            if self.current.is_none() {
                let Some(path) = self.paths.pop_front() else {
                    return Ok(None);
                };
                self.current = Some(self.open(path)?);
            }
            let Some(file) = &mut self.current else {
                return Ok(None);
            };
            match file.reader.next() {
                Some(Ok(batch)) => {
                    self.counters.add_bytes(file.bytes_per_row * batch.num_rows() as u64);
                    let Some(file) = &self.current else {
                        return Ok(None);
                    };
                    return self.convert(file, &batch).map(Some);
                }
                Some(Err(error)) => {
                    return Err(failure(&file.path, format!("cannot be read: {error}"), None));
                }
                None => self.current = None,
            }
        }
    }
}
