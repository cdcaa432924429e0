//! Completions for shells.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

/// For which shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal completions bash > /etc/bash_completion.d/shoal
  shoal completions zsh > \"${fpath[1]}/_shoal\"
  shoal completions fish > ~/.config/fish/completions/shoal.fish")]
pub struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

impl CompletionsArgs {
    /// Prints the shell's script for the whole `program`.
    #[must_use]
    pub fn print(&self, mut program: Command) -> ExitCode {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "shoal", &mut script);
        match io::stdout().write_all(&script) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        }
    }
}
