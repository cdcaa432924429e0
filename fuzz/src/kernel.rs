//! Messages of kernels, as the daemon makes lines of them.

// The daemon is a program and no library: this file of it stands alone.
#[cfg_attr(not(test), expect(dead_code, reason = "the daemon uses the rest"))]
#[path = "../../crates/envd/src/interpreter/lines.rs"]
mod lines;

use lines::Output;
use serde_json::Value;

/// A message of a kernel: its kind, a line break, and its content. Any message becomes one line of JSON with its
/// type.
pub fn kernel(data: &[u8]) {
    let mut halves = data.splitn(2, |byte| *byte == b'\n');
    let kind = String::from_utf8_lossy(halves.next().unwrap_or_default());
    let content = halves.next().unwrap_or_default();
    match lines::read(&kind, content, "now") {
        Some(Output::Line(line) | Output::Error(line)) => one_line(&line),
        Some(Output::Count(_) | Output::Idle) | None => {}
    }
    if let Some(line) = lines::reply(content).error {
        one_line(&line);
        // For people: nothing it says may end the daemon.
        drop(lines::words(&line));
    }
}

fn one_line(line: &[u8]) {
    let end = line.iter().position(|byte| *byte == b'\n');
    assert_eq!(end, Some(line.len() - 1));
    // A value may be deeper than our parser goes, or have halves of characters in it. What clients
    // must find is in front of it.
    assert!(line.starts_with(b"{\"type\":\"") && line.ends_with(b"}\n"));
    if let Ok(line) = serde_json::from_slice::<Value>(line) {
        assert!(line["type"].is_string());
    }
}
