//! Manual pages.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use clap::{Args, Command};

/// Where the pages go.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  shoal man ~/.local/share/man/man1 && man shoal-sandbox-create")]
pub struct ManArgs {
    /// The directory, which is created if it is missing.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl ManArgs {
    /// Writes a page for the whole `program` and one for each of its commands.
    #[must_use]
    pub fn write(&self, program: Command) -> ExitCode {
        match write(&self.directory, program) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let directory = self.directory.display();
                eprintln!("shoal: cannot write manual pages into {directory}: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

fn write(directory: &Path, program: Command) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    clap_mangen::generate_to(program, directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_and_a_failure_is_told() {
        let program = || {
            Command::new("shoal")
                .about("Runs sandboxes")
                .subcommand(Command::new("serve").about("Starts the server"))
        };
        let directory = tempfile::tempdir().unwrap();
        let pages = directory.path().join("share/man1");
        write(&pages, program()).unwrap();
        let page = fs::read_to_string(pages.join("shoal-serve.1")).unwrap();
        assert!(page.contains("Starts the server"), "{page}");
        assert_eq!(fs::read_dir(&pages).unwrap().count(), 2);
        let file = pages.join("shoal.1");
        assert!(write(&file, program()).is_err(), "it is a file");
    }
}
