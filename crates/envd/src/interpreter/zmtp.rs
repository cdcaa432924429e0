//! The part of ZeroMQ that a client of kernels needs: ZMTP 3.0 without encryption, over one TCP
//! connection a socket, as `DEALER` or `SUB`.
//!
//! It is our own because the other end runs whatever code users send. The libraries make room for
//! as many bytes as a frame says it has, before they arrive: nine bytes from a kernel would end the
//! daemon, and the sandbox with it. They also connect again by themselves, for ever, to a port that
//! may be somebody else's by then. Here a message is read up to [`MAX_MESSAGE`], the rest of it is
//! passed over without being kept, and nothing is read that nobody waits for: a kernel that prints
//! faster than its client reads is held up by TCP.

mod decoder;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use self::decoder::Decoder;
use super::budget::{Budget, Room};

/// The most bytes of a message that are kept.
pub(super) const MAX_MESSAGE: usize = 64 << 20;

/// How much is read at a time: little as long as messages are small.
const LEAST_READ: usize = 16 << 10;
const MOST_READ: usize = 1 << 20;

/// From what length on there has to be room for a frame before it is read.
const LARGE: usize = MOST_READ;

/// What both ends send first: a signature, the version, the mechanism, and whether they are a server.
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

/// Why nothing more comes from a socket.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The other end closed it.
    #[error("the kernel closed the connection")]
    Closed,
    /// The system failed.
    #[error("connection to the kernel: {0}")]
    Failed(#[from] io::Error),
    /// The other end does not speak ZeroMQ as it should.
    #[error("not ZeroMQ: {0}")]
    Foreign(&'static str),
}

/// What a socket is to the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Asks and is answered.
    Dealer,
    /// Hears everything.
    Subscriber,
}

/// A message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// Its frames. Those that were passed over are empty.
    pub(super) frames: Vec<Bytes>,
    /// How many bytes were passed over.
    pub(super) skipped: u64,
    /// The room that it takes, and what is made of it, if it is large.
    pub(super) room: Room,
}

/// One end of a connection.
pub(super) struct Socket<S = TcpStream> {
    stream: S,
    buffer: BytesMut,
    /// Whether the buffer has had room for a large message.
    grown: bool,
    decoder: Decoder,
    /// Where room for large messages comes from.
    budget: Option<Budget>,
    /// The room that is waited for: whoever stops waiting and goes on later keeps his place.
    coming: Option<BoxFuture<'static, Room>>,
}

impl Socket {
    /// Connects to a port of this machine.
    pub(super) async fn connect(port: u16, role: Role) -> Result<Self, Broken> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Self::over(stream, role).await
    }

    /// Passes over what has come already, as far as `most` bytes.
    pub(super) fn discard(&mut self, most: usize) -> Result<(), Broken> {
        let mut left = most;
        self.coming = None;
        loop {
            while self.decoder.decode(&mut self.buffer)?.is_some() {}
            self.decoder.pass_over();
            self.make_room(LEAST_READ);
            match self.stream.try_read_buf(&mut self.buffer) {
                Ok(0) => return Err(Broken::Closed),
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
    /// Whether a part of a message has come, and the rest has not, or has no room yet.
    pub(super) fn is_midway(&self) -> bool {
        self.decoder.is_midway() || !self.buffer.is_empty()
    }

    fn make_room(&mut self, room: usize) {
        self.give_back();
        self.buffer.reserve(room);
        self.grown |= self.buffer.capacity() > MOST_READ;
    }

    /// Gives back the room of a large message once it has been taken out: the buffer would have it
    /// again as soon as the message is dropped, and keep it.
    fn give_back(&mut self) {
        if self.grown && self.buffer.is_empty() {
            self.buffer = BytesMut::new();
            self.grown = false;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// Says hello over a connection.
    pub(super) async fn over(mut stream: S, role: Role) -> Result<Self, Broken> {
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
            coming: None,
        };
        while !socket.decoder.ready {
            if socket.decoder.decode(&mut socket.buffer)?.is_some() {
                return Err(Broken::Foreign("a message before READY"));
            }
            if !socket.decoder.ready {
                socket.read().await?;
            }
        }
        if role == Role::Subscriber {
            // To everything: a one, and no beginning that topics must have.
            socket.send(&[Bytes::from_static(&[1])]).await?;
        }
        Ok(socket)
    }

    /// Sends a message.
    pub(super) async fn send(&mut self, frames: &[Bytes]) -> Result<(), Broken> {
        let mut head = BytesMut::new();
        for (place, frame) in frames.iter().enumerate() {
            let more = if place + 1 < frames.len() { MORE } else { 0 };
            put_length(&mut head, more, frame.len());
            if frame.len() < LEAST_READ {
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

    /// Takes room for large messages from a budget from now on.
    pub(super) fn within(&mut self, budget: &Budget) {
        self.budget = Some(budget.clone());
    }

    /// Waits for the next message, and for room for it. Whoever stops waiting loses nothing.
    pub(super) async fn next(&mut self) -> Result<Message, Broken> {
        loop {
            if let Some(message) = self.decoder.decode(&mut self.buffer)? {
                self.give_back();
                return Ok(message);
            }
            if let (Some(length), Some(budget)) = (self.decoder.roomless(), &self.budget) {
                if self.decoder.holds_room() {
                    // Who has room does not wait for more: it may be that of two who do.
                    self.decoder.pass_over();
                } else {
                    let coming = self.coming.get_or_insert_with(|| {
                        let budget = budget.clone();
                        // And for the line that it becomes.
                        async move { budget.room(2 * length).await }.boxed()
                    });
                    let room = coming.await;
                    self.coming = None;
                    self.decoder.give_room(room);
                }
            }
            self.read().await?;
        }
    }

    /// Waits for the next message, of which large frames are passed over: that needs no room.
    pub(super) async fn next_short(&mut self) -> Result<Message, Broken> {
        self.coming = None;
        loop {
            if let Some(message) = self.decoder.decode(&mut self.buffer)? {
                self.give_back();
                return Ok(message);
            }
            self.decoder.pass_over();
            self.read().await?;
        }
    }

    async fn read(&mut self) -> Result<(), Broken> {
        // Never as much as the other end says will come: only as what has come lets hope for.
        let hoped = self.buffer.len().clamp(LEAST_READ, MOST_READ);
        self.make_room(hoped);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(Broken::Closed),
            _ => Ok(()),
        }
    }
}

fn check_greeting(theirs: &[u8; 64]) -> Result<(), Broken> {
    let [0xff, _, _, _, _, _, _, _, _, signature, version, ..] = theirs else {
        return Err(Broken::Foreign("no signature"));
    };
    if signature & 1 == 0 || *version < 3 {
        return Err(Broken::Foreign("older than version 3"));
    }
    if theirs.get(12..17) != Some(b"NULL\0") {
        return Err(Broken::Foreign("it wants encryption"));
    }
    Ok(())
}

/// The command that says what we are.
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
