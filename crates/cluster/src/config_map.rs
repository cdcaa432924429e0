//! A ConfigMap that replicas share: each reads it as a whole, and writes one key of it with the optimistic lock.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use crate::failure;

/// How often a write is tried again after another one came first.
const TRIES: u32 = 5;

/// The ConfigMap.
pub(crate) struct SharedConfigMap {
    api: Api<ConfigMap>,
    name: String,
}

/// The decision of a write about the state that it finds.
pub(crate) enum Change {
    /// Nothing: it is as wanted.
    Nothing,
    /// The value of the key becomes this text.
    To(String),
}

/// Why a write was not done.
pub(crate) enum NotWritten<E> {
    /// The writer did not want it, after a look at the state.
    Unwanted(E),
    /// Others came first, again and again.
    Busy,
    /// The API server refused, or did not answer.
    Failed(kube::Error),
}

impl SharedConfigMap {
    pub(crate) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
        }
    }

    pub(crate) fn api(&self) -> &Api<ConfigMap> {
        &self.api
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The newest state; an empty one if there is none.
    pub(crate) async fn read(&self) -> kube::Result<ConfigMap> {
        let found = self.api.get_opt(&self.name).await?;
        Ok(found.unwrap_or_else(|| self.empty()))
    }

    fn empty(&self) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    /// Writes one key. `change` sees the newest state before each attempt.
    ///
    /// # Errors
    /// See [`NotWritten`].
    pub(crate) async fn write<E>(
        &self,
        key: &str,
        change: impl Fn(&ConfigMap) -> Result<Change, E>,
    ) -> Result<ConfigMap, NotWritten<E>> {
        for _ in 0..TRIES {
            let state = self.read().await.map_err(NotWritten::Failed)?;
            let text = match change(&state).map_err(NotWritten::Unwanted)? {
                Change::Nothing => return Ok(state),
                Change::To(text) => text,
            };
            match self.write_over(&state, key, text).await {
                Ok(written) => return Ok(written),
                Err(error) if failure::is_conflict(&error) || failure::is_gone(&error) => {}
                Err(error) => return Err(NotWritten::Failed(error)),
            }
        }
        Err(NotWritten::Busy)
    }

    /// Writes one key over the state `since`.
    ///
    /// # Errors
    /// A conflict, when the object is no longer in that state.
    pub(crate) async fn write_over(
        &self,
        since: &ConfigMap,
        key: &str,
        text: String,
    ) -> kube::Result<ConfigMap> {
        let params = PostParams::default();
        let mut next = since.clone();
        let data = next.data.get_or_insert_with(BTreeMap::new);
        data.insert(key.to_owned(), text);
        if next.metadata.resource_version.is_none() {
            self.api.create(&params, &next).await
        } else {
            self.api.replace(&self.name, &params, &next).await
        }
    }

    /// Removes keys. Other changes of the map do not prevent it.
    ///
    /// # Errors
    /// When the API server refuses, or does not answer.
    pub(crate) async fn remove(&self, keys: &[String]) -> kube::Result<()> {
        let none = keys.iter().map(|key| (key.clone(), json!(null)));
        let map = json!({"data": serde_json::Map::from_iter(none)});
        let params = PatchParams::default();
        let removed = self
            .api
            .patch(&self.name, &params, &Patch::Merge(&map))
            .await;
        match removed {
            Err(error) if !failure::is_gone(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

/// The text of a key; empty if there is none.
pub(crate) fn text<'a>(state: &'a ConfigMap, key: &str) -> &'a str {
    let data = state.data.as_ref();
    data.and_then(|data| data.get(key))
        .map_or("", String::as_str)
}

/// The version of a state. Versions are numbers that grow, as the API server documents since it compares them
/// itself; zero before the first.
pub(crate) fn version(state: &ConfigMap) -> u64 {
    let version = state.metadata.resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}
