//! `shoal-envd`: the daemon inside every sandbox.
//!
//! Implements the protocol of E2B's envd ([`shoal_protocol`]), so that E2B's SDKs work unchanged.
//! It runs as root, as PID 1 of a sandbox or not, and needs nothing from the image.
//!
//! # Request flow
//!
//! [`server`] accepts a connection. [`router`] checks the token and dispatches to [`rpc`] (which
//! serves [`process`] and [`filesystem`]), [`files`], [`sync`], [`init`], [`metrics`] or [`tunnel`]. In
//! templates with kernels, [`interpreter`] listens on a second port. In a pod of a Kubernetes cluster,
//! [`runtime`] listens on another one.
//! [`settings`] holds the control plane's configuration; [`user`] and [`path`] resolve users and
//! paths.
//!
//! # Threads
//!
//! One thread serves all requests and never blocks on disk. Blocking work runs on tokio's blocking
//! pool, whose threads exit after ten idle seconds. A multi-threaded runtime would use more memory
//! and be no faster: the daemon mostly copies bytes between sockets, pipes and files, and one
//! thread copies more than a GB/s.
//!
//! The daemon has no periodic timers when idle, so an idle sandbox uses memory but no CPU.

mod active_time;
mod activity;
mod auth;
mod caller;
mod clock;
mod config;
mod cors;
mod events;
mod files;
mod filesystem;
mod foreign_file;
mod freezer;
mod handover;
mod hardening;
mod heap;
mod init;
mod interpreter;
mod log;
mod metrics;
mod oom_killer;
mod path;
mod pod;
mod polled;
mod process;
mod procfs;
mod query;
mod random;
mod response;
mod router;
mod rpc;
mod runtime;
mod server;
mod services;
mod settings;
mod sync;
mod tunnel;
mod user;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use shoal_protocol::pass::{DIGEST_VARIABLE, USER_VARIABLE};
use tokio::signal::unix::{Signal, SignalKind, signal};

use activity::ActivityReader;
use caller::Caller;
use config::{Access, Config, Invocation};
use files::Files;
use filesystem::FilesystemService;
use freezer::Freezer;
use init::Init;
use interpreter::Interpreter;
use log::Log;
use metrics::Meter;
use process::{Children, InheritedLimits, ProcessService, Processes};
use router::Routes;
use rpc::Rpc;
use runtime::Runtime;
use services::SharedServices;
use settings::Settings;
use sync::Sync;
use user::Users;

/// Limit of blocking threads. Each upload holds one; all other work uses one only briefly.
const MAX_BLOCKING_THREADS: usize = 256;

/// Stack size of a blocking thread. Call depth is small: archives and trees are walked iteratively.
const BLOCKING_STACK: usize = 512 << 10;

fn main() -> ExitCode {
    let config = match Invocation::parse(std::env::args_os().skip(1)) {
        Ok(Invocation::Run(config)) => config,
        Ok(Invocation::Install(target)) => {
            return exit(pod::install(&target), "cannot install");
        }
        Ok(Invocation::Start { options, next }) => {
            return exit(pod::start(&options, &next), "cannot start");
        }
        Ok(Invocation::Help) => return print_text(config::HELP),
        Ok(Invocation::Version) => {
            return print_text(&format!("shoal-envd {}\n", env!("CARGO_PKG_VERSION")));
        }
        Err(error) => return fail(&error.to_string()),
    };
    match start(*config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn exit(done: io::Result<()>, what: &str) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{what}: {error}")),
    }
}

fn print_text(text: &str) -> ExitCode {
    // A closed pipe means that the reader has enough.
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn fail(text: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "shoal-envd: {text}");
    ExitCode::FAILURE
}

fn start(mut config: Config) -> io::Result<()> {
    let inherited_limits = hardening::harden()?;
    if config.access == Access::StandardInput {
        config.access = Access::Token(handover::token_from_stdin()?);
    }
    if let Access::FirstInit(digest) = &mut config.access {
        *digest = pod::pass_digest(std::env::var_os(DIGEST_VARIABLE))?;
        // The pod's first process reaps nothing that it did not start.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let users = Users::new(&config.system_root);
        let own = users.own_name();
        config.default_user = pod::default_user(std::env::var_os(USER_VARIABLE), own.clone());
        if config.default_user != own && config.default_workdir.is_none() {
            // Commands of root begin there, too, as in E2B's templates.
            let directory = users.directory();
            let user = directory.user(&config.default_user);
            let home = user.map(|user| user.home.clone());
            config.default_workdir = home.filter(|home| std::path::Path::new(home).is_dir());
        }
    }
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_stack_size(BLOCKING_STACK)
        .build()?
        .block_on(run(&config, inherited_limits))
}

/// Serves until SIGTERM or SIGINT.
async fn run(config: &Config, inherited_limits: InheritedLimits) -> io::Result<()> {
    let mut ended_child = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let listener = server::listen(config.bind, config.port)?;
    let port = listener.local_addr()?.port();

    let log = Log::to_stdout(config.log_level);
    let services = SharedServices {
        inherited_limits,
        settings: Arc::new(Settings::new(config)),
        users: Arc::new(Users::new(&config.system_root)),
        children: Arc::default(),
        time: Arc::default(),
        oom_killer: Arc::default(),
        log: log.clone(),
    };
    let routes = Arc::new(routes(config, &services));

    if let Some(address) = config.events {
        let settings = Arc::clone(&services.settings);
        tokio::spawn(events::serve(address, settings, log.clone()));
    }
    if oom_killer::is_needed() {
        let (oom_killer, log) = (Arc::clone(&services.oom_killer), log.clone());
        tokio::spawn(async move {
            if let Err(error) = oom_killer.run(&log).await {
                let entry = log.warn("memory", "memory monitor failed");
                entry.with("error", error.to_string()).send();
            }
        });
    }
    let drain = log.clone();
    tokio::spawn(async move { drain.drain().await });
    log.ready(port);
    if matches!(config.access, Access::FirstInit(_)) {
        pod::announce()?;
    }
    if let Some(port) = config.runtime_port {
        Runtime::serve(server::listen(config.bind, port)?, &services)?;
    }
    routes.interpreter.discover().await;
    tokio::select! {
        () = server::serve(listener, routes, log) => {}
        () = reap(&services.children, &mut ended_child) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Wires the services together.
fn routes(config: &Config, services: &SharedServices) -> Routes {
    let SharedServices {
        settings,
        users,
        time,
        oom_killer,
        log,
        ..
    } = services;
    let caller = Arc::new(Caller::new(Arc::clone(users), Arc::clone(settings)));
    let processes = Processes::new(
        Arc::clone(&services.children),
        Arc::clone(time),
        Arc::clone(oom_killer),
        log.clone(),
    );
    let processes = Arc::new(processes);
    let limits = services.inherited_limits;
    Routes {
        settings: Arc::clone(settings),
        rpc: Rpc::new(
            ProcessService::new(Arc::clone(&caller), Arc::clone(&processes), limits),
            FilesystemService::new(caller, log.clone()),
        ),
        files: Files::new(Arc::clone(settings), Arc::clone(users), log.clone()),
        sync: Sync::new(Arc::clone(settings), Arc::clone(users), log.clone()),
        init: Init::new(
            Arc::clone(settings),
            Arc::clone(time),
            Arc::clone(oom_killer),
            log.clone(),
            config,
        ),
        interpreter: Interpreter::new(config, services.clone()),
        freezer: Freezer::new(Arc::clone(time), log.clone()),
        activity: ActivityReader::new(processes, Arc::clone(&services.children)),
        meter: Arc::new(Meter::default()),
        log: log.clone(),
    }
}

/// Reaps children forever. One SIGCHLD may stand for several.
async fn reap(children: &Children, ended: &mut Signal) {
    loop {
        children.reap();
        ended.recv().await;
    }
}
