//! Incremental decoder of ZMTP messages with limits.

use bytes::{Buf, Bytes, BytesMut};

use super::{COMMAND, ConnectionError, LARGE_FRAME, LONG, MAX_MESSAGE, MORE, Message};
use crate::interpreter::budget::Reservation;

/// Limit of frames per message. Jupyter's have six, plus one for each widget buffer.
pub(super) const MAX_FRAMES: usize = 1024;

/// Longest command. Legitimate ones have a few hundred bytes.
const MAX_COMMAND: usize = 64 << 10;

/// Longest frame that is skipped. A longer one is treated as endless.
const MAX_SKIPPED: u64 = 4 << 30;

/// Expected next bytes.
#[derive(Debug, Clone, Copy)]
enum DecodeState {
    Length,
    Command { length: usize },
    Frame { length: usize, more: bool },
    Skipped { left: u64, more: bool },
}

/// The decoder.
pub(super) struct Decoder {
    next: DecodeState,
    /// Whether the peer has sent READY.
    pub(super) ready: bool,
    message: Message,
    kept: usize,
    pub(super) limit: usize,
    /// Whether budget for the current frame is reserved.
    is_reserved: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            next: DecodeState::Length,
            ready: false,
            message: Message::default(),
            kept: 0,
            limit: MAX_MESSAGE,
            is_reserved: false,
        }
    }
}

impl Decoder {
    /// Decodes the next message, or as much of it as has arrived.
    pub(super) fn decode(
        &mut self,
        bytes: &mut BytesMut,
    ) -> Result<Option<Message>, ConnectionError> {
        loop {
            match self.next {
                DecodeState::Length => {
                    let Some((flags, length)) = take_length(bytes) else {
                        return Ok(None);
                    };
                    self.next = self.begin(flags, length)?;
                }
                DecodeState::Command { length } => {
                    if bytes.len() < length {
                        return Ok(None);
                    }
                    let command = bytes.split_to(length);
                    let was_ready = self.ready;
                    self.ready |= command.starts_with(b"\x05READY");
                    if command.starts_with(b"\x05ERROR") {
                        return Err(ConnectionError::Protocol("connection refused by peer"));
                    }
                    self.next = DecodeState::Length;
                    if !self.ready {
                        return Err(ConnectionError::Protocol("a command before READY"));
                    }
                    // Later messages are for the next call.
                    if !was_ready {
                        return Ok(None);
                    }
                }
                DecodeState::Frame { length, more } => {
                    if bytes.len() < length {
                        return Ok(None);
                    }
                    self.kept += length;
                    let frame = bytes.split_to(length).freeze();
                    if let Some(message) = self.end(frame, more) {
                        return Ok(Some(message));
                    }
                }
                DecodeState::Skipped { left, more } => {
                    let here = left.min(bytes.len() as u64);
                    bytes.advance(usize::try_from(here).unwrap_or_default());
                    if here < left {
                        let left = left - here;
                        self.next = DecodeState::Skipped { left, more };
                        return Ok(None);
                    }
                    if let Some(message) = self.end(Bytes::new(), more) {
                        return Ok(Some(message));
                    }
                }
            }
        }
    }

    /// Length of the message including the current frame, if that is large and has no budget yet.
    pub(super) fn needs_reservation(&self) -> Option<usize> {
        match self.next {
            DecodeState::Frame { length, .. } if !self.is_reserved => {
                Some(self.kept + length).filter(|length| *length > LARGE_FRAME)
            }
            _ => None,
        }
    }

    /// Whether a message or frame header is partially decoded.
    pub(super) fn is_partial(&self) -> bool {
        !matches!(self.next, DecodeState::Length) || !self.message.frames.is_empty()
    }

    /// Whether an earlier frame of the message has a reservation.
    pub(super) fn has_reservation(&self) -> bool {
        !self.message.reservation.is_none()
    }

    /// Attaches budget for the message up to the current frame.
    pub(super) fn set_reservation(&mut self, reservation: Reservation) {
        self.message.reservation = reservation;
        self.is_reserved = true;
    }

    /// Skips the current frame, if the message is large with it.
    pub(super) fn skip_frame(&mut self) {
        if let DecodeState::Frame { length, more } = self.next
            && self.kept + length > LARGE_FRAME
        {
            let left = length as u64;
            self.message.skipped = self.message.skipped.saturating_add(left);
            self.next = DecodeState::Skipped { left, more };
        }
    }

    fn begin(&mut self, flags: u8, length: u64) -> Result<DecodeState, ConnectionError> {
        let short = usize::try_from(length).ok();
        if flags & COMMAND != 0 {
            let short = short.filter(|length| *length <= MAX_COMMAND);
            let length = short.ok_or(ConnectionError::Protocol("command too long"))?;
            return Ok(DecodeState::Command { length });
        }
        if self.message.frames.len() == MAX_FRAMES {
            return Err(ConnectionError::Protocol("too many frames in a message"));
        }
        let more = flags & MORE != 0;
        match short.filter(|length| *length <= self.limit - self.kept) {
            Some(length) => Ok(DecodeState::Frame { length, more }),
            None if length > MAX_SKIPPED => Err(ConnectionError::Protocol("frame too long")),
            None => {
                self.message.skipped = self.message.skipped.saturating_add(length);
                Ok(DecodeState::Skipped { left: length, more })
            }
        }
    }

    fn end(&mut self, frame: Bytes, more: bool) -> Option<Message> {
        self.next = DecodeState::Length;
        self.is_reserved = false;
        self.message.frames.push(frame);
        if more {
            return None;
        }
        self.kept = 0;
        Some(std::mem::take(&mut self.message))
    }
}

/// Flags and length of the next frame, if complete.
fn take_length(bytes: &mut BytesMut) -> Option<(u8, u64)> {
    let flags = *bytes.first()?;
    if flags & LONG == 0 {
        let length = *bytes.get(1)?;
        bytes.advance(2);
        return Some((flags, length.into()));
    }
    let length = bytes.get(1..9)?;
    let length = length.try_into().map(u64::from_be_bytes).ok()?;
    bytes.advance(9);
    Some((flags, length))
}
