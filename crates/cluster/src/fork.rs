//! Forks: clones of a sandbox that runs, from a checkpoint that is deleted afterwards.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp as Time;
use shoal_core::auth::Principal;
use shoal_core::network::RequestedNetwork;
use shoal_core::ports::create::{CreateError, Created, SandboxRequest};
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::ports::snapshots::TakeError;
use shoal_core::sandbox::OnTimeout;
use shoal_core::snapshot::Contents;
use shoal_core::store::StoreError;
use shoal_core::template::TemplateKey;
use shoal_crds::kruise::names::{annotation, is_reserved};
use shoal_crds::kruise::{Sandbox, SandboxSet};

use crate::blueprint::is_steering;
use crate::identity::Key;
use crate::record;
use crate::routes::WAKE_ON_TRAFFIC;
use crate::sandboxes::Sandboxes;
use crate::snapshots::Wanted;

/// The lifetime of a fork's copy, if it is not deleted before.
const KEPT: Duration = Duration::from_secs(3600);

/// How long the copy may take.
const COPY: Duration = Duration::from_secs(60);

impl Sandboxes {
    /// Saves a sandbox with its memory, and starts `count` others from that. Each succeeds or fails on its own.
    ///
    /// # Errors
    /// When it cannot be saved.
    pub(crate) async fn fork_one(
        &self,
        principal: &Principal,
        at: &Key,
        count: usize,
        timeout: Duration,
    ) -> Result<Vec<Result<Created, CreateError>>, SandboxError> {
        self.within_limit(timeout)?;
        let source = self.fresh(at).await?;
        let wanted = Wanted {
            name: None,
            contents: Some(Contents::Memory),
            keep_running: true,
            ttl: Some(KEPT),
            wait: COPY,
            of_fork: true,
        };
        let saved = self
            .save(principal, at, &wanted)
            .await
            .map_err(|error| match error {
                TakeError::Sandbox(error) => error,
                other => SandboxError::NotSaved(other.to_string()),
            })?;
        let template: TemplateKey = saved.id().parse().map_err(StoreError::failed)?;
        let request = request(&source, saved.set(), template, timeout);
        let forks = (0..count).map(|_| self.create_one(principal, request.clone(), None));
        let forks = join_all(forks).await;
        if let Err(error) = self.forget_save(saved.checkpoint()).await {
            tracing::warn!(%error, "the copy of a fork stays for an hour");
        }
        Ok(forks)
    }
}

/// A sandbox like the source, which lives for `timeout`.
fn request(
    source: &Sandbox,
    set: &SandboxSet,
    template: TemplateKey,
    timeout: Duration,
) -> SandboxRequest {
    let record = record::of(source, Time::now());
    let labels = source.metadata.labels.iter().flatten();
    let labels: BTreeSet<String> = labels.map(|(key, _)| key.clone()).collect();
    let mut metadata = record.spec.metadata;
    let of_pod = set.spec.template.as_ref().map(|pod| &pod.metadata.labels);
    // Clones have the labels of their template already.
    metadata.retain(|key, _| {
        let known = of_pod.is_some_and(|labels| labels.contains_key(key));
        !is_reserved(key) && !is_steering(key) && !known
    });
    if source.annotation(annotation::RETURN_SANDBOX_IP) == Some("true") {
        metadata.insert(annotation::RETURN_SANDBOX_IP.to_owned(), "true".to_owned());
    }
    let pauses = record.spec.lifecycle.on_timeout == OnTimeout::Pause;
    let mut network = RequestedNetwork::default();
    // Private ports stay private. Each fork gets a token of its own.
    if !record.spec.network.allow_public_traffic {
        network.allow_public_traffic = Some(false);
    }
    SandboxRequest {
        network,
        timeout,
        on_timeout: if pauses {
            OnTimeout::Pause
        } else {
            OnTimeout::Kill
        },
        auto_resume: source.annotation(WAKE_ON_TRAFFIC) == Some("true"),
        labels: labels
            .intersection(&metadata.keys().cloned().collect())
            .cloned()
            .collect(),
        metadata,
        env: record.spec.env,
        ..SandboxRequest::of(template)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fork_is_like_its_source_and_lives_for_its_own_time() {
        let source: Sandbox = serde_json::from_value(json!({
            "metadata": {
                "name": "s", "namespace": "team",
                "labels": {"tier": "gold", "app": "code", "agents.kruise.io/sandbox-claimed": "true"},
                "annotations": {
                    "purpose": "test", "agents.kruise.io/wake-on-traffic": "true",
                    annotation::TRAFFIC_ACCESS_TOKEN: "secret",
                    "agents.kruise.io/init-runtime-request": r#"{"envVars": {"A": "b", "E2B_SANDBOX_ID": "i"}}"#,
                },
            },
            "spec": {"pauseTime": "2026-01-02T03:04:05Z"},
        }))
        .unwrap();
        let template = "code".parse().unwrap();
        let set: SandboxSet = serde_json::from_value(json!({
            "metadata": {}, "spec": {"template": {"metadata": {"labels": {"app": "code"}}, "spec": {}}},
        }))
        .unwrap();
        let request = request(&source, &set, template, Duration::from_secs(15));
        assert_eq!(request.timeout, Duration::from_secs(15));
        assert_eq!(request.on_timeout, OnTimeout::Pause);
        assert!(request.auto_resume);
        assert_eq!(request.network.allow_public_traffic, Some(false));
        assert_eq!(
            request.env.into_iter().collect::<Vec<_>>(),
            [("A".to_owned(), "b".to_owned())]
        );
        assert_eq!(
            request.metadata.into_keys().collect::<Vec<_>>(),
            ["purpose", "tier"]
        );
        assert_eq!(request.labels.into_iter().collect::<Vec<_>>(), ["tier"]);
    }
}
