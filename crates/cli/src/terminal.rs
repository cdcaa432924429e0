//! The terminal that the user sits at.

use std::io::{self, IsTerminal};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

/// The size of a terminal that does not report one.
const STANDARD_SIZE: (u16, u16) = (80, 24);

/// Hands every key through as it is, until it is dropped.
pub(crate) struct RawMode {
    before: Option<Termios>,
}

impl RawMode {
    /// Switches the terminal on standard input, if there is one.
    pub(crate) fn enter() -> io::Result<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(Self { before: None });
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        Ok(Self {
            before: Some(before),
        })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // A terminal that has gone needs no restoring.
            let _ = tcsetattr(io::stdin(), OptionalActions::Drain, before);
        }
    }
}

/// The key that interrupts.
pub(crate) const INTERRUPT: u8 = 3;

/// Hides typed text until it is dropped. [`INTERRUPT`] ends a line, too.
pub(crate) struct WithoutEcho {
    before: Termios,
}

impl WithoutEcho {
    /// Switches the terminal on standard input.
    pub(crate) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        // A signal would leave the terminal without its echo: an interrupt ends the line instead.
        hidden.local_modes.remove(LocalModes::ISIG);
        hidden.special_codes[SpecialCodeIndex::VEOL] = INTERRUPT;
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self { before })
    }
}

impl Drop for WithoutEcho {
    fn drop(&mut self) {
        // A terminal that has gone needs no restoring.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// Columns and rows of the terminal that the output goes to.
pub(crate) fn size() -> (u16, u16) {
    let asked = tcgetwinsize(io::stdout()).or_else(|_| tcgetwinsize(io::stdin()));
    match asked {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => STANDARD_SIZE,
    }
}
