//! Changes of a session's files, as the daemon reads them, and what it reads in a sandbox.

use shoal_protocol::sync::WatchLine;
use shoal_protocol::sync::frame::{Changes, encode};
use shoal_session_files::gitignore::{HOME, Ignoring};
use shoal_session_files::path::SessionPath;

/// A body of changes: what is read is written as it would be read again, and is never more than what arrived. A line of a
/// watch, and the rules of a `.gitignore`, do not panic.
pub fn sync(data: &[u8]) {
    let mut changes = Changes::new(data);
    let (mut again, mut total) = (Vec::new(), 0);
    while let Ok(Some(change)) = changes.next_change() {
        total += change.contents.len();
        assert!(!change.head.path.names().any(|name| name == ".."));
        let head = encode(&change.head).unwrap();
        again.extend(head);
        again.extend_from_slice(&change.contents);
        let read = Changes::new(again.as_slice()).next_change();
        assert_eq!(read.unwrap().as_ref(), Some(&change));
        again.clear();
    }
    assert!(total <= data.len());
    let _ = serde_json::from_slice::<WatchLine>(data);
    let mut rules = Ignoring::default();
    let kept = rules.set(HOME, Some(data));
    let path: SessionPath = "a/b.txt".parse().unwrap();
    assert!(kept.is_ok() || rules.ignores(&path));
}
