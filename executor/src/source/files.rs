//! Paths and globs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::ExecError;

pub(super) fn failure(
    path: impl Into<PathBuf>,
    message: impl Into<String>,
    source: Option<std::io::Error>,
) -> ExecError {
    ExecError::Source { path: path.into(), message: message.into(), source: source.map(Arc::new) }
}

/// The files that a path or glob names, by name.
pub(super) fn expand(pattern: &str) -> Result<Vec<PathBuf>, ExecError> {
    if !pattern.contains(['*', '?', '[']) || Path::new(pattern).exists() {
        return Ok(vec![PathBuf::from(pattern)]);
    }
    let matches = glob::glob(pattern).map_err(|error| failure(pattern, format!("not a glob: {error}"), None))?;
    let mut paths = Vec::new();
    for path in matches {
        let path = path.map_err(|error| {
            let path = error.path().to_owned();
            failure(path, "cannot be read", Some(error.into()))
        })?;
        if !path.is_dir() {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(failure(pattern, "no file matches", None));
    }
    Ok(paths)
}

pub(super) fn open(path: &Path) -> Result<File, ExecError> {
    let refused = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => failure(path, "no such file", Some(error)),
        std::io::ErrorKind::PermissionDenied => failure(path, "permission denied", Some(error)),
        _ => failure(path, format!("cannot be opened: {error}"), Some(error)),
    };
    let file = File::open(path).map_err(refused)?;
    if file.metadata().is_ok_and(|meta| meta.is_dir()) {
        return Err(failure(path, "is a directory; write a glob such as 'folder/*.csv'", None));
    }
    Ok(file)
}

/// Files, each with its length if it is a plain file.
pub(super) type Listing = Vec<(PathBuf, Option<u64>)>;

/// The files that a path or glob names, as they are now.
pub(super) fn list(pattern: &str) -> Result<Listing, ExecError> {
    Ok(expand(pattern)?.into_iter().map(|path| (path.clone(), length(&path))).collect())
}

/// The files of a listing that was made elsewhere; as much of them must be here.
pub(super) fn listed(listing: &[(String, u64)]) -> Result<Listing, ExecError> {
    let check = |(path, length): &(String, u64)| {
        let here = open(Path::new(path))?.metadata().map_or(0, |meta| meta.len());
        if here < *length {
            let message = format!("has {here} bytes, and had {length} when the query was started");
            return Err(failure(path, message, None));
        }
        Ok((PathBuf::from(path), Some(*length)))
    };
    listing.iter().map(check).collect()
}

/// Bytes of all files together, if all are plain files.
pub(super) fn total_bytes(paths: &[PathBuf]) -> Option<u64> {
    paths.iter().map(|path| length(path)).sum()
}

/// Bytes of a plain file.
fn length(path: &Path) -> Option<u64> {
    path.metadata().ok().filter(std::fs::Metadata::is_file).map(|meta| meta.len())
}

/// Position of a column in a header: the exact name, or the only one that differs in case.
pub(super) fn position_of(path: &Path, names: &[String], name: &str) -> Result<usize, ExecError> {
    let exact = names.iter().position(|found| found == name);
    let folded = || {
        let mut found = names.iter().enumerate().filter(|(_, found)| found.eq_ignore_ascii_case(name));
        found.next().filter(|_| found.next().is_none()).map(|(position, _)| position)
    };
    exact.or_else(folded).ok_or_else(|| {
        failure(path, format!("there is no column '{name}' in it; there are {}", names.join(", ")), None)
    })
}

/// Which columns of a file are read, and where the stream's columns are among them.
#[derive(Debug, Clone)]
pub(super) struct ColumnOrder {
    /// Positions in the file, ascending.
    pub(super) read: Vec<usize>,
    /// For each wanted column, its place among those that are read.
    pub(super) order: Vec<usize>,
}

impl ColumnOrder {
    /// To get the columns at these positions of a file, in this order.
    pub(super) fn of(wanted: &[usize]) -> Self {
        let mut read = wanted.to_vec();
        read.sort_unstable();
        read.dedup();
        let order = wanted.iter().map(|position| read.partition_point(|other| other < position)).collect();
        Self { read, order }
    }
}
