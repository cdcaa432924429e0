//! The input of a shell that sets the variables of secrets.
//!
//! No command contains a value: a command reads the values from the terminal, so that they come into no history and no
//! trace of commands. They are in no file and in no argument either. The command's input is typed once it has started:
//! a terminal that changes its mode gives a reader more than a line.

use shoal_core::session::secret::{SecretName, SecretValue};
use zeroize::Zeroizing;

use super::{LINE_MAX, Mark, VARIABLE};

/// How many characters a byte takes at most.
const CHARACTERS: usize = 4;

/// The command that reads variables. It marks its begin and its end.
pub(crate) fn command(id: &str) -> Vec<u8> {
    let (begin, ready) = (Mark::Begin.print(id, "0"), Mark::Ready.print(id, "0"));
    let (value, line) = (VARIABLE, format!("{VARIABLE}_line"));
    // The first line is what an interrupt may have left of a question.
    format!(
        "\n {value}=; {begin}; while IFS= builtin read -rs {line} && [[ ${line} != \" {id}\" ]]; do case ${line} in \
         \" +\"*) {value}+=${{{line}# +}} ;; \
         \" =\"*) builtin printf -v \"${{{line}# =}}\" %b \"${value}\"; builtin export \"${{{line}# =}}\"; {value}= ;; \
         \" -\"*) builtin unset -v \"${{{line}# -}}\" ;; esac; done; builtin unset -v {value} {line}; {ready}\n"
    )
    .into_bytes()
}

/// The lines that the command reads.
///
/// They begin with a blank: should the shell take one for a command, it is not kept in the history.
#[derive(Default)]
pub(crate) struct Lines(Zeroizing<Vec<u8>>);

impl Lines {
    /// Sets and exports a variable.
    pub(crate) fn set(&mut self, name: &SecretName, value: &SecretValue) {
        let parts = value.reveal().as_bytes().chunks(LINE_MAX / CHARACTERS);
        for part in parts {
            self.0.extend_from_slice(b" +");
            for byte in part {
                if byte.is_ascii_alphanumeric() {
                    self.0.push(*byte);
                } else {
                    self.0
                        .extend_from_slice(format!("\\x{byte:02x}").as_bytes());
                }
            }
            self.0.push(b'\n');
        }
        self.0.extend_from_slice(format!(" ={name}\n").as_bytes());
    }

    /// Takes a variable away.
    pub(crate) fn unset(&mut self, name: &SecretName) {
        self.0.extend_from_slice(format!(" -{name}\n").as_bytes());
    }

    /// Whether there is anything to read.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All lines, for the command with this id.
    pub(crate) fn end(mut self, id: &str) -> Zeroizing<Vec<u8>> {
        // The user may have typed half a line.
        self.0.insert(0, b'\n');
        self.0.extend_from_slice(format!(" {id}\n").as_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use shoal_core::session::secret::VALUE_MAX;

    use super::*;

    /// The output of bash with this as its input.
    fn bash(typed: &[u8]) -> Vec<u8> {
        let mut bash = Command::new("bash")
            .args(["--norc", "-s"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = bash.stdin.take().unwrap();
        let typed = typed.to_vec();
        let writer = std::thread::spawn(move || input.write_all(&typed));
        let done = bash.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stderr), "");
        done.stdout
    }

    #[test]
    fn a_value_arrives_as_it_is_and_is_in_no_command() {
        let name: SecretName = "TOKEN".parse().unwrap();
        let long = "ab\\x41'\"$(id)`!%sä\n\t\u{7f}\x01 ".repeat(1200);
        for text in [
            "hunter2",
            " a ",
            "\\",
            "\\x41",
            "two\nlines\n",
            "\n",
            "-n",
            "ä€😀",
            &long,
        ] {
            let value = SecretValue::new(text.to_owned()).unwrap();
            let mut lines = Lines::default();
            lines.set(&name, &value);
            let mut typed = command("i-1");
            typed.extend_from_slice(&lines.end("i-1"));
            assert!(
                typed
                    .split(|b| *b == b'\n')
                    .all(|line| line.len() <= LINE_MAX)
            );
            typed.extend_from_slice(
                b"set -u; sh -c 'printf %s \"$TOKEN\"'; echo -${__shoal-}${__shoal_line-}-\n",
            );
            let said = String::from_utf8(bash(&typed)).unwrap();
            let marks = "\x1b]133;C;i-1;0\x07\x1b]133;R;i-1;0\x07";
            assert_eq!(said, format!("{marks}{text}--\n"));
        }
        assert!(long.len() > 24 << 10 && long.len() <= VALUE_MAX);
        let value = SecretValue::new("hunter2".to_owned()).unwrap();
        let mut typed = b"set -v; set -o history\n".to_vec();
        let mut lines = Lines::default();
        lines.set(&name, &value);
        lines.set(&"OTHER".parse().unwrap(), &value);
        lines.unset(&name);
        typed.extend_from_slice(&command("i-2"));
        typed.extend_from_slice(&lines.end("i-2"));
        typed.extend_from_slice(b"set +v; echo \"[${TOKEN-}${#OTHER}]\"; history\n");
        let said = String::from_utf8(bash_all(&typed)).unwrap();
        assert!(
            said.contains("[7]\n") && !said.contains("hunter2"),
            "{said}"
        );
    }

    /// Both outputs of bash.
    fn bash_all(typed: &[u8]) -> Vec<u8> {
        let mut all = b"exec 2>&1\n".to_vec();
        all.extend_from_slice(typed);
        bash(&all)
    }
}
