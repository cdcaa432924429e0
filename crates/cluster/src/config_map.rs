//! A ConfigMap that replicas share.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::failure;

/// The ConfigMap, by its name.
pub(crate) struct SharedConfigMap {
    maps: Api<ConfigMap>,
    name: &'static str,
}

/// A state of it.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The resource version; none when the object does not exist.
    version: Option<String>,
    /// Its entries.
    pub(crate) entries: BTreeMap<String, String>,
}

impl SharedConfigMap {
    pub(crate) fn new(maps: Api<ConfigMap>, name: &'static str) -> Self {
        Self { maps, name }
    }

    /// The newest state.
    pub(crate) async fn read(&self) -> kube::Result<State> {
        let found = self.maps.get_opt(self.name).await?;
        Ok(found.map_or_else(State::default, |map| State {
            version: map.metadata.resource_version,
            entries: map.data.unwrap_or_default(),
        }))
    }

    /// Writes one entry.
    ///
    /// # Errors
    /// A conflict, when the object is no longer in the state `since`.
    pub(crate) async fn write(&self, key: &str, value: &str, since: &State) -> kube::Result<()> {
        let mut map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": self.name},
            "data": {(key): value},
        });
        let Some(version) = &since.version else {
            let new: ConfigMap = serde_json::from_value(map).map_err(kube::Error::SerdeError)?;
            return self
                .maps
                .create(&PostParams::default(), &new)
                .await
                .map(drop);
        };
        map["metadata"]["resourceVersion"] = json!(version);
        let params = PatchParams::default();
        let written = self
            .maps
            .patch(self.name, &params, &Patch::Merge(&map))
            .await;
        written.map(drop)
    }

    /// Removes entries, whatever else has changed.
    pub(crate) async fn remove(&self, keys: &[String]) -> kube::Result<()> {
        let none = keys.iter().map(|key| (key.clone(), json!(null)));
        let map = json!({"data": serde_json::Map::from_iter(none)});
        let params = PatchParams::default();
        match self
            .maps
            .patch(self.name, &params, &Patch::Merge(&map))
            .await
        {
            Err(error) if !failure::is_gone(&error) => Err(error),
            _ => Ok(()),
        }
    }
}
