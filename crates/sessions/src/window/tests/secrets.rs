//! Secrets in windows.

use std::path::Path;

use shoal_core::session::secret::SecretValue;

use super::*;

const VALUE: &str = "correct-horse";

struct Fixture {
    secrets: watch::Sender<Secrets>,
    window: Window,
}

impl Fixture {
    async fn new() -> Self {
        let (secrets, follow) = watch::channel(Secrets::default());
        let window = window_with(Arc::default(), follow).await;
        Self { secrets, window }
    }

    fn set(&self, values: &[(&str, &str)]) {
        let value = |text: &str| Arc::new(SecretValue::new(text.to_owned()).unwrap());
        let set = values
            .iter()
            .map(|(name, text)| (name.parse().unwrap(), value(text)));
        let set = set.collect();
        self.secrets.send_modify(|secrets| {
            secrets.replace(set);
        });
    }

    /// Everything that the window has shown.
    fn seen(&self) -> String {
        let (_, seen) = self.window.scrollback.since(0);
        String::from_utf8(seen.to_vec()).unwrap()
    }
}

/// Tells of a variable without its value.
const LENGTH: &str = "env | grep -c ^TOKEN=; sh -c 'echo ${#TOKEN}'";

#[tokio::test]
async fn r2_102_an_open_window_has_a_secret_after_its_activation_only() {
    let fixture = Fixture::new().await;
    let window = &fixture.window;
    assert_eq!(ran(window, "cd /usr; A=1").await, done(""));
    assert_eq!(ran(window, LENGTH).await, done("0\n0\n"));
    fixture.set(&[("TOKEN", VALUE)]);
    assert_eq!(ran(window, LENGTH).await, done("1\n13\n"));
    assert_eq!(ran(window, "pwd; echo $A $?").await, done("/usr\n1 0\n"));
    fixture.set(&[("TOKEN", "another value"), ("OTHER", "two\nlines")]);
    assert_eq!(
        ran(
            window,
            "[ \"$TOKEN\" = another\\ value ] && [ \"$OTHER\" = $'two\\nlines' ]"
        )
        .await,
        done("")
    );
    fixture.set(&[("OTHER", "two\nlines")]);
    assert_eq!(ran(window, LENGTH).await, done("0\n0\n"));
    // The user's own word counts until the next change.
    assert_eq!(ran(window, "OTHER=mine").await, done(""));
    assert_eq!(ran(window, "echo $OTHER").await, done("mine\n"));
}

#[tokio::test]
async fn r2_102_a_long_value_with_all_kinds_of_characters_arrives() {
    let fixture = Fixture::new().await;
    let value = "ab\\x41'\"$(id)`!%sä\n\t\u{7f}\u{3}\u{4} ".repeat(1000);
    fixture.set(&[("TOKEN", &value)]);
    let (length, sum) = (value.len(), "sh -c 'printf %s \"$TOKEN\"' | wc -c");
    assert_eq!(
        ran(&fixture.window, sum).await,
        done(&format!("{length}\n"))
    );
}

#[tokio::test]
async fn r2_104_a_value_is_in_no_output_and_no_history_and_no_argument() {
    let fixture = Fixture::new().await;
    let window = &fixture.window;
    // The history of this test alone, and none that is kept.
    let history = "unset HISTFILE; history -c; set -o history; HISTCONTROL=";
    ran(window, history).await;
    fixture.set(&[("TOKEN", VALUE)]);
    assert_eq!(ran(window, "echo \"<$TOKEN>\"").await, done("<***>\n"));
    // In pieces, too.
    let split = "printf correct-; sleep 0.3; echo horse; echo \"$TOKEN\" | fold -w 1 | tr -d '\\n'";
    assert_eq!(ran(window, split).await, done("***\n***"));
    assert_eq!(ran(window, "printf correct").await, done("correct"));
    let kept = "history | grep -q 'printf correct'; echo $?";
    assert_eq!(ran(window, kept).await, done("0\n"));
    assert_eq!(ran(window, "history | grep -c [c]orrect-ho").await.0, "0\n");
    let arguments = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c \"[c]orrect-h\"";
    assert_eq!(ran(window, arguments).await.0, "0\n");
    assert_eq!(ran(window, "echo correct-horses").await, done("***s\n"));
    // Programs may still have secrets that are not active any more.
    ran(window, "COPY=$TOKEN").await;
    fixture.set(&[]);
    assert_eq!(ran(window, "echo \"<$TOKEN$COPY>\"").await, done("<***>\n"));
    assert!(!fixture.seen().contains(VALUE), "{:?}", fixture.seen());
    assert!(!fixture.seen().contains("__shoal"), "{:?}", fixture.seen());
}

#[tokio::test]
async fn r2_104_the_command_that_runs_is_told_without_values() {
    let fixture = Fixture::new().await;
    fixture.set(&[("TOKEN", VALUE)]);
    let typed = format!("sh -c 'echo begun; exec sleep 1000' {VALUE}");
    let events = started(&fixture.window, &typed).await;
    let running = fixture.window.state().running.unwrap();
    assert_eq!(running, "sh -c 'echo begun; exec sleep 1000' ***");
    fixture.window.cancel().await;
    assert_eq!(all(events).await.1, ExecEnd::Cancelled);
}

#[tokio::test]
async fn a_command_that_runs_is_left_alone_and_the_next_has_the_change() {
    let fixture = Fixture::new().await;
    let window = &fixture.window;
    let fifo = tempfile_name();
    let wait = format!("mkfifo {fifo}; echo begun; read -r line <{fifo}; echo ${{#TOKEN}} $line");
    let events = started(window, &wait).await;
    fixture.set(&[("TOKEN", VALUE)]);
    let pipe = fifo.clone();
    let written = move || {
        std::fs::write(
            pipe,
            "correct-horse battery
",
        )
        .unwrap()
    };
    tokio::task::spawn_blocking(written).await.unwrap();
    // It is hidden at once, wherever it comes from.
    assert_eq!(all(events).await, done("0 *** battery\n"));
    assert_eq!(ran(window, LENGTH).await, done("1\n13\n"));
    std::fs::remove_file(Path::new(&fifo)).unwrap();
}

fn tempfile_name() -> String {
    let name = format!("shoal-test-{:x}", getrandom::u64().unwrap());
    std::env::temp_dir().join(name).display().to_string()
}

#[tokio::test]
async fn a_shell_in_place_of_another_has_the_secrets() {
    let fixture = Fixture::new().await;
    fixture.set(&[("TOKEN", VALUE)]);
    let stubborn = "trap '' INT; echo begun; while :; do :; done";
    let events = started(&fixture.window, stubborn).await;
    assert_eq!(
        ran(&fixture.window, "echo ${#TOKEN} $TOKEN").await,
        done("13 ***\n")
    );
    assert_eq!(all(events).await.1, ExecEnd::Cancelled);
}

#[tokio::test]
async fn a_command_that_is_cancelled_before_it_begins_leaves_the_variables_right() {
    let fixture = Fixture::new().await;
    let window = &fixture.window;
    ran(window, "true").await;
    fixture.set(&[("TOKEN", VALUE)]);
    let first = window.exec("echo ${#TOKEN}").await.unwrap();
    window.cancel().await;
    let ended = all(first).await;
    assert!(
        ended.1 == ExecEnd::Cancelled || ended == done("13\n"),
        "{ended:?}"
    );
    assert_eq!(ran(window, LENGTH).await, done("1\n13\n"));
    fixture.set(&[]);
    fixture.set(&[("TOKEN", VALUE)]);
    fixture.set(&[]);
    assert_eq!(ran(window, LENGTH).await, done("0\n0\n"));
}

#[tokio::test]
async fn r2_104_an_attached_terminal_has_the_variable_and_does_not_show_it() {
    let fixture = Fixture::new().await;
    fixture.set(&[("TOKEN", VALUE)]);
    // Its shell is ready when it has run something.
    ran(&fixture.window, "true").await;
    let mut attached = fixture.window.attach(0);
    let typed =
        Bytes::from_static(b"echo \"${#TOKEN}<$TOKEN>\"; printf correct-; sleep 0.3; echo horse\n");
    attached.control.input(typed).await.unwrap();
    let mut seen = Vec::new();
    while String::from_utf8_lossy(&seen).matches("***").count() < 2 {
        seen.extend(attached.output.next().await.unwrap());
    }
    let seen = String::from_utf8(seen).unwrap();
    assert!(
        seen.contains("13<***>\r\n") && !seen.contains(VALUE),
        "{seen:?}"
    );
}

#[tokio::test]
async fn what_a_person_types_while_the_variables_are_set_is_not_lost() {
    let fixture = Fixture::new().await;
    for turn in 0..10 {
        // The shell is at its prompt.
        ran(&fixture.window, "true").await;
        let mut attached = fixture.window.attach(0);
        let set: &[_] = if turn % 2 == 0 {
            &[("TOKEN", VALUE)]
        } else {
            &[]
        };
        fixture.set(set);
        // The task of the window sees the change now, and types the variables.
        for _ in 0..turn * 5 {
            tokio::task::yield_now().await;
        }
        let typed = format!("echo {turn}'' typed\n");
        attached.control.input(typed.into()).await.unwrap();
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(&format!("{turn} typed\r\n")) {
            seen.extend(attached.output.next().await.unwrap());
        }
    }
}
