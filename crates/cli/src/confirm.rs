//! Questions before something is lost.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::failure::{Failure, Kind};

/// Asks on the terminal, and fails unless the answer is yes. `declined` is the error message.
pub(crate) fn confirm(question: &str, declined: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "cannot ask for confirmation without a terminal: pass --yes",
        ));
    }
    eprint!("{question} [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Failure::other(format!("cannot read the answer: {error}")))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new(Kind::Interrupted, declined)),
    }
}
