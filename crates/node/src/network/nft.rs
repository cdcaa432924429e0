//! Applies rules through the `nft` program.
//!
//! No maintained library implements the kernel's netlink protocol for rules. Slots are created
//! ahead of time, so no sandbox waits for the process.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use serde_json::Value;

/// How much of the output of `nft` an error quotes.
const SHOWN: usize = 400;

/// Applies a ruleset atomically in the namespace of the calling thread.
///
/// # Errors
/// When `nft` is missing or fails; the text says why.
pub(super) fn apply(ruleset: &Value) -> io::Result<()> {
    let mut child = Command::new("nft")
        .args(["-j", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("cannot run nft: {e}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        // The exit status reports a failed write with a better text.
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
