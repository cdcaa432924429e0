//! The code interpreter: what E2B's template serves on port 49999, before kernels of Jupyter.
//!
//! # When it is there
//!
//! A template that has kernels says so in a file, [`/etc/shoal/interpreter.json`](offer). It is
//! looked for when the daemon starts and after every `/init`, that is whenever a run of a sandbox
//! begins; a template gets its own with the start that is saved with its memory. Elsewhere the port
//! is free for whoever wants it, and nothing is started. The kernels of [`Offer::start`] are started
//! with the server, so that they are part of that memory; `GET /health` answers once they are.
//!
//! # How code is executed
//!
//! [`routes`] finds the [`context`] that is meant. Its executions take turns; an [`execution`] sets
//! the [`variables`], hands the code to the [`kernel`], and makes [`lines`] of what that says, into
//! a [`feed`] that the client reads. When the client goes, the kernel is interrupted.
//!
//! Kernels run whatever users send, and nothing that they say is trusted: not its length
//! ([`zmtp`]), not its sender ([`wire`]), not its form ([`lines`]). A kernel that ends is started
//! again by the next execution that needs it.
//!
//! Nothing in here wakes up by itself, but for whoever looks after the memory once something was
//! executed: kernels are watched as children, not by heartbeats.

use std::path::PathBuf;
use std::sync::Arc;

use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use tokio::sync::Mutex;

use crate::active_time::ActiveTime;
use crate::config::Config;
use crate::hardening::Original;
use crate::log::Log;
use crate::process::Children;
use crate::server;
use crate::settings::Settings;
use crate::user::Users;
use crate::want::Want;

mod budget;
mod chance;
mod connection_file;
mod context;
mod contexts;
mod environment;
mod execution;
#[cfg(test)]
mod fake;
mod feed;
mod kernel;
mod kernelspec;
mod last_words;
mod lines;
mod offer;
mod routes;
mod telling;
mod variables;
mod wire;
mod zmtp;

use budget::Budget;
use contexts::Contexts;
use kernel::Launcher;
use offer::Offer;
use routes::Routes;

/// The port, as clients have it (spec).
pub(crate) const PORT: u16 = shoal_protocol::INTERPRETER_PORT;

/// Where connection files lie, below the root of the system.
const DIRECTORY: &str = "run/shoal/kernels";

const TIMESTAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");

/// The code interpreter, where there is one.
pub(crate) struct Interpreter {
    root: PathBuf,
    bind: Option<std::net::IpAddr>,
    port: u16,
    parts: Parts,
    /// Its contexts, once it is there.
    serves: Mutex<Option<Arc<Contexts>>>,
}

/// What it shares with the rest of the daemon.
pub(crate) struct Parts {
    /// What the daemon changed for itself.
    pub(crate) original: Original,
    /// What the control plane says.
    pub(crate) settings: Arc<Settings>,
    /// Who there is.
    pub(crate) users: Arc<Users>,
    /// Whose children kernels are.
    pub(crate) children: Arc<Children>,
    /// The time that runs while the sandbox does.
    pub(crate) time: Arc<ActiveTime>,
    /// What looks after the memory.
    pub(crate) want: Arc<Want>,
    /// The log.
    pub(crate) log: Log,
}

impl Interpreter {
    /// One that is not there yet.
    pub(crate) fn new(config: &Config, parts: Parts) -> Self {
        Self {
            root: config.system_root.clone(),
            bind: config.bind,
            port: config.interpreter_port,
            parts,
            serves: Mutex::default(),
        }
    }

    /// Looks whether the sandbox has kernels, and serves them from then on. Those that it has are told
    /// what is new.
    pub(crate) async fn look(&self) {
        let mut serves = self.serves.lock().await;
        if let Some(contexts) = &*serves {
            contexts.refresh();
            return;
        }
        let root = self.root.clone();
        let offer = tokio::task::spawn_blocking(move || offer::read(&root)).await;
        match offer {
            Ok(Ok(Some(offer))) => *serves = self.serve(offer),
            Ok(Ok(None)) | Err(_) => {}
            Ok(Err(error)) => {
                let entry = self
                    .parts
                    .log
                    .warn("interpreter", "interpreter.json makes no sense");
                entry.with("error", error.to_string()).send();
            }
        }
    }

    fn serve(&self, offer: Offer) -> Option<Arc<Contexts>> {
        let listening = server::listen(self.bind, self.port)
            .and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
        let (port, listener) = match listening {
            Ok(listening) => listening,
            Err(error) => {
                let entry = self.parts.log.warn("interpreter", "not listening");
                let entry = entry.with("port", self.port);
                entry.with("error", error.to_string()).send();
                return None;
            }
        };
        let parts = &self.parts;
        let launcher = Launcher {
            children: Arc::clone(&parts.children),
            users: Arc::clone(&parts.users),
            settings: Arc::clone(&parts.settings),
            time: Arc::clone(&parts.time),
            want: Arc::clone(&parts.want),
            output: Budget::default(),
            original: parts.original,
            directory: self.root.join(DIRECTORY),
            user: offer.user.clone(),
        };
        let contexts = Arc::new(Contexts::new(launcher, offer, self.parts.log.clone()));
        let starting = Arc::clone(&contexts);
        tokio::spawn(async move { starting.start().await });
        let routes = Routes::new(
            Arc::clone(&contexts),
            Arc::clone(&self.parts.settings),
            self.parts.log.clone(),
        );
        tokio::spawn(server::serve(
            listener,
            Arc::new(routes),
            self.parts.log.clone(),
        ));
        let entry = self.parts.log.info("interpreter", "listening");
        entry.with("port", port).send();
        Some(contexts)
    }
}

/// The time, for what is printed and for what kernels are sent.
fn now() -> String {
    // The format has no part that can fail.
    let now = OffsetDateTime::now_utc();
    now.format(TIMESTAMP).unwrap_or_default()
}
