//! The program `shoal`.

mod announce;
mod api;
mod api_key;
mod app;
mod audit;
mod builtin;
mod cluster;
mod config;
mod crds;
mod descriptors;
mod doctor;
mod export_key;
mod in_cluster;
mod listen;
mod memory;
mod node;
mod operator;
mod prepare_node;
mod privilege;
mod progress;
#[cfg(test)]
mod reference;
mod router;
mod sealing_key;
mod session_contents;
mod sessions;
mod stop;
mod telemetry;
mod templates_file;
mod tls;
mod trace_context;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use nix::sys::stat::{Mode, umask};
use shoal_cli::{ClientCommand, CompletionsArgs, EXIT_CODES, ManArgs, USAGE as BAD_USAGE};

use crate::config::{BackendSettings, Config, Sources};

/// Sandboxes for AI agents, on one machine.
///
/// Commands of `shoal sandbox` work without `sandbox` too: shoal create, shoal exec, shoal ps.
#[derive(Debug, Parser)]
#[command(name = "shoal", version, disable_help_subcommand = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

/// How long a stop waits for blocking work, after requests and tasks had their time to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Printed when no command is given.
const WELCOME: &str = "\
Shoal gives every AI agent a sandbox of its own, on this machine.

  sudo shoal serve                       start the server; prints the variables for an SDK
  shoal sandbox create                   create a sandbox; prints its id
  shoal sandbox exec ID -- uname -a      run a command in it
  shoal sandbox shell ID                 open a shell in it
  shoal sandbox cp FILE ID:/tmp/         copy into it or out of it
  shoal sandbox ls                       list running sandboxes
  shoal sandbox kill ID                  kill it

`sandbox` may be left out: shoal create, shoal exec, shoal ps.

More: shoal --help, and --help after every command.
";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API and the gateway, with sandboxes on this machine or in a cluster.
    Serve(ServeArgs),
    /// Check the machine, suggest fixes, and find leftovers of crashes.
    Doctor {
        #[command(flatten)]
        doctor: doctor::DoctorArgs,
        #[command(flatten)]
        serve: ServeArgs,
    },
    /// Print every server setting with its variable and default.
    Settings,
    /// Run the Kubernetes controllers of agents.x-k8s.io.
    Operator(Box<shoal_operator::OperatorArgs>),
    /// Route requests to the Kubernetes sandboxes of agents.x-k8s.io.
    Router(Box<router::RouterArgs>),
    /// Save and keep the pods of this Kubernetes node.
    Node(shoal_agent::NodeArgs),
    /// Install the runtime of pods that can be saved on this Kubernetes node.
    PrepareNode(shoal_agent::InstallArgs),
    /// Print the Kubernetes custom resource definitions of agents.x-k8s.io, as YAML.
    Crds(crds::CrdsArgs),
    #[command(flatten)]
    Client(ClientCommand),
    /// Print a shell completion script.
    Completions(CompletionsArgs),
    /// Write manual pages into a directory.
    Man(ManArgs),
    /// Print the version.
    Version,
}

/// Flags for common settings. Every setting works in the file and the environment too.
#[derive(Debug, Args)]
struct ServeArgs {
    /// Where sandboxes run: `machine`, or `kubernetes` [default: machine].
    #[arg(long, value_name = "machine|kubernetes")]
    backend: Option<String>,
    /// A TOML file with settings.
    #[arg(long, env = "SHOAL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory [default: /var/lib/shoal].
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Address of the API and of all sandboxes [default: 127.0.0.1:3000].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Domain of sandbox host names.
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// `self-signed`, or the PEM files of a certificate and its key.
    #[arg(long, value_name = "self-signed|CERT,KEY")]
    tls: Option<String>,
    /// Log level: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Any setting by name, as in the file: `--set network.warm_slots=4`.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
}

fn main() -> ExitCode {
    let words = shoal_cli::expand(std::env::args_os().collect());
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(told) => return misread(&told, words.get(1)),
    };
    let Some(command) = cli.command else {
        print!("{WELCOME}");
        return ExitCode::SUCCESS;
    };
    match command {
        Command::Client(command) => shoal_cli::run(command),
        Command::Completions(args) => args.print(Cli::command()),
        Command::Man(args) => args.write(Cli::command()),
        Command::Serve(args) => serve(args),
        Command::Doctor { doctor, serve } => diagnose(serve, &doctor),
        Command::Settings => {
            print!("{}", config::settings_file());
            ExitCode::SUCCESS
        }
        Command::Operator(args) => operator::run(*args),
        Command::Router(args) => router::run(&args),
        Command::Node(args) => node::run(args),
        Command::PrepareNode(args) => prepare_node::run(&args),
        Command::Crds(args) => crds::print(&args),
        Command::Version => {
            println!("shoal {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
    }
}

/// Prints help, or the error in the command line.
fn misread(told: &clap::Error, command: Option<&OsString>) -> ExitCode {
    let known = |word: &OsString| Cli::command().find_subcommand(word).is_some();
    if told.kind() == ErrorKind::InvalidSubcommand
        && let Some(word) = command.filter(|word| !known(word))
        && shoal_cli::explain(word)
    {
        return ExitCode::from(BAD_USAGE);
    }
    // Nothing to do if printing fails.
    let _ = told.print();
    if told.use_stderr() {
        ExitCode::from(BAD_USAGE)
    } else {
        ExitCode::SUCCESS
    }
}

fn serve(args: ServeArgs) -> ExitCode {
    let (config, warnings) = match read(args) {
        Ok(read) => read,
        Err(error) => {
            eprintln!("shoal: {error:#}");
            return ExitCode::from(BAD_USAGE);
        }
    };
    match run(config, &warnings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shoal: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn diagnose(serve: ServeArgs, doctor: &doctor::DoctorArgs) -> ExitCode {
    let told = read(serve).map(|(config, warnings)| {
        for warning in warnings {
            eprintln!("shoal: warning: {warning}");
        }
        doctor::run(&config, doctor)
    });
    match told {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => {
            eprintln!("shoal: {error:#}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("shoal: {error:#}");
            ExitCode::from(BAD_USAGE)
        }
    }
}

fn run(config: Config, warnings: &[String]) -> anyhow::Result<()> {
    // First, so that all files of this process and its programs are closed to other users.
    umask(Mode::from_bits_truncate(0o077));
    if config.backend == BackendSettings::Machine {
        privilege::give_up()?;
    }
    // One cryptography provider for the whole program; a second call is a bug.
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        anyhow::bail!("a cryptography provider is already installed");
    }
    let telemetry = telemetry::start(&config)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = match config.backend.clone() {
        BackendSettings::Machine => runtime.block_on(app::run(config, &telemetry)),
        BackendSettings::Kubernetes {
            namespace,
            team,
            config_map,
            pool_namespaces,
            blueprint_file,
            sessions,
        } => {
            let cluster = cluster::Cluster {
                namespace,
                team,
                config_map,
                pool_namespaces,
                blueprint_file,
                sessions,
            };
            runtime.block_on(cluster::run(cluster, &config, &telemetry))
        }
    };
    // The next start recovers work that still blocks a thread, as after a crash.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    // Outside the runtime, because sending traces blocks.
    telemetry.end();
    outcome
}

/// The configuration, and warnings about its sources.
fn read(args: ServeArgs) -> anyhow::Result<(Config, Vec<String>)> {
    let mut sources = Sources::default().with_environment(std::env::vars_os());
    if let Some(file) = &args.config {
        sources = sources.with_file(file)?;
    }
    sources = sources.with_settings(&args.settings).with_flags([
        ("backend", args.backend),
        ("data", args.data),
        ("listen", args.listen),
        ("domain", args.domain),
        ("tls", args.tls),
        ("log.level", args.log_level),
    ]);
    let warnings = sources.warnings().to_vec();
    match Config::read(&sources) {
        Ok(config) => Ok((config, warnings)),
        Err(mistakes) => {
            for warning in warnings {
                eprintln!("shoal: warning: {warning}");
            }
            Err(mistakes.into())
        }
    }
}
