//! Parquet files, row group by row group: those that no filter needs are left out, several are
//! decoded at a time if they are not too large.

mod prune;

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::SchemaRef;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use thetis_planner::expr::ScalarExpr;
use thetis_planner::physical::Source;

use self::prune::Filters;
use super::ahead::Ahead;
use super::files::{ColumnOrder, failure, open, position_of};
use super::splits::FilePart;
use super::{FileReader, Format, Part, SourceCounters};
use crate::error::ExecError;
use crate::frame::FRAME_ROWS;
use crate::steps::batch_of;

/// Bytes of row groups that are decoded ahead; files with larger ones are read by one reader.
const MOST_AHEAD: i64 = 128 << 20;

/// How the files of a parquet stream are read.
#[derive(Debug)]
pub(super) struct Parquet {
    output: SchemaRef,
    /// Columns that are declared NOT NULL, by position in the output.
    not_null: Vec<usize>,
    filters: Filters,
    readers: usize,
    counters: Arc<SourceCounters>,
}

/// An open file.
#[derive(Debug)]
struct ParquetFile {
    groups: Arc<RowGroups>,
    /// Those that come next, and whether they are needed.
    next: VecDeque<(usize, bool)>,
    ahead: Ahead<Result<Vec<Part>, ExecError>>,
    ready: VecDeque<Part>,
    reading: Option<GroupReader>,
}

/// How the row groups of a file are read.
#[derive(Debug)]
struct RowGroups {
    parquet: Arc<Parquet>,
    path: PathBuf,
    metadata: ArrowReaderMetadata,
    columns: ColumnOrder,
}

struct GroupReader {
    groups: Arc<RowGroups>,
    reader: ParquetRecordBatchReader,
}

impl std::fmt::Debug for GroupReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupReader").field("path", &self.groups.path).finish_non_exhaustive()
    }
}

/// What a file says of itself.
pub(super) fn metadata(path: &Path) -> Result<ArrowReaderMetadata, ExecError> {
    ArrowReaderMetadata::load(&open(path)?, ArrowReaderOptions::default())
        .map_err(|error| failure(path, format!("is not a parquet file: {error}"), None))
}

impl Parquet {
    /// `filters` are those of each edge out of the source.
    pub(super) fn new(
        source: &Source,
        filters: &[&[ScalarExpr]],
        counters: &Arc<SourceCounters>,
    ) -> Result<Self, ExecError> {
        let declared = source.projection.iter().map(|column| source.columns.field(*column as usize));
        let not_null = declared.enumerate().filter(|(_, field)| !field.is_nullable()).map(|(place, _)| place).collect();
        let (output, counters) = (source.schema(), Arc::clone(counters));
        let (filters, readers) = (Filters::new(filters, &output)?, source.readers as usize);
        Ok(Self { output, not_null, filters, readers, counters })
    }
}

impl Format for Arc<Parquet> {
    fn open(&self, FilePart { path, range }: FilePart) -> Result<Box<dyn FileReader>, ExecError> {
        let metadata = metadata(&path)?;
        let names: Vec<String> = metadata.schema().fields().iter().map(|field| field.name().clone()).collect();
        let fields = self.output.fields().iter();
        let positions = fields.map(|field| position_of(&path, &names, field.name())).collect::<Result<Vec<_>, _>>()?;
        let columns = ColumnOrder::of(&positions);
        let read: Vec<&str> = positions.iter().map(|position| names[*position].as_str()).collect();
        let needed = self.filters.needed(&metadata, &read, &self.output).into_iter().enumerate();
        let own = |group: usize| {
            let place =
                || metadata.metadata().row_group(group).columns().first().map_or(0, |column| column.byte_range().0);
            range.as_ref().is_none_or(|range| range.contains(&place()))
        };
        let next = needed.filter(|(group, _)| own(*group)).collect();
        let largest = metadata.metadata().row_groups().iter().map(|group| group.total_byte_size()).max().unwrap_or(0);
        let small = largest.saturating_mul(self.readers as i64) <= MOST_AHEAD;
        let groups = Arc::new(RowGroups { parquet: Self::clone(self), path, metadata, columns });
        let ahead = Ahead::new(if small { self.readers } else { 1 });
        Ok(Box::new(ParquetFile { groups, next, ahead, ready: VecDeque::new(), reading: None }))
    }
}

impl RowGroups {
    fn rows(&self, group: usize) -> u64 {
        u64::try_from(self.metadata.metadata().row_group(group).num_rows()).unwrap_or(0)
    }

    fn read(self: &Arc<Self>, group: usize) -> Result<GroupReader, ExecError> {
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), self.columns.read.clone());
        let reader =
            ParquetRecordBatchReaderBuilder::<File>::new_with_metadata(open(&self.path)?, self.metadata.clone())
                .with_projection(mask)
                .with_row_groups(vec![group])
                .with_batch_size(FRAME_ROWS)
                .build()
                .map_err(|error| failure(&self.path, format!("cannot be read: {error}"), None))?;
        let group = self.metadata.metadata().row_group(group);
        self.parquet.counters.add_bytes(u64::try_from(group.compressed_size()).unwrap_or(0));
        Ok(GroupReader { groups: Arc::clone(self), reader })
    }

    /// The columns as they are declared.
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

impl Iterator for GroupReader {
    type Item = Result<Part, ExecError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.reader.next()?;
        let batch = batch.map_err(|error| failure(&self.groups.path, format!("cannot be read: {error}"), None));
        Some(batch.and_then(|batch| self.groups.convert(&batch)).map(Part::Rows))
    }
}

impl FileReader for ParquetFile {
    fn next(&mut self) -> Result<Option<Part>, ExecError> {
        loop {
            if let Some(part) = self.ready.pop_front() {
                return Ok(Some(part));
            }
            if let Some(reader) = &mut self.reading {
                if let Some(part) = reader.next() {
                    return part.map(Some);
                }
                self.reading = None;
            }
            while self.ahead.has_room()
                && let Some((group, needed)) = self.next.pop_front()
            {
                let groups = Arc::clone(&self.groups);
                match (needed, self.ahead.most()) {
                    (false, _) => self.ahead.put(Ok(vec![Part::LeftOut(groups.rows(group))])),
                    (true, 1) => {
                        self.reading = Some(groups.read(group)?);
                        break;
                    }
                    _ => self.ahead.start(move || groups.read(group)?.collect()),
                }
            }
            match self.ahead.take()? {
                Some(parts) => self.ready.extend(parts?),
                None if self.reading.is_none() => return Ok(None),
                None => {}
            }
        }
    }
}
