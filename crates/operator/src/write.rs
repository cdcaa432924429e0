//! Writes that several controllers make.

use std::sync::Arc;

use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use serde::Serialize;
use serde_json::json;

use crate::cache::{Cache, Kind, key};
use crate::cluster::Cluster;
use crate::failure::{Failure, is_missing};
use crate::patch;

/// Writes a status if it differs. The object that the API server returned; `None` if it is gone, or if there
/// was nothing to write.
pub(crate) async fn status<K: Kind, S: Serialize>(
    cluster: &Cluster,
    cache: &Cache<K>,
    object: &K,
    before: Option<&S>,
    after: &S,
) -> Result<Option<Arc<K>>, Failure> {
    let before = match before {
        Some(before) => serde_json::to_value(before)?,
        None => json!({}),
    };
    let Some(change) = patch::between(&before, &serde_json::to_value(after)?) else {
        return Ok(None);
    };
    let (namespace, name) = key(object);
    // Another object of the name has another state.
    let patch = json!({"metadata": {"uid": object.meta().uid}, "status": change});
    match cluster.patch_status::<K>(&namespace, &name, &patch).await {
        Ok(patched) => Ok(Some(cache.learn(patched))),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Deletes an object after all that it owns.
pub(crate) async fn delete_foreground<K: Kind>(
    cluster: &Cluster,
    cache: &Cache<K>,
    object: &K,
) -> Result<(), Failure> {
    let key = key(object);
    let uid = object.meta().uid.as_deref();
    match cluster.delete::<K>(&key.0, &key.1, uid, true).await {
        Ok(Some(terminating)) => drop(cache.learn(terminating)),
        Ok(None) => cache.forget(&key),
        Err(error) if is_missing(&error) => cache.forget(&key),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Deletes an object. The cache learns of it. With `unchanged`, an object that was changed meanwhile stays.
pub(crate) async fn delete<K: Kind>(
    cluster: &Cluster,
    cache: &Cache<K>,
    object: &K,
    grace: Option<u32>,
    unchanged: bool,
) -> Result<(), Failure> {
    let key = key(object);
    let meta = object.meta();
    let params = DeleteParams {
        grace_period_seconds: grace,
        preconditions: Some(Preconditions {
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone().filter(|_| unchanged),
        }),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    match cluster.delete_with::<K>(&key.0, &key.1, &params).await {
        Ok(Some(terminating)) => drop(cache.learn(terminating)),
        Ok(None) => cache.forget(&key),
        Err(error) if is_missing(&error) => cache.forget(&key),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
