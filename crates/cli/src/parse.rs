//! Texts of the command line, read.

use std::time::Duration;

/// Reads a time: `90`, `90s`, `5m`, `1h30m`, `1d`. A bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let refused = || format!("{text:?} is no time: say 90s, 5m or 1h30m");
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().map(Duration::from_secs).map_err(|_| refused());
    }
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| refused())?;
        let unit = rest[digits..].chars().next().ok_or_else(refused)?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return Err(refused()),
        };
        let part = number.checked_mul(seconds).ok_or_else(refused)?;
        total = total.checked_add(part).ok_or_else(refused)?;
        rest = &rest[digits + 1..];
    }
    if text.is_empty() {
        return Err(refused());
    }
    Ok(Duration::from_secs(total))
}

/// Reads `NAME=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not NAME=VALUE")),
    }
}

/// Reads a size into MiB: `512`, `512m`, `512Mi`, `2G`, `2GiB`. A bare number is MiB.
pub(crate) fn mebibytes(text: &str) -> Result<u32, String> {
    let refused = || format!("{text:?} is no size: say 512M or 2G");
    let lower = text.to_ascii_lowercase();
    let number = lower.strip_suffix('b').unwrap_or(&lower);
    let number = number.strip_suffix('i').unwrap_or(number);
    let (digits, factor) = match number.strip_suffix('g') {
        Some(digits) => (digits, 1024),
        None => (number.strip_suffix('m').unwrap_or(number), 1),
    };
    let number: u32 = digits.parse().map_err(|_| refused())?;
    number.checked_mul(factor).ok_or_else(refused)
}

/// Reads processors into thousandths: `2`, `0.5`, `500m`.
pub(crate) fn milli_cpu(text: &str) -> Result<u32, String> {
    let refused = || format!("{text:?} is no number of processors: say 2, 0.5 or 500m");
    if let Some(digits) = text.strip_suffix('m') {
        return digits.parse().map_err(|_| refused());
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 3 || !part.bytes().all(|b| b.is_ascii_digit()) {
        return Err(refused());
    }
    let whole: u32 = whole.parse().map_err(|_| refused())?;
    let part: u32 = format!("{part:0<3}").parse().map_err(|_| refused())?;
    whole
        .checked_mul(1000)
        .and_then(|milli| milli.checked_add(part))
        .ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_read_in_every_form() {
        for (text, seconds) in [
            ("90", 90),
            ("90s", 90),
            ("5m", 300),
            ("1h30m", 5400),
            ("1d", 86_400),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in ["", "m", "5x", "-1s", "1.5h", "5m3", "99999999999999999999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_and_processors_are_read() {
        for (text, size) in [
            ("512", 512),
            ("512M", 512),
            ("2G", 2048),
            ("2GiB", 2048),
            ("2g", 2048),
            ("2Gi", 2048),
            ("512Mi", 512),
            ("512mb", 512),
            ("1gb", 1024),
        ] {
            assert_eq!(mebibytes(text), Ok(size), "{text}");
        }
        for (text, milli) in [("2", 2000), ("0.5", 500), ("500m", 500), ("1.25", 1250)] {
            assert_eq!(milli_cpu(text), Ok(milli), "{text}");
        }
        for bad in ["", "x", "-1", "1.2345", "1.x", "9999999999"] {
            assert!(mebibytes(bad).is_err(), "{bad}");
            assert!(milli_cpu(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pair_has_a_name_and_its_value_may_have_anything() {
        assert_eq!(pair("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("A="), Ok(("A".to_owned(), String::new())));
        assert!(pair("A").is_err());
        assert!(pair("=b").is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_reading_fail(text in ".{0,20}") {
            let _ = (duration(&text), mebibytes(&text), milli_cpu(&text), pair(&text));
        }
    }
}
