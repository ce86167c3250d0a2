//! Micro-benchmarks of the pieces that every row passes.
