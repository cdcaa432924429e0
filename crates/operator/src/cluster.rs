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
use tracing::Instrument;

use crate::cache::Kind;
use crate::trace;

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

    fn params(&self) -> PatchParams {
        PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        }
    }

    /// Creates an object from JSON and returns the API server's version of it.
    pub(crate) async fn create<K: Kind>(
        &self,
        namespace: &str,
        manifest: &Value,
    ) -> kube::Result<K> {
        let params = PostParams {
            field_manager: Some(self.manager.to_owned()),
            dry_run: false,
        };
        let body = serde_json::to_vec(manifest).map_err(kube::Error::SerdeError)?;
        let request = Request::new(K::url_path(&(), Some(namespace)))
            .create(&params, body)
            .map_err(kube::Error::BuildRequest)?;
        sent::<K, _>("create", self.client.request(request)).await
    }

    pub(crate) async fn get<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
    ) -> kube::Result<Option<K>> {
        let api = self.api::<K>(namespace);
        sent::<K, _>("get", api.get_opt(name)).await
    }

    /// The objects with these labels.
    pub(crate) async fn list<K: Kind>(
        &self,
        namespace: &str,
        labels: &str,
    ) -> kube::Result<Vec<K>> {
        let params = ListParams::default().labels(labels);
        let api = self.api::<K>(namespace);
        Ok(sent::<K, _>("list", api.list(&params)).await?.items)
    }

    /// Applies a JSON merge patch.
    pub(crate) async fn patch<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> kube::Result<K> {
        let (api, params) = (self.api::<K>(namespace), self.params());
        let patch = Patch::Merge(patch);
        sent::<K, _>("patch", api.patch(name, &params, &patch)).await
    }

    /// Applies the operations of a JSON patch.
    pub(crate) async fn patch_json<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
        operations: &[Value],
    ) -> kube::Result<K> {
        let (api, params) = (self.api::<K>(namespace), self.params());
        let operations = Value::from(operations.to_vec());
        let operations = serde_json::from_value(operations).map_err(kube::Error::SerdeError)?;
        let patch = Patch::<()>::Json(operations);
        sent::<K, _>("patch", api.patch(name, &params, &patch)).await
    }

    /// Applies a JSON merge patch to the status.
    pub(crate) async fn patch_status<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> kube::Result<K> {
        let (api, params) = (self.api::<K>(namespace), self.params());
        let patch = Patch::Merge(patch);
        sent::<K, _>("patch_status", api.patch_status(name, &params, &patch)).await
    }

    /// Applies a JSON merge patch to the size.
    pub(crate) async fn patch_scale<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> kube::Result<()> {
        let (api, params) = (self.api::<K>(namespace), self.params());
        let patch = Patch::Merge(patch);
        let scaled = sent::<K, _>("patch_scale", api.patch_scale(name, &params, &patch));
        scaled.await.map(drop)
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
        let api = self.api::<K>(namespace);
        Ok(sent::<K, _>("delete", api.delete(name, params))
            .await?
            .left())
    }

    /// Applies a strategic merge patch to an object, or to its subresource.
    pub(crate) async fn patch_strategic<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
        subresource: Option<&str>,
        patch: &Value,
    ) -> kube::Result<K> {
        let (api, params) = (self.api::<K>(namespace), self.params());
        let patch = Patch::Strategic(patch);
        match subresource {
            Some(subresource) => {
                let patched = api.patch_subresource(subresource, name, &params, &patch);
                sent::<K, _>("patch", patched).await
            }
            None => sent::<K, _>("patch", api.patch(name, &params, &patch)).await,
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

/// Counts a request, and sends it in a span of its own.
async fn sent<K: Kind, T>(
    verb: &'static str,
    request: impl Future<Output = kube::Result<T>>,
) -> kube::Result<T> {
    metrics::counter!(
        "shoal_operator_api_requests_total", "verb" => verb, "kind" => K::kind(&()).into_owned()
    )
    .increment(1);
    request.instrument(trace::request::<K>(verb)).await
}
