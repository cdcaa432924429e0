//! Short forms of commands for users of docker, kubectl and e2b.
//!
//! Every command of `shoal sandbox` works at the top level too: `shoal ps`, `shoal exec`. Some words
//! are aliases of other commands, and unsupported words suggest one.

use std::ffi::{OsStr, OsString};

use crate::failure::Failure;
use crate::sandbox;
use shoal_core::similar::nearest;

/// Aliases at the top level.
const MEANINGS: [(&str, &[&str]); 6] = [
    ("images", &["image", "ls"]),
    ("rmi", &["image", "rm"]),
    ("pull", &["image", "pull"]),
    ("build", &["template", "build"]),
    ("templates", &["template", "ls"]),
    ("snapshots", &["snapshot", "ls"]),
];

/// Unsupported words of other programs, and suggestions.
const HINTS: [(&str, &str); 10] = [
    (
        "start",
        "`shoal sandbox resume ID` resumes a paused sandbox.",
    ),
    (
        "stop",
        "`shoal sandbox pause ID` saves a sandbox for later, `shoal sandbox kill ID` ends it.",
    ),
    (
        "restart",
        "`shoal sandbox pause ID`, then `shoal sandbox resume ID --reboot`.",
    ),
    (
        "commit",
        "`shoal snapshot create ID` saves the current state of a sandbox.",
    ),
    (
        "port",
        "`shoal sandbox url ID PORT` prints the URL of a port.",
    ),
    (
        "volume",
        "Sandboxes have no volumes: `shoal sandbox cp` copies files in and out.",
    ),
    (
        "push",
        "Templates stay on the server: `shoal snapshot export` writes a file for another machine.",
    ),
    (
        "login",
        "No login is needed, only a key: E2B_API_KEY or --api-key.",
    ),
    (
        "auth",
        "No login is needed, only a key: E2B_API_KEY or --api-key.",
    ),
    (
        "compose",
        "Create each sandbox with `shoal sandbox create`.",
    ),
];

/// Commands of the program itself, which precede short forms.
const OWN: [&str; 12] = [
    "serve",
    "doctor",
    "settings",
    "sandbox",
    "snapshot",
    "key",
    "image",
    "template",
    "pool",
    "completions",
    "man",
    "version",
];

/// Expands a short form; the first word is the program's name.
#[must_use]
pub fn expand(words: Vec<OsString>) -> Vec<OsString> {
    let Some(word) = words.get(1).and_then(|word| word.to_str()) else {
        return words;
    };
    let meaning = MEANINGS.iter().find(|(short, _)| *short == word);
    let (put, skip) = match meaning {
        _ if OWN.contains(&word) => return words,
        Some((_, long)) => (*long, 2),
        None if sandbox::has(word) => (&["sandbox"][..], 1),
        None => return words,
    };
    let long = put.iter().map(OsString::from);
    let rest = words.iter().skip(skip).cloned();
    words
        .iter()
        .take(1)
        .cloned()
        .chain(long)
        .chain(rest)
        .collect()
}

/// Prints a suggestion for an unknown word at the top level. False for a known command.
#[must_use]
pub fn explain(word: &OsStr) -> bool {
    let word = word.to_string_lossy();
    if word.starts_with('-') {
        return false;
    }
    let failure = Failure::usage(format!("unknown command {word:?}"));
    failure.with_hint(hint(&word)).tell();
    true
}

fn hint(word: &str) -> String {
    if let Some((_, hint)) = HINTS.iter().find(|(known, _)| *known == word) {
        return (*hint).to_owned();
    }
    let of_sandboxes = sandbox::names();
    let known = OWN.iter().copied();
    let known = known.chain(MEANINGS.iter().map(|(short, _)| *short));
    let known = known.chain(of_sandboxes.iter().map(String::as_str));
    match nearest(word, known) {
        Some(near) => format!("Did you mean `shoal {near}`?"),
        None => "`shoal --help` lists the commands.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(line: &str) -> String {
        let words = line.split(' ').map(OsString::from).collect();
        let words = expand(words);
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn short_forms_are_written_out() {
        for (line, long) in [
            ("shoal ps -a", "shoal sandbox ps -a"),
            ("shoal ls -l a=b", "shoal sandbox ls -l a=b"),
            ("shoal create base", "shoal sandbox create base"),
            ("shoal run --rm base ls", "shoal sandbox run --rm base ls"),
            ("shoal exec -it i1 bash", "shoal sandbox exec -it i1 bash"),
            ("shoal shell i1", "shoal sandbox shell i1"),
            ("shoal rm i1", "shoal sandbox rm i1"),
            ("shoal kill i1", "shoal sandbox kill i1"),
            ("shoal cp a i1:b", "shoal sandbox cp a i1:b"),
            ("shoal logs i1", "shoal sandbox logs i1"),
            ("shoal top", "shoal sandbox top"),
            ("shoal inspect i1", "shoal sandbox inspect i1"),
            ("shoal images --json", "shoal image ls --json"),
            ("shoal connect i1", "shoal sandbox connect i1"),
            ("shoal spawn", "shoal sandbox spawn"),
            ("shoal metrics", "shoal sandbox metrics"),
            ("shoal build -t x", "shoal template build -t x"),
            ("shoal", "shoal"),
            ("shoal serve --data ps", "shoal serve --data ps"),
            ("shoal template ls", "shoal template ls"),
            ("shoal --version", "shoal --version"),
        ] {
            assert_eq!(expanded(line), long);
        }
    }

    #[test]
    fn words_without_a_meaning_say_what_to_use() {
        for (word, said) in [
            ("stop", "shoal sandbox pause"),
            ("commit", "shoal snapshot create"),
            ("exce", "`shoal exec`"),
            ("sandbx", "`shoal sandbox`"),
            ("pul", "`shoal pull`"),
            ("qqqqqq", "shoal --help"),
        ] {
            assert!(hint(word).contains(said), "{word}: {}", hint(word));
        }
        assert!(!explain(OsStr::new("--frobnicate")));
    }
}
