//! What a cell keeps of one side: columns, and per row its epoch, weight and unit.
//!
//! The base holds epochs that are committed; what came since can be rolled back. In the base,
//! equal rows of one unit are one row with the sum of their weights, and rows whose weights
//! cancel are gone. Across open epochs nothing cancels.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, interleave, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};
use hashbrown::HashMap;

use crate::error::ExecError;
use crate::frame::{Epoch, FRAME_ROWS, Frame, Units};

/// Chunks shorter than this are joined to the next one.
const SMALL_CHUNK: usize = 1024;

/// Rows of one side. Rows are numbered from 0 in the order of their arrival; [`Store::fold`] and
/// [`Store::roll_back`] number them anew.
#[derive(Debug)]
pub struct Store {
    schema: SchemaRef,
    chunks: Vec<RecordBatch>,
    /// First row of each chunk.
    starts: Vec<u32>,
    /// Chunk of each row.
    chunk_of: Vec<u32>,
    epochs: Vec<Epoch>,
    weights: Vec<i64>,
    buckets: Vec<u32>,
    slices: Vec<u16>,
    /// Latest epoch of any row.
    latest: Epoch,
    retracts: bool,
    /// Rows that were left by the last fold.
    base_rows: usize,
}

impl Store {
    /// An empty store; `retracts` says that deletes can come.
    pub fn new(schema: SchemaRef, retracts: bool) -> Self {
        Self {
            schema,
            chunks: Vec::new(),
            starts: Vec::new(),
            chunk_of: Vec::new(),
            epochs: Vec::new(),
            weights: Vec::new(),
            buckets: Vec::new(),
            slices: Vec::new(),
            latest: Epoch::NONE,
            retracts,
            base_rows: 0,
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.chunk_of.len()
    }

    /// No rows.
    pub fn is_empty(&self) -> bool {
        self.chunk_of.is_empty()
    }

    /// The chunks, in the order of their rows.
    pub fn chunks(&self) -> &[RecordBatch] {
        &self.chunks
    }

    /// First row of a chunk.
    pub fn chunk_start(&self, chunk: usize) -> u32 {
        self.starts[chunk]
    }

    /// Epoch of a row.
    pub fn epoch(&self, row: u32) -> Epoch {
        self.epochs[row as usize]
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
        let first = self.push_chunk(batch)?;
        self.epochs.resize(self.epochs.len() + batch.num_rows(), epoch);
        self.latest = self.latest.max(epoch);
        self.buckets.extend_from_slice(&units.buckets);
        self.slices.extend_from_slice(&units.slices);
        if self.retracts {
            match weights {
                Some(weights) => self.weights.extend_from_slice(weights),
                None => self.weights.resize(self.weights.len() + batch.num_rows(), 1),
            }
        }
        Ok(first)
    }

    /// Adds a batch to the chunks; short chunks grow, so that their number stays small.
    fn push_chunk(&mut self, batch: &RecordBatch) -> Result<u32, ExecError> {
        let first = u32::try_from(self.len())
            .ok()
            .filter(|first| first.checked_add(batch.num_rows() as u32).is_some_and(|end| end < u32::MAX))
            .ok_or_else(|| ExecError::Internal("a cell holds more than 2^32 rows of one side".to_owned()))?;
        match self.chunks.last_mut() {
            Some(last) if last.num_rows() < SMALL_CHUNK && last.num_rows() + batch.num_rows() <= FRAME_ROWS => {
                *last = concat_batches(&self.schema, [&*last, batch])?;
            }
            _ => {
                self.starts.push(first);
                self.chunks.push(batch.clone());
            }
        }
        let chunk = self.chunks.len() as u32 - 1;
        self.chunk_of.resize(self.chunk_of.len() + batch.num_rows(), chunk);
        Ok(first)
    }

    /// One column of some rows.
    ///
    /// # Errors
    /// More text than one array holds.
    pub fn gather(&self, column: usize, rows: &[u32]) -> Result<ArrayRef, ExecError> {
        // Only the chunks that are used: there may be many more.
        let mut places: HashMap<u32, usize> = HashMap::new();
        let mut used: Vec<&dyn Array> = Vec::new();
        let mut last = (u32::MAX, 0);
        let indices: Vec<(usize, usize)> = rows
            .iter()
            .map(|row| {
                let chunk = self.chunk_of[*row as usize];
                if chunk != last.0 {
                    let place = *places.entry(chunk).or_insert_with(|| {
                        used.push(self.chunks[chunk as usize].column(column).as_ref());
                        used.len() - 1
                    });
                    last = (chunk, place);
                }
                (last.1, (*row - self.starts[chunk as usize]) as usize)
            })
            .collect();
        Ok(interleave(&used, &indices)?)
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
                if self.epochs[at] <= committed {
                    let bytes = keys.as_ref().map_or_else(Vec::new, |keys| keys.row(i).data().to_vec());
                    let weight = std::mem::take(&mut weights[at]);
                    let entry = sums.entry((bytes, self.buckets[at], self.slices[at])).or_insert((row, 0));
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
        self.rebuild(|store, row| store.epochs[row as usize] <= committed)?;
        self.base_rows = self.base_rows.min(self.len());
        Ok(())
    }

    fn rebuild(&mut self, keep: impl Fn(&Self, u32) -> bool) -> Result<(), ExecError> {
        let mut kept = Self::new(Arc::clone(&self.schema), self.retracts);
        for (chunk, start) in self.chunks.iter().zip(&self.starts) {
            let rows: Vec<u32> = (0..chunk.num_rows() as u32).filter(|i| keep(self, start + i)).collect();
            if rows.is_empty() {
                continue;
            }
            let batch = take_record_batch(chunk, &UInt32Array::from(rows.clone()))?;
            kept.push_chunk(&batch)?;
            for row in rows.iter().map(|i| (start + i) as usize) {
                kept.epochs.push(self.epochs[row]);
                kept.latest = kept.latest.max(self.epochs[row]);
                kept.buckets.push(self.buckets[row]);
                kept.slices.push(self.slices[row]);
                if self.retracts {
                    kept.weights.push(self.weights[row]);
                }
            }
        }
        *self = kept;
        Ok(())
    }

    /// The buckets of the rows of a chunk.
    pub fn chunk_buckets(&self, chunk: usize) -> &[u32] {
        let start = self.starts[chunk] as usize;
        &self.buckets[start..start + self.chunks[chunk].num_rows()]
    }
}

#[cfg(test)]
mod tests;
