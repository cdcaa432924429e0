//! The template catalogue: a key of a ConfigMap, of which each replica has a watch.
//!
//! Catalogue and blueprint come into force together, and only if every entry can be rendered. What cannot be read
//! changes nothing: the last good one stays in force, and the log and the API say why.

mod port;

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use jiff::Timestamp as Time;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use parking_lot::RwLock;
use shoal_core::catalogue::{BYTES_MAX, Catalogue as Entries, InvalidCatalogue};
use shoal_core::clock::Timestamp;
use shoal_core::ports::catalogue::{CatalogueInForce, RefusedEdit};
use shoal_crds::kruise::SandboxSet;
use tokio::sync::watch;

use crate::blueprint::{self, Blueprint, InvalidBlueprint};
use crate::config_map::{Change, NotWritten, SharedConfigMap, text, version};
use crate::entries;
use crate::watched::Watched;

/// The keys of the ConfigMap, as in Agent-Sandbox.
const ENTRIES: &str = "config-templates";
const BLUEPRINT: &str = "config-sandbox-template";

/// The catalogue and the blueprint of this installation.
pub(crate) struct Catalogue {
    map: SharedConfigMap,
    sets: Arc<Watched<SandboxSet>>,
    /// The namespaces in which entries have pools.
    pub(crate) pool_namespaces: Vec<String>,
    state: RwLock<State>,
    changed: watch::Sender<u64>,
}

/// The catalogue and the blueprint in force.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) in_force: Arc<CatalogueInForce>,
    pub(crate) blueprint: Arc<Blueprint>,
    own_blueprint: bool,
    /// When the ConfigMap was made: all replicas say the same.
    pub(crate) created: Timestamp,
    refused: Option<RefusedEdit>,
    /// The version of the ConfigMap that was looked at last.
    seen: u64,
}

/// Files with the first catalogue and the first blueprint.
#[derive(Debug, Clone, Default)]
pub struct CatalogueFiles {
    /// A JSON list of entries.
    pub entries: PathBuf,
    /// A ReplicaSet in YAML.
    pub blueprint: PathBuf,
}

/// Why texts cannot be put in force.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error(transparent)]
    Entries(#[from] InvalidCatalogue),
    #[error("{0}")]
    Unfit(#[from] InvalidBlueprint),
}

/// A catalogue and a blueprint that fit each other.
pub(crate) struct Checked {
    entries: Entries,
    blueprint: Blueprint,
    own: bool,
}

impl Checked {
    pub(crate) fn of(entries: &str, blueprint: &str) -> Result<Self, Unusable> {
        let entries = match entries.trim() {
            "" => Entries::default(),
            text => Entries::parse(text)?,
        };
        let own = !blueprint.trim().is_empty();
        let blueprint = Blueprint::parse(if own { blueprint } else { blueprint::DEFAULT })?;
        entries::check(&entries, &blueprint)?;
        Ok(Self {
            entries,
            blueprint,
            own,
        })
    }

    fn in_config_map(map: &ConfigMap) -> Result<Self, Unusable> {
        Self::of(text(map, ENTRIES), text(map, BLUEPRINT))
    }
}

impl Catalogue {
    /// An empty catalogue, before the ConfigMap is read.
    pub(crate) fn new(
        map: SharedConfigMap,
        sets: Arc<Watched<SandboxSet>>,
        pool_namespaces: Vec<String>,
    ) -> Self {
        let Ok(blueprint) = Blueprint::parse(blueprint::DEFAULT) else {
            unreachable!("a test reads it")
        };
        Self {
            map,
            sets,
            pool_namespaces,
            state: RwLock::new(State {
                in_force: Arc::default(),
                blueprint: Arc::new(blueprint),
                own_blueprint: false,
                created: Timestamp::default(),
                refused: None,
                seen: 0,
            }),
            changed: watch::Sender::new(0),
        }
    }

    /// The state in force.
    pub(crate) fn state(&self) -> State {
        self.state.read().clone()
    }

    /// Tells of each new version in force.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Fills an empty ConfigMap from the files, and reads it. A failure leaves the catalogue empty until the watch
    /// shows one.
    pub(crate) async fn bootstrap(&self, files: &CatalogueFiles) {
        for (key, path) in [(BLUEPRINT, &files.blueprint), (ENTRIES, &files.entries)] {
            if let Err(told) = self.fill(key, path).await {
                tracing::error!(file = %path.display(), error = told, "refused the first template catalogue");
            }
        }
        match self.map.read().await {
            Ok(map) => self.load(&map),
            Err(error) => {
                tracing::warn!(%error, config_map = self.map.name(), "cannot read the template catalogue");
            }
        }
    }

    async fn fill(&self, key: &str, path: &Path) -> Result<(), String> {
        let given = match tokio::fs::read_to_string(path).await {
            Ok(given) if given.len() <= BYTES_MAX => given,
            Ok(given) => return Err(InvalidCatalogue::TooLarge(given.len()).to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(format!("cannot be read: {error}")),
        };
        let change = |map: &ConfigMap| {
            if !text(map, key).trim().is_empty() {
                return Ok(Change::Nothing);
            }
            let other = |of: &str| {
                if of == key {
                    given.as_str()
                } else {
                    text(map, of)
                }
                .to_owned()
            };
            match Checked::of(&other(ENTRIES), &other(BLUEPRINT)) {
                Ok(_) => Ok(Change::To(given.clone())),
                Err(unusable) => Err(unusable.to_string()),
            }
        };
        match self.map.write(key, change).await {
            // Another replica fills it at this moment.
            Ok(_) | Err(NotWritten::Busy) => Ok(()),
            Err(NotWritten::Unwanted(told)) => Err(told),
            Err(NotWritten::Failed(error)) => Err(error.to_string()),
        }
    }

    /// Keeps the catalogue up to date. Never ends.
    pub(crate) async fn follow(self: Arc<Self>) {
        let named =
            watcher::Config::default().fields(&format!("metadata.name={}", self.map.name()));
        let mut events = pin!(watcher(self.map.api().clone(), named).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(map) | Event::InitApply(map)) => self.load(&map),
                Ok(Event::Delete(_)) => {
                    self.refuse(
                        0,
                        "the ConfigMap was deleted: the last catalogue stays in force",
                    );
                }
                Ok(Event::Init | Event::InitDone) => {}
                Err(error) => tracing::warn!(%error, "cannot watch the template catalogue"),
            }
        }
    }

    /// Puts a state of the ConfigMap in force, unless a newer one was seen.
    pub(crate) fn load(&self, map: &ConfigMap) {
        let seen = version(map);
        if seen <= self.state.read().seen && seen != 0 {
            return;
        }
        let checked = match Checked::in_config_map(map) {
            Ok(checked) => checked,
            Err(unusable) => return self.refuse(seen, &unusable.to_string()),
        };
        let mut state = self.state.write();
        if seen < state.seen {
            return;
        }
        state.seen = seen;
        state.refused = None;
        let created = map.metadata.creation_timestamp.as_ref();
        state.created = created.map_or(state.created, |at| {
            Timestamp::from_unix_millis(at.0.as_millisecond())
        });
        let same = state.in_force.catalogue == checked.entries
            && *state.blueprint == checked.blueprint
            && state.in_force.updated_at.is_some();
        if same {
            // The version is that of the last write, which edits are compared with.
            let in_force = CatalogueInForce {
                version: seen,
                ..CatalogueInForce::clone(&state.in_force)
            };
            state.in_force = Arc::new(in_force);
            return;
        }
        for warning in checked.entries.lint_in_cluster() {
            tracing::warn!("{warning}");
        }
        tracing::info!(
            version = seen,
            entries = checked.entries.entries().len(),
            "applied the template catalogue"
        );
        state.in_force = Arc::new(CatalogueInForce {
            version: seen,
            updated_at: Some(now()),
            catalogue: checked.entries,
        });
        state.blueprint = Arc::new(checked.blueprint);
        state.own_blueprint = checked.own;
        drop(state);
        self.changed.send_replace(seen);
    }

    fn refuse(&self, seen: u64, message: &str) {
        let mut state = self.state.write();
        state.seen = state.seen.max(seen);
        let known = state
            .refused
            .as_ref()
            .is_some_and(|known| known.message == message);
        if known {
            return;
        }
        let source = format!("the ConfigMap {}", self.map.name());
        tracing::error!(
            source,
            error = message,
            "refused the template catalogue; the current one stays in force"
        );
        state.refused = Some(RefusedEdit {
            at: now(),
            source,
            message: message.to_owned(),
        });
    }
}

fn now() -> Timestamp {
    Timestamp::from_unix_millis(Time::now().as_millisecond())
}

#[cfg(test)]
mod tests;
