//! Splits: the shares of a stream's files that several source tasks read side by side.
//!
//! The bytes of all files, one behind the other, are divided into equal ranges. A record belongs to the
//! split that its first byte is in, a row group of parquet to the one that its first byte is in.

use std::ops::Range;
use std::path::PathBuf;

use super::files::Listing;

/// One of several equal shares of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    /// Its number, from 0.
    pub number: u32,
    /// How many there are.
    pub of: u32,
}

/// A file, and the bytes of it that are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FilePart {
    pub(super) path: PathBuf,
    /// `None` is all of it, however long it is.
    pub(super) range: Option<Range<u64>>,
}

impl Split {
    /// All of a stream.
    pub const WHOLE: Self = Self { number: 0, of: 1 };

    /// The parts of `files` that are of this split. If the length of one is not known, as of a pipe, they are
    /// read whole, by the first split.
    pub(super) fn parts(self, files: Listing) -> Vec<FilePart> {
        let (files, lengths): (Vec<PathBuf>, Vec<Option<u64>>) = files.into_iter().unzip();
        let lengths: Option<Vec<u64>> = lengths.into_iter().collect();
        let whole = |path| FilePart { path, range: None };
        match lengths {
            Some(lengths) if self.of > 1 => self.ranges(&lengths).zip(files).filter_map(part).collect(),
            _ if self.number == 0 => files.into_iter().map(whole).collect(),
            _ => Vec::new(),
        }
    }

    /// The bytes of each file that are of this split.
    fn ranges(self, lengths: &[u64]) -> impl Iterator<Item = Range<u64>> {
        let total: u64 = lengths.iter().sum();
        let bound = |number: u32| (u128::from(total) * u128::from(number) / u128::from(self.of)) as u64;
        let (start, end) = (bound(self.number), bound(self.number + 1));
        let mut before = 0;
        lengths.iter().map(move |length| {
            let range = start.clamp(before, before + length) - before..end.clamp(before, before + length) - before;
            before += length;
            range
        })
    }
}

fn part((range, path): (Range<u64>, PathBuf)) -> Option<FilePart> {
    (!range.is_empty()).then_some(FilePart { path, range: Some(range) })
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn every_byte_is_of_one_split(lengths in proptest::collection::vec(0_u64..1000, 1..5), of in 1_u32..9) {
            let mut seen: Vec<Vec<u32>> = lengths.iter().map(|length| vec![0; *length as usize]).collect();
            for number in 0..of {
                let split = Split { number, of };
                for (file, range) in split.ranges(&lengths).enumerate() {
                    range.for_each(|byte| seen[file][byte as usize] += 1);
                }
            }
            assert!(seen.iter().flatten().all(|times| *times == 1));
        }
    }
}
