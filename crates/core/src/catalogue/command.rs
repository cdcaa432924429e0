//! Commands as the catalogue writes them: `command,arg1 arg2`.

use serde::{Deserialize, Serialize};

/// The longest command, in bytes.
const LENGTH_MAX: usize = 4096;

/// A command of a pool: the program, a comma, and its arguments with blanks between them (seed
/// 000). Without a comma the blanks divide it alone. Nothing is quoted: what needs more than this
/// is a script in the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Command(String);

/// A text that is no command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no command: write `program,arg1 arg2`, at most {LENGTH_MAX} bytes on a line; put \
     more than that into a script of the image"
)]
pub struct InvalidCommand(String);

impl Command {
    /// The program and its arguments.
    #[must_use]
    pub fn argv(&self) -> Vec<String> {
        words(&self.0).map(str::to_owned).collect()
    }

    /// The text as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Only the first comma divides: a later one belongs to an argument.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let (program, arguments) = text.split_once(',').unwrap_or((text, ""));
    program
        .split_ascii_whitespace()
        .chain(arguments.split_ascii_whitespace())
}

impl TryFrom<String> for Command {
    type Error = InvalidCommand;

    fn try_from(text: String) -> Result<Self, InvalidCommand> {
        let program = text.split(',').next().unwrap_or_default().trim();
        let plain = !text.contains(|c: char| c.is_control() && c != '\t');
        if program.is_empty() || text.len() > LENGTH_MAX || !plain {
            return Err(InvalidCommand(text.chars().take(128).collect()));
        }
        Ok(Self(text))
    }
}

impl From<Command> for String {
    fn from(command: Command) -> Self {
        command.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(text: &str) -> Vec<String> {
        Command::try_from(text.to_owned()).unwrap().argv()
    }

    #[test]
    fn a_comma_stands_between_a_program_and_its_arguments() {
        assert_eq!(argv("/root/.server/warmup.sh"), ["/root/.server/warmup.sh"]);
        assert_eq!(
            argv("python3,-m  http.server 8080"),
            ["python3", "-m", "http.server", "8080"]
        );
        assert_eq!(
            argv("python3 -m http.server"),
            ["python3", "-m", "http.server"]
        );
        assert_eq!(argv("tool,--set a=1,2"), ["tool", "--set", "a=1,2"]);
    }

    #[test]
    fn what_starts_nothing_is_refused() {
        let long = "x".repeat(LENGTH_MAX + 1);
        for bad in ["", "  ", ",a b", "a\nb", "a\0", &long] {
            assert!(Command::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
    }
}
