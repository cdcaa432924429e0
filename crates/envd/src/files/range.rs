//! Range requests (RFC 9110, section 14).

use std::ops::Range;

/// A `Range` header applied to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestedRange {
    /// The whole file: no range, an invalid one, or several, which a server need not support.
    Whole,
    /// These bytes, never empty.
    Bytes(Range<u64>),
    /// Outside of the file.
    Unsatisfiable,
}

/// Parses a `Range` header.
pub(super) fn parse(header: Option<&str>, size: u64) -> RequestedRange {
    let Some(ranges) = header.and_then(|header| header.trim().strip_prefix("bytes=")) else {
        return RequestedRange::Whole;
    };
    let mut ranges = ranges
        .split(',')
        .map(str::trim)
        .filter(|range| !range.is_empty());
    let (Some(range), None) = (ranges.next(), ranges.next()) else {
        return RequestedRange::Whole;
    };
    let Some((first, last)) = range.split_once('-') else {
        return RequestedRange::Whole;
    };
    let (first, last) = (first.trim(), last.trim());
    if first.is_empty() {
        return match number(last) {
            Some(0) => RequestedRange::Unsatisfiable,
            Some(_) if size == 0 => RequestedRange::Unsatisfiable,
            Some(count) => RequestedRange::Bytes(size.saturating_sub(count)..size),
            None => RequestedRange::Whole,
        };
    }
    let Some(first) = number(first) else {
        return RequestedRange::Whole;
    };
    let last = match last {
        "" => Some(u64::MAX),
        last => number(last),
    };
    match last {
        Some(last) if last >= first && first < size => {
            RequestedRange::Bytes(first..last.saturating_add(1).min(size))
        }
        Some(last) if last >= first => RequestedRange::Unsatisfiable,
        // Not a valid range.
        Some(_) | None => RequestedRange::Whole,
    }
}

/// Parses digits; saturates at the maximum.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_form_is_parsed() {
        for (header, part) in [
            ("bytes=0-4", RequestedRange::Bytes(0..5)),
            ("bytes=5-", RequestedRange::Bytes(5..10)),
            ("bytes=-3", RequestedRange::Bytes(7..10)),
            ("bytes=-30", RequestedRange::Bytes(0..10)),
            (
                "bytes=8-99999999999999999999999",
                RequestedRange::Bytes(8..10),
            ),
            ("bytes= 1 - 2 ", RequestedRange::Bytes(1..3)),
            ("bytes=10-", RequestedRange::Unsatisfiable),
            ("bytes=-0", RequestedRange::Unsatisfiable),
            ("bytes=0-1,3-4", RequestedRange::Whole),
            ("bytes=5-4", RequestedRange::Whole),
            ("bytes=", RequestedRange::Whole),
            ("bytes=-", RequestedRange::Whole),
            ("bytes=a-b", RequestedRange::Whole),
            ("bytes=+1-2", RequestedRange::Whole),
            ("lines=0-4", RequestedRange::Whole),
        ] {
            assert_eq!(parse(Some(header), 10), part, "{header}");
        }
        assert_eq!(parse(None, 10), RequestedRange::Whole);
        assert_eq!(parse(Some("bytes=0-"), 0), RequestedRange::Unsatisfiable);
        assert_eq!(parse(Some("bytes=-5"), 0), RequestedRange::Unsatisfiable);
    }

    proptest! {
        #[test]
        fn a_range_is_never_empty_nor_beyond_the_end(
            header in "(bytes=)?[-0-9, a]{0,40}", size in 0..u64::MAX,
        ) {
            if let RequestedRange::Bytes(range) = parse(Some(&header), size) {
                prop_assert!(range.start < range.end && range.end <= size);
            }
        }
    }
}
