//! Command line.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use lexopt::{Arg, ValueExt};
use shoal_protocol::pass::PassDigest;
use shoal_protocol::token::AccessToken;

use crate::log::Level;

/// The output of `--help`.
pub(crate) const HELP: &str = "\
The daemon inside every sandbox. Reads its access token from the first line of standard input.

Usage: shoal-envd [options]
       shoal-envd install FILE                      copy this program to FILE
       shoal-envd start [options] [-- COMMAND...]   start the daemon in a pod, return when it
                                                    listens, and run COMMAND

  --port PORT             listen on this port (49983)
  --bind ADDRESS          listen on this address only (all, of both families)
  --interpreter-port PORT port of the code interpreter, in templates with kernels (49999)
  --runtime-port PORT     serve commands and files to the router of agents.x-k8s.io on this port:
                          every client that reaches it may use them. The daemon's own port is
                          locked unless --open is given, and no token is read. SANDBOX_BASE_DIR
                          (/app) and SANDBOX_EXEC_TIMEOUT_SECONDS (300) configure it
  --events ADDRESS:PORT   serve the events service on this address
  --default-user NAME     default user until /init sets one (root)
  --default-workdir PATH  default working directory until /init sets one
  --open                  require no token until /init sets one; not for sandboxes
  --pod                   read no token: refuse all calls until the first /init sets one. Commands
                          run as the daemon's own user where it may not change it. `start` gives it
  --log-level LEVEL       error, warn, info or debug (info)
  --system-root PATH      parent directory of /etc and /run (/)
  --keep-clock            never set the system clock
  --version, --help
";

/// The daemon's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// The port to listen on.
    pub(crate) port: u16,
    /// The address to listen on; all addresses of both families when absent.
    pub(crate) bind: Option<IpAddr>,
    /// The port of the code interpreter, if the sandbox has kernels.
    pub(crate) interpreter_port: u16,
    /// The port of the runtime API of `agents.x-k8s.io`; disabled if absent.
    pub(crate) runtime_port: Option<u16>,
    /// Address of the events service; disabled if absent.
    pub(crate) events: Option<SocketAddr>,
    /// User of requests that name none, until `/init` sets one.
    pub(crate) default_user: String,
    /// Working directory of processes that name none, until `/init` sets one.
    pub(crate) default_workdir: Option<String>,
    /// Log level.
    pub(crate) log_level: Level,
    /// Authentication before the first `/init`.
    pub(crate) access: Access,
    /// Parent of `/etc` and `/run`. Tests use a directory other than `/`.
    pub(crate) system_root: PathBuf,
    /// Whether `/init` may set the clock. Only inside a sandbox.
    pub(crate) set_clock: bool,
}

/// Authentication required before the first `/init`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Access {
    /// A token, which is read from standard input before the daemon listens.
    StandardInput,
    /// None. Insecure: for tests and machines that are not sandboxes.
    Open,
    /// This token.
    Token(AccessToken),
    /// No token exists: every call is refused.
    Locked,
    /// The first `/init` sets the token, if it presents this pass. Until then every other call is refused.
    FirstInit(Option<PassDigest>),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            port: shoal_protocol::ENVD_PORT,
            bind: None,
            interpreter_port: shoal_protocol::INTERPRETER_PORT,
            runtime_port: None,
            events: None,
            default_user: "root".to_owned(),
            default_workdir: None,
            log_level: Level::Info,
            access: Access::StandardInput,
            system_root: PathBuf::from("/"),
            set_clock: true,
        }
    }
}

/// Requested action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Invocation {
    /// Run the daemon.
    Run(Box<Config>),
    /// Copy the program to this file.
    Install(PathBuf),
    /// Start the daemon with these options, and then run a command.
    Start {
        /// Options of the daemon.
        options: Vec<OsString>,
        /// The command and its arguments; may be empty.
        next: Vec<OsString>,
    },
    /// Print [`HELP`].
    Help,
    /// Print the version.
    Version,
}

impl Invocation {
    /// Parses the arguments, without the program's name.
    ///
    /// # Errors
    /// If an argument is unknown or invalid. The text is meant for the operator.
    pub(crate) fn parse(
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, lexopt::Error> {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        match arguments.split_first() {
            Some((verb, rest)) if verb == "install" => install(rest),
            Some((verb, rest)) if verb == "start" => start(rest),
            _ => Self::options(arguments),
        }
    }

    fn options(arguments: Vec<OsString>) -> Result<Self, lexopt::Error> {
        let mut config = Config::default();
        let mut parser = lexopt::Parser::from_args(arguments);
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Long("port") => config.port = parser.value()?.parse()?,
                Arg::Long("bind") => config.bind = Some(parser.value()?.parse()?),
                Arg::Long("interpreter-port") => {
                    config.interpreter_port = parser.value()?.parse()?;
                }
                Arg::Long("runtime-port") => config.runtime_port = Some(parser.value()?.parse()?),
                Arg::Long("events") => config.events = Some(parser.value()?.parse()?),
                Arg::Long("default-user") => config.default_user = parser.value()?.string()?,
                Arg::Long("default-workdir") => {
                    config.default_workdir = Some(parser.value()?.string()?);
                }
                Arg::Long("open") => config.access = Access::Open,
                Arg::Long("pod") => config.access = Access::FirstInit(None),
                Arg::Long("log-level") => config.log_level = parser.value()?.parse()?,
                Arg::Long("system-root") => config.system_root = parser.value()?.into(),
                Arg::Long("keep-clock") => config.set_clock = false,
                Arg::Long("help") | Arg::Short('h') => return Ok(Self::Help),
                Arg::Long("version") | Arg::Short('V') => return Ok(Self::Version),
                _ => return Err(argument.unexpected()),
            }
        }
        // A container has no control plane that could hand a token over.
        if config.runtime_port.is_some() && config.access == Access::StandardInput {
            config.access = Access::Locked;
        }
        Ok(Self::Run(Box::new(config)))
    }
}

fn install(arguments: &[OsString]) -> Result<Invocation, lexopt::Error> {
    match arguments {
        [target] => Ok(Invocation::Install(target.into())),
        _ => Err("install takes one argument: the file to write".into()),
    }
}

/// Checks the options now: the daemon's own refusal would be harder to find.
fn start(arguments: &[OsString]) -> Result<Invocation, lexopt::Error> {
    let end = arguments.iter().position(|argument| argument == "--");
    let (options, next) = match end {
        Some(end) => (&arguments[..end], &arguments[end + 1..]),
        None => (arguments, &[][..]),
    };
    match Invocation::options(options.to_vec())? {
        Invocation::Run(_) => Ok(Invocation::Start {
            options: options.to_vec(),
            next: next.to_vec(),
        }),
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Invocation, lexopt::Error> {
        Invocation::parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn no_arguments_mean_the_defaults() {
        let Invocation::Run(config) = parse(&[]).unwrap() else {
            panic!("expected a run");
        };
        assert_eq!(*config, Config::default());
        assert_eq!(config.port, 49983);
        assert_eq!(config.access, Access::StandardInput);
    }

    #[test]
    fn every_option_is_read() {
        let Invocation::Run(config) = parse(&[
            "--port=1",
            "--bind",
            "127.0.0.1",
            "--interpreter-port=2",
            "--runtime-port=8888",
            "--events=192.0.2.1:80",
            "--default-user=user",
            "--default-workdir=/home/user",
            "--log-level=debug",
            "--system-root=/x",
            "--keep-clock",
            "--open",
        ])
        .unwrap() else {
            panic!("expected a run");
        };
        assert_eq!(config.port, 1);
        assert_eq!(config.interpreter_port, 2);
        assert_eq!(config.bind.unwrap().to_string(), "127.0.0.1");
        assert_eq!(config.runtime_port, Some(8888));
        assert_eq!(config.events.unwrap().to_string(), "192.0.2.1:80");
        assert_eq!(config.default_user, "user");
        assert_eq!(config.default_workdir.as_deref(), Some("/home/user"));
        assert_eq!(config.log_level, Level::Debug);
        assert_eq!(config.system_root, PathBuf::from("/x"));
        assert!(!config.set_clock);
        assert_eq!(config.access, Access::Open);
    }

    #[test]
    fn the_runtime_locks_the_daemons_own_port() {
        let Invocation::Run(config) = parse(&["--runtime-port=8888"]).unwrap() else {
            panic!("expected a run");
        };
        assert_eq!(config.access, Access::Locked);
    }

    #[test]
    fn a_daemon_in_a_pod_is_installed_and_started() {
        let installed = parse(&["install", "/shared/shoal-envd"]).unwrap();
        assert_eq!(installed, Invocation::Install("/shared/shoal-envd".into()));
        let started = parse(&["start", "--port=1", "--", "/bin/sh", "--port"]).unwrap();
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let expected = Invocation::Start {
            options: words(&["--port=1"]),
            next: words(&["/bin/sh", "--port"]),
        };
        assert_eq!(started, expected);
        let Invocation::Run(config) = parse(&["--pod"]).unwrap() else {
            panic!("expected a run");
        };
        assert_eq!(config.access, Access::FirstInit(None));
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        for bad in [
            &["--prot=1"][..],
            &["--port=70000"],
            &["--log-level=loud"],
            &["x"],
            &["install"],
            &["install", "a", "b"],
            &["start", "--prot=1"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
