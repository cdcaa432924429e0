//! Filters by labels, in queries.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

use crate::error::ApiError;

/// Parses a filter by labels. The SDKs encode it three times: each key and value, the pairs, and
/// the query. The query is already decoded here.
pub(crate) fn read(text: &str) -> Result<BTreeMap<String, String>, ApiError> {
    let decode = |text: &str| {
        percent_decode_str(text)
            .decode_utf8()
            .map(std::borrow::Cow::into_owned)
            .map_err(|_| ApiError::invalid("`metadata`: not UTF-8"))
    };
    let pairs = decode(text)?;
    let mut metadata = BTreeMap::new();
    for pair in pairs.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some((key, value)) if !value.contains('=') => {
                metadata.insert(decode(key)?, decode(value)?);
            }
            _ => {
                return Err(ApiError::invalid(format_args!(
                    "`metadata`: {pair:?} is no pair"
                )));
            }
        }
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn labels_are_decoded_as_often_as_the_sdks_encode_them() {
        // `metadata=k%2525201%3Dv%2525261`, after the query parser has decoded it once.
        let labels = read("k%25201=v%25261").unwrap();
        assert_eq!(
            labels,
            BTreeMap::from([("k 1".to_owned(), "v&1".to_owned())])
        );
        let two = read("a%3D1%26b%3D2").unwrap();
        assert_eq!(two.len(), 2);
        for bad in ["a", "a=b=c", "=a=b", "a&b"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_filter_is_read_or_refused(text in ".{0,60}") {
            let _ = read(&text);
        }
    }
}
