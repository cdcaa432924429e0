//! Finds the marks of typed lines in the output of a terminal.

use super::typed::Mark;

/// The beginning of every mark.
const BEGIN: &[u8] = b"\x1b]133;";
/// The end of every mark.
const END: u8 = 7;
/// The longest mark: letter, id and number.
const LENGTH_MAX: usize = 64;

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Output of programs, and the echo of typed text.
    Bytes(Vec<u8>),
    /// A mark, with its id and number.
    Mark(Mark, String, i64),
}

/// Splits output into marks and everything else. A mark may be in pieces.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// The beginning of what may become a mark.
    held: Vec<u8>,
}

impl Marks {
    /// Takes the next bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<Piece> {
        self.held.extend_from_slice(bytes);
        let mut pieces = Vec::new();
        loop {
            let at = begins(&self.held).unwrap_or(self.held.len());
            if at > 0 {
                pieces.push(Piece::Bytes(self.held.drain(..at).collect()));
            }
            if self.held.is_empty() {
                return joined(pieces);
            }
            let end = self.held.iter().position(|b| *b == END);
            match end.map(|end| (end, mark(&self.held[..end]))) {
                Some((end, Some(mark))) => {
                    self.held.drain(..=end);
                    pieces.push(mark);
                }
                None if self.held.len() < LENGTH_MAX => return joined(pieces),
                // Something else that begins in the same way.
                _ => pieces.push(Piece::Bytes(self.held.drain(..1).collect())),
            }
        }
    }

    /// The bytes that are held back at the end of the output.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

/// Where a mark, or the beginning of one, begins.
fn begins(bytes: &[u8]) -> Option<usize> {
    (0..bytes.len()).find(|at| {
        let here = &bytes[*at..];
        let length = here.len().min(BEGIN.len());
        here[..length] == BEGIN[..length]
    })
}

fn mark(bytes: &[u8]) -> Option<Piece> {
    let text = std::str::from_utf8(bytes.strip_prefix(BEGIN)?).ok()?;
    let mut parts = text.split(';');
    let letter = parts.next()?;
    let kind = Mark::ALL
        .into_iter()
        .find(|mark| letter.as_bytes() == [mark.letter()])?;
    let (id, number) = (parts.next()?, parts.next()?.parse().ok()?);
    parts
        .next()
        .is_none()
        .then(|| Piece::Mark(kind, id.to_owned(), number))
}

/// The same with neighbouring bytes in one piece.
fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (all.last_mut(), piece) {
            (Some(Piece::Bytes(before)), Piece::Bytes(bytes)) => before.extend(bytes),
            (_, piece) => all.push(piece),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(text: &str) -> Piece {
        Piece::Bytes(text.as_bytes().to_vec())
    }

    const OUTPUT: &str = "a\x1b]133;C;x;0\x07out\x1b]133;A\x07\x1b[0m\x1b]133;D;x;-1\x07b\x1b]13";

    #[test]
    fn marks_are_found_and_the_rest_stays() {
        let mut marks = Marks::default();
        let found = marks.feed(OUTPUT.as_bytes());
        let expected = [
            bytes("a"),
            Piece::Mark(Mark::Begin, "x".to_owned(), 0),
            bytes("out\x1b]133;A\x07\x1b[0m"),
            Piece::Mark(Mark::End, "x".to_owned(), -1),
            bytes("b"),
        ];
        assert_eq!(found, expected);
        assert_eq!(marks.rest(), b"\x1b]13");
    }

    #[test]
    fn what_never_ends_is_no_mark() {
        let mut marks = Marks::default();
        let long = format!("\x1b]133;C;{}", "x".repeat(200));
        let mut found: Vec<u8> = Vec::new();
        for piece in marks.feed(long.as_bytes()) {
            let Piece::Bytes(more) = piece else {
                panic!("a mark");
            };
            found.extend(more);
        }
        found.extend(marks.rest());
        assert_eq!(found, long.as_bytes());
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_are_the_same(sizes in prop::collection::vec(1_usize..9, 1..80)) {
            let mut marks = Marks::default();
            let (mut all, mut rest) = (Vec::new(), OUTPUT.as_bytes());
            for size in sizes.into_iter().chain([OUTPUT.len()]) {
                let (now, later) = rest.split_at(size.min(rest.len()));
                all.extend(marks.feed(now));
                rest = later;
            }
            all.push(Piece::Bytes(marks.rest()));
            let whole = Marks::default().feed(OUTPUT.as_bytes());
            let mut whole_and_rest = whole;
            whole_and_rest.push(bytes("\x1b]13"));
            prop_assert_eq!(joined(all), joined(whole_and_rest));
        }
    }
}
