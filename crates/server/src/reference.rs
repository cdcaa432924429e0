//! The generated pages of the documentation: commands and settings.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Command, CommandFactory};

use crate::Cli;
use crate::config::settings::SETTINGS;
use crate::config::sources::variable;

/// Writes the pages instead of comparing them.
const WRITE: &str = "SHOAL_WRITE_REFERENCE";

/// The help of a command and of those below it.
fn help(command: &mut Command, page: &mut String) {
    let name = command.get_bin_name().unwrap_or("shoal").to_owned();
    let text = command.render_help().to_string();
    let lines: Vec<_> = text.trim_end().lines().map(str::trim_end).collect();
    let _ = write!(page, "\n## {name}\n\n```text\n{}\n```\n", lines.join("\n"));
    let visible = command
        .get_subcommands_mut()
        .filter(|one| !one.is_hide_set());
    visible.for_each(|one| help(one, page));
}

fn commands() -> String {
    let mut page =
        "# Commands\n\nThe help of each command, as `-h` prints it. `--help` explains more.\n"
            .to_owned();
    let mut program = hide_values(Cli::command());
    program.build();
    help(&mut program, &mut page);
    page
}

/// Values of the environment are not part of the page.
fn hide_values(command: Command) -> Command {
    command
        .mut_args(|argument| argument.hide_env_values(true))
        .mut_subcommands(hide_values)
}

fn settings() -> String {
    let mut page = "# Settings\n\nAll settings of the server. [Configuration](configuration.md) explains where they are \
        written. The default is in the third column.\n\n| setting | variable | default | meaning |\n|---|---|---|---|\n"
        .to_owned();
    for setting in SETTINGS {
        let default = match setting.default {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        let about = setting.about.replace('<', "\\<").replace('|', "\\|");
        let variable = variable(setting.name);
        let name = setting.name;
        let _ = writeln!(page, "| `{name}` | `{variable}` | {default} | {about} |");
    }
    page
}

#[test]
fn the_pages_match_the_program() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (name, page) in [("commands.md", commands()), ("settings.md", settings())] {
        let file = docs.join(name);
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&file, &page).unwrap();
        }
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            kept == page,
            "{} is out of date: run the test with {WRITE}=1 and read the difference",
            file.display()
        );
    }
}
