//! Incremental decoder of ZMTP messages with limits.

use bytes::{Buf, Bytes, BytesMut};

use super::{Broken, COMMAND, LARGE, LONG, MAX_MESSAGE, MORE, Message};
use crate::interpreter::budget::Room;

/// Limit of frames per message. Jupyter's have six, plus one for each widget buffer.
pub(super) const MAX_FRAMES: usize = 1024;

/// Longest command. Legitimate ones have a few hundred bytes.
const MAX_COMMAND: usize = 64 << 10;

/// Longest frame that is skipped. A longer one is treated as endless.
const MAX_SKIPPED: u64 = 4 << 30;

/// Expected next bytes.
#[derive(Debug, Clone, Copy)]
enum Next {
    Length,
    Command { length: usize },
    Frame { length: usize, more: bool },
    Skipped { left: u64, more: bool },
}

/// The decoder.
pub(super) struct Decoder {
    next: Next,
    /// Whether the peer has sent READY.
    pub(super) ready: bool,
    message: Message,
    kept: usize,
    pub(super) limit: usize,
    /// Whether budget for the current frame is reserved.
    has_room: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            next: Next::Length,
            ready: false,
            message: Message::default(),
            kept: 0,
            limit: MAX_MESSAGE,
            has_room: false,
        }
    }
}

impl Decoder {
    /// Decodes the next message, or as much of it as has arrived.
    pub(super) fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Message>, Broken> {
        loop {
            match self.next {
                Next::Length => {
                    let Some((flags, length)) = take_length(bytes) else {
                        return Ok(None);
                    };
                    self.next = self.begin(flags, length)?;
                }
                Next::Command { length } => {
                    if bytes.len() < length {
                        return Ok(None);
                    }
                    let command = bytes.split_to(length);
                    let was_ready = self.ready;
                    self.ready |= command.starts_with(b"\x05READY");
                    if command.starts_with(b"\x05ERROR") {
                        return Err(Broken::Foreign("connection refused by peer"));
                    }
                    self.next = Next::Length;
                    if !self.ready {
                        return Err(Broken::Foreign("a command before READY"));
                    }
                    // Later messages are for the next call.
                    if !was_ready {
                        return Ok(None);
                    }
                }
                Next::Frame { length, more } => {
                    if bytes.len() < length {
                        return Ok(None);
                    }
                    self.kept += length;
                    let frame = bytes.split_to(length).freeze();
                    if let Some(message) = self.end(frame, more) {
                        return Ok(Some(message));
                    }
                }
                Next::Skipped { left, more } => {
                    let here = left.min(bytes.len() as u64);
                    bytes.advance(usize::try_from(here).unwrap_or_default());
                    if here < left {
                        let left = left - here;
                        self.next = Next::Skipped { left, more };
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
    pub(super) fn roomless(&self) -> Option<usize> {
        match self.next {
            Next::Frame { length, .. } if !self.has_room => {
                Some(self.kept + length).filter(|length| *length > LARGE)
            }
            _ => None,
        }
    }

    /// Whether a message or frame header is partially decoded.
    pub(super) fn is_midway(&self) -> bool {
        !matches!(self.next, Next::Length) || !self.message.frames.is_empty()
    }

    /// Whether an earlier frame of the message has a reservation.
    pub(super) fn holds_room(&self) -> bool {
        !self.message.room.is_none()
    }

    /// Attaches budget for the message up to the current frame.
    pub(super) fn give_room(&mut self, room: Room) {
        self.message.room = room;
        self.has_room = true;
    }

    /// Skips the current frame, if the message is large with it.
    pub(super) fn pass_over(&mut self) {
        if let Next::Frame { length, more } = self.next
            && self.kept + length > LARGE
        {
            let left = length as u64;
            self.message.skipped = self.message.skipped.saturating_add(left);
            self.next = Next::Skipped { left, more };
        }
    }

    fn begin(&mut self, flags: u8, length: u64) -> Result<Next, Broken> {
        let short = usize::try_from(length).ok();
        if flags & COMMAND != 0 {
            let short = short.filter(|length| *length <= MAX_COMMAND);
            let length = short.ok_or(Broken::Foreign("command too long"))?;
            return Ok(Next::Command { length });
        }
        if self.message.frames.len() == MAX_FRAMES {
            return Err(Broken::Foreign("too many frames in a message"));
        }
        let more = flags & MORE != 0;
        match short.filter(|length| *length <= self.limit - self.kept) {
            Some(length) => Ok(Next::Frame { length, more }),
            None if length > MAX_SKIPPED => Err(Broken::Foreign("frame too long")),
            None => {
                self.message.skipped = self.message.skipped.saturating_add(length);
                Ok(Next::Skipped { left: length, more })
            }
        }
    }

    fn end(&mut self, frame: Bytes, more: bool) -> Option<Message> {
        self.next = Next::Length;
        self.has_room = false;
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
