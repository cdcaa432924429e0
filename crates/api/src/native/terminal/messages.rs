//! The messages on a terminal's WebSocket: JSON objects as in Agent-Sandbox.

use serde::{Deserialize, Serialize};
use shoal_core::ports::inside::TerminalSize;

/// The default size of a terminal.
const SIZE: TerminalSize = TerminalSize { cols: 80, rows: 24 };

/// The maximum number of columns or rows.
const SIDE_MAX: u16 = 4096;

/// A message of the client.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum ClientMessage {
    /// Start the shell. The first message.
    Init {
        cols: Option<u16>,
        rows: Option<u16>,
    },
    /// The window was resized.
    Resize { cols: u16, rows: u16 },
    /// Keyboard input.
    Input { data: String },
    /// Close the terminal.
    Close,
}

/// A message of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum ServerMessage {
    /// The shell runs.
    Ready,
    /// Output of the shell.
    Output { data: String },
    /// An error.
    Error { error: String },
    /// The shell exited.
    Exit { code: i32 },
    /// The last message.
    Closed,
}

/// The size of the terminal, clamped to the valid range.
pub(super) fn size(cols: Option<u16>, rows: Option<u16>) -> TerminalSize {
    let side = |asked: Option<u16>, usual| asked.unwrap_or(usual).clamp(1, SIDE_MAX);
    TerminalSize {
        cols: side(cols, SIZE.cols),
        rows: side(rows, SIZE.rows),
    }
}

/// Decodes bytes as text, with characters that are split between chunks.
#[derive(Debug, Default)]
pub(in crate::native) struct Decoder {
    begun: Vec<u8>,
}

impl Decoder {
    /// Decodes a chunk; an incomplete character is kept for the next one.
    pub(in crate::native) fn decode(&mut self, bytes: &[u8]) -> String {
        self.begun.extend_from_slice(bytes);
        let whole = self.begun.len() - begun_character(&self.begun);
        let rest = self.begun.split_off(whole);
        let text = String::from_utf8_lossy(&self.begun).into_owned();
        self.begun = rest;
        text
    }
}

/// How many bytes at the end belong to an incomplete character.
fn begun_character(bytes: &[u8]) -> usize {
    let last = bytes.iter().rev().take(3).enumerate();
    for (behind, byte) in last {
        let length = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            // A continuation byte.
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if behind + 1 < length { behind + 1 } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_are_read_and_written_as_the_field_has_them() {
        let said = |text| serde_json::from_str::<ClientMessage>(text);
        assert_eq!(
            said(r#"{"type":"init","cols":100}"#).unwrap(),
            ClientMessage::Init {
                cols: Some(100),
                rows: None
            }
        );
        assert_eq!(said(r#"{"type":"close"}"#).unwrap(), ClientMessage::Close);
        for bad in [
            "",
            "[]",
            r#"{"type":"root"}"#,
            r#"{"type":"resize","cols":-1,"rows":1}"#,
        ] {
            assert!(said(bad).is_err(), "{bad}");
        }
        let message = serde_json::to_string(&ServerMessage::Exit { code: 1 }).unwrap();
        assert_eq!(message, r#"{"type":"exit","code":1}"#);
    }

    #[test]
    fn a_terminal_has_a_size() {
        assert_eq!(size(None, None), SIZE);
        let small = TerminalSize {
            cols: 1,
            rows: 4096,
        };
        assert_eq!(size(Some(0), Some(u16::MAX)), small);
    }

    proptest! {
        #[test]
        fn text_in_pieces_is_the_same_text(text in ".{0,40}", cut in 0..80usize) {
            let bytes = text.as_bytes();
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            let mut decoder = Decoder::default();
            let whole = decoder.decode(first) + &decoder.decode(second);
            prop_assert_eq!(whole, text);
        }

        #[test]
        fn no_bytes_are_kept_for_ever(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut decoder = Decoder::default();
            decoder.decode(&bytes);
            prop_assert!(decoder.begun.len() < 4);
        }
    }
}
