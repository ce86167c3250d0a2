//! Group keys to dense numbers. Numbers of groups that are gone are used again.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::hash::BuildHasher;

use crate::route::shared_hasher;

/// Interned group keys, as row bytes.
#[derive(Debug, Default)]
pub(super) struct Groups {
    table: HashTable<u32>,
    keys: Vec<Box<[u8]>>,
    free: Vec<u32>,
}

fn hash(key: &[u8]) -> u64 {
    shared_hasher().hash_one(key)
}

impl Groups {
    /// Numbers given out so far.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The number of `key`, a new one if it has none.
    pub(super) fn intern(&mut self, key: &[u8]) -> u32 {
        let keys = &mut self.keys;
        let found =
            self.table.entry(hash(key), |group| *keys[*group as usize] == *key, |group| hash(&keys[*group as usize]));
        match found {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let group = self.free.pop().unwrap_or(self.keys.len() as u32);
                entry.insert(group);
                if group as usize == self.keys.len() {
                    self.keys.push(key.into());
                } else {
                    self.keys[group as usize] = key.into();
                }
                group
            }
        }
    }

    /// The key of a group.
    pub(super) fn key(&self, group: u32) -> &[u8] {
        &self.keys[group as usize]
    }

    /// Forgets a group.
    pub(super) fn remove(&mut self, group: u32) {
        let keys = &self.keys;
        let key = &keys[group as usize];
        if let Ok(entry) = self.table.find_entry(hash(key), |other| *other == group) {
            entry.remove();
            self.free.push(group);
        }
    }
}
