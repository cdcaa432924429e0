//! URL query parameters.

use std::borrow::Cow;

/// The decoded value of the first parameter with this name.
pub(crate) fn value<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    form_urlencoded::parse(query.as_bytes())
        .find(|(found, _)| found == name)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_the_first_counts() {
        let query = "path=%2Fa+b%2Bc&path=x&signature=v1_a%2Fb&empty=&flag";
        assert_eq!(value(query, "path").unwrap(), "/a b+c");
        assert_eq!(value(query, "signature").unwrap(), "v1_a/b");
        assert_eq!(value(query, "empty").unwrap(), "");
        assert_eq!(value(query, "flag").unwrap(), "");
        assert_eq!(value(query, "none"), None);
        assert_eq!(value("", "path"), None);
    }
}
