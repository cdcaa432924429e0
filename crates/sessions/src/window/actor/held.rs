//! Input that waits until the shell has read its variables.

use bytes::{Bytes, BytesMut};

/// The most input that waits, in bytes: more than a person pastes.
const HELD_MAX: usize = 64 << 10;

/// The input, in the order in which it arrived.
#[derive(Debug, Default)]
pub(super) struct HeldInput(BytesMut);

impl HeldInput {
    /// Adds `input` up to the limit, and drops the rest: input is never reordered.
    pub(super) fn hold(&mut self, input: &[u8]) {
        let room = HELD_MAX - self.0.len();
        self.0.extend_from_slice(&input[..input.len().min(room)]);
    }

    /// All of it, if there is any. None of it is held afterwards.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        let held = std::mem::take(&mut self.0);
        (!held.is_empty()).then(|| held.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_stays_in_order_and_within_the_limit() {
        let mut held = HeldInput::default();
        assert_eq!(held.take(), None);
        held.hold(b"first ");
        held.hold(&[b'x'; HELD_MAX]);
        held.hold(b"last");
        let all = held.take().unwrap();
        assert_eq!(all.len(), HELD_MAX);
        assert!(all.starts_with(b"first x") && all.ends_with(b"x"));
        assert_eq!(held.take(), None);
    }
}
