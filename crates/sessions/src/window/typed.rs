//! The input of a shell that runs a command and marks its end.
//!
//! The shell is an ordinary interactive bash on a terminal, so that a directory, variables and jobs stay from command to
//! command, and a person can attach to it. Nothing depends on its prompt, which programs may change: each typed line
//! prints its own marks. They have the form of the terminal sequences for shell integration (OSC 133), which terminals
//! that do not know them ignore.

pub(crate) mod variables;

use std::fmt::Write;

/// How long a typed line may be. A terminal that no program edits lines on has room for 4095 bytes.
const LINE_MAX: usize = 1500;

/// The variable that a command is collected in. It is not exported.
const VARIABLE: &str = "__shoal";

/// The meaning of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The shell reads commands. The number is the id of its process.
    Hello,
    /// The ids of its background jobs follow.
    Jobs,
    /// The output of the command follows.
    Begin,
    /// The command has ended. The number is its exit code.
    End,
    /// The shell is back at its prompt.
    Ready,
}

impl Mark {
    pub(crate) const ALL: [Self; 5] =
        [Self::Hello, Self::Jobs, Self::Begin, Self::End, Self::Ready];

    pub(crate) fn letter(self) -> u8 {
        match self {
            Self::Hello => b'H',
            Self::Jobs => b'J',
            Self::Begin => b'C',
            Self::End => b'D',
            Self::Ready => b'R',
        }
    }

    /// A command that prints it.
    fn print(self, id: &str, number: &str) -> String {
        let letter = char::from(self.letter());
        format!("builtin printf '\\033]133;{letter};{id};%s\\007' \"{number}\"")
    }
}

/// Asks for the id of the shell's process.
pub(crate) fn hello(id: &str) -> Vec<u8> {
    // Lines with a leading blank are not kept in the history.
    format!(" HISTCONTROL=ignoreboth; {}\n", Mark::Hello.print(id, "$$")).into_bytes()
}

/// Asks whether the shell is at its prompt.
pub(crate) fn ready(id: &str) -> Vec<u8> {
    // The first line is what an interrupt may have left of an earlier question.
    format!("\n {}\n", Mark::Ready.print(id, "0")).into_bytes()
}

/// Runs `command`, which may have many lines.
///
/// It is collected in a variable and evaluated, so that a command that is not complete is an error, not a shell that
/// waits for the rest of it.
pub(crate) fn run(id: &str, command: &str) -> Vec<u8> {
    let mut typed = String::new();
    let mut operator = "=";
    let mut rest = quoted(command);
    loop {
        let later = rest.split_off(rest.len().min(LINE_MAX / 4));
        let part = rest.concat();
        // Writing to a string does not fail.
        let _ = writeln!(typed, " {VARIABLE}{operator}$'{part}'");
        if later.is_empty() {
            break;
        }
        operator = "+=";
        rest = later;
    }
    let (jobs, begin, end) = (
        Mark::Jobs.print(id, "0"),
        Mark::Begin.print(id, "0"),
        Mark::End.print(id, "$?"),
    );
    let _ = writeln!(
        typed,
        " {jobs}; builtin jobs -p; {begin}; builtin eval \"${VARIABLE}\"; {end}"
    );
    typed.into_bytes()
}

/// The bytes of a text as bash reads them between `$'` and `'`: letters and the like as they are, all others as numbers.
/// A line editor would take some of them for its commands, and the history others for its own.
fn quoted(text: &str) -> Vec<String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b" _-./:=,;|&<>()[]{}+*@#$\"".contains(&b);
    let one = |b: u8| {
        if plain(b) {
            char::from(b).to_string()
        } else {
            format!("\\x{b:02x}")
        }
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The output of bash for these lines as a script.
    fn bash(typed: &[u8]) -> String {
        let script = String::from_utf8(typed.to_vec()).unwrap();
        let done = Command::new("bash")
            .args(["--norc", "-c", &script])
            .output()
            .unwrap();
        assert!(
            done.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        String::from_utf8(done.stdout).unwrap()
    }

    fn ran(command: &str) -> (String, String) {
        let said = bash(&run("x", command));
        let (_, said) = said.split_once("\x1b]133;C;x;0\x07").unwrap();
        let (output, end) = said.rsplit_once("\x1b]133;D;x;").unwrap();
        (output.to_owned(), end.trim_end_matches('\x07').to_owned())
    }

    #[test]
    fn commands_arrive_as_they_are() {
        for text in [
            "plain",
            "it's",
            "a!b",
            "\\n",
            "tab\there",
            "ä€😀",
            "$'x'",
            "a\\x41",
            "%s",
            "`",
        ] {
            let command = format!("printf %s '{}'", text.replace('\'', "'\\''"));
            assert_eq!(ran(&command), (text.to_owned(), "0".to_owned()), "{text}");
        }
        assert_eq!(ran("cat <<X\none\ntwo\nX").0, "one\ntwo\n");
        assert_eq!(ran("(exit 3)").1, "3");
        assert_eq!(ran("").1, "0");
    }

    #[test]
    fn long_commands_are_typed_in_short_lines() {
        let text = "äb'c!".repeat(5000);
        let typed = run("x", &format!("printf %s \"{}\"", text.replace('!', "")));
        assert!(
            typed
                .split(|b| *b == b'\n')
                .all(|line| line.len() <= LINE_MAX + 64)
        );
        assert_eq!(ran(&format!("printf %s \"{text}\"")).0, text);
    }

    #[test]
    fn an_incomplete_command_is_an_error() {
        let script = String::from_utf8(run("x", "if true; then")).unwrap();
        let done = Command::new("bash")
            .args(["--norc", "-c", &script])
            .output()
            .unwrap();
        let said = String::from_utf8(done.stdout).unwrap();
        assert!(said.contains("\x1b]133;D;x;2\x07"), "{said:?}");
    }

    #[test]
    fn a_shell_tells_its_process() {
        let said = bash(&hello("x"));
        let number = said
            .strip_prefix("\x1b]133;H;x;")
            .unwrap()
            .trim_end_matches('\x07');
        number.parse::<u32>().unwrap();
    }
}
