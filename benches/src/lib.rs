//! Micro-benchmarks of the pieces that every row or statement passes; they are in `benches/`.
