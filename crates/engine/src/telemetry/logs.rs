//! The logs of the daemons in sandboxes, kept for a while after their end.
//!
//! One file a sandbox and one that is full: the space of a sandbox is bounded, and the latest is
//! always there. The logs of a team's sandboxes are bounded together, too, those that have ended included.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use shoal_core::clock::Timestamp;
use shoal_core::detail::Chain;
use shoal_core::id::{SandboxId, TeamId};
pub use shoal_core::ports::observe::{LogEntry, LogLevel, LogQuery};

/// How large a file may grow before it is the full one: a sandbox has twice this at most.
const FILE_MAX: u64 = 4 << 20;

/// Reads a line that the daemon wrote. A line that is no entry becomes the message of one. `now` is the
/// time of its receipt.
fn read_entry(line: &str, now: Timestamp) -> LogEntry {
    let Ok(Value::Object(mut said)) = serde_json::from_str::<Value>(line) else {
        return LogEntry {
            at: now,
            level: LogLevel::Info,
            message: line.to_owned(),
            fields: BTreeMap::new(),
        };
    };
    let mut text = |name: &str| match said.remove(name) {
        Some(Value::String(text)) => Some(text),
        Some(other) => Some(other.to_string()),
        None => None,
    };
    // Entries are in the order of receipt: the sandbox's own clock is not used.
    let _ = text("timestamp");
    let level = text("level").and_then(|level| LogLevel::parse(&level));
    let message = text("message")
        .or_else(|| text("event"))
        .unwrap_or_default();
    let fields = said.into_iter().map(|(name, value)| match value {
        Value::String(text) => (name, text),
        other => (name, other.to_string()),
    });
    LogEntry {
        at: now,
        level: level.unwrap_or(LogLevel::Info),
        message,
        fields: fields.collect(),
    }
}

/// The files, a directory for each team.
#[derive(Debug, Clone)]
pub(crate) struct LogStore {
    directory: PathBuf,
    /// The most bytes of a team's files together.
    team_max: u64,
    /// The bytes of a team's files, for teams that were counted. Locked while a file is written.
    held: Arc<Mutex<HashMap<TeamId, u64>>>,
}

impl LogStore {
    /// Opens the directory, making it when there is none. The logs of a team have at most `team_max` bytes,
    /// and the latest of one sandbox in any case.
    pub(crate) fn open(directory: PathBuf, team_max: u64) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        // The log of a sandbox is for its tenant alone.
        fs::set_permissions(&directory, Permissions::from_mode(0o700))?;
        Ok(Self {
            directory,
            team_max,
            held: Arc::default(),
        })
    }

    fn of_team(&self, team: TeamId) -> PathBuf {
        self.directory.join(team.to_string())
    }

    /// The full file of a sandbox, and the one that is written. Below the directory itself are those of a
    /// server that did not know of teams.
    fn files(directory: &Path, id: &SandboxId) -> [PathBuf; 2] {
        ["1.jsonl", "jsonl"].map(|kind| directory.join(format!("{id}.{kind}")))
    }

    fn write(&self, team: TeamId, id: &SandboxId, entries: &[LogEntry]) -> io::Result<()> {
        let mut text = Vec::new();
        for entry in entries {
            serde_json::to_writer(&mut text, entry)?;
            text.push(b'\n');
        }
        let directory = self.of_team(team);
        let [full, path] = Self::files(&directory, id);
        let mut held = self.held.lock();
        let known = match held.get(&team) {
            Some(known) => *known,
            None => {
                fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(&directory)?;
                sum(&directory)?
            }
        };
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        let append = || options.open(&path);
        let mut file = append()?;
        let mut gone = 0;
        if file.metadata()?.len() > FILE_MAX {
            gone = fs::metadata(&full).map_or(0, |about| about.len());
            fs::rename(&path, &full)?;
            file = append()?;
        }
        file.write_all(&text)?;
        let mut bytes = (known + text.len() as u64).saturating_sub(gone);
        if bytes > self.team_max {
            bytes = self.make_room(&directory, &path)?;
        }
        held.insert(team, bytes);
        Ok(())
    }

    /// Removes the files of a team that were written longest ago, but `newest`, until there is some room.
    /// Returns how many bytes are left.
    fn make_room(&self, directory: &Path, newest: &Path) -> io::Result<u64> {
        let mut files = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let about = entry.metadata()?;
            files.push((about.modified()?, about.len(), entry.path()));
        }
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        // More than is needed now, so that it is not done for each line.
        let most = self.team_max - self.team_max / 8;
        for (_, length, path) in files {
            if bytes <= most {
                break;
            }
            if path != newest {
                fs::remove_file(path)?;
                bytes -= length;
            }
        }
        Ok(bytes)
    }

    fn query(&self, team: TeamId, id: &SandboxId, query: &LogQuery) -> io::Result<Vec<LogEntry>> {
        let mut entries = Vec::new();
        let [old_full, old] = Self::files(&self.directory, id);
        let [full, now] = Self::files(&self.of_team(team), id);
        for path in [old_full, old, full, now] {
            let file = match File::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            for line in BufReader::new(file).lines() {
                // A line that a full disk has cut is passed over.
                if let Ok(entry) = serde_json::from_str::<LogEntry>(&line?)
                    && query.matches(&entry)
                {
                    entries.push(entry);
                }
            }
        }
        if query.backward {
            entries.reverse();
        }
        entries.truncate(query.limit);
        Ok(entries)
    }

    /// Forgets what sandboxes wrote, whosever they were.
    fn remove(&self, ids: &[SandboxId]) -> io::Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut held = self.held.lock();
        let teams = fs::read_dir(&self.directory)?.collect::<io::Result<Vec<_>>>()?;
        let teams = teams.into_iter().map(|entry| entry.path());
        for directory in teams.chain([self.directory.clone()]) {
            for path in ids.iter().flat_map(|id| Self::files(&directory, id)) {
                // There may be none.
                let _ = fs::remove_file(path);
            }
        }
        // The next write counts the remaining files.
        held.clear();
        Ok(())
    }

    /// Reads the entries of a sandbox of a team.
    pub(crate) async fn read(
        &self,
        team: TeamId,
        id: &SandboxId,
        query: LogQuery,
    ) -> io::Result<Vec<LogEntry>> {
        let (store, id) = (self.clone(), id.clone());
        let read = tokio::task::spawn_blocking(move || store.query(team, &id, &query));
        read.await.map_err(io::Error::other)?
    }

    /// Removes the logs of sandboxes, whichever team they belonged to.
    pub(crate) async fn forget(&self, ids: Vec<SandboxId>) -> io::Result<()> {
        let store = self.clone();
        let removed = tokio::task::spawn_blocking(move || store.remove(&ids));
        removed.await.map_err(io::Error::other)?
    }

    /// Stores the output of a daemon, lines in the order in which they came.
    pub(crate) async fn append(
        &self,
        team: TeamId,
        id: &SandboxId,
        lines: Vec<String>,
        now: Timestamp,
    ) {
        let (store, of) = (self.clone(), id.clone());
        let write = move || {
            let entries: Vec<LogEntry> = lines.iter().map(|line| read_entry(line, now)).collect();
            store.write(team, &of, &entries)
        };
        if let Ok(Err(error)) = tokio::task::spawn_blocking(write).await {
            tracing::warn!(sandbox.id = %id, error = %Chain(&error), "a log is not kept");
        }
    }
}

/// The bytes of the files in a directory.
fn sum(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn team(number: u8) -> TeamId {
        TeamId::from_entropy([number; 16])
    }

    fn entry(at: i64, level: LogLevel, message: &str) -> LogEntry {
        let at = Timestamp::from_unix_millis(at);
        LogEntry {
            at,
            level,
            message: message.to_owned(),
            fields: BTreeMap::new(),
        }
    }

    #[test]
    fn entries_are_found_by_time_level_and_text_from_either_end() {
        let directory = tempfile::tempdir().unwrap();
        let store = LogStore::open(directory.path().to_owned(), 256 << 20).unwrap();
        let id = "ia".parse().unwrap();
        let all = [
            entry(1, LogLevel::Info, "one"),
            entry(2, LogLevel::Error, "two"),
            entry(3, LogLevel::Debug, "three"),
        ];
        store.write(team(1), &id, &all).unwrap();
        let ask = |query: LogQuery| {
            let found = store.query(team(1), &id, &query).unwrap();
            found
                .into_iter()
                .map(|entry| entry.message)
                .collect::<Vec<_>>()
        };
        let base = LogQuery {
            limit: 10,
            ..LogQuery::default()
        };
        assert_eq!(ask(base.clone()), ["one", "two", "three"]);
        assert_eq!(
            ask(LogQuery {
                backward: true,
                limit: 2,
                ..base.clone()
            }),
            ["three", "two"]
        );
        let from = Some(Timestamp::from_unix_millis(2));
        assert_eq!(
            ask(LogQuery {
                cursor: from,
                ..base.clone()
            }),
            ["two", "three"]
        );
        assert_eq!(
            ask(LogQuery {
                level: Some(LogLevel::Warn),
                ..base.clone()
            }),
            ["two"]
        );
        assert_eq!(
            ask(LogQuery {
                search: Some("hre".into()),
                ..base
            }),
            ["three"]
        );
        let any = LogQuery {
            limit: 10,
            ..LogQuery::default()
        };
        assert_eq!(store.query(team(1), &id, &any).unwrap().len(), 3);
        assert!(store.query(team(2), &id, &any).unwrap().is_empty());
        store.remove(&[id]).unwrap();
        assert_eq!(sum(&store.of_team(team(1))).unwrap(), 0);
    }

    #[test]
    fn what_a_sandbox_can_fill_is_bounded_and_the_latest_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let store = LogStore::open(directory.path().to_owned(), 256 << 20).unwrap();
        let id = "ia".parse().unwrap();
        let much: Vec<LogEntry> = (0..1000)
            .map(|n| entry(n, LogLevel::Info, &"x".repeat(1000)))
            .collect();
        for _ in 0..20 {
            store.write(team(1), &id, &much).unwrap();
        }
        store
            .write(team(1), &id, &[entry(9, LogLevel::Info, "last")])
            .unwrap();
        assert!(sum(&store.of_team(team(1))).unwrap() < 3 * FILE_MAX);
        let last = LogQuery {
            backward: true,
            limit: 1,
            ..LogQuery::default()
        };
        assert_eq!(store.query(team(1), &id, &last).unwrap()[0].message, "last");
    }

    #[test]
    fn a_team_that_fills_its_logs_loses_its_oldest_and_no_other_team_does() {
        const MOST: u64 = 1 << 20;
        let directory = tempfile::tempdir().unwrap();
        let store = LogStore::open(directory.path().to_owned(), MOST).unwrap();
        let id = |number: u32| format!("i{number}").parse::<SandboxId>().unwrap();
        let other = [entry(1, LogLevel::Info, "another team's")];
        store.write(team(2), &id(1000), &other).unwrap();
        let much: Vec<LogEntry> = (0..100)
            .map(|n| entry(n, LogLevel::Info, &"x".repeat(1000)))
            .collect();
        for number in 0..40 {
            store.write(team(1), &id(number), &much).unwrap();
        }
        assert!(sum(&store.of_team(team(1))).unwrap() <= MOST);
        let all = LogQuery {
            limit: 1000,
            ..LogQuery::default()
        };
        let kept = |of, number| store.query(of, &id(number), &all).unwrap().len();
        assert_eq!((kept(team(1), 0), kept(team(1), 39)), (0, 100));
        assert_eq!(kept(team(2), 1000), 1);
        // After a restart, the server counts the existing lines.
        let again = LogStore::open(directory.path().to_owned(), MOST).unwrap();
        for number in 40..50 {
            again.write(team(1), &id(number), &much).unwrap();
        }
        assert!(sum(&again.of_team(team(1))).unwrap() <= MOST);
    }

    #[test]
    fn whatever_a_daemon_writes_becomes_an_entry() {
        let now = Timestamp::from_unix_millis(7);
        let good = read_entry(
            r#"{"timestamp":"x","level":"warn","message":"m","pid":3,"logger":"process"}"#,
            now,
        );
        assert_eq!(
            (good.level, good.message.as_str(), good.at),
            (LogLevel::Warn, "m", now)
        );
        assert_eq!(good.fields["pid"], "3");
        for bad in ["", "plain", "[1]", "{\"level\":{}}", "{\"level\":\"odd\"}"] {
            assert_eq!(read_entry(bad, now).level, LogLevel::Info, "{bad}");
        }
    }
}
