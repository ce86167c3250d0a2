//! STRING_AGG: the values of a group in the order of the call, with their multiplicities.
//!
//! Without ORDER BY, and where its keys are equal, values stand in their own order (that of their
//! bytes): the order in which rows happen to arrive is not an answer that a prefix of the input
//! determines.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, LargeStringBuilder};
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::row::{RowConverter, SortField};
use thetis_planner::physical::AggregateCall;

use super::{Accumulator, Update, same, types};
use crate::error::ExecError;

/// Most bytes of a result.
const LONGEST: u64 = i32::MAX as u64;

/// STRING_AGG.
#[derive(Debug)]
pub(super) struct Text {
    delimiter: String,
    distinct: bool,
    /// For the keys of ORDER BY; absent without one.
    converter: Option<RowConverter>,
    /// Row bytes of the keys, then the value's own.
    groups: Vec<BTreeMap<Box<[u8]>, Piece>>,
}

/// A value of a group.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Where the value starts, after the keys.
    start: usize,
    weight: i64,
}

impl Text {
    pub(super) fn new(call: &AggregateCall, input: &SchemaRef) -> Result<Self, ExecError> {
        let types = types(call.order.iter().map(|key| &key.expr), input)?;
        let fields = types.into_iter().zip(&call.order).map(|(data_type, key)| {
            let options = SortOptions { descending: key.descending, nulls_first: key.nulls_first };
            SortField::new_with_options(data_type, options)
        });
        let converter = (!call.order.is_empty()).then(|| RowConverter::new(fields.collect())).transpose()?;
        let delimiter = call.delimiter.clone().unwrap_or_default();
        Ok(Self { delimiter, distinct: call.distinct, converter, groups: Vec::new() })
    }

    fn add(&mut self, group: usize, bytes: &[u8], start: usize, weight: i64) {
        let pieces = &mut self.groups[group];
        match pieces.get_mut(bytes) {
            Some(piece) if piece.weight + weight == 0 => {
                pieces.remove(bytes);
            }
            Some(piece) => piece.weight += weight,
            None => {
                pieces.insert(bytes.into(), Piece { start, weight });
            }
        }
    }

    /// The values of a group, each with how often it stands in the result.
    fn pieces(&self, group: u32) -> impl Iterator<Item = (&[u8], u64)> {
        let most = if self.distinct { 1 } else { i64::MAX };
        let times = move |weight: i64| weight.clamp(0, most).unsigned_abs();
        self.groups[group as usize].iter().map(move |(bytes, piece)| (&bytes[piece.start..], times(piece.weight)))
    }

    /// Writes the result of a group; false if it has no values.
    fn join(&self, group: u32, out: &mut Vec<u8>) -> Result<bool, ExecError> {
        let delimiter = self.delimiter.as_bytes();
        let sizes =
            self.pieces(group).map(|(value, times)| times.saturating_mul((value.len() + delimiter.len()) as u64));
        let bytes = sizes.fold(0, u64::saturating_add).saturating_sub(delimiter.len() as u64);
        if bytes > LONGEST {
            let message = format!("overflow: STRING_AGG would give {bytes} bytes, and a string has at most {LONGEST}");
            return Err(ExecError::out_of_range(message));
        }
        out.clear();
        out.reserve(bytes as usize);
        let mut first = true;
        for (value, times) in self.pieces(group) {
            for _ in 0..times {
                if !std::mem::take(&mut first) {
                    out.extend_from_slice(delimiter);
                }
                out.extend_from_slice(value);
            }
        }
        Ok(!first)
    }
}

impl Accumulator for Text {
    fn resize(&mut self, groups: usize) {
        self.groups.resize(groups, BTreeMap::new());
    }

    fn update(&mut self, update: &Update<'_>) -> Result<(), ExecError> {
        let values = cast(update.argument()?, &DataType::LargeUtf8)?;
        let values = values.as_string::<i64>();
        let keys = self.converter.as_ref().map(|converter| converter.convert_columns(update.order)).transpose()?;
        let mut bytes = Vec::new();
        for (group, weight, row) in update.each() {
            bytes.clear();
            if let Some(keys) = &keys {
                bytes.extend_from_slice(keys.row(row).data());
            }
            let start = bytes.len();
            bytes.extend_from_slice(values.value(row).as_bytes());
            self.add(group, &bytes, start, weight);
        }
        Ok(())
    }

    fn merge(&mut self, other: &dyn Accumulator, map: &[u32]) -> Result<(), ExecError> {
        let other: &Self = same(other);
        for (group, pieces) in map.iter().zip(&other.groups) {
            pieces.iter().for_each(|(bytes, piece)| self.add(*group as usize, bytes, piece.start, piece.weight));
        }
        Ok(())
    }

    fn values(&self, groups: &[u32]) -> Result<ArrayRef, ExecError> {
        let mut results = LargeStringBuilder::new();
        let mut joined = Vec::new();
        for group in groups {
            let any = self.join(*group, &mut joined)?;
            let text = std::str::from_utf8(&joined).map_err(|error| ExecError::Internal(error.to_string()))?;
            results.append_option(any.then_some(text));
        }
        Ok(Arc::new(results.finish()))
    }

    fn reset(&mut self, group: u32) {
        self.groups[group as usize].clear();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
