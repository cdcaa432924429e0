//! Minimal ZeroMQ client for kernels: ZMTP 3.0 without encryption, one TCP connection per socket,
//! as `DEALER` or `SUB`.
//!
//! Existing libraries are unsuitable, because the peer runs arbitrary user code. They allocate the
//! announced length of a frame before its data arrives: nine bytes from a kernel could end the
//! daemon, and with it the sandbox. They also reconnect forever, to a port that may belong to
//! another process by then. Here a message is kept up to [`MAX_MESSAGE`] and the rest skipped.
//! Nothing is read ahead of the consumer, so TCP throttles a kernel that prints faster than its
//! client reads.

mod decoder;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use self::decoder::Decoder;
use super::budget::{Budget, Reservation};

/// Limit of kept bytes per message.
pub(super) const MAX_MESSAGE: usize = 64 << 20;

/// Read sizes: small while messages are small.
const MIN_READ: usize = 16 << 10;
const MAX_READ: usize = 1 << 20;

/// Frames of this size need budget before they are read.
const LARGE_FRAME: usize = MAX_READ;

/// Greeting of both peers: signature, version, mechanism and server flag.
const GREETING: [u8; 64] = {
    let mut greeting = [0; 64];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[12] = b'N';
    greeting[13] = b'U';
    greeting[14] = b'L';
    greeting[15] = b'L';
    greeting
};

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    /// Closed by the peer.
    #[error("the kernel closed the connection")]
    Closed,
    /// I/O error.
    #[error("connection to the kernel: {0}")]
    Failed(#[from] io::Error),
    /// Protocol violation.
    #[error("not ZeroMQ: {0}")]
    Protocol(&'static str),
}

/// Socket type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Sends requests and receives replies.
    Dealer,
    /// Receives broadcasts.
    Subscriber,
}

/// A message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// Its frames; skipped ones are empty.
    pub(super) frames: Vec<Bytes>,
    /// Number of skipped bytes.
    pub(super) skipped: u64,
    /// Budget for the message and its line, if it is large.
    pub(super) reservation: Reservation,
}

/// A connection.
pub(super) struct Socket<S = TcpStream> {
    stream: S,
    buffer: BytesMut,
    /// Whether the buffer has grown for a large message.
    grown: bool,
    decoder: Decoder,
    /// Source of budget for large messages.
    budget: Option<Budget>,
    /// Pending budget request. Kept across cancellation, so that the place in the queue is not
    /// lost.
    pending: Option<BoxFuture<'static, Reservation>>,
}

impl Socket {
    /// Connects to a loopback port.
    pub(super) async fn connect(port: u16, role: Role) -> Result<Self, ConnectionError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Self::over(stream, role).await
    }

    /// Discards received data, up to about `most` bytes.
    pub(super) fn discard(&mut self, most: usize) -> Result<(), ConnectionError> {
        let mut left = most;
        self.pending = None;
        loop {
            while self.decoder.decode(&mut self.buffer)?.is_some() {}
            self.decoder.skip_frame();
            self.reserve_buffer(MIN_READ);
            match self.stream.try_read_buf(&mut self.buffer) {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(count) => left = left.saturating_sub(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            if left == 0 {
                return Ok(());
            }
        }
    }
}

impl<S> Socket<S> {
    /// Whether a message is partially received or waits for budget.
    pub(super) fn is_partial(&self) -> bool {
        self.decoder.is_partial() || !self.buffer.is_empty()
    }

    fn reserve_buffer(&mut self, reservation: usize) {
        self.shrink_buffer();
        self.buffer.reserve(reservation);
        self.grown |= self.buffer.capacity() > MAX_READ;
    }

    /// Frees the buffer after a large message: it would reuse that memory as soon as the message is
    /// dropped, and keep it.
    fn shrink_buffer(&mut self) {
        if self.grown && self.buffer.is_empty() {
            self.buffer = BytesMut::new();
            self.grown = false;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// Performs the handshake over a connection.
    pub(super) async fn over(mut stream: S, role: Role) -> Result<Self, ConnectionError> {
        stream.write_all(&GREETING).await?;
        let mut theirs = [0; GREETING.len()];
        stream.read_exact(&mut theirs).await?;
        check_greeting(&theirs)?;
        stream.write_all(&ready(role)).await?;
        let mut socket = Self {
            stream,
            buffer: BytesMut::new(),
            grown: false,
            decoder: Decoder::default(),
            budget: None,
            pending: None,
        };
        while !socket.decoder.ready {
            if socket.decoder.decode(&mut socket.buffer)?.is_some() {
                return Err(ConnectionError::Protocol("a message before READY"));
            }
            if !socket.decoder.ready {
                socket.read().await?;
            }
        }
        if role == Role::Subscriber {
            // Subscribe to all topics: a one and an empty prefix.
            socket.send(&[Bytes::from_static(&[1])]).await?;
        }
        Ok(socket)
    }

    /// Sends a message.
    pub(super) async fn send(&mut self, frames: &[Bytes]) -> Result<(), ConnectionError> {
        let mut head = BytesMut::new();
        for (place, frame) in frames.iter().enumerate() {
            let more = if place + 1 < frames.len() { MORE } else { 0 };
            put_length(&mut head, more, frame.len());
            if frame.len() < MIN_READ {
                head.put_slice(frame);
            } else {
                self.stream.write_all(&head).await?;
                head.clear();
                self.stream.write_all(frame).await?;
            }
        }
        self.stream.write_all(&head).await?;
        Ok(())
    }

    /// Requires budget for large messages from now on.
    pub(super) fn set_budget(&mut self, budget: &Budget) {
        self.budget = Some(budget.clone());
    }

    /// Receives the next message, after reserving budget for it. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Message, ConnectionError> {
        loop {
            if let Some(message) = self.decoder.decode(&mut self.buffer)? {
                self.shrink_buffer();
                return Ok(message);
            }
            if let (Some(length), Some(budget)) = (self.decoder.needs_reservation(), &self.budget) {
                if self.decoder.has_reservation() {
                    // Never waits for a second reservation, which could deadlock with another
                    // socket in the same state.
                    self.decoder.skip_frame();
                } else {
                    let pending = self.pending.get_or_insert_with(|| {
                        let budget = budget.clone();
                        // Twice, for the line made of it.
                        async move { budget.reserve(2 * length).await }.boxed()
                    });
                    let reservation = pending.await;
                    self.pending = None;
                    self.decoder.set_reservation(reservation);
                }
            }
            self.read().await?;
        }
    }

    /// Receives the next message but skips large frames, which needs no budget.
    pub(super) async fn next_short(&mut self) -> Result<Message, ConnectionError> {
        self.pending = None;
        loop {
            if let Some(message) = self.decoder.decode(&mut self.buffer)? {
                self.shrink_buffer();
                return Ok(message);
            }
            self.decoder.skip_frame();
            self.read().await?;
        }
    }

    async fn read(&mut self) -> Result<(), ConnectionError> {
        // The announced length is not trusted: the buffer grows with the data received.
        let hoped = self.buffer.len().clamp(MIN_READ, MAX_READ);
        self.reserve_buffer(hoped);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(ConnectionError::Closed),
            _ => Ok(()),
        }
    }
}

fn check_greeting(theirs: &[u8; 64]) -> Result<(), ConnectionError> {
    let [0xff, _, _, _, _, _, _, _, _, signature, version, ..] = theirs else {
        return Err(ConnectionError::Protocol("no signature"));
    };
    if signature & 1 == 0 || *version < 3 {
        return Err(ConnectionError::Protocol("older than version 3"));
    }
    if theirs.get(12..17) != Some(b"NULL\0") {
        return Err(ConnectionError::Protocol("encryption required"));
    }
    Ok(())
}

/// The READY command.
fn ready(role: Role) -> BytesMut {
    let role: &[u8] = match role {
        Role::Dealer => b"DEALER",
        Role::Subscriber => b"SUB",
    };
    let mut body = BytesMut::new();
    body.put_slice(b"\x05READY");
    for (name, value) in [(&b"Socket-Type"[..], role), (b"Identity", b"")] {
        body.put_u8(u8::try_from(name.len()).unwrap_or_default());
        body.put_slice(name);
        body.put_u32(u32::try_from(value.len()).unwrap_or_default());
        body.put_slice(value);
    }
    let mut command = BytesMut::new();
    put_length(&mut command, COMMAND, body.len());
    command.put_slice(&body);
    command
}

fn put_length(into: &mut BytesMut, flags: u8, length: usize) {
    if let Ok(length) = u8::try_from(length) {
        into.put_u8(flags);
        into.put_u8(length);
    } else {
        into.put_u8(flags | LONG);
        into.put_u64(length as u64);
    }
}

#[cfg(test)]
mod tests;
