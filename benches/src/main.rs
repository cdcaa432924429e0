//! Compares Shoal with the bare tools that it is made of, and writes `BENCHMARKS.md`.
//!
//! Starts a release server with its own data directory. Both sides are measured in turns, so that
//! background load affects both. Needs root, as the server does.

mod api;
mod bare;
mod http;
mod kernel;
mod machine;
mod measure;
mod nginx;
mod reason;
mod report;
mod server;
mod stats;
mod template;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lexopt::prelude::*;

use crate::api::Api;
use crate::machine::Machine;
use crate::measure::{
    build, commands, create, crowd, files, gateway, interpreter, kernels, large, pool, rest,
    sessions,
};
use crate::nginx::Nginx;
use crate::report::Report;
use crate::server::Server;

/// The command line.
#[derive(Debug)]
struct Args {
    program: PathBuf,
    data: PathBuf,
    page: PathBuf,
    /// The first of four ports.
    port: u16,
    /// The groups to measure; all when empty.
    only: Vec<String>,
}

const USAGE: &str = "shoal-bench [--program target/release/shoal] [--data target/bench] \
[--page BENCHMARKS.md] [--port 3210] [create|commands|rest|memory|build|interpreter|files|gateway|pool|sessions|crowd …]";

fn main() -> ExitCode {
    let outcome = read().and_then(|args| {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?
            .block_on(measure_all(args))
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shoal-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn read() -> anyhow::Result<Args> {
    let mut args = Args {
        program: "target/release/shoal".into(),
        data: "target/bench".into(),
        page: "BENCHMARKS.md".into(),
        port: 3210,
        only: Vec::new(),
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("program") => args.program = parser.value()?.into(),
            Long("data") => args.data = parser.value()?.into(),
            Long("page") => args.page = parser.value()?.into(),
            Long("port") => args.port = parser.value()?.parse()?,
            Value(group) => args.only.push(group.string()?),
            arg => anyhow::bail!("{}\nusage: {USAGE}", arg.unexpected()),
        }
    }
    anyhow::ensure!(
        nix::unistd::geteuid().is_root(),
        "sandboxes need root: run it with sudo"
    );
    Ok(args)
}

async fn measure_all(args: Args) -> anyhow::Result<()> {
    let machine = Machine::look();
    println!("{machine}");
    let mut server = Server::start(&args.program, &args.data, args.port).await?;
    let mut report = Report::default();
    // The server is stopped even if a measurement fails; the next run removes its leftovers.
    let outcome = measure(&args, &mut server, &mut report).await;
    let stopped = server.stop().await;
    if let (Err(error), Err(_)) = (&outcome, &stopped) {
        eprintln!("shoal-bench: {error:#}");
    }
    stopped.and(outcome)?;
    // A partial run does not replace the page.
    if args.only.is_empty() {
        std::fs::write(&args.page, report.page(&machine))?;
        println!("wrote {}", args.page.display());
    }
    Ok(())
}

async fn measure(args: &Args, server: &mut Server, report: &mut Report) -> anyhow::Result<()> {
    let wants = |group: &str| args.only.is_empty() || args.only.iter().any(|only| only == group);
    let api = Api::of(server)?;
    api.clear().await?;
    let plain = api.create("runsc").await?;
    if wants("create") {
        report.note(create::NOTE);
        create::measure(server, "runsc", 1.3, &plain, 40, report).await?;
        create::measure(server, "runc", 1.5, &plain, 40, report).await?;
    }
    if wants("commands") {
        report.note(commands::NOTE);
        commands::measure(server, "runsc", 0.5, &plain, 200, report).await?;
        commands::measure(server, "runc", 0.7, &plain, 200, report).await?;
    }
    if wants("rest") {
        report.note(rest::NOTE);
        rest::measure(server, &plain, 20, report).await?;
    }
    if wants("memory") {
        report.note(large::NOTE);
        large::measure(server, &plain, 5, report).await?;
    }
    if wants("build") {
        report.note(build::NOTE);
        build::measure(server, &plain, 20, report).await?;
    }
    if wants("interpreter") {
        report.note(interpreter::NOTE);
        interpreter::measure(server, &plain, 15, report).await?;
    }
    api.kill(&plain).await?;
    if wants("files") || wants("gateway") {
        proxied(args, server, report).await?;
    }
    if wants("pool") {
        report.note(pool::NOTE);
        pool::measure(server, report).await?;
        report.note(kernels::NOTE);
        kernels::measure(server, 3, report).await?;
    }
    if wants("sessions") {
        report.note(sessions::NOTE);
        sessions::measure(server, report).await?;
    }
    if wants("crowd") {
        report.note(crowd::NOTE);
        crowd::daemon(server, Path::new(&args.program), report).await?;
        crowd::measure(server, report).await?;
    }
    Ok(())
}

/// The comparisons with nginx.
async fn proxied(args: &Args, server: &Server, report: &mut Report) -> anyhow::Result<()> {
    let wants = |group: &str| args.only.is_empty() || args.only.iter().any(|only| only == group);
    let (files_port, proxy_port) = (args.port + 1, args.port + 2);
    let api = Api::of(server)?;
    report.note(files::NOTE);
    report.note(gateway::NOTE);
    for runtime in ["runsc", "runc"] {
        let sandbox = api.create(runtime).await?;
        let address = server.address(&sandbox.id)?;
        let target = SocketAddr::new(address.into(), shoal_protocol::ENVD_PORT);
        let nginx = Nginx::start(server.data(), files_port, proxy_port, target).await?;
        let mut outcome = Ok(());
        if wants("gateway") {
            outcome = gateway::measure(server, runtime, &sandbox, proxy_port, report).await;
        }
        if wants("files") && outcome.is_ok() {
            outcome = files::measure(server, runtime, files_port, 6, report).await;
        }
        nginx.stop().await?;
        outcome?;
        api.kill(&sandbox).await?;
    }
    Ok(())
}
