//! Puts rules in force through the `nft` program.
//!
//! A process, because no maintained library speaks the kernel's own protocol for it; slots are
//! made ahead of time, so that nobody waits for one.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use serde_json::Value;

/// How much of what `nft` says is kept for an error.
const SHOWN: usize = 400;

/// Applies a ruleset in the namespace of the calling thread, all of it or nothing.
///
/// # Errors
/// When `nft` is missing, or refuses; the text says why.
pub(super) fn apply(ruleset: &Value) -> io::Result<()> {
    let mut child = Command::new("nft")
        .args(["-j", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("cannot run nft: {e}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A failed write shows in the exit status, with a better text.
        let _ = stdin.write_all(ruleset.to_string().as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said: String = String::from_utf8_lossy(&output.stderr)
        .chars()
        .take(SHOWN)
        .collect();
    Err(io::Error::other(format!("nft refused: {}", said.trim())))
}
