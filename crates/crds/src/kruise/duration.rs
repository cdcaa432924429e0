//! Durations as Go writes them: `1h30m`, `500ms`, `-1s`.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// A duration as text. Objects keep it as it was written: one that cannot be read spoils no list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationText(pub String);

impl DurationText {
    /// The duration, if the text is one.
    #[must_use]
    pub fn get(&self) -> Option<SignedDuration> {
        parse(&self.0)
    }
}

/// Nanoseconds of each unit. Longer names come first.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

/// Reads a duration of Go: a sign, and numbers with units. `0` needs no unit.
#[must_use]
pub fn parse(text: &str) -> Option<SignedDuration> {
    read(text, &UNITS)
}

/// Reads a duration of Go, in which days (`30d`) are allowed, too.
#[must_use]
pub fn parse_with_days(text: &str) -> Option<SignedDuration> {
    let mut units = UNITS.to_vec();
    units.push(("d", 86_400e9));
    read(text, &units)
}

fn read(text: &str, units: &[(&str, f64)]) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let (unit, nanoseconds) = units.iter().find(|(unit, _)| rest.starts_with(unit))?;
        rest = &rest[unit.len()..];
        seconds += number * nanoseconds / 1e9;
    }
    let seconds = if negative { -seconds } else { seconds };
    SignedDuration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, milliseconds) in [
            ("0", 0),
            ("30s", 30_000),
            ("1m", 60_000),
            ("1m0s", 60_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("500ms", 500),
            ("-1s", -1000),
            ("+2s", 2000),
        ] {
            let expected = Some(SignedDuration::from_millis(milliseconds));
            assert_eq!(parse(text), expected, "{text}");
        }
        for text in ["", "1", "s", "1x", "-", "1m5", ".", "30d", "1 s", "forever"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn days_are_read_where_they_are_allowed() {
        assert_eq!(
            parse_with_days("30d"),
            Some(SignedDuration::from_hours(720))
        );
        assert_eq!(
            parse_with_days("1d1h"),
            Some(SignedDuration::from_hours(25))
        );
    }
}
