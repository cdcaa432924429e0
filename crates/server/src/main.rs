//! The program `shoal`.

mod announce;
mod api_key;
mod app;
mod audit;
mod config;
mod descriptors;
mod doctor;
mod export_key;
mod listen;
mod memory;
mod privilege;
mod progress;
mod stock;
mod telemetry;
mod templates_file;
mod tls;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use nix::sys::stat::{Mode, umask};
use shoal_cli::{ClientCommand, CompletionsArgs, EXIT_CODES, USAGE as BAD_USAGE};

use crate::config::{Config, Sources};

/// Sandboxes for AI agents, on one machine.
///
/// Commands of `shoal sandbox` work without `sandbox` too: shoal create, shoal exec, shoal ps.
#[derive(Debug, Parser)]
#[command(name = "shoal", version, disable_help_subcommand = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

/// What is said to whoever says nothing.
const WELCOME: &str = "\
Shoal gives every AI agent a sandbox of its own, on this machine.

  sudo shoal serve                       start the server; prints what an SDK has to be told
  shoal sandbox create                   make a sandbox; prints its id
  shoal sandbox exec ID -- uname -a      run a command in it
  shoal sandbox shell ID                 open a shell in it
  shoal sandbox cp FILE ID:/tmp/         copy into it, or out of it
  shoal sandbox ls                       see those that run
  shoal sandbox kill ID                  end it

`sandbox` may be left out: shoal create, shoal exec, shoal ps.

More: shoal --help, and --help behind every command.
";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API, the gateway and the sandboxes of this machine.
    Serve(ServeArgs),
    /// Say what this machine lacks and how to cure it, and find what crashes have left.
    Doctor {
        #[command(flatten)]
        doctor: doctor::DoctorArgs,
        #[command(flatten)]
        serve: ServeArgs,
    },
    /// Every setting of the server: its name, its variable, and what it is when nothing is said.
    Settings,
    #[command(flatten)]
    Client(ClientCommand),
    /// Print the script by which a shell completes our commands.
    Completions(CompletionsArgs),
    /// Say which version this is.
    Version,
}

/// What can be said on the command line; every setting can be said in the file and in the
/// environment.
#[derive(Debug, Args)]
struct ServeArgs {
    /// A TOML file with settings.
    #[arg(long, env = "SHOAL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where everything is kept [default: /var/lib/shoal].
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Address of the API and of all sandboxes [default: 127.0.0.1:3000].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Name below which sandboxes have theirs.
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// `self-signed`, or a certificate and its key.
    #[arg(long, value_name = "self-signed|CERT,KEY")]
    tls: Option<String>,
    /// What is logged: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Any setting by its name, as in the file: `--set network.warm_slots=4`.
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
        Command::Serve(args) => serve(args),
        Command::Doctor { doctor, serve } => diagnose(serve, &doctor),
        Command::Settings => {
            print!("{}", config::settings_file());
            ExitCode::SUCCESS
        }
        Command::Version => {
            println!("shoal {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
    }
}

/// Prints help, or what is wrong with the command line.
fn misread(told: &clap::Error, command: Option<&OsString>) -> ExitCode {
    let known = |word: &OsString| Cli::command().find_subcommand(word).is_some();
    if told.kind() == ErrorKind::InvalidSubcommand
        && let Some(word) = command.filter(|word| !known(word))
        && shoal_cli::explain(word)
    {
        return ExitCode::from(BAD_USAGE);
    }
    // Nobody reads it when it cannot be printed.
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
    // First of all: whatever this process and its programs make is closed to other users.
    umask(Mode::from_bits_truncate(0o077));
    privilege::give_up()?;
    // One provider of cryptography for the whole program; a second call would be a mistake of ours.
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        anyhow::bail!("a provider of cryptography is installed already");
    }
    let telemetry = telemetry::start(&config)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(app::run(config, &telemetry));
    // Not on the runtime, as what sends the traces blocks.
    drop(runtime);
    telemetry.end();
    outcome
}

/// The settings, and what may be a mistake in where they come from.
fn read(args: ServeArgs) -> anyhow::Result<(Config, Vec<String>)> {
    let mut sources = Sources::default().with_environment(std::env::vars_os());
    if let Some(file) = &args.config {
        sources = sources.with_file(file)?;
    }
    sources = sources.with_settings(&args.settings).with_flags([
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
