//! Tables of options: each row has a name, what it takes, and how its value is kept.

use thetis_parser::{Position, StreamOption};

use crate::error::{PlanError, PlanErrorKind};

/// An option of some kinds `K` of source or sink; `D` is what all options together say.
pub(super) struct OptionRow<D, K: 'static> {
    pub(super) name: &'static str,
    pub(super) takes: &'static str,
    pub(super) of: &'static [K],
    /// Keeps a value, if it is one.
    pub(super) set: fn(&mut D, &str) -> Option<()>,
}

impl<D, K> OptionRow<D, K> {
    /// Keeps the value of `option`.
    pub(super) fn apply(&self, draft: &mut D, option: &StreamOption) -> Result<(), PlanError> {
        (self.set)(draft, &option.value).ok_or_else(|| {
            let message = format!("'{}' is not a value for option {}", option.value, self.name);
            PlanError::new(PlanErrorKind::Setting, message)
                .hint(format!("{} takes {}", self.name, self.takes))
                .at(option.position)
        })
    }
}

/// The value of this name, in any case.
pub(super) fn named<T: Copy>(text: &str, names: &[(&str, T)]) -> Option<T> {
    names.iter().find(|(name, _)| text.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
}

/// The file format of this name or of a path's ending, given what stands for each.
pub(super) fn format<T: Copy>(text: &str, [csv, ndjson, parquet]: [T; 3]) -> Option<T> {
    named(text, &[("csv", csv), ("ndjson", ndjson), ("jsonl", ndjson), ("json", ndjson), ("parquet", parquet)])
}

/// The ending of a path.
pub(super) fn ending(path: &str) -> Option<&str> {
    path.rsplit_once('.').map(|(_, ending)| ending)
}

/// A path is any text but none.
pub(super) fn path(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

/// Remembers the keys that were given.
#[derive(Default)]
pub(super) struct Seen(Vec<String>);

impl Seen {
    /// Refuses a key that was given before.
    pub(super) fn add(&mut self, key: String, option: &StreamOption) -> Result<(), PlanError> {
        if self.0.contains(&key) {
            return Err(PlanError::new(PlanErrorKind::Setting, format!("option {key} is given twice"))
                .at(Position::of_span(option.key.span)));
        }
        self.0.push(key);
        Ok(())
    }
}

/// The error for an option that is not there; `names` are those of `what`.
pub(super) fn unknown<'a>(
    option: &StreamOption,
    what: &str,
    names: impl Iterator<Item = &'a str> + Clone,
    more: &str,
) -> PlanError {
    PlanError::new(PlanErrorKind::Setting, format!("there is no option '{}'", option.key.value))
        .hint(format!("the options of {what} are {}{more}", names.clone().collect::<Vec<_>>().join(", ")))
        .suggest(&option.key.value.to_lowercase(), names)
        .at(Position::of_span(option.key.span))
}
