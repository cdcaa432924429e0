//! PAX extended headers: records of `length key=value\n`.

use super::UnpackError;
use super::attributes::Attribute;
use super::members::corrupt;
use super::sparse::PaxMap;

/// The record with which an export stores a member's meaning for overlayfs.
pub const MARK: &str = "SHOAL.overlay";

/// A member's meaning for overlayfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Hides its name in lower layers.
    Whiteout,
    /// A directory that hides the contents of lower layers.
    Opaque,
}

impl Mark {
    /// The value of the record.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Whiteout => "whiteout",
            Self::Opaque => "opaque",
        }
    }
}

/// The known records of an extended header; others are ignored.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) changed: Option<(i64, u32)>,
    pub(super) xattrs: Vec<Attribute>,
    pub(super) sparse: Option<PaxMap>,
    pub(super) mark: Option<Mark>,
}

impl Records {
    pub(super) fn parse(data: Vec<u8>) -> Result<Self, UnpackError> {
        let mut records = Self::default();
        let mut rest = &data[..];
        // Some writers pad the block with zeros and include them in the size.
        while !rest.iter().all(|b| *b == 0) {
            let (key, value, after) = split(rest).ok_or_else(|| corrupt(MALFORMED))?;
            rest = after;
            // An empty value revokes that of a global header; global headers are not read.
            if !value.is_empty() {
                records.take(key, value)?;
            }
        }
        if let Some(name) = records.sparse.as_mut().and_then(|map| map.name.take()) {
            records.path = Some(name);
        }
        Ok(records)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), UnpackError> {
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(number(value)?),
            b"uid" => self.uid = Some(number(value)?),
            b"gid" => self.gid = Some(number(value)?),
            b"mtime" => self.changed = Some(moment(value)?),
            key if key == MARK.as_bytes() => {
                let known = [Mark::Whiteout, Mark::Opaque].into_iter();
                let mark = known.into_iter().find(|m| m.as_str().as_bytes() == value);
                self.mark = Some(mark.ok_or_else(|| corrupt(MALFORMED))?);
            }
            key => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.xattrs.push((name.to_vec(), value.to_vec()));
                } else if let Some(part) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.get_or_insert_default().take(part, value)?;
                }
            }
        }
        Ok(())
    }
}

const MALFORMED: &str = "an extended header is malformed";

/// The first record: its key, its value, and the rest. The length determines the record's end,
/// because a value may contain any byte.
fn split(data: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = data.iter().position(|b| *b == b' ')?;
    let length: usize = std::str::from_utf8(&data[..space]).ok()?.parse().ok()?;
    let record = data.get(space + 1..length)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|b| *b == b'=')?;
    Some((&record[..equals], &record[equals + 1..], &data[length..]))
}

/// A decimal number.
pub(super) fn number(text: &[u8]) -> Result<u64, UnpackError> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text)
        .ok()
        .filter(|_| digits)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| corrupt("an extended header has an invalid number"))
}

/// Seconds since 1970 with a fraction; earlier times become 1970.
fn moment(text: &[u8]) -> Result<(i64, u32), UnpackError> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let point = text.iter().position(|b| *b == b'.').unwrap_or(text.len());
    let seconds = number(&text[..point])?;
    let fraction = text.get(point + 1..).unwrap_or_default();
    let mut nanoseconds = 0;
    for place in 0..9 {
        let digit = fraction.get(place).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return Err(corrupt(MALFORMED));
        }
        nanoseconds = nanoseconds * 10 + u32::from(digit - b'0');
    }
    Ok(match i64::try_from(seconds) {
        Ok(seconds) if !negative => (seconds, nanoseconds),
        _ => (0, 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, value: &[u8]) -> Vec<u8> {
        let body = key.len() + value.len() + 3;
        let digits = (body + (body + 2).to_string().len()).to_string().len();
        let mut out = format!("{} {key}=", body + digits).into_bytes();
        out.extend_from_slice(value);
        out.push(b'\n');
        out
    }

    #[test]
    fn a_value_may_hold_a_line_feed() {
        let mut data = record("SCHILY.xattr.security.capability", b"\x01\n\0\n=");
        data.extend(record("path", b"a\nb"));
        let records = Records::parse(data).unwrap();
        assert_eq!(records.xattrs[0].1, b"\x01\n\0\n=");
        assert_eq!(records.path.unwrap(), b"a\nb");
    }

    #[test]
    fn times_have_fractions() {
        for (text, moment) in [
            ("1.5", (1, 500_000_000)),
            ("1700000000.123456789123", (1_700_000_000, 123_456_789)),
            ("12", (12, 0)),
            ("-3.5", (0, 0)),
        ] {
            let records = Records::parse(record("mtime", text.as_bytes())).unwrap();
            assert_eq!(records.changed, Some(moment), "{text}");
        }
    }

    #[test]
    fn malformed_documents_are_errors() {
        for bad in [
            &b"path=x\n"[..],
            b"999 path=x\n",
            b"3 a\n",
            b"0 a=b\n",
            b"99999999999999999999 a=b\n",
            b"12 size=-100\n",
            b"11 uid=abc\n",
            b"14 mtime=1.x2\n",
        ] {
            let text = String::from_utf8_lossy(bad);
            assert!(Records::parse(bad.to_vec()).is_err(), "{text}");
        }
    }
}
