//! `RUN`, and the start command: `CMD`, `ENTRYPOINT`, `SHELL`.

use super::arguments::{Allowed, What, quoted};
use super::heredoc;
use super::stage::{Around, Builder};
use super::{Instruction, Problem};

/// A command in one of its two forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StartWords {
    /// Exec form: a program and its arguments.
    Exec(Vec<String>),
    /// Shell form: a line.
    Line(String),
}

const RUN_FLAGS: [Allowed; 4] = [
    Allowed {
        name: "mount",
        what: What::Take,
    },
    Allowed {
        name: "network",
        what: What::Take,
    },
    Allowed {
        name: "security",
        what: What::Take,
    },
    Allowed {
        name: "device",
        what: What::Refuse("A sandbox has no devices of the machine."),
    },
];

/// The shell command of a `RUN`.
pub(super) fn command(
    instruction: &Instruction,
    shell: Option<&[String]>,
    around: &mut Around<'_>,
) -> Result<String, Problem> {
    for (name, value) in instruction.flags(&RUN_FLAGS)? {
        flag(instruction, name, value, around)?;
    }
    if let Some(words) = instruction.json() {
        if words.is_empty() {
            return Err(instruction.problem("it has no command"));
        }
        return Ok(quoted(&words));
    }
    let line = match instruction.heredocs.as_slice() {
        [] => instruction.rest.clone(),
        [only] if heredoc::marker(&instruction.rest, around.escape).is_some() => script(only),
        several => {
            let mut text = instruction.rest.clone();
            for one in several {
                text.push('\n');
                text.push_str(&one.body);
                text.push_str(&one.name);
            }
            text
        }
    };
    Ok(by_shell(shell, line))
}

/// A `RUN` that consists of a heredoc: a shell script, or another program's if it starts with `#!`.
fn script(heredoc: &heredoc::Heredoc) -> String {
    if !heredoc.body.starts_with("#!") {
        return heredoc.body.clone();
    }
    // No line of the text equals the delimiter, or the text would have ended there.
    let name = quoted(std::slice::from_ref(&heredoc.name));
    let mark = if name.starts_with('\'') {
        name
    } else {
        format!("'{name}'")
    };
    format!(
        "script=$(mktemp) && cat > \"$script\" <<{mark}\n{}{}\nchmod +x \"$script\" && \"$script\"\n\
         code=$?; rm -f \"$script\"; exit $code",
        heredoc.body, heredoc.name
    )
}

fn by_shell(shell: Option<&[String]>, line: String) -> String {
    let Some(shell) = shell else {
        return line;
    };
    let mut words = shell.to_vec();
    words.push(line);
    quoted(&words)
}

fn flag(
    instruction: &Instruction,
    name: &str,
    value: &str,
    around: &mut Around<'_>,
) -> Result<(), Problem> {
    let refused = || instruction.problem(format!("--{name}={value} is not supported"));
    match (name, value) {
        ("network", "default") | ("security", "sandbox") => Ok(()),
        ("network", "host") => {
            around.warn(
                instruction,
                "--network=host is passed over: it has the sandbox's network",
            );
            Ok(())
        }
        ("mount", mount) => {
            let kind = mount.split(',').find_map(|part| part.strip_prefix("type="));
            match kind {
                Some("cache" | "tmpfs") => {
                    around.warn(instruction, "--mount is passed over: the directory stays in the template");
                    Ok(())
                }
                Some("secret" | "ssh") => Err(refused().with_hint(
                    "Secrets cannot be handed to a build: fetch what needs them elsewhere, and COPY it.",
                )),
                _ => Err(refused().with_hint("COPY the files instead.")),
            }
        }
        _ => Err(refused()),
    }
}

impl Builder {
    /// `CMD`, `ENTRYPOINT` and `SHELL`.
    pub(super) fn start_words(&mut self, instruction: &Instruction) -> Result<(), Problem> {
        instruction.flags(&[])?;
        let said = instruction.json();
        if instruction.keyword == "SHELL" {
            let shell = said.filter(|shell| !shell.is_empty()).ok_or_else(|| {
                instruction.problem("it takes a JSON array: SHELL [\"/bin/sh\", \"-c\"]")
            })?;
            self.shell = Some(shell);
            return Ok(());
        }
        let words = match said {
            Some(words) => StartWords::Exec(words),
            None => StartWords::Line(by_shell(self.shell.as_deref(), instruction.rest.clone())),
        };
        if instruction.keyword == "CMD" {
            self.cmd = Some(words);
            self.own_cmd = true;
            return Ok(());
        }
        self.entrypoint = Some(words);
        // A new entry point does not take the arguments of the one in the base.
        if !self.own_cmd {
            self.cmd = None;
        }
        Ok(())
    }

    /// The start command of sandboxes.
    pub(super) fn start_cmd(&self) -> Option<String> {
        let is_said =
            |words: &&StartWords| !matches!(words, StartWords::Exec(words) if words.is_empty());
        let cmd = self.cmd.as_ref().filter(is_said);
        match (self.entrypoint.as_ref().filter(is_said), cmd) {
            (Some(StartWords::Line(line)), _) | (None, Some(StartWords::Line(line))) => {
                Some(line.clone())
            }
            (Some(StartWords::Exec(words)), None) | (None, Some(StartWords::Exec(words))) => {
                Some(quoted(words))
            }
            (Some(StartWords::Exec(words)), Some(StartWords::Exec(more))) => {
                Some(quoted(&[words.as_slice(), more].concat()))
            }
            (Some(StartWords::Exec(words)), Some(StartWords::Line(line))) => {
                let shell = ["/bin/sh", "-c", line].map(str::to_owned);
                Some(quoted(&[words.as_slice(), &shell].concat()))
            }
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_from_the_shell() {
        let words = ["a b", "it's", "", "x=1", "$A"].map(str::to_owned);
        assert_eq!(quoted(&words), r"'a b' 'it'\''s' '' x=1 '$A'");
    }
}
