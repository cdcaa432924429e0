//! Integration tests of the daemon: the built binary on its own port, with its own users and system
//! files. They need root; without it each test reports that and passes.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::too_many_lines, reason = "a scenario reads from top to bottom")]

mod daemon;
mod events;
mod files;
mod filesystem;
mod hostile;
mod http;
mod init;
mod interpreter;
mod pod;
mod processes;
mod routes;
mod runtime;
mod sandbox_client;
mod sync;
mod wire;
