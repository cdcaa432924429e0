//! Commands of a pool: `command,arg1 arg2`, or a list of words.

use serde::{Deserialize, Serialize};

/// The longest command, in bytes.
const LENGTH_MAX: usize = 4096;

/// Programs that run the word after `-c` as a command line.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ash", "zsh"];

/// Operators that only a shell understands.
const SHELL_SYNTAX: [&str; 10] = ["|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "2>&1"];

/// A command of a pool. The text form is Agent-Sandbox's: the program, a comma, and the arguments
/// separated by blanks. Without a comma, blanks separate all words. The text form has no quoting.
/// In the list form, each text is one word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Command(Written);

/// The ways to write a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected \"program,arg1 arg2\", or a list of words"
)]
enum Written {
    Text(String),
    List(Vec<String>),
}

/// A value that is not a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no command: write `program,arg1 arg2`, or a list of words, at most {LENGTH_MAX} \
     bytes"
)]
pub struct InvalidCommand(String);

impl Command {
    /// The program and its arguments.
    #[must_use]
    pub fn argv(&self) -> Vec<String> {
        match &self.0 {
            Written::Text(text) => words(text).map(str::to_owned).collect(),
            Written::List(words) => words.clone(),
        }
    }

    /// Warns about a text form that is probably a mistake: a shell whose line ends at
    /// the first blank, quotes that are not removed, or operators that reach a program as words.
    pub(super) fn advice(&self) -> Option<String> {
        let Written::Text(text) = &self.0 else {
            return None;
        };
        let words: Vec<&str> = words(text).collect();
        let (program, arguments) = words.split_first()?;
        let name = program.rsplit('/').next().unwrap_or(program);
        let is_line = |word: &&&str| word.starts_with('-') && word.ends_with('c');
        if SHELLS.contains(&name)
            && let Some(place) = arguments.iter().position(|word| is_line(&word))
            && let [line, rest @ ..] = &arguments[place + 1..]
            && !rest.is_empty()
        {
            let script = [&[*line], rest].concat().join(" ");
            let list = serde_json::to_string(&[program, arguments[place], &script]).ok()?;
            return Some(format!(
                "runs only `{line}` in {name}: this form has no quoting. Write a list: {list}"
            ));
        }
        let odd = arguments
            .iter()
            .find(|word| SHELL_SYNTAX.contains(word) || word.contains(['"', '\'']))?;
        let line = [&[*program], arguments].concat().join(" ");
        let list = serde_json::to_string(&["sh", "-c", &line]).ok()?;
        Some(format!(
            "passes {odd} to {name} as it is: no shell runs here, and this form has no quoting. \
             Write a list: {list}"
        ))
    }
}

/// Only the first comma separates: a later one belongs to an argument.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let (program, arguments) = text.split_once(',').unwrap_or((text, ""));
    program
        .split_ascii_whitespace()
        .chain(arguments.split_ascii_whitespace())
}

impl TryFrom<Written> for Command {
    type Error = InvalidCommand;

    fn try_from(written: Written) -> Result<Self, InvalidCommand> {
        let good = match &written {
            Written::Text(text) => {
                let program = text.split(',').next().unwrap_or_default().trim();
                let plain = !text.contains(|c: char| c.is_control() && c != '\t');
                !program.is_empty() && text.len() <= LENGTH_MAX && plain
            }
            Written::List(words) => {
                let length: usize = words.iter().map(|word| word.len() + 1).sum();
                let program = words.first().is_some_and(|word| !word.trim().is_empty());
                program && length <= LENGTH_MAX && !words.iter().any(|word| word.contains('\0'))
            }
        };
        if good {
            return Ok(Self(written));
        }
        let shown = match written {
            Written::Text(text) => text,
            Written::List(words) => words.join(" "),
        };
        Err(InvalidCommand(shown.chars().take(128).collect()))
    }
}

impl From<Command> for Written {
    fn from(command: Command) -> Self {
        command.0
    }
}

/// Reads a shell command line that is written as a line or as a list of words.
pub(super) fn line<'de, D>(source: D) -> Result<Option<String>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    let written = Option::<Written>::deserialize(source)?;
    Ok(written.map(|written| match written {
        Written::Text(text) => text,
        Written::List(words) => {
            let words: Vec<String> = words.iter().map(|word| as_word(word)).collect();
            words.join(" ")
        }
    }))
}

/// Quotes a text as one shell word, if it has characters that are special to a shell.
fn as_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    quoted(text)
}

/// Quotes a text as one shell word.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(written: Value) -> Result<Command, serde_json::Error> {
        serde_json::from_value(written)
    }

    fn argv(written: Value) -> Vec<String> {
        read(written).unwrap().argv()
    }

    #[test]
    fn a_comma_separates_a_program_and_its_arguments() {
        for (text, words) in [
            ("/root/.server/warmup.sh", &["/root/.server/warmup.sh"][..]),
            (
                "python3,-m  http.server 8080",
                &["python3", "-m", "http.server", "8080"],
            ),
            ("python3 -m http.server", &["python3", "-m", "http.server"]),
            ("tool,--set a=1,2", &["tool", "--set", "a=1,2"]),
        ] {
            assert_eq!(argv(json!(text)), words, "{text}");
        }
    }

    #[test]
    fn the_words_of_a_list_are_kept_verbatim() {
        let list = json!(["sh", "-c", "echo warmed > /tmp/warm\ntrue", ""]);
        assert_eq!(argv(list.clone()).len(), 4);
        let command = read(list.clone()).unwrap();
        assert_eq!(serde_json::to_value(command).unwrap(), list, "as written");
    }

    #[test]
    fn a_command_without_a_program_is_refused() {
        let long = "x".repeat(LENGTH_MAX + 1);
        for bad in ["", "  ", ",a b", "a\nb", "a\0", &long] {
            assert!(read(json!(bad)).is_err(), "{bad:?}");
        }
        for bad in [
            json!([]),
            json!([" "]),
            json!(["a\0"]),
            json!([long]),
            json!([1]),
            json!(1),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_text_that_needs_quoting_is_warned_about_with_an_equivalent_list() {
        for (text, said) in [
            (
                "sh,-c echo warmed > /tmp/warm",
                r#"["sh","-c","echo warmed > /tmp/warm"]"#,
            ),
            (
                "/bin/bash -lc make all",
                r#"["/bin/bash","-lc","make all"]"#,
            ),
            (
                "echo,warmed > /tmp/warm",
                r#"["sh","-c","echo warmed > /tmp/warm"]"#,
            ),
            ("tool,--name 'a b'", r#"["sh","-c","tool --name 'a b'"]"#),
        ] {
            let advice = read(json!(text)).unwrap().advice();
            assert!(
                advice.as_deref().is_some_and(|a| a.contains(said)),
                "{advice:?}"
            );
        }
        for fine in [
            json!("sh,-c /warm.sh"),
            json!("python3,-m http.server 8080"),
            json!("curl,-sf --retry 60 localhost:49999/health"),
            json!(["sh", "-c", "echo a > /b"]),
        ] {
            assert_eq!(read(fine.clone()).unwrap().advice(), None, "{fine}");
        }
    }

    #[test]
    fn a_list_becomes_a_line_with_quoted_words() {
        let read = |value: Value| line(value).unwrap().unwrap();
        assert_eq!(read(json!("serve | log")), "serve | log");
        assert_eq!(
            read(json!(["sh", "-c", "echo 'a' > /b", "--port=80"])),
            r"sh -c 'echo '\''a'\'' > /b' --port=80"
        );
    }
}
