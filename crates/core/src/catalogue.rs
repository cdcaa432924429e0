//! The catalogue: the templates that an operator defines, as data.
//!
//! It is a list of entries, most with Agent-Sandbox's fields ([`Entry`]). An entry matches one name
//! or, if it is dynamic, every name that its pattern matches ([`pattern`]). The settings of a
//! sandbox come from the request, the entry, its image and the defaults, in this order, value by
//! value ([`merge`]).

mod check;
mod command;
mod entry;
mod lint;
pub mod merge;
pub mod pattern;
mod pool;
mod resolve;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

pub use self::command::{Command, InvalidCommand};
pub use self::entry::{
    Entry, EntryName, EntryNetwork, EntryResources, InvalidEntryName, Kind, PersistentContents,
    Substrate,
};
pub use self::lint::Warning;
use self::pattern::Pattern;
pub use self::pool::{InvalidSpan, Pool, Span};
pub use self::resolve::{Match, Origin, ResolveError};

/// The largest catalogue, in bytes of JSON.
pub const BYTES_MAX: usize = 1 << 20;

/// The maximum number of entries.
pub const ENTRIES_MAX: usize = 1000;

/// The maximum number of dynamic entries: each is matched against names that no static entry has.
pub const DYNAMIC_MAX: usize = 200;

/// The template name of a sandbox created from an image alone, as in Agent-Sandbox.
pub const CUSTOM: &str = "custom";

/// The default port of an entry's service, as in Agent-Sandbox.
pub const PORT: u16 = 8080;

/// Parsed and validated entries, in their original order.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    entries: Vec<Arc<Entry>>,
    /// Entries by lower-case name.
    by_name: BTreeMap<String, usize>,
    patterns: Vec<(usize, Pattern)>,
}

/// Catalogues are equal when their entries are; the other fields are derived.
impl PartialEq for Catalogue {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

/// A problem of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The index of the entry, from 0.
    pub index: usize,
    /// The entry's name, if it has one.
    pub name: Option<String>,
    /// The field; `None` if the problem is the entry as a whole.
    pub field: Option<String>,
    /// The problem.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {}", self.index)?;
        if let Some(name) = &self.name {
            write!(f, " ({name:?})")?;
        }
        if let Some(field) = &self.field {
            write!(f, ", `{field}`")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Why a text is not a catalogue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCatalogue {
    /// It is larger than [`BYTES_MAX`].
    #[error("the catalogue has {0} bytes: at most {BYTES_MAX} are read")]
    TooLarge(usize),
    /// It is not a JSON list.
    #[error("the catalogue is no JSON list of entries: {0}")]
    Syntax(String),
    /// It has too many entries.
    #[error("the catalogue has {count} {what}: at most {most} are allowed")]
    TooMany {
        /// The number.
        count: usize,
        /// Entries, or dynamic entries.
        what: &'static str,
        /// The maximum.
        most: usize,
    },
    /// Entries have problems; all are listed, in order.
    #[error("the catalogue is refused: {}", told(.0))]
    Entries(Vec<Problem>),
}

/// The maximum number of problems in one message.
const TOLD_MAX: usize = 20;

fn told(problems: &[Problem]) -> String {
    let shown = problems.iter().take(TOLD_MAX).map(ToString::to_string);
    let mut text = shown.collect::<Vec<_>>().join("; ");
    if let Some(more) = problems.len().checked_sub(TOLD_MAX).filter(|n| *n > 0) {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

impl Catalogue {
    /// Parses a catalogue, or returns its problems.
    ///
    /// # Errors
    /// See [`InvalidCatalogue`].
    pub fn parse(json: &str) -> Result<Self, InvalidCatalogue> {
        if json.len() > BYTES_MAX {
            return Err(InvalidCatalogue::TooLarge(json.len()));
        }
        let values: Vec<Value> =
            serde_json::from_str(json).map_err(|e| InvalidCatalogue::Syntax(e.to_string()))?;
        bounded(values.len(), "entries", ENTRIES_MAX)?;
        let mut entries = Vec::with_capacity(values.len());
        let mut problems = Vec::new();
        for (index, value) in values.into_iter().enumerate() {
            match read(index, value) {
                Ok(entry) => entries.push((index, entry)),
                Err(problem) => problems.push(problem),
            }
        }
        Self::checked(entries, problems)
    }

    /// Validates entries as a catalogue.
    ///
    /// # Errors
    /// See [`InvalidCatalogue`].
    pub fn of(entries: Vec<Entry>) -> Result<Self, InvalidCatalogue> {
        bounded(entries.len(), "entries", ENTRIES_MAX)?;
        Self::checked(entries.into_iter().enumerate().collect(), Vec::new())
    }

    /// The entries, in their original order.
    #[must_use]
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// The entry with this name, compared without case.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<&Arc<Entry>> {
        let index = self.by_name.get(&name.to_ascii_lowercase())?;
        self.entries.get(*index)
    }

    /// The catalogue as it is stored: JSON on one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        let entries: Vec<&Entry> = self.entries.iter().map(AsRef::as_ref).collect();
        // Strings, numbers and maps with string keys always serialize.
        serde_json::to_string(&entries).unwrap_or_default()
    }

    fn checked(
        entries: Vec<(usize, Entry)>,
        mut problems: Vec<Problem>,
    ) -> Result<Self, InvalidCatalogue> {
        let dynamic = entries.iter().filter(|(_, entry)| entry.is_dynamic());
        bounded(dynamic.count(), "dynamic entries", DYNAMIC_MAX)?;
        let mut catalogue = Self::default();
        for (index, entry) in entries {
            let problem = |field: &str, message: String| Problem {
                index,
                name: Some(entry.name.to_string()),
                field: Some(field.to_owned()),
                message,
            };
            let found = check::entry(&entry);
            problems.extend(found.into_iter().map(|(field, text)| problem(&field, text)));
            let place = catalogue.entries.len();
            let lower = entry.name.as_str().to_ascii_lowercase();
            if catalogue.by_name.insert(lower, place).is_some() {
                problems.push(problem(
                    "name",
                    "is another entry's name already".to_owned(),
                ));
            }
            if entry.is_dynamic() {
                match Pattern::parse(entry.pattern.as_deref().unwrap_or_default()) {
                    Ok(pattern) => catalogue.patterns.push((place, pattern)),
                    Err(error) => problems.push(problem("pattern", error.to_string())),
                }
            }
            catalogue.entries.push(Arc::new(entry));
        }
        problems.sort_by_key(|problem| problem.index);
        if problems.is_empty() {
            Ok(catalogue)
        } else {
            Err(InvalidCatalogue::Entries(problems))
        }
    }
}

fn bounded(count: usize, what: &'static str, most: usize) -> Result<(), InvalidCatalogue> {
    if count > most {
        return Err(InvalidCatalogue::TooMany { count, what, most });
    }
    Ok(())
}

/// Parses one entry and names the field that is invalid.
fn read(index: usize, value: Value) -> Result<Entry, Problem> {
    let name = value.get("name").and_then(Value::as_str);
    let name = name.map(|name| name.chars().take(entry::NAME_MAX).collect());
    if !value.is_object() {
        return Err(Problem {
            index,
            name,
            field: None,
            message: "must be an object with the fields of an entry".to_owned(),
        });
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        Problem {
            index,
            name,
            field: (path != ".").then_some(path),
            message: error.inner().to_string(),
        }
    })
}
