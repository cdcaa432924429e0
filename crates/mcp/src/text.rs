//! Texts of bounded size.

use std::collections::VecDeque;

/// Keeps the beginning and the end of an output, and counts the bytes between them.
#[derive(Debug, Default)]
pub(crate) struct Bounded {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    most: usize,
    total: usize,
}

impl Bounded {
    /// Keeps this many bytes at each end.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        self.total = self.total.saturating_add(bytes.len());
        let room = self.most - self.head.len();
        if room > 0 {
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.head.extend_from_slice(now);
            bytes = rest;
        }
        let last = &bytes[bytes.len().saturating_sub(self.most)..];
        let over = (self.tail.len() + last.len()).saturating_sub(self.most);
        self.tail.drain(..over);
        self.tail.extend(last);
    }

    /// The number of bytes that are left out.
    pub(crate) fn left_out(&self) -> usize {
        self.total - self.head.len() - self.tail.len()
    }

    /// The text, with a note where bytes are left out.
    pub(crate) fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if self.left_out() == 0 {
            let mut all = self.head.clone();
            all.extend(tail);
            return String::from_utf8_lossy(&all).into_owned();
        }
        format!(
            "{}\n[… {} bytes are left out …]\n{}",
            String::from_utf8_lossy(&self.head),
            self.left_out(),
            String::from_utf8_lossy(&tail)
        )
    }
}

/// The beginning of a text: at most this many bytes, cut between characters.
pub(crate) fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// Refuses what cannot be an argument of a program or a path.
pub(crate) fn without_nul(name: &str, text: &str) -> Result<(), crate::error::ToolError> {
    if text.contains('\0') {
        return Err(crate::error::ToolError::invalid(format_args!(
            "`{name}` contains a NUL character"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(pieces: &[&str]) -> Bounded {
        let mut kept = Bounded::new(3);
        for piece in pieces {
            kept.push(piece.as_bytes());
        }
        kept
    }

    #[test]
    fn a_short_output_is_whole() {
        for pieces in [&["abcdef"][..], &["a", "bcdef"], &["abc", "", "d", "ef"]] {
            let kept = pushed(pieces);
            assert_eq!((kept.text().as_str(), kept.left_out()), ("abcdef", 0));
        }
        assert_eq!(pushed(&[]).text(), "");
    }

    #[test]
    fn a_long_output_has_its_beginning_and_its_end() {
        for pieces in [
            &["abcdefghij"][..],
            &["abcd", "efghij"],
            &["ab", "cdefgh", "ij"],
        ] {
            let kept = pushed(pieces);
            assert_eq!(kept.left_out(), 4);
            assert_eq!(kept.text(), "abc\n[… 4 bytes are left out …]\nhij");
        }
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(beginning("aé", 2), "a");
        assert_eq!(beginning("aé", 3), "aé");
        assert_eq!(beginning("aé", 9), "aé");
    }
}
