//! Translation of a start request into program, arguments, environment and working directory.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use shoal_protocol::process::ProcessConfig;

use super::raw::CStringArray;
use crate::path::{self, InvalidPath};
use crate::settings::{Defaults, Variables};
use crate::user::User;

/// Search path if the environment sets none.
pub(crate) const DEFAULT_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Limit of directories searched for a program.
const MAX_DIRECTORIES: usize = 256;

/// Invalid start request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidCommand {
    /// No program given.
    #[error("process command is empty")]
    Empty,
    /// A zero byte in a C string.
    #[error("process {0} contains a zero byte")]
    Zero(&'static str),
    /// Invalid variable name, which would set another variable.
    #[error("environment variable name '{0}' is empty or contains '='")]
    Variable(String),
    /// Invalid working directory.
    #[error(transparent)]
    Path(#[from] InvalidPath),
    /// Missing working directory. Clients compare the text.
    #[error("cwd '{0}' does not exist")]
    NoDirectory(String),
}

/// A command ready to spawn.
pub(super) struct Command {
    /// Paths to try, in order.
    pub(super) candidates: CStringArray,
    /// Arguments, with the program's name first.
    pub(super) arguments: CStringArray,
    /// Arguments of the shell that runs a script without `#!`.
    pub(super) script_arguments: CStringArray,
    /// The environment.
    pub(super) environment: CStringArray,
    /// Working directory.
    pub(super) cwd: CString,
}

impl Command {
    /// Resolves a request for a user.
    pub(super) fn new(
        config: &ProcessConfig,
        user: &User,
        defaults: &Defaults,
        global: &Variables,
    ) -> Result<Self, InvalidCommand> {
        if config.cmd.is_empty() {
            return Err(InvalidCommand::Empty);
        }
        let environment = environment(config, user, global)?;
        let path = environment.get("PATH").map_or(DEFAULT_PATH, |path| path);
        let candidates = candidates(&config.cmd, path);
        let cwd = directory(config, user, defaults)?;

        let words: Vec<&str> = std::iter::once(config.cmd.as_str())
            .chain(config.args.iter().map(String::as_str))
            .collect();
        let script = ["/bin/sh", ""]
            .into_iter()
            .chain(words.iter().skip(1).copied());
        Ok(Self {
            candidates: texts("command", candidates)?,
            script_arguments: texts("argument", script)?,
            arguments: texts("argument", words)?,
            environment: texts(
                "environment",
                environment
                    .iter()
                    .map(|(name, value)| format!("{name}={value}")),
            )?,
            cwd: CString::new(cwd.as_os_str().as_bytes())
                .map_err(|_| InvalidCommand::Zero("cwd"))?,
        })
    }
}

/// Builds the environment. The request overrides global variables, which override the user's.
pub(super) fn environment(
    config: &ProcessConfig,
    user: &User,
    global: &Variables,
) -> Result<Variables, InvalidCommand> {
    let own = [
        ("PATH", DEFAULT_PATH),
        ("HOME", &user.home),
        ("USER", &user.name),
        ("LOGNAME", &user.name),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut environment = Variables::from(own);
    environment.extend(
        global
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    for (name, value) in &config.envs {
        if name.is_empty() || name.contains('=') {
            return Err(InvalidCommand::Variable(name.clone()));
        }
        environment.insert(name.clone(), value.clone());
    }
    Ok(environment)
}

/// Candidate paths of a program: itself if it contains a slash, else one in each search directory.
fn candidates(program: &str, path: &str) -> Vec<String> {
    if program.contains('/') {
        return vec![program.to_owned()];
    }
    let directories = path.split(':').take(MAX_DIRECTORIES);
    directories
        .map(|directory| match directory {
            "" => format!("./{program}"),
            directory => format!("{directory}/{program}"),
        })
        .collect()
}

fn directory(
    config: &ProcessConfig,
    user: &User,
    defaults: &Defaults,
) -> Result<PathBuf, InvalidCommand> {
    let asked = config.cwd.as_deref().unwrap_or_default();
    let cwd = path::resolve(asked, user, defaults.workdir.as_deref())?;
    match std::fs::metadata(&cwd) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(InvalidCommand::NoDirectory(shown(&cwd)))
        }
        // All other errors surface at `chdir`, with the user's permissions.
        _ => Ok(cwd),
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn texts(
    what: &'static str,
    texts: impl IntoIterator<Item = impl Into<Vec<u8>>>,
) -> Result<CStringArray, InvalidCommand> {
    let texts = texts.into_iter().map(CString::new);
    let texts: Result<Vec<_>, _> = texts.collect();
    Ok(CStringArray::new(
        texts.map_err(|_| InvalidCommand::Zero(what))?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> User {
        User {
            name: "user".into(),
            uid: 1000,
            gid: 1000,
            home: "/tmp".into(),
        }
    }

    fn defaults() -> Defaults {
        Defaults {
            user: "user".into(),
            workdir: None,
        }
    }

    fn shown(texts: &CStringArray) -> Vec<&str> {
        let texts = texts.as_slice().iter();
        texts.map(|text| text.to_str().unwrap()).collect()
    }

    fn command(config: &ProcessConfig) -> Result<Command, InvalidCommand> {
        let global = Variables::from([
            ("A".to_owned(), "global".to_owned()),
            ("B".to_owned(), "global".to_owned()),
            ("HOME".to_owned(), "/global".to_owned()),
        ]);
        Command::new(config, &user(), &defaults(), &global)
    }

    #[test]
    fn the_request_overrides_global_variables_and_those_the_users() {
        let config = ProcessConfig {
            cmd: "true".into(),
            envs: [("A".to_owned(), "request".to_owned())]
                .into_iter()
                .collect(),
            ..ProcessConfig::default()
        };
        let command = command(&config).unwrap();
        assert_eq!(
            shown(&command.environment),
            [
                "A=request",
                "B=global",
                "HOME=/global",
                "LOGNAME=user",
                &format!("PATH={DEFAULT_PATH}"),
                "USER=user"
            ]
        );
        assert_eq!(command.cwd.to_str().unwrap(), "/tmp");
    }

    #[test]
    fn a_name_is_looked_up_in_the_path_of_the_request_and_a_path_is_not() {
        let mut config = ProcessConfig {
            cmd: "tool".into(),
            envs: [("PATH".to_owned(), "/a:/b:".to_owned())]
                .into_iter()
                .collect(),
            ..ProcessConfig::default()
        };
        let found = command(&config).unwrap();
        assert_eq!(shown(&found.candidates), ["/a/tool", "/b/tool", "./tool"]);
        config.cmd = "./tool".into();
        assert_eq!(shown(&command(&config).unwrap().candidates), ["./tool"]);
    }

    #[test]
    fn a_script_keeps_its_arguments() {
        let config = ProcessConfig {
            cmd: "/x".into(),
            args: vec!["1".into(), "2".into()],
            ..ProcessConfig::default()
        };
        let command = command(&config).unwrap();
        assert_eq!(shown(&command.arguments), ["/x", "1", "2"]);
        assert_eq!(shown(&command.script_arguments), ["/bin/sh", "", "1", "2"]);
    }

    #[test]
    fn invalid_commands_are_rejected() {
        let with = |change: fn(&mut ProcessConfig)| {
            let mut config = ProcessConfig {
                cmd: "true".into(),
                ..ProcessConfig::default()
            };
            change(&mut config);
            command(&config).err()
        };
        assert_eq!(
            with(|config| config.cmd.clear()),
            Some(InvalidCommand::Empty)
        );
        assert_eq!(
            with(|config| config.args.push("a\0".into())),
            Some(InvalidCommand::Zero("argument"))
        );
        assert_eq!(
            with(|config| drop(config.envs.insert("A=B".into(), "c".into()))),
            Some(InvalidCommand::Variable("A=B".into()))
        );
        assert_eq!(
            with(|config| config.cwd = Some("/no/such".into())).map(|error| error.to_string()),
            Some("cwd '/no/such' does not exist".into())
        );
    }
}
