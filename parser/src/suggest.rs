//! "Did you mean": the closest known name to a misspelt one.

/// The candidate nearest to `name`, if one is near enough to be a likely misspelling.
pub fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&name, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= (name.chars().count().max(candidate.chars().count()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn finds_a_near_name_only() {
        let known = ["path", "format", "header"];
        assert_eq!(closest("fromat", known), Some("format"));
        assert_eq!(closest("Header", known), Some("header"));
        assert_eq!(closest("watermark", known), None);
    }
}
