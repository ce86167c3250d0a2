//! A multiset of rows with signed weights, by the bytes of the rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};
use hashbrown::HashMap;

use crate::error::ExecError;
use crate::frame::FRAME_ROWS;
use crate::steps::batch_of;

/// Rows, each with its weight.
pub(crate) type Weighted = (RecordBatch, Arc<[i64]>);

/// Rows and how often each is there.
#[derive(Debug)]
pub(crate) struct ZSet {
    schema: SchemaRef,
    converter: RowConverter,
    places: HashMap<Arc<[u8]>, usize>,
    /// In the order of their first appearance.
    rows: Vec<(Arc<[u8]>, i64)>,
    /// Rows whose weights have cancelled.
    cancelled: usize,
}

impl ZSet {
    pub(crate) fn new(schema: SchemaRef) -> Result<Self, ExecError> {
        let fields = schema.fields().iter().map(|f| SortField::new(f.data_type().clone()));
        let converter = RowConverter::new(fields.collect())?;
        Ok(Self { schema, converter, places: HashMap::new(), rows: Vec::new(), cancelled: 0 })
    }

    /// Adds rows; without weights each counts once.
    pub(crate) fn add(&mut self, batch: &RecordBatch, weights: Option<&[i64]>) -> Result<(), ExecError> {
        let columns = batch.columns();
        let keys = if columns.is_empty() { None } else { Some(self.converter.convert_columns(columns)?) };
        for row in 0..batch.num_rows() {
            let bytes = keys.as_ref().map_or(&[][..], |keys| keys.row(row).data());
            let weight = weights.map_or(1, |weights| weights[row]);
            match self.places.get(bytes) {
                Some(place) => {
                    let sum = &mut self.rows[*place].1;
                    self.cancelled -= usize::from(*sum == 0);
                    *sum += weight;
                    self.cancelled += usize::from(*sum == 0);
                }
                None => {
                    let bytes: Arc<[u8]> = bytes.into();
                    self.places.insert(Arc::clone(&bytes), self.rows.len());
                    self.rows.push((bytes, weight));
                }
            }
        }
        if self.rows.len() > FRAME_ROWS && self.cancelled * 2 > self.rows.len() {
            self.rows.retain(|(_, weight)| *weight != 0);
            self.places = self.rows.iter().enumerate().map(|(place, (bytes, _))| (Arc::clone(bytes), place)).collect();
            self.cancelled = 0;
        }
        Ok(())
    }

    /// Rows and their weights, each row once, in batches of a frame.
    pub(crate) fn weighted(&self) -> Result<Vec<Weighted>, ExecError> {
        let changed: Vec<_> = self.rows.iter().filter(|(_, weight)| *weight != 0).collect();
        let parts = changed.chunks(FRAME_ROWS).map(|part| {
            let bytes: Vec<&[u8]> = part.iter().map(|(bytes, _)| bytes.as_ref()).collect();
            Ok((self.batch(&bytes)?, part.iter().map(|(_, weight)| *weight).collect()))
        });
        parts.collect()
    }

    /// Every row as often as its weight says, in batches of a frame.
    ///
    /// # Errors
    /// A row with a negative weight.
    pub(crate) fn batches(&self) -> Result<Vec<RecordBatch>, ExecError> {
        if let Some((_, weight)) = self.rows.iter().find(|(_, weight)| *weight < 0) {
            return Err(ExecError::Internal(format!("a row has weight {weight}")));
        }
        let repeated = |(bytes, weight): &'_ (Arc<[u8]>, i64)| (Arc::clone(bytes), *weight as usize);
        let all: Vec<Arc<[u8]>> =
            self.rows.iter().map(repeated).flat_map(|(bytes, weight)| std::iter::repeat_n(bytes, weight)).collect();
        all.chunks(FRAME_ROWS).map(|part| self.batch(&part.iter().map(AsRef::as_ref).collect::<Vec<_>>())).collect()
    }

    /// The rows of some bytes.
    fn batch(&self, bytes: &[&[u8]]) -> Result<RecordBatch, ExecError> {
        let columns: Vec<ArrayRef> = if self.schema.fields().is_empty() {
            Vec::new()
        } else {
            let parser = self.converter.parser();
            self.converter.convert_rows(bytes.iter().map(|bytes| parser.parse(bytes)))?
        };
        batch_of(&self.schema, columns, bytes.len())
    }
}
