//! The code interpreter: E2B's service on port 49999, backed by Jupyter kernels.
//!
//! # Discovery
//!
//! A template with kernels has a file [`/etc/shoal/interpreter.json`](offer). The daemon looks for
//! it at its start and after every `/init`, that is, whenever a sandbox starts or resumes. A
//! template's own start, whose memory is saved, includes it. Without the file the port stays free
//! and nothing is started. The kernels of [`InterpreterConfig::start`] start with the server and so are part of
//! the saved memory; `GET /health` answers once they run.
//!
//! # Execution
//!
//! [`routes`] finds the [`context`]. Executions of a context run one after another. An
//! [`execution`] sets the [`variables`], sends the code to the [`kernel`], and converts its
//! messages to [`lines`] in a [`output_channel`] that the client reads. When the client disconnects, the
//! kernel is interrupted.
//!
//! Kernels run arbitrary user code, so nothing in their messages is trusted: not the length
//! ([`zmtp`]), the sender ([`wire`]) or the format ([`lines`]). A kernel that exits is restarted by
//! the next execution.
//!
//! There are no periodic timers, except for the memory monitor after the first execution: kernels
//! are watched as child processes, not by heartbeats.

use std::path::PathBuf;
use std::sync::Arc;

use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use tokio::sync::Mutex;

use crate::config::Config;
use crate::server;
use crate::services::SharedServices;

mod budget;
mod config;
mod connection_file;
mod context;
mod contexts;
mod environment;
mod execution;
mod kernel;
mod kernelspec;
mod lines;
mod output_channel;
mod output_tail;
mod reseed;
mod response_stream;
mod routes;
#[cfg(test)]
mod tests;
mod variables;
mod wire;
mod zmtp;

use budget::Budget;
use config::InterpreterConfig;
use contexts::Contexts;
use kernel::Launcher;
use routes::Routes;

/// Directory of connection files, relative to the system root.
const CONNECTION_DIRECTORY: &str = "run/shoal/kernels";

const TIMESTAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");

/// The code interpreter, if the template has one.
pub(crate) struct Interpreter {
    root: PathBuf,
    bind: Option<std::net::IpAddr>,
    port: u16,
    parts: SharedServices,
    /// Its contexts, once it runs.
    contexts: Mutex<Option<Arc<Contexts>>>,
}

impl Interpreter {
    /// An interpreter that does not serve yet.
    pub(crate) fn new(config: &Config, parts: SharedServices) -> Self {
        Self {
            root: config.system_root.clone(),
            bind: config.bind,
            port: config.interpreter_port,
            parts,
            contexts: Mutex::default(),
        }
    }

    /// Starts the interpreter if the sandbox has kernels. If it runs already, idle kernels receive
    /// changed settings.
    pub(crate) async fn discover(&self) {
        let mut contexts = self.contexts.lock().await;
        if let Some(contexts) = &*contexts {
            contexts.refresh();
            return;
        }
        let root = self.root.clone();
        let config = tokio::task::spawn_blocking(move || config::read(&root)).await;
        match config {
            Ok(Ok(Some(config))) => *contexts = self.serve(config),
            Ok(Ok(None)) | Err(_) => {}
            Ok(Err(error)) => {
                let entry = self
                    .parts
                    .log
                    .warn("interpreter", "invalid interpreter.json");
                entry.with("error", error.to_string()).send();
            }
        }
    }

    fn serve(&self, config: InterpreterConfig) -> Option<Arc<Contexts>> {
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
            oom_killer: Arc::clone(&parts.oom_killer),
            output: Budget::default(),
            inherited_limits: parts.inherited_limits,
            directory: self.root.join(CONNECTION_DIRECTORY),
            user: config.user.clone(),
        };
        let contexts = Arc::new(Contexts::new(launcher, config, self.parts.log.clone()));
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

/// The current time, for output lines and requests to kernels.
fn now() -> String {
    // The format has no fallible component.
    let now = OffsetDateTime::now_utc();
    now.format(TIMESTAMP).unwrap_or_default()
}
