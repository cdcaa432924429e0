//! Suggestions for mistyped names.

/// The known name that is most similar, if one is similar enough. A name that starts with at least three typed characters is.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let begins = |candidate: &str| name.len() >= 3 && candidate.starts_with(name);
    known
        .into_iter()
        .map(|candidate| {
            let distance = if begins(candidate) {
                0
            } else {
                strsim::damerau_levenshtein(name, candidate)
            };
            (distance, candidate)
        })
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 4).clamp(1, 4))
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_suggested_and_others_are_not() {
        let known = ["iabcdefghij0123456789", "ixyzxyzxyz0123456789x"];
        assert_eq!(nearest("iabcdefghij012345678", known), Some(known[0]));
        assert_eq!(nearest("ixyz", known), Some(known[1]));
        assert_eq!(nearest("iqqqqqqqqqqqqqqqqqqqq", known), None);
        assert_eq!(nearest("bsae", ["base"]), Some("base"));
    }
}
