//! Calls to the API server.

use std::sync::Arc;

use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use kube::core::Request;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, Resource};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::cache::Kind;

/// How many events are published at once. More are dropped: the API server is slow then.
const EVENTS: usize = 100;

/// The API server, for one controller.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// The name under which it writes.
    manager: &'static str,
    recorder: Recorder,
    /// The places of events that are being published.
    events: Arc<Semaphore>,
}

impl Cluster {
    /// `manager` is the name under which a controller writes.
    pub(crate) fn new(client: Client, manager: &'static str) -> Self {
        let reporter = Reporter {
            controller: manager.to_owned(),
            instance: None,
        };
        Self {
            recorder: Recorder::new(client.clone(), reporter),
            events: Arc::new(Semaphore::new(EVENTS)),
            client,
            manager,
        }
    }

    fn api<K: Kind>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Creates an object from JSON and returns what the API server made of it.
    pub(crate) async fn create<K: Kind>(
        &self,
        namespace: &str,
        manifest: &Value,
    ) -> kube::Result<K> {
        count::<K>("create");
        let params = PostParams {
            field_manager: Some(self.manager.to_owned()),
            dry_run: false,
        };
        let body = serde_json::to_vec(manifest).map_err(kube::Error::SerdeError)?;
        let request = Request::new(K::url_path(&(), Some(namespace)))
            .create(&params, body)
            .map_err(kube::Error::BuildRequest)?;
        self.client.request(request).await
    }

    pub(crate) async fn get<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
    ) -> kube::Result<Option<K>> {
        count::<K>("get");
        self.api(namespace).get_opt(name).await
    }

    /// The objects with these labels.
    pub(crate) async fn list<K: Kind>(
        &self,
        namespace: &str,
        labels: &str,
    ) -> kube::Result<Vec<K>> {
        count::<K>("list");
        let params = ListParams::default().labels(labels);
        Ok(self.api(namespace).list(&params).await?.items)
    }

    /// Applies a JSON merge patch.
    pub(crate) async fn patch<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> kube::Result<K> {
        count::<K>("patch");
        let params = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        };
        self.api(namespace)
            .patch(name, &params, &Patch::Merge(patch))
            .await
    }

    /// Applies a JSON merge patch to the status.
    pub(crate) async fn patch_status<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> kube::Result<K> {
        count::<K>("patch_status");
        let params = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        };
        self.api(namespace)
            .patch_status(name, &params, &Patch::Merge(patch))
            .await
    }

    /// Deletes the object with this UID. The object, if it stays for a while; `None` if it is gone.
    pub(crate) async fn delete<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        foreground: bool,
    ) -> kube::Result<Option<K>> {
        let policy = if foreground {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        let params = DeleteParams {
            preconditions: uid.map(|uid| Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            propagation_policy: Some(policy),
            ..DeleteParams::default()
        };
        self.delete_with(namespace, name, &params).await
    }

    /// Deletes an object with these parameters.
    pub(crate) async fn delete_with<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
        params: &DeleteParams,
    ) -> kube::Result<Option<K>> {
        count::<K>("delete");
        Ok(self.api(namespace).delete(name, params).await?.left())
    }

    /// Applies a strategic merge patch to an object, or to its subresource.
    pub(crate) async fn patch_strategic<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
        subresource: Option<&str>,
        patch: &Value,
    ) -> kube::Result<K> {
        count::<K>("patch");
        let params = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        };
        let api = self.api(namespace);
        let patch = Patch::Strategic(patch);
        match subresource {
            Some(subresource) => {
                api.patch_subresource(subresource, name, &params, &patch)
                    .await
            }
            None => api.patch(name, &params, &patch).await,
        }
    }

    /// Publishes an event about an object, beside the reconcile. A lost event is no failure of it.
    pub(crate) fn event<K: Resource<DynamicType = ()>>(
        &self,
        about: &K,
        warning: bool,
        reason: &str,
        note: String,
    ) {
        let event = Event {
            type_: if warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: reason.to_owned(),
            note: Some(note),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        let Ok(place) = self.events.clone().try_acquire_owned() else {
            metrics::counter!("shoal_operator_events_dropped_total").increment(1);
            return;
        };
        let (recorder, about) = (self.recorder.clone(), about.object_ref(&()));
        tokio::spawn(async move {
            if let Err(error) = recorder.publish(&event, &about).await {
                tracing::debug!(%error, reason = event.reason, "cannot publish an event");
            }
            drop(place);
        });
    }
}

fn count<K: Kind>(verb: &'static str) {
    metrics::counter!(
        "shoal_operator_api_requests_total", "verb" => verb, "kind" => K::kind(&()).into_owned()
    )
    .increment(1);
}
