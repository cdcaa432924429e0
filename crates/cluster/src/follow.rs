//! The watches.

use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use shoal_tasks::Tasks;

use crate::identity::key;
use crate::watched::{Kind, Watched};

/// Keeps the objects of one kind, of all namespaces, up to date.
pub(crate) fn spawn<K: Kind>(
    tasks: &mut Tasks,
    client: Client,
    config: watcher::Config,
    watched: Arc<Watched<K>>,
) {
    let api: Api<K> = Api::all(client);
    tasks.spawn("watch", follow(api, config, watched));
}

pub(crate) async fn follow<K: Kind>(
    api: Api<K>,
    config: watcher::Config,
    watched: Arc<Watched<K>>,
) {
    let mut events = pin!(watcher(api, config).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => watched.begin(),
            Ok(Event::InitApply(object) | Event::Apply(object)) => put(&watched, object),
            Ok(Event::InitDone) => watched.retain_put(),
            Ok(Event::Delete(object)) => {
                let metadata = object.metadata();
                watched.end(&key(metadata), metadata.uid.as_deref());
            }
            // A missing right is in the error: the verb and the resource.
            Err(error) => tracing::warn!(kind = K::KIND, %error, "cannot watch"),
        }
    }
}

fn put<K: Kind>(watched: &Watched<K>, mut object: K) {
    trim(object.metadata_mut());
    watched.put(object);
}

/// Drops fields that are never read. They are half of an object.
fn trim(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}
