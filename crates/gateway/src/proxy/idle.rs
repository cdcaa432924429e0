//! Upgraded connections that may be idle while their sandbox is parked.
//!
//! Each use of the connection is a visit. What the client sends, and its end, wakes the sandbox first. The connection
//! between the gateway and the sandbox stays open all the time: see [`RouteTable::open_connection`].

use std::io;
use std::sync::Arc;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use shoal_core::BoxFuture;
use shoal_core::routes::{Lookup, OpenConnection, Route, RouteTable, Visit};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};

use crate::guarded::Held;

/// The bytes that are read at once. Each direction of a connection has such a buffer.
const CHUNK: usize = 8 << 10;

/// How often a sandbox is woken that is parked again at once.
const WAKES: usize = 3;

/// A connection into a sandbox, before it is upgraded.
pub(super) struct IdleConnection {
    uses: Uses,
    _open: OpenConnection,
    over: BoxFuture<'static, ()>,
}

impl IdleConnection {
    /// A connection to the sandbox of `route` that ends with `over`.
    pub(super) fn new(
        routes: Arc<dyn RouteTable>,
        route: Arc<Route>,
        open: OpenConnection,
        over: BoxFuture<'static, ()>,
    ) -> Self {
        let uses = Uses {
            routes,
            route: Mutex::new(route),
        };
        Self {
            uses,
            _open: open,
            over,
        }
    }

    /// Copies both ways until a side closes, the sandbox ends, or its network changes.
    pub(super) async fn copy(self, client: OnUpgrade, sandbox: OnUpgrade, held: Held) {
        let Ok((client, sandbox)) = tokio::try_join!(client, sandbox) else {
            return;
        };
        let (_slot, _stream, visit) = held;
        // The request has been answered.
        drop(visit);
        let (from_client, to_client) = split(TokioIo::new(client));
        let (from_sandbox, to_sandbox) = split(TokioIo::new(sandbox));
        let both = async {
            tokio::try_join!(
                self.uses.send(from_client, to_sandbox),
                self.uses.receive(from_sandbox, to_client)
            )
        };
        tokio::select! {
            // Errors concern only the two ends.
            _ = both => {}
            () = self.over => {}
        }
    }
}

/// The uses of one connection.
struct Uses {
    routes: Arc<dyn RouteTable>,
    /// The sandbox's last known route.
    route: Mutex<Arc<Route>>,
}

impl Uses {
    /// Copies what the client sends. The sandbox is awake whenever something is written to it.
    async fn send(
        &self,
        mut client: impl AsyncRead + Unpin,
        mut sandbox: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = client.read(&mut chunk).await?;
            let _visit = self.wake().await?;
            if read == 0 {
                return sandbox.shutdown().await;
            }
            let sent = chunk.get(..read).unwrap_or_default();
            sandbox.write_all(sent).await?;
            sandbox.flush().await?;
        }
    }

    /// Copies what the sandbox sends, which is awake then.
    async fn receive(
        &self,
        mut sandbox: impl AsyncRead + Unpin,
        mut client: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = sandbox.read(&mut chunk).await?;
            let _visit = self.visit();
            if read == 0 {
                return client.shutdown().await;
            }
            let received = chunk.get(..read).unwrap_or_default();
            client.write_all(received).await?;
            client.flush().await?;
        }
    }

    /// A visit of the running sandbox. `None` if it is parked, or about to be.
    fn visit(&self) -> Option<Visit> {
        let mut known = self.route.lock();
        if let Some(visit) = self.routes.visit(&known) {
            return Some(visit);
        }
        // Somebody else may have woken it.
        let Lookup::Running(now) = self.routes.lookup(&known.sandbox) else {
            return None;
        };
        let is_next = now.execution != known.execution && now.network == known.network;
        if !is_next {
            return None;
        }
        let visit = self.routes.visit(&now);
        *known = now;
        visit
    }

    /// A visit of the sandbox, which is woken for it.
    ///
    /// # Errors
    /// When it cannot be woken, or has another network now: then the connection has ended.
    async fn wake(&self) -> io::Result<Visit> {
        for _ in 0..WAKES {
            if let Some(visit) = self.visit() {
                return Ok(visit);
            }
            let known = self.route.lock().clone();
            let woken = self.routes.wake(&known.sandbox).await;
            let now = woken.map_err(io::Error::other)?;
            if now.network != known.network {
                break;
            }
            *self.route.lock() = now;
        }
        Err(io::ErrorKind::NotConnected.into())
    }
}
