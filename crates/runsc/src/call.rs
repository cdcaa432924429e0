//! A call of runsc: `[--flag=value…] command [flags…] id`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The flags before the command.
    pub(crate) global: Vec<OsString>,
    /// The command; empty if there is none.
    pub(crate) command: String,
    /// The container: the last word, or, of a `kill`, the one before the signal.
    pub(crate) id: String,
    /// The signal of a `kill`.
    pub(crate) signal: Option<String>,
    /// The directory of the container's bundle.
    pub(crate) bundle: Option<PathBuf>,
    /// Where errors are expected, as lines of JSON.
    pub(crate) log: Option<PathBuf>,
    root: Option<PathBuf>,
}

impl Call {
    pub(crate) fn parse(words: &[OsString]) -> Self {
        let is_flag = |word: &&OsString| word.as_encoded_bytes().starts_with(b"-");
        let global: Vec<OsString> = words.iter().take_while(is_flag).cloned().collect();
        let rest = words.get(global.len()..).unwrap_or_default();
        let text = |word: Option<&OsString>| {
            word.map(|word| word.to_string_lossy().into_owned())
                .unwrap_or_default()
        };
        let command = text(rest.first());
        let (id, signal) = if command == "kill" {
            // Its flags have no values of their own.
            let mut named = rest.iter().skip(1).filter(|word| !is_flag(word));
            (text(named.next()), Some(text(named.next())))
        } else {
            (text(rest.get(1..).and_then(<[OsString]>::last)), None)
        };
        Self {
            command,
            id,
            signal,
            bundle: value(rest, "bundle"),
            log: value(&global, "log"),
            root: value(&global, "root"),
            global,
        }
    }

    /// The directory beside the runtime's own state; none if the call does not say where that is.
    pub(crate) fn state(&self) -> Option<PathBuf> {
        self.root.as_deref()?.parent().map(Path::to_owned)
    }

    /// Whether the call ends a container.
    pub(crate) fn is_fatal(&self) -> bool {
        let signal = self.signal.as_deref();
        signal.is_some_and(|signal| ["9", "KILL", "SIGKILL"].contains(&signal))
    }

    /// The words of the call with more flags of its command.
    pub(crate) fn with_flags(&self, words: &[OsString], more: &[OsString]) -> Vec<OsString> {
        let (before, after) = words.split_at((self.global.len() + 1).min(words.len()));
        [before, more, after].concat()
    }
}

/// The value of a flag: `--flag=value` or `--flag value`, with one hyphen or two.
fn value(words: &[OsString], flag: &str) -> Option<PathBuf> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let word = word.to_string_lossy();
        let Some(name) = word.strip_prefix('-') else {
            continue;
        };
        let name = name.strip_prefix('-').unwrap_or(name);
        match name.split_once('=') {
            Some((name, value)) if name == flag => return Some(value.into()),
            None if name == flag => return words.next().map(|next| OsStr::new(next).into()),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_call_is_read_as_the_shim_makes_it() {
        let words = words(
            "--root=/run/shoal-runsc/k8s.io --log=/l --debug create --bundle /b --pid-file /p c1",
        );
        let call = Call::parse(&words);
        assert_eq!((call.command.as_str(), call.id.as_str()), ("create", "c1"));
        assert_eq!(call.bundle.as_deref(), Some(Path::new("/b")));
        assert_eq!(call.log.as_deref(), Some(Path::new("/l")));
        assert_eq!(call.state().as_deref(), Some(Path::new("/run/shoal-runsc")));
        let more = call.with_flags(&words, &["--x=y".into()]);
        assert_eq!(more.get(4).unwrap(), "--x=y");
        assert_eq!(more.len(), words.len() + 1);
    }

    #[test]
    fn a_signal_follows_its_container() {
        for (text, fatal) in [
            ("--root=/r kill c1 9", true),
            ("--root=/r kill --all c1 KILL", true),
            ("--root=/r kill c1 15", false),
            ("--root=/r kill c1", false),
        ] {
            let call = Call::parse(&words(text));
            assert_eq!((call.id.as_str(), call.is_fatal()), ("c1", fatal), "{text}");
        }
        assert!(!Call::parse(&words("state 9")).is_fatal());
    }

    #[test]
    fn calls_without_a_container_are_read_too() {
        let call = Call::parse(&words("--version"));
        assert_eq!((call.command.as_str(), call.id.as_str()), ("", ""));
        assert_eq!(call.state(), None);
        assert_eq!(Call::parse(&[]).command, "");
        assert_eq!(Call::parse(&words("--root /r")).command, "/r");
    }
}
