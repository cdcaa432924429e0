//! Masks the values of secrets in a stream of output.
//!
//! Every byte of a value is masked, also if values overlap. A run of masked bytes becomes one [`MASK`]. The beginning of a
//! value is held back until the next bytes decide. When the stream is quiet, a held-back beginning is shown if it is
//! shorter than every value, so that prompts appear at once. If the rest of that value follows, the rest is masked.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use shoal_core::session::secret::{MASKED_MIN, SecretValue};
use zeroize::Zeroizing;

/// The replacement for a value.
const MASK: &[u8] = b"***";

/// A value to mask.
struct Needle {
    bytes: Zeroizing<Vec<u8>>,
    /// The failure function of Knuth, Morris and Pratt: for each prefix, the length of its longest border.
    borders: Vec<usize>,
}

impl Needle {
    fn new(bytes: Vec<u8>) -> Self {
        let mut borders = vec![0; bytes.len()];
        let mut length = 0;
        for at in 1..bytes.len() {
            while length > 0 && bytes[at] != bytes[length] {
                length = borders[length - 1];
            }
            length += usize::from(bytes[at] == bytes[length]);
            borders[at] = length;
        }
        Self {
            bytes: Zeroizing::new(bytes),
            borders,
        }
    }
}

/// A needle, and the length of its prefix at the end of the stream.
struct Search {
    needle: Arc<Needle>,
    length: usize,
}

impl Search {
    /// Takes the next byte. Returns whether the needle is complete.
    fn step(&mut self, byte: u8) -> bool {
        let Needle { bytes, borders } = &*self.needle;
        while self.length > 0 && bytes[self.length] != byte {
            self.length = borders[self.length - 1];
        }
        self.length += usize::from(bytes[self.length] == byte);
        let complete = self.length == bytes.len();
        if complete {
            self.length = borders[self.length - 1];
        }
        complete
    }
}

/// A byte that is held back.
struct Held {
    byte: u8,
    hidden: bool,
}

/// Masks values in a stream.
#[derive(Default)]
pub(crate) struct Masks {
    searches: Vec<Search>,
    held: VecDeque<Held>,
    /// The number of bytes at the end that may begin a value.
    open: usize,
    /// Whether the last returned byte was masked.
    masking: bool,
}

impl fmt::Debug for Masks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Masks")
            .field("needles", &self.searches.len())
            .finish_non_exhaustive()
    }
}

impl Masks {
    /// Also masks these values, from now on. Values that are too short are not masked.
    pub(crate) fn hide<'a>(&mut self, values: impl IntoIterator<Item = &'a SecretValue>) {
        for value in values {
            let text = value.reveal();
            let trimmed = text.trim();
            let text = if trimmed.len() < MASKED_MIN {
                text
            } else {
                trimmed
            };
            if text.len() < MASKED_MIN {
                continue;
            }
            self.search_for(text.as_bytes());
            // The line ends that a terminal prints.
            if text.contains('\n') {
                let printed = Zeroizing::new(text.replace('\n', "\r\n"));
                self.search_for(printed.as_bytes());
            }
        }
    }

    fn search_for(&mut self, bytes: &[u8]) {
        let known = |search: &Search| search.needle.bytes.as_slice() == bytes;
        if !self.searches.iter().any(known) {
            self.searches.push(Search {
                needle: Arc::new(Needle::new(bytes.to_vec())),
                length: 0,
            });
        }
    }

    /// Takes the next bytes. Returns the output that can be shown.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.searches.is_empty() {
            return bytes.to_vec();
        }
        let mut shown = Vec::with_capacity(bytes.len());
        for byte in bytes {
            let (mut open, mut found) = (0, 0);
            for search in &mut self.searches {
                if search.step(*byte) {
                    found = found.max(search.needle.bytes.len());
                }
                open = open.max(search.length);
            }
            self.open = open;
            self.held.push_back(Held {
                byte: *byte,
                hidden: false,
            });
            // The missing bytes were masked before, or shown when the stream was quiet.
            for held in self.held.iter_mut().rev().take(found) {
                held.hidden = true;
            }
            self.release(open, &mut shown);
        }
        shown
    }

    /// Moves the held-back bytes but for the last `kept` to `shown`, and one [`MASK`] for each run of masked bytes.
    fn release(&mut self, kept: usize, shown: &mut Vec<u8>) {
        while let Some(first) = self.held.front() {
            if !first.hidden && self.held.len() <= kept {
                return;
            }
            if !first.hidden {
                shown.push(first.byte);
            } else if !self.masking {
                shown.extend(MASK);
            }
            self.masking = first.hidden;
            self.held.pop_front();
        }
    }

    /// Whether [`Self::quiet`] would return output.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.held.is_empty() && self.open < MASKED_MIN
    }

    /// Returns the held-back bytes of a quiet stream, unless they are as long as the shortest value.
    pub(crate) fn quiet(&mut self) -> Vec<u8> {
        let mut shown = Vec::new();
        if self.is_waiting() {
            self.release(0, &mut shown);
        }
        shown
    }

    /// Returns the held-back bytes at the end of a stream. Another stream may follow.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut shown = Vec::new();
        self.release(0, &mut shown);
        for search in &mut self.searches {
            search.length = 0;
        }
        self.open = 0;
        self.masking = false;
        shown
    }

    /// A text of its own.
    pub(crate) fn text(&self, text: &str) -> String {
        let searches = self.searches.iter().map(|search| Search {
            needle: search.needle.clone(),
            length: 0,
        });
        let mut own = Self {
            searches: searches.collect(),
            ..Self::default()
        };
        let mut shown = own.feed(text.as_bytes());
        shown.extend(own.finish());
        // Values are text, so the parts between them are text.
        String::from_utf8_lossy(&shown).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(texts: &[String]) -> Vec<SecretValue> {
        let value = |text: &String| SecretValue::new(text.clone()).unwrap();
        texts.iter().map(value).collect()
    }

    fn masks(texts: &[&str]) -> Masks {
        let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
        let mut masks = Masks::default();
        masks.hide(&values(&texts));
        masks
    }

    /// The expected output by the definition: a run of bytes that are part of a value is one mask.
    fn expected(secrets: &[String], text: &str) -> String {
        let mut hidden = vec![false; text.len()];
        for secret in secrets {
            for at in 0..text.len() {
                if text.as_bytes()[at..].starts_with(secret.as_bytes()) {
                    hidden[at..at + secret.len()].fill(true);
                }
            }
        }
        let mut shown = String::new();
        let mut before = false;
        for (byte, hidden) in text.bytes().zip(hidden) {
            match (hidden, before) {
                (false, _) => shown.push(char::from(byte)),
                (true, false) => shown.push_str("***"),
                (true, true) => {}
            }
            before = hidden;
        }
        shown
    }

    #[test]
    fn values_are_hidden_and_all_else_stays() {
        let mut masks = masks(&["hunter2", "nter2-and-more", "abc"]);
        assert_eq!(masks.feed(b"a hunter2 b"), b"a *** b");
        assert_eq!(
            masks.feed(b"hunter2-and-more abc"),
            b"*** abc",
            "short ones stay"
        );
        assert_eq!(masks.feed(b"hunter"), b"");
        assert_eq!(masks.feed(b"s"), b"hunters");
        assert_eq!(masks.text("export A=hunter2"), "export A=***");
        assert_eq!(masks.feed(b"hunt"), b"");
        assert_eq!(masks.finish(), b"hunt");
        assert_eq!(masks.feed(b"er2"), b"er2", "each stream is for itself");
    }

    #[test]
    fn lines_are_hidden_as_a_terminal_prints_them() {
        let mut masks = masks(&["one\ntwo\n"]);
        assert_eq!(masks.feed(b"<one\r\ntwo\r\n>"), b"<***\r\n>");
        assert_eq!(masks.feed(b"<one\ntwo>"), b"<***>");
    }

    #[test]
    fn a_quiet_stream_does_not_drip() {
        let mut masks = masks(&["hunter2"]);
        let mut shown = Vec::new();
        for byte in b"hunter2!" {
            shown.extend(masks.feed(&[*byte]));
            shown.extend(masks.quiet());
        }
        assert_eq!(shown, b"hun***!");
        masks.feed(b"hu");
        assert!(masks.is_waiting());
        assert_eq!(masks.quiet(), b"hu");
        assert!(!masks.is_waiting());
    }

    proptest! {
        #[test]
        fn r2_104_whatever_the_pieces_no_value_comes_through(
            secrets in prop::collection::vec("[ab]{4,9}", 1..5),
            words in prop::collection::vec("[abc]{0,6}", 0..20),
            inserted in prop::collection::vec((0_usize..5, 0_usize..20), 0..6),
            sizes in prop::collection::vec(1_usize..7, 0..60),
            quiet in any::<bool>(),
        ) {
            let mut words = words;
            for (secret, at) in inserted {
                let at = at.min(words.len());
                words.insert(at, secrets[secret % secrets.len()].clone());
            }
            let text = words.concat();
            let mut masks = Masks::default();
            masks.hide(&values(&secrets));
            let (mut shown, mut rest) = (Vec::new(), text.as_bytes());
            for size in sizes.into_iter().chain([text.len()]) {
                let (now, later) = rest.split_at(size.min(rest.len()));
                shown.extend(masks.feed(now));
                if quiet {
                    shown.extend(masks.quiet());
                }
                rest = later;
            }
            shown.extend(masks.finish());
            let shown = String::from_utf8(shown).unwrap();
            if !quiet {
                prop_assert_eq!(&shown, &expected(&secrets, &text));
            }
            for secret in &secrets {
                prop_assert!(!shown.contains(secret.as_str()), "{} of {}", shown, text);
            }
        }
    }
}
