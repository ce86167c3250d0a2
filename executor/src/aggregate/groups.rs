//! Group keys to dense numbers. Numbers of groups that are gone are used again.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, StringBuilder, make_array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use datafusion_common::hash_utils::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::error::ExecError;
use crate::route::shared_hasher;

/// Interned group keys.
#[derive(Debug)]
pub(crate) struct Groups {
    coding: Coding,
    hasher: RandomState,
    table: HashTable<Slot>,
    /// The keys one after the other; those of groups that are gone stay until they are half of it.
    bytes: Vec<u8>,
    /// Where the key of a group stands.
    spans: Vec<Span>,
    gone: usize,
    free: Vec<u32>,
}

/// How a key is written as bytes.
#[derive(Debug)]
enum Coding {
    /// There is one group.
    Nothing,
    /// One column of text.
    Text,
    /// One column of eight bytes that are equal when the values are.
    Word(DataType),
    /// Any columns.
    Rows(RowConverter),
}

/// A group in the table. What it holds of the key is enough to tell short keys apart.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The first eight bytes, filled up with zeros.
    start: u64,
    length: u32,
    group: u32,
}

/// Keys that are looked up together.
const BLOCK: usize = 128;

/// The key of NULL, of one column: longer than any text can be.
const NULL_LENGTH: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Span {
    start: usize,
    length: u32,
}

impl Span {
    fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start..self.start + self.length as usize]
    }
}

impl Groups {
    /// No groups yet, of keys with these types.
    pub(crate) fn new(types: &[DataType]) -> Result<Self, ExecError> {
        let coding = match types {
            [] => Coding::Nothing,
            [DataType::Utf8] => Coding::Text,
            [one] if is_word(one) => Coding::Word(one.clone()),
            types => Coding::Rows(RowConverter::new(types.iter().cloned().map(SortField::new).collect())?),
        };
        let (table, bytes, spans, gone, free) = (HashTable::new(), Vec::new(), Vec::new(), 0, Vec::new());
        Ok(Self { coding, hasher: shared_hasher(), table, bytes, spans, gone, free })
    }

    /// Numbers given out so far.
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// The numbers of the keys of `rows` rows, new ones for those that have none.
    pub(crate) fn intern_all(&mut self, keys: &[ArrayRef], rows: usize) -> Result<Vec<u32>, ExecError> {
        match &self.coding {
            Coding::Nothing => {
                let group = self.intern(&[]);
                Ok(vec![group; rows])
            }
            Coding::Text => {
                let texts = keys[0].as_string::<i32>();
                Ok(self.intern_each(rows, |row| texts.is_valid(row).then(|| texts.value(row).as_bytes())))
            }
            Coding::Word(_) => {
                let data = keys[0].to_data();
                let words = &data.buffers()[0].as_slice()[data.offset() * 8..];
                Ok(self.intern_each(rows, |row| data.is_valid(row).then(|| &words[row * 8..row * 8 + 8])))
            }
            Coding::Rows(converter) => {
                let keys = converter.convert_columns(keys)?;
                Ok(self.intern_each(rows, |row| Some(keys.row(row).data())))
            }
        }
    }

    /// The number here of every group of `other`, which has keys of the same types.
    pub(super) fn intern_groups(&mut self, other: &Self) -> Vec<u32> {
        let intern = |span: &Span| match span.length {
            NULL_LENGTH => self.intern_null(),
            _ => self.intern(span.of(&other.bytes)),
        };
        other.spans.iter().map(intern).collect()
    }

    /// The numbers of keys, looked up in blocks: what the table holds for the hashes of a block is read before
    /// anything is compared, so that the processor waits for many places in memory at a time.
    fn intern_each<'k>(&mut self, rows: usize, key: impl Fn(usize) -> Option<&'k [u8]>) -> Vec<u32> {
        let mut groups = Vec::with_capacity(rows);
        let mut likely: [Option<Slot>; BLOCK] = [None; BLOCK];
        for first in (0..rows).step_by(BLOCK) {
            let block = first..rows.min(first + BLOCK);
            for (likely, row) in likely.iter_mut().zip(block.clone()) {
                let hash = key(row).map_or(0, |key| hash(&self.hasher, start_of(key), key));
                // Almost always the tag of the hash, which is beside those of others, tells the right one.
                *likely = self.table.find(hash, |_| true).copied();
            }
            groups.extend(likely.iter().zip(block).map(|(likely, row)| {
                let key = key(row);
                likely.filter(|slot| self.is_of(*slot, key)).map_or_else(|| self.intern_option(key), |slot| slot.group)
            }));
        }
        groups
    }

    fn is_of(&self, slot: Slot, key: Option<&[u8]>) -> bool {
        let Some(key) = key else { return slot.length == NULL_LENGTH };
        let same = slot.start == start_of(key) && slot.length == key.len() as u32;
        same && (key.len() <= 8 || self.spans[slot.group as usize].of(&self.bytes) == key)
    }

    fn intern_option(&mut self, key: Option<&[u8]>) -> u32 {
        match key {
            Some(key) => self.intern(key),
            None => self.intern_null(),
        }
    }

    /// The number of `key`, a new one if it has none.
    fn intern(&mut self, key: &[u8]) -> u32 {
        let (start, length) = (start_of(key), key.len() as u32);
        let Self { hasher, table, bytes, spans, free, .. } = self;
        let hash = hash(hasher, start, key);
        let known = table.find(hash, |slot| {
            let same = slot.start == start && slot.length == length;
            same && (key.len() <= 8 || spans[slot.group as usize].of(bytes) == key)
        });
        if let Some(slot) = known {
            return slot.group;
        }
        let span = Span { start: bytes.len(), length };
        bytes.extend_from_slice(key);
        let group = place(spans, free, span);
        table.insert_unique(hash, Slot { start, length, group }, |slot| rehash(hasher, slot, spans, bytes));
        group
    }

    /// The number of the key NULL.
    fn intern_null(&mut self) -> u32 {
        let Self { hasher, table, bytes, spans, free, .. } = self;
        let found = table.entry(0, |slot| slot.length == NULL_LENGTH, |slot| rehash(hasher, slot, spans, bytes));
        match found {
            Entry::Occupied(entry) => entry.get().group,
            Entry::Vacant(entry) => {
                let group = place(spans, free, Span { start: 0, length: NULL_LENGTH });
                entry.insert(Slot { start: 0, length: NULL_LENGTH, group });
                group
            }
        }
    }

    /// The keys of some groups, as columns.
    pub(crate) fn columns(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, ExecError> {
        let key = |group: &u32| {
            let span = self.spans[*group as usize];
            (span.length != NULL_LENGTH).then(|| span.of(&self.bytes))
        };
        let keys = groups.iter().map(key);
        Ok(match &self.coding {
            Coding::Nothing => Vec::new(),
            Coding::Text => {
                let mut texts = StringBuilder::with_capacity(groups.len(), 0);
                for key in keys {
                    texts.append_option(key.map(std::str::from_utf8).transpose().map_err(not_text)?);
                }
                vec![Arc::new(texts.finish())]
            }
            Coding::Word(data_type) => {
                let mut nulls = Vec::with_capacity(groups.len());
                let mut words = Vec::with_capacity(groups.len() * 8);
                for key in keys {
                    nulls.push(key.is_some());
                    words.extend_from_slice(key.unwrap_or(&[0; 8]));
                }
                let data = ArrayData::builder(data_type.clone())
                    .len(groups.len())
                    .add_buffer(Buffer::from_vec(words))
                    .nulls(Some(NullBuffer::from(nulls)))
                    .align_buffers(true);
                vec![make_array(data.build()?)]
            }
            Coding::Rows(converter) => {
                let parser = converter.parser();
                converter.convert_rows(keys.flatten().map(|key| parser.parse(key)))?
            }
        })
    }

    /// Bytes of the keys and their table.
    pub(crate) fn memory(&self) -> usize {
        let table = self.table.capacity() * (size_of::<Slot>() + 1);
        table + self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }

    /// Forgets a group.
    pub(super) fn remove(&mut self, group: u32) {
        let Self { hasher, table, bytes, spans, free, gone, .. } = self;
        let span = spans[group as usize];
        let hash = match span.length {
            NULL_LENGTH => 0,
            _ => hash(hasher, start_of(span.of(bytes)), span.of(bytes)),
        };
        if let Ok(entry) = table.find_entry(hash, |slot| slot.group == group) {
            entry.remove();
            free.push(group);
            if span.length != NULL_LENGTH {
                *gone += span.length as usize;
            }
            spans[group as usize].length = 0;
        }
        if *gone > bytes.len() / 2 {
            let mut kept = Vec::with_capacity(bytes.len() - *gone);
            for span in spans.iter_mut().filter(|span| span.length != NULL_LENGTH) {
                let start = kept.len();
                kept.extend_from_slice(span.of(bytes));
                span.start = start;
            }
            (*bytes, *gone) = (kept, 0);
        }
    }
}

/// Types of eight bytes whose values are equal only if their bytes are.
fn is_word(data_type: &DataType) -> bool {
    data_type.primitive_width() == Some(8) && !data_type.is_floating() && !matches!(data_type, DataType::Interval(_))
}

/// The first eight bytes of a key, filled up with zeros.
fn start_of(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk::<8>() {
        return u64::from_le_bytes(*first);
    }
    // Two reads that overlap, and no loop.
    if let (Some(first), Some(last)) = (key.first_chunk::<4>(), key.last_chunk::<4>()) {
        let (first, last) = (u64::from(u32::from_le_bytes(*first)), u64::from(u32::from_le_bytes(*last)));
        return first | last << (8 * (key.len() - 4));
    }
    key.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// The hash of a key with this start.
fn hash(hasher: &RandomState, start: u64, key: &[u8]) -> u64 {
    if key.len() > 8 {
        return hasher.hash_one(key);
    }
    hash_short(start, key.len() as u32)
}

/// Both halves of a long product depend on all bits.
fn hash_short(start: u64, length: u32) -> u64 {
    let product = u128::from(start ^ 0x9e37_79b9_7f4a_7c15) * u128::from(0xd6e8_feb8_6659_fd93_u64 ^ u64::from(length));
    (product >> 64) as u64 ^ product as u64
}

fn rehash(hasher: &RandomState, slot: &Slot, spans: &[Span], bytes: &[u8]) -> u64 {
    match slot.length {
        NULL_LENGTH => 0,
        0..=8 => hash_short(slot.start, slot.length),
        _ => hasher.hash_one(spans[slot.group as usize].of(bytes)),
    }
}

/// A number for a new group.
fn place(spans: &mut Vec<Span>, free: &mut Vec<u32>, span: Span) -> u32 {
    let group = free.pop().unwrap_or(spans.len() as u32);
    if group as usize == spans.len() {
        spans.push(span);
    } else {
        spans[group as usize] = span;
    }
    group
}

fn not_text(error: std::str::Utf8Error) -> ExecError {
    ExecError::Internal(format!("a group key is no text: {error}"))
}
