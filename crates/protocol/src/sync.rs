//! Bodies of `/sync`: the files of a session in its home directory. These routes are Shoal's own.
//!
//! | route | body | answer |
//! |---|---|---|
//! | `GET /sync/watch?home=&file_max=` | | lines of [`WatchLine`], and empty ones to keep the connection alive |
//! | `POST /sync/apply?home=` | [changes](frame) | a line of [`AppliedLine`] for each |
//! | `POST /sync/look?home=` | [`LookRequest`] | a line of [`FoundLine`] for each path |
//! | `GET /sync/file?home=&path=` | | the contents |
//! | `POST /sync/flush` | | [`FlushAnswer`] |
//!
//! Lines are JSON objects. A reader passes over fields and kinds that it does not know.
//!
//! The daemon numbers what it finds and what it changes, in one sequence: `at`. An event with a lower number than the outcome
//! of a change at the same path is older than the change.

pub mod frame;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use shoal_session_files::path::SessionPath;
use shoal_session_files::state::FileState;

/// The largest file that is written or compared, in bytes.
pub const CONTENTS_MAX: u64 = 64 << 20;

/// The most changes of one `POST /sync/apply`, and paths of one `POST /sync/look`.
pub const BATCH_MAX: usize = 8_192;

/// The most files that are watched.
pub const FILES_MAX: usize = 200_000;

/// How often a watch writes an empty line.
pub const KEEPALIVE: Duration = Duration::from_secs(60);

/// The longest line of an answer, in bytes.
pub const LINE_MAX: usize = 16 << 10;

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WatchLine {
    /// An existing file.
    Present {
        /// Where.
        path: SessionPath,
        /// Its contents.
        state: FileState,
        /// The number of the event.
        at: u64,
    },
    /// The file no longer exists.
    Absent {
        /// Where.
        path: SessionPath,
        /// The number of the event.
        at: u64,
    },
    /// The file there does not return any more.
    Withheld {
        /// Where.
        path: SessionPath,
        /// The number of the event.
        at: u64,
    },
    /// Something is not seen, or is seen late.
    Limited {
        /// The path; all of them when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<SessionPath>,
        /// Why.
        reason: String,
    },
    /// Every change before this flush has been reported. The first is 0.
    Settled {
        /// Its number.
        flush: u64,
        /// The number of the last event or change.
        at: u64,
    },
    /// The watch has ended. Nothing follows.
    Failed {
        /// Why.
        reason: WatchFailure,
        /// The same in words.
        message: String,
    },
    /// Of a later version.
    #[serde(other)]
    Unknown,
}

/// Why a watch has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchFailure {
    /// Another watch has started.
    Replaced,
    /// More files or directories than can be watched.
    TooMany,
    /// The home directory is gone.
    Gone,
    /// Anything else.
    #[serde(other)]
    Other,
}

/// The outcome of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum AppliedLine {
    /// It was made, or nothing was to be done.
    Done {
        /// The number of the change.
        at: u64,
    },
    /// The file that exists instead; none when it is absent.
    Differs {
        /// Its contents.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<FileState>,
    },
    /// It cannot be made.
    Failed {
        /// Why.
        message: String,
    },
}

/// Asks for the states of paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookRequest {
    /// The paths, at most [`BATCH_MAX`].
    pub paths: Vec<SessionPath>,
}

/// The state of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "found", rename_all = "snake_case")]
pub enum FoundLine {
    /// Nothing.
    Nothing,
    /// A regular file.
    File {
        /// Its contents.
        state: FileState,
    },
    /// Something else, or a file that cannot be read.
    Other {
        /// Its type, in words.
        message: String,
    },
}

/// The answer to a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushAnswer {
    /// Its number in [`WatchLine::Settled`].
    pub flush: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, to_string};
    use shoal_session_files::state::Digest;

    use super::*;

    /// The wire: sandboxes keep the daemon that they were made with.
    #[test]
    fn lines_are_what_earlier_daemons_write() {
        let path: SessionPath = "a/b".parse().unwrap();
        let state = FileState {
            digest: Digest([0xab; 32]),
            size: 3,
            executable: true,
        };
        let state_text = format!(
            r#"{{"digest":"{}","size":3,"executable":true}}"#,
            "ab".repeat(32)
        );
        for (line, text) in [
            (
                WatchLine::Present {
                    path: path.clone(),
                    state,
                    at: 7,
                },
                format!(r#"{{"event":"present","path":"a/b","state":{state_text},"at":7}}"#),
            ),
            (
                WatchLine::Absent {
                    path: path.clone(),
                    at: 8,
                },
                r#"{"event":"absent","path":"a/b","at":8}"#.to_owned(),
            ),
            (
                WatchLine::Withheld { path, at: 9 },
                r#"{"event":"withheld","path":"a/b","at":9}"#.to_owned(),
            ),
            (
                WatchLine::Limited {
                    path: None,
                    reason: "r".to_owned(),
                },
                r#"{"event":"limited","reason":"r"}"#.to_owned(),
            ),
            (
                WatchLine::Settled { flush: 0, at: 9 },
                r#"{"event":"settled","flush":0,"at":9}"#.to_owned(),
            ),
            (
                WatchLine::Failed {
                    reason: WatchFailure::TooMany,
                    message: "m".to_owned(),
                },
                r#"{"event":"failed","reason":"too_many","message":"m"}"#.to_owned(),
            ),
        ] {
            assert_eq!(to_string(&line).unwrap(), text);
            assert_eq!(from_str::<WatchLine>(&text).unwrap(), line);
        }
        let differs = AppliedLine::Differs { state: Some(state) };
        let text = format!(r#"{{"outcome":"differs","state":{state_text}}}"#);
        assert_eq!(to_string(&differs).unwrap(), text);
        assert_eq!(from_str::<AppliedLine>(&text).unwrap(), differs);
        let nothing = AppliedLine::Differs { state: None };
        assert_eq!(to_string(&nothing).unwrap(), r#"{"outcome":"differs"}"#);
    }

    #[test]
    fn what_a_later_daemon_adds_is_passed_over() {
        let later = r#"{"event":"moved","path":"a","to":"b"}"#;
        assert_eq!(from_str::<WatchLine>(later).unwrap(), WatchLine::Unknown);
        let later = r#"{"event":"failed","reason":"bored","message":"m"}"#;
        let WatchLine::Failed { reason, .. } = from_str(later).unwrap() else {
            panic!("another line");
        };
        assert_eq!(reason, WatchFailure::Other);
    }

    #[test]
    fn a_path_out_of_the_home_is_no_line() {
        let line = r#"{"event":"absent","path":"../x","at":1}"#;
        assert!(from_str::<WatchLine>(line).is_err());
    }
}
