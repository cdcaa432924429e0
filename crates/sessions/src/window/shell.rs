//! The shell of a window, and the meaning of its output.

use bytes::Bytes;
use shoal_core::ports::sessions::ExecEnd;

use super::marks::{Marks, Piece};
use super::masks::Masks;
use super::scrollback::Scrollback;
use super::typed::Mark;

/// The state of a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It starts.
    Starting,
    /// It is at its prompt, or runs a command that a person has typed.
    Idle,
    /// Its variables are being set. This is the id of the question whether that is done.
    Setting(String),
    /// The command with this id is being typed.
    Typed(String),
    /// It lists its background jobs before it runs this command.
    Listing(String),
    /// This command runs.
    Running(String),
    /// The command was cancelled, and the shell is asked whether it is back at its prompt.
    Cancelled(String),
}

/// An event of the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The shell reads commands.
    Started,
    /// The shell reads the variables that are typed.
    Reading,
    /// The shell has its variables.
    Set,
    /// The running command has printed this.
    Output(Bytes),
    /// The command has ended.
    Ended(ExecEnd),
}

/// Follows the output of a shell. Has no I/O.
#[derive(Debug)]
pub(crate) struct Shell {
    marks: Marks,
    pub(crate) doing: Doing,
    /// The command that is typed, as a person would see it.
    command: String,
    /// The id of that command.
    id: String,
    /// Whether its list of background jobs is being printed.
    lists: bool,
    /// Whether it has started. This is also determined after its cancellation.
    pub(crate) begun: bool,
    /// The process of the shell.
    pub(crate) process: Option<i64>,
    /// The processes of its background jobs, from before the present command.
    pub(crate) jobs: Vec<u32>,
    listed: Vec<u8>,
    pub(crate) masks: Masks,
}

impl Shell {
    pub(crate) fn new() -> Self {
        Self {
            marks: Marks::default(),
            doing: Doing::Starting,
            command: String::new(),
            id: String::new(),
            lists: false,
            begun: false,
            process: None,
            jobs: Vec::new(),
            listed: Vec::new(),
            masks: Masks::default(),
        }
    }

    /// Variables are set from now on; `id` is that of the question whether the shell is ready.
    pub(crate) fn setting(&mut self, id: String, scrollback: &Scrollback) {
        scrollback.push(&self.masks.finish());
        self.doing = Doing::Setting(id);
    }

    /// A command is typed from now on.
    pub(crate) fn typing(&mut self, id: String, command: &str, scrollback: &Scrollback) {
        scrollback.push(&self.masks.finish());
        self.id.clone_from(&id);
        self.doing = Doing::Typed(id);
        self.command = self.masks.text(command);
        self.listed.clear();
        (self.lists, self.begun) = (false, false);
    }

    /// The command is cancelled; `id` is that of the question whether the shell is ready.
    pub(crate) fn cancelling(&mut self, id: String) {
        // The output of a cancelled command is discarded.
        self.masks.finish();
        self.doing = Doing::Cancelled(id);
    }

    /// Takes the next output.
    pub(crate) fn hear(&mut self, bytes: &[u8], scrollback: &Scrollback) -> Vec<Heard> {
        let pieces = self.marks.feed(bytes);
        let mut heard = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Bytes(bytes) => heard.extend(self.bytes(bytes, scrollback)),
                Piece::Mark(mark, id, number) => {
                    let event = self.mark(mark, &id, number, scrollback);
                    if matches!(event, Some(Heard::Ended(ExecEnd::Exited(_)))) {
                        let rest = self.masks.finish();
                        heard.extend(printed(rest, scrollback));
                    }
                    heard.extend(event);
                }
            }
        }
        heard
    }

    /// The output has ended: the buffered end was no mark.
    pub(crate) fn finish(&mut self, scrollback: &Scrollback) -> Vec<Heard> {
        let rest = self.marks.rest();
        let mut heard: Vec<_> = self.bytes(rest, scrollback).into_iter().collect();
        let rest = self.masks.finish();
        match self.doing {
            Doing::Running(_) => heard.extend(printed(rest, scrollback)),
            _ => scrollback.push(&rest),
        }
        heard
    }

    /// No output for a moment: the buffered end may be a prompt.
    pub(crate) fn quiet(&mut self, scrollback: &Scrollback) -> Option<Heard> {
        let rest = self.masks.quiet();
        if let Doing::Running(_) = self.doing {
            return printed(rest, scrollback);
        }
        scrollback.push(&rest);
        None
    }

    fn bytes(&mut self, bytes: Vec<u8>, scrollback: &Scrollback) -> Option<Heard> {
        match self.doing {
            Doing::Idle => scrollback.push(&self.masks.feed(&bytes)),
            Doing::Listing(_) => self.listed.extend(bytes),
            Doing::Cancelled(_) if self.lists => self.listed.extend(bytes),
            Doing::Running(_) => return printed(self.masks.feed(&bytes), scrollback),
            // Input that this program typed is not shown.
            Doing::Starting | Doing::Setting(_) | Doing::Typed(_) | Doing::Cancelled(_) => {}
        }
        None
    }

    /// Reads the jobs from before the command, and whether it has started.
    fn follow_start(&mut self, mark: Mark, id: &str) {
        if id != self.id || self.begun {
            return;
        }
        if mark == Mark::Jobs {
            self.lists = true;
        } else if mark == Mark::Begin && self.lists {
            let listed = String::from_utf8_lossy(&self.listed);
            let jobs = listed.split_whitespace();
            self.jobs = jobs.filter_map(|job| job.parse().ok()).collect();
            (self.lists, self.begun) = (false, true);
        }
    }

    fn mark(
        &mut self,
        mark: Mark,
        id: &str,
        number: i64,
        scrollback: &Scrollback,
    ) -> Option<Heard> {
        self.follow_start(mark, id);
        match (&self.doing, mark) {
            (Doing::Starting, Mark::Hello) => {
                self.process = Some(number);
                self.doing = Doing::Idle;
                return Some(Heard::Started);
            }
            (Doing::Setting(expected), Mark::Begin) if expected == id => {
                return Some(Heard::Reading);
            }
            (Doing::Setting(expected), Mark::Ready) if expected == id => {
                self.doing = Doing::Idle;
                // The shell prints its prompt again, in place of the last.
                scrollback.push(b"\r\x1b[K");
                return Some(Heard::Set);
            }
            (Doing::Typed(expected), Mark::Jobs) if expected == id => {
                self.doing = Doing::Listing(id.to_owned());
            }
            (Doing::Listing(expected), Mark::Begin) if expected == id => {
                self.doing = Doing::Running(id.to_owned());
                scrollback.push(self.command.replace('\n', "\r\n").as_bytes());
                scrollback.push(b"\r\n");
            }
            (Doing::Running(expected), Mark::End) if expected == id => {
                self.doing = Doing::Idle;
                let code = i32::try_from(number).unwrap_or(-1);
                return Some(Heard::Ended(ExecEnd::Exited(code)));
            }
            (Doing::Cancelled(expected), Mark::Ready) if expected == id => {
                self.doing = Doing::Idle;
                scrollback.push(b"^C\r\n");
                return Some(Heard::Ended(ExecEnd::Cancelled));
            }
            // A mark of an earlier command, or printed by a program.
            _ => {}
        }
        None
    }
}

/// Output of the command.
fn printed(bytes: Vec<u8>, scrollback: &Scrollback) -> Option<Heard> {
    scrollback.push(&bytes);
    (!bytes.is_empty()).then(|| Heard::Output(bytes.into()))
}

#[cfg(test)]
mod tests {
    use shoal_core::session::secret::SecretValue;

    use super::*;

    fn mark(letter: char, id: &str, number: i64) -> String {
        format!("\x1b]133;{letter};{id};{number}\x07")
    }

    fn started(scrollback: &Scrollback) -> Shell {
        let mut shell = Shell::new();
        let hello = format!("$ typed noise\r\n{}$ ", mark('H', "h", 17));
        assert_eq!(shell.hear(hello.as_bytes(), scrollback), [Heard::Started]);
        assert_eq!((shell.process, &shell.doing), (Some(17), &Doing::Idle));
        shell
    }

    #[test]
    fn a_command_from_its_typing_to_its_end() {
        let scrollback = Scrollback::default();
        let mut shell = started(&scrollback);
        shell.typing("1".to_owned(), "echo a\necho b", &scrollback);
        let said = format!(
            " __shoal=$'echo'\r\n$ {}12\r\n34\r\n{}a\r\nb\r\n{}$ ",
            mark('J', "1", 0),
            mark('C', "1", 0),
            mark('D', "1", 3)
        );
        let heard = shell.hear(said.as_bytes(), &scrollback);
        let output = Heard::Output(Bytes::from_static(b"a\r\nb\r\n"));
        assert_eq!(heard, [output, Heard::Ended(ExecEnd::Exited(3))]);
        assert_eq!(shell.jobs, [12, 34]);
        let (_, seen) = scrollback.since(0);
        assert_eq!(seen, "$ echo a\r\necho b\r\na\r\nb\r\n$ ".as_bytes());
    }

    #[test]
    fn marks_of_other_commands_mean_nothing() {
        let scrollback = Scrollback::default();
        let mut shell = started(&scrollback);
        shell.typing("2".to_owned(), "x", &scrollback);
        for said in [
            mark('C', "2", 0),
            mark('J', "1", 0),
            mark('D', "2", 0),
            mark('R', "2", 0),
            mark('H', "2", 1),
        ] {
            assert_eq!(shell.hear(said.as_bytes(), &scrollback), []);
        }
        assert_eq!(shell.doing, Doing::Typed("2".to_owned()));
    }

    #[test]
    fn the_last_output_is_whole() {
        let scrollback = Scrollback::default();
        let mut shell = started(&scrollback);
        shell.typing("1".to_owned(), "x", &scrollback);
        let said = format!("{}{}last\x1b]13", mark('J', "1", 0), mark('C', "1", 0));
        let last = |text: &'static str| Heard::Output(Bytes::from_static(text.as_bytes()));
        assert_eq!(shell.hear(said.as_bytes(), &scrollback), [last("last")]);
        assert_eq!(shell.finish(&scrollback), [last("\x1b]13")]);
        assert_eq!(shell.finish(&scrollback), []);
    }

    #[test]
    fn r2_104_a_secret_is_in_neither_output_nor_scroll_back() {
        let scrollback = Scrollback::default();
        let mut shell = started(&scrollback);
        let secret = SecretValue::new("hunter2".to_owned()).unwrap();
        shell.setting("1".to_owned(), &scrollback);
        shell.masks.hide([&secret]);
        let said = format!(
            "typed\r\n{}hunter2\r\n{}$ ",
            mark('C', "1", 0),
            mark('R', "1", 0)
        );
        let heard = shell.hear(said.as_bytes(), &scrollback);
        assert_eq!(heard, [Heard::Reading, Heard::Set]);
        shell.typing("2".to_owned(), "echo hunter2", &scrollback);
        let (begin, end) = (mark('J', "2", 0) + &mark('C', "2", 0), mark('D', "2", 0));
        let output = |text: &'static str| Heard::Output(Bytes::from_static(text.as_bytes()));
        let heard = shell.hear(format!("{begin}<hun").as_bytes(), &scrollback);
        assert_eq!(heard, [output("<")]);
        assert_eq!(shell.quiet(&scrollback), Some(output("hun")));
        assert_eq!(shell.hear(b"ter2> hunt", &scrollback), [output("***> ")]);
        let heard = shell.hear(format!("{end}$ ").as_bytes(), &scrollback);
        assert_eq!(heard, [output("hunt"), Heard::Ended(ExecEnd::Exited(0))]);
        shell.hear(b"hunter2 typed", &scrollback);
        let (_, seen) = scrollback.since(0);
        let expected = "$ \r\x1b[K$ echo ***\r\n<hun***> hunt$ *** typed";
        assert_eq!(String::from_utf8_lossy(&seen), expected);
    }

    #[test]
    fn a_cancelled_command_ends_when_the_shell_is_ready() {
        let scrollback = Scrollback::default();
        let mut shell = started(&scrollback);
        shell.typing("1".to_owned(), "sleep 9", &scrollback);
        let begun = format!("{}{}", mark('J', "1", 0), mark('C', "1", 0));
        shell.hear(begun.as_bytes(), &scrollback);
        shell.cancelling("2".to_owned());
        let said = format!("^C\r\n{}$ {}", mark('D', "1", 130), mark('R', "2", 0));
        assert_eq!(
            shell.hear(said.as_bytes(), &scrollback),
            [Heard::Ended(ExecEnd::Cancelled)]
        );
        assert_eq!(shell.doing, Doing::Idle);
    }
}
