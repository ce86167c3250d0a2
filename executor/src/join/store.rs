//! What a cell keeps of one side: columns, and per row its epoch, weight and unit.
//!
//! The base holds epochs that are committed; what came since can be rolled back. In the base,
//! equal rows of one unit are one row with the sum of their weights, and rows whose weights
//! cancel are gone. Across open epochs nothing cancels.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, interleave, take_record_batch};
use arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type, SchemaRef, TimeUnit, TimestampNanosecondType};
use arrow::row::{RowConverter, SortField};
use hashbrown::HashMap;

use crate::error::ExecError;
use crate::frame::{Epoch, FRAME_ROWS, Frame, Units};

/// Rows of a page.
const PAGE: usize = FRAME_ROWS;
/// Pieces of the last page before they are made one.
const MOST_PIECES: usize = 16;

/// Rows of one side. Rows are numbered from 0 in the order of their arrival; [`Store::fold`] and
/// [`Store::roll_back`] number them anew.
#[derive(Debug)]
pub struct Store {
    schema: SchemaRef,
    /// Full pages of [`PAGE`] rows, then the pieces of the last one.
    chunks: Vec<RecordBatch>,
    /// How many of them are full pages.
    pages: usize,
    rows: usize,
    /// The epochs, each with the first of its rows: rows that came together have one epoch.
    epochs: Vec<(u32, Epoch)>,
    weights: Vec<i64>,
    /// Of joins with several buckets.
    buckets: Option<Vec<u32>>,
    slices: Vec<u16>,
    /// Latest epoch of any row.
    latest: Epoch,
    retracts: bool,
    /// Rows that were left by the last fold.
    base_rows: usize,
}

impl Store {
    /// An empty store; `retracts` says that deletes can come, `bucketed` that rows have buckets.
    pub fn new(schema: SchemaRef, retracts: bool, bucketed: bool) -> Self {
        Self {
            schema,
            chunks: Vec::new(),
            pages: 0,
            rows: 0,
            epochs: Vec::new(),
            weights: Vec::new(),
            buckets: bucketed.then(Vec::new),
            slices: Vec::new(),
            latest: Epoch::NONE,
            retracts,
            base_rows: 0,
        }
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// No rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The chunks, in the order of their rows.
    pub fn chunks(&self) -> &[RecordBatch] {
        &self.chunks
    }

    /// First row of a chunk.
    pub fn chunk_start(&self, chunk: usize) -> u32 {
        let pieces = self.chunks.get(self.pages..chunk).unwrap_or_default();
        let before: usize = pieces.iter().map(RecordBatch::num_rows).sum();
        (chunk.min(self.pages) * PAGE + before) as u32
    }

    /// Epoch of a row.
    pub fn epoch(&self, row: u32) -> Epoch {
        let run = self.epochs.partition_point(|(first, _)| *first <= row);
        self.epochs[run - 1].1
    }

    fn bucket(&self, row: u32) -> u32 {
        self.buckets.as_ref().map_or(0, |buckets| buckets[row as usize])
    }

    /// Bytes of everything that is kept.
    pub fn memory(&self) -> usize {
        let columns: usize = self.chunks.iter().map(RecordBatch::get_array_memory_size).sum();
        let buckets = self.buckets.as_ref().map_or(0, |buckets| buckets.capacity() * 4);
        columns + buckets + self.weights.capacity() * 8 + self.slices.capacity() * 2 + self.epochs.capacity() * 16
    }

    /// Latest epoch of any row.
    pub fn latest_epoch(&self) -> Epoch {
        self.latest
    }

    /// Weight of a row.
    pub fn weight(&self, row: u32) -> i64 {
        if self.retracts { self.weights[row as usize] } else { 1 }
    }

    /// Whether rows can have weights other than one.
    pub fn is_weighted(&self) -> bool {
        self.retracts
    }

    /// Adds a frame; the number of its first row.
    ///
    /// # Errors
    /// More than 2^32 rows.
    pub fn append(&mut self, frame: &Frame) -> Result<u32, ExecError> {
        let units =
            frame.units.as_ref().ok_or_else(|| ExecError::Internal("a frame in a cell has no units".to_owned()))?;
        self.append_rows(&frame.batch, frame.epoch, frame.weights.as_deref(), units)
    }

    fn append_rows(
        &mut self,
        batch: &RecordBatch,
        epoch: Epoch,
        weights: Option<&[i64]>,
        units: &Units,
    ) -> Result<u32, ExecError> {
        let first = self.push_rows(batch)?;
        self.push_epoch(first, epoch);
        self.slices.extend_from_slice(&units.slices);
        if let Some(buckets) = &mut self.buckets {
            buckets.extend_from_slice(&units.buckets);
        }
        if self.retracts {
            match weights {
                Some(weights) => self.weights.extend_from_slice(weights),
                None => self.weights.resize(self.weights.len() + batch.num_rows(), 1),
            }
        }
        Ok(first)
    }

    fn push_epoch(&mut self, first: u32, epoch: Epoch) {
        self.latest = self.latest.max(epoch);
        if self.epochs.last().is_none_or(|(_, last)| *last != epoch) {
            self.epochs.push((first, epoch));
        }
    }

    /// Adds a batch to the pages: a whole page is taken as it is, less is copied once or twice.
    fn push_rows(&mut self, batch: &RecordBatch) -> Result<u32, ExecError> {
        let first = u32::try_from(self.rows)
            .ok()
            .filter(|first| first.checked_add(batch.num_rows() as u32).is_some_and(|end| end < u32::MAX))
            .ok_or_else(|| ExecError::Internal("a cell holds more than 2^32 rows of one side".to_owned()))?;
        let mut at = 0;
        while at < batch.num_rows() {
            let in_page = self.rows % PAGE;
            let rows = (PAGE - in_page).min(batch.num_rows() - at);
            self.chunks.push(batch.slice(at, rows));
            self.rows += rows;
            at += rows;
            let pieces = self.chunks.len() - self.pages;
            if self.rows.is_multiple_of(PAGE) || pieces > MOST_PIECES {
                if pieces > 1 {
                    let page = concat_batches(&self.schema, &self.chunks[self.pages..])?;
                    self.chunks.truncate(self.pages);
                    self.chunks.push(page);
                }
                self.pages = self.rows / PAGE;
            }
        }
        Ok(first)
    }

    /// Chunk of a row, and its place there.
    fn locate(&self, row: u32) -> (usize, usize) {
        let (page, mut place) = (row as usize / PAGE, row as usize % PAGE);
        if page < self.pages {
            return (page, place);
        }
        let mut chunk = page;
        while place >= self.chunks[chunk].num_rows() {
            place -= self.chunks[chunk].num_rows();
            chunk += 1;
        }
        (chunk, place)
    }

    /// One column of some rows.
    ///
    /// # Errors
    /// More text than one array holds.
    pub fn gather(&self, column: usize, rows: &[u32]) -> Result<ArrayRef, ExecError> {
        let arrays: Vec<&ArrayRef> = self.chunks.iter().map(|chunk| chunk.column(column)).collect();
        if arrays.iter().all(|array| array.null_count() == 0) {
            let gathered = match self.schema.field(column).data_type() {
                DataType::Int64 => Some(self.gather_words::<Int64Type>(&arrays, rows)),
                DataType::Float64 => Some(self.gather_words::<Float64Type>(&arrays, rows)),
                DataType::Int32 => Some(self.gather_words::<Int32Type>(&arrays, rows)),
                DataType::Timestamp(TimeUnit::Nanosecond, None) => {
                    Some(self.gather_words::<TimestampNanosecondType>(&arrays, rows))
                }
                _ => None,
            };
            if let Some(gathered) = gathered {
                return Ok(gathered);
            }
        }
        let places: Vec<(usize, usize)> = rows.iter().map(|row| self.locate(*row)).collect();
        let arrays: Vec<&dyn Array> = arrays.into_iter().map(AsRef::as_ref).collect();
        Ok(interleave(&arrays, &places)?)
    }

    fn gather_words<T: ArrowPrimitiveType>(&self, arrays: &[&ArrayRef], rows: &[u32]) -> ArrayRef {
        let values: Vec<&[T::Native]> = arrays.iter().map(|array| &**array.as_primitive::<T>().values()).collect();
        let value = |row: &u32| {
            let (chunk, place) = self.locate(*row);
            values[chunk][place]
        };
        Arc::new(PrimitiveArray::<T>::from_iter_values(rows.iter().map(value)))
    }

    /// Whether [`Self::fold`] is worth its while: half of the rows are not in the base.
    pub fn wants_fold(&self) -> bool {
        self.retracts && self.len() >= FRAME_ROWS && self.len() >= 2 * self.base_rows
    }

    /// Folds the epochs up to `committed` into the base. Numbers the rows anew.
    ///
    /// # Errors
    /// Columns whose rows cannot be compared.
    pub fn fold(&mut self, committed: Epoch) -> Result<(), ExecError> {
        if !self.retracts {
            // Nothing cancels, and equal rows are left apart: to find them would cost a hash per row.
            return Ok(());
        }
        let fields = self.schema.fields().iter().map(|f| SortField::new(f.data_type().clone()));
        let converter = RowConverter::new(fields.collect())?;
        let mut sums: HashMap<(Vec<u8>, u32, u16), (u32, i64)> = HashMap::new();
        let mut weights = self.weights.clone();
        let mut row = 0_u32;
        for chunk in &self.chunks {
            let keys = if chunk.num_columns() > 0 { Some(converter.convert_columns(chunk.columns())?) } else { None };
            for i in 0..chunk.num_rows() {
                let at = row as usize;
                if self.epoch(row) <= committed {
                    let bytes = keys.as_ref().map_or_else(Vec::new, |keys| keys.row(i).data().to_vec());
                    let weight = std::mem::take(&mut weights[at]);
                    let entry = sums.entry((bytes, self.bucket(row), self.slices[at])).or_insert((row, 0));
                    entry.1 += weight;
                }
                row += 1;
            }
        }
        for (first, sum) in sums.into_values() {
            weights[first as usize] = sum;
        }
        self.weights = weights;
        self.rebuild(|store, row| store.weights[row as usize] != 0)?;
        self.base_rows = self.len();
        Ok(())
    }

    /// Forgets all rows of epochs after `committed`. Numbers the rows anew.
    ///
    /// # Errors
    /// None in practice: the rows were stored before.
    pub fn roll_back(&mut self, committed: Epoch) -> Result<(), ExecError> {
        self.rebuild(|store, row| store.epoch(row) <= committed)?;
        self.base_rows = self.base_rows.min(self.len());
        Ok(())
    }

    fn rebuild(&mut self, keep: impl Fn(&Self, u32) -> bool) -> Result<(), ExecError> {
        let mut kept = Self::new(Arc::clone(&self.schema), self.retracts, self.buckets.is_some());
        for (number, chunk) in self.chunks.iter().enumerate() {
            let start = self.chunk_start(number);
            let rows: Vec<u32> = (0..chunk.num_rows() as u32).filter(|i| keep(self, start + i)).collect();
            if rows.is_empty() {
                continue;
            }
            let batch = take_record_batch(chunk, &UInt32Array::from(rows.clone()))?;
            let first = kept.push_rows(&batch)?;
            for (new, row) in (first..).zip(rows.iter().map(|i| start + i)) {
                kept.push_epoch(new, self.epoch(row));
                kept.slices.push(self.slices[row as usize]);
                if let Some(buckets) = &mut kept.buckets {
                    buckets.push(self.bucket(row));
                }
                if self.retracts {
                    kept.weights.push(self.weights[row as usize]);
                }
            }
        }
        *self = kept;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
