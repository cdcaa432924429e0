//! The daemon as its clients meet it: the built program, on a port of its own, with users and system
//! files of its own. It needs root, as the daemon does; without, each test says so and passes.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod daemon;
mod events;
mod files;
mod filesystem;
mod hostile;
mod http;
mod init;
mod interpreter;
mod processes;
mod routes;
mod wire;
