//! The join: one cell per task, each with a [store](store::Store) and a
//! [local index](index::LocalIndex) per side.

pub(crate) mod cell;
pub(crate) mod fold;
pub mod index;
pub mod keys;
mod runs;
pub(crate) mod scan;
pub mod store;
pub mod stripes;
