//! The children of a sandbox: volume claims, pod and service.

use std::sync::Arc;

use serde_json::json;
use shoal_crds::names::annotation;

use super::model::{PodState, Saving, Seen, Wanted};
use super::save::Memory;
use super::{SandboxController, pod, service, volume};
use crate::conditions;
use crate::failure::{Failure, is_conflict, is_missing};
use crate::owner::{self, Owner};
use crate::restore::{self, Origin};
use crate::slim::{Pod, Service};

impl SandboxController {
    /// Volume claims, pod and service, in this order: the pod needs its claims.
    pub(super) async fn children(&self, wanted: &Wanted<'_>) -> (Seen, Option<Failure>) {
        let mut failures = Vec::new();
        if let Err(failure) = self.volume_claims(wanted).await {
            failures.push(failure);
        }
        let (pod, saving, failure) = self.pod(wanted, failures.is_empty()).await;
        failures.extend(failure);
        let service = if matches!(pod, PodState::Several(_)) {
            // The sandbox is broken: its service stays as it is.
            let service = self
                .services
                .get(&(wanted.namespace.to_owned(), wanted.name.to_owned()));
            Ok(service.filter(|service| owner::owner(&service.metadata, wanted.uid) == Owner::Own))
        } else {
            self.service(wanted).await
        };
        let service = service.unwrap_or_else(|failure| {
            failures.push(failure);
            None
        });
        let failure = Failure::of(failures);
        (
            Seen {
                pod,
                service,
                error: failure.as_ref().map(ToString::to_string),
                saving,
            },
            failure,
        )
    }

    async fn volume_claims(&self, wanted: &Wanted<'_>) -> Result<(), Failure> {
        for template in wanted.sandbox.spec.volume_claim_templates.iter().flatten() {
            let name = pod::claim_name(&template.metadata.name, wanted.name);
            let key = (wanted.namespace.to_owned(), name);
            let mut present = self.volume_claims.get(&key);
            loop {
                match volume::plan(wanted, template, present.as_ref()) {
                    volume::Plan::Keep => break,
                    volume::Plan::Refuse(error) => return Err(Failure::Refused(error)),
                    volume::Plan::Adopt(patch) => {
                        self.volume_claims
                            .learn(self.cluster.patch(wanted.namespace, &key.1, &patch).await?);
                        break;
                    }
                    volume::Plan::Create(manifest) => {
                        match self.cluster.create(wanted.namespace, &manifest).await {
                            Ok(created) => {
                                self.volume_claims.learn(created);
                                break;
                            }
                            Err(error) if is_conflict(&error) => {
                                // One without our label, or one that the watch has not shown yet.
                                present = self
                                    .cluster
                                    .get(wanted.namespace, &key.1)
                                    .await?
                                    .map(Arc::new);
                                if present.is_none() {
                                    return Err(error.into());
                                }
                            }
                            Err(error) => return Err(error.into()),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The pod, and the save that it waits for.
    async fn pod(
        &self,
        wanted: &Wanted<'_>,
        has_claims: bool,
    ) -> (PodState, Option<Saving>, Option<Failure>) {
        let owned = self.pods.owned_by(wanted.uid);
        let held = |pod: Option<&Arc<Pod>>| match pod {
            Some(pod) => PodState::Owned(pod.clone()),
            None => PodState::Absent,
        };
        // With several pods the sandbox is broken: all stay as they are.
        let memory = match owned.len() {
            0 | 1 => self.memory(wanted, owned.first()).await,
            _ => Ok(Memory::Plain(None)),
        };
        let origin = match memory {
            Ok(Memory::Plain(origin)) => origin,
            Ok(Memory::Held(saving)) => return (held(owned.first()), saving, None),
            Err(failure) => return (held(owned.first()), None, Some(failure)),
        };
        let (pod, failure) = self.planned_pod(wanted, &owned, origin, has_claims).await;
        (pod, None, failure)
    }

    /// Without its volume claims no pod is created: it would see the volume of a former sandbox of the same
    /// name, and its use would keep that volume forever.
    async fn planned_pod(
        &self,
        wanted: &Wanted<'_>,
        owned: &[Arc<Pod>],
        origin: Option<Origin>,
        has_claims: bool,
    ) -> (PodState, Option<Failure>) {
        let mut named = match self.named_pod(wanted, owned).await {
            Ok(named) => named,
            Err(error) => return (PodState::Unknown, Some(error.into())),
        };
        loop {
            let step = match pod::plan(wanted, owned, named.as_ref()) {
                pod::Plan::Several(count) => return (PodState::Several(count), None),
                pod::Plan::Refuse(error) => {
                    let cleared = self.track(wanted, None).await.err();
                    return (
                        PodState::NotOwned,
                        Failure::of(
                            [Failure::Refused(error)]
                                .into_iter()
                                .chain(cleared)
                                .collect(),
                        ),
                    );
                }
                pod::Plan::Absent => (PodState::Absent, self.track(wanted, None).await),
                pod::Plan::LeaveForeign => (PodState::NotOwned, self.track(wanted, None).await),
                pod::Plan::Delete(pod) => self.delete_pod(wanted, pod).await,
                pod::Plan::Keep(pod, None) => self.tracked(wanted, pod, owned).await,
                pod::Plan::Keep(pod, Some(patch)) => {
                    let name = pod.metadata.name.as_deref().unwrap_or_default();
                    match self.cluster.patch(wanted.namespace, name, &patch).await {
                        Ok(patched) => self.tracked(wanted, self.pods.learn(patched), owned).await,
                        Err(error) => (PodState::Owned(pod), Err(error.into())),
                    }
                }
                pod::Plan::Create(_) if !has_claims => (PodState::Absent, Ok(())),
                pod::Plan::Create(mut manifest) => {
                    if let Some(origin) = &origin
                        && let Err(why) = restore::apply(&mut manifest, origin)
                    {
                        return (PodState::Absent, Some(Failure::Refused(why)));
                    }
                    match self.cluster.create(wanted.namespace, &manifest).await {
                        Ok(created) => self.tracked(wanted, self.pods.learn(created), owned).await,
                        Err(error) if is_conflict(&error) && named.is_none() => {
                            match self.cluster.get(wanted.namespace, wanted.name).await {
                                Ok(Some(present)) => {
                                    named = Some(Arc::new(present));
                                    continue;
                                }
                                Ok(None) => (PodState::Absent, Err(error.into())),
                                Err(error) => (PodState::Unknown, Err(error.into())),
                            }
                        }
                        Err(error) => (PodState::Absent, Err(error.into())),
                    }
                }
            };
            return (step.0, step.1.err());
        }
    }

    /// The pod with the tracked name, or with the sandbox's. A pod without our label is in no cache, so it
    /// is read where no attempt to create it would reveal it.
    async fn named_pod(
        &self,
        wanted: &Wanted<'_>,
        owned: &[Arc<Pod>],
    ) -> kube::Result<Option<Arc<Pod>>> {
        if !owned.is_empty() {
            return Ok(None);
        }
        let name = wanted.tracked_pod().unwrap_or(wanted.name);
        let cached = self
            .pods
            .get(&(wanted.namespace.to_owned(), name.to_owned()));
        if cached.is_some() {
            return Ok(cached);
        }
        let suspended = wanted.sandbox.status.as_ref().is_some_and(|status| {
            conditions::find(&status.conditions, "Suspended")
                .is_some_and(|state| state.status == "True")
        });
        if name != wanted.name || (wanted.is_suspended() && !suspended) {
            return Ok(self
                .cluster
                .get(wanted.namespace, name)
                .await?
                .map(Arc::new));
        }
        Ok(None)
    }

    async fn delete_pod(
        &self,
        wanted: &Wanted<'_>,
        pod: Arc<Pod>,
    ) -> (PodState, Result<(), Failure>) {
        if pod.metadata.deletion_timestamp.is_none() {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            match self
                .cluster
                .delete(wanted.namespace, name, pod.metadata.uid.as_deref(), false)
                .await
            {
                Ok(Some(terminating)) => {
                    self.pods.learn(terminating);
                }
                Ok(None) => self
                    .pods
                    .forget(&(wanted.namespace.to_owned(), name.to_owned())),
                Err(error) if is_missing(&error) => {}
                Err(error) => return (PodState::Owned(pod), Err(error.into())),
            }
        }
        if wanted.is_v1alpha1() {
            return (PodState::Absent, self.track(wanted, None).await);
        }
        (PodState::Owned(pod), Ok(()))
    }

    /// Names the pod in the sandbox's annotation. Another name stays only while its pod is the sandbox's.
    async fn tracked(
        &self,
        wanted: &Wanted<'_>,
        pod: Arc<Pod>,
        owned: &[Arc<Pod>],
    ) -> (PodState, Result<(), Failure>) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let stays = wanted.tracked_pod().is_some_and(|tracked| {
            tracked == name
                || owned
                    .iter()
                    .any(|pod| pod.metadata.name.as_deref() == Some(tracked))
        });
        let tracked = if stays {
            Ok(())
        } else {
            self.track(wanted, Some(name)).await
        };
        (PodState::Owned(pod), tracked)
    }

    /// Sets or removes the annotation with the pod's name.
    async fn track(&self, wanted: &Wanted<'_>, name: Option<&str>) -> Result<(), Failure> {
        if wanted.tracked_pod() == name {
            return Ok(());
        }
        let patch =
            json!({"metadata": {"uid": wanted.uid, "annotations": {annotation::POD_NAME: name}}});
        match self
            .cluster
            .patch(wanted.namespace, wanted.name, &patch)
            .await
        {
            Ok(patched) => {
                self.sandboxes.learn(patched);
                Ok(())
            }
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn service(&self, wanted: &Wanted<'_>) -> Result<Option<Arc<Service>>, Failure> {
        let key = (wanted.namespace.to_owned(), wanted.name.to_owned());
        let mut present = self.services.get(&key);
        loop {
            match service::plan(wanted, present.as_ref()) {
                service::Plan::Absent => return Ok(None),
                service::Plan::Refuse(error) => return Err(Failure::Refused(error)),
                service::Plan::Keep(service, None) => return Ok(Some(service)),
                service::Plan::Keep(_, Some(patch)) => {
                    let patched = self
                        .cluster
                        .patch(wanted.namespace, wanted.name, &patch)
                        .await?;
                    return Ok(Some(self.services.learn(patched)));
                }
                service::Plan::Delete(service) => {
                    self.delete_service(wanted, &service).await?;
                    return Ok(None);
                }
                service::Plan::Create(manifest) => {
                    match self.cluster.create(wanted.namespace, &manifest).await {
                        Ok(created) => return Ok(Some(self.services.learn(created))),
                        Err(error) if is_conflict(&error) && present.is_none() => {
                            present = self
                                .cluster
                                .get(wanted.namespace, wanted.name)
                                .await?
                                .map(Arc::new);
                            if present.is_none() {
                                return Err(error.into());
                            }
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
    }

    pub(super) async fn delete_service(
        &self,
        wanted: &Wanted<'_>,
        service: &Service,
    ) -> Result<(), Failure> {
        let uid = service.metadata.uid.as_deref();
        match self
            .cluster
            .delete::<Service>(wanted.namespace, wanted.name, uid, false)
            .await
        {
            Err(error) if !is_missing(&error) => Err(error.into()),
            _ => {
                self.services
                    .forget(&(wanted.namespace.to_owned(), wanted.name.to_owned()));
                Ok(())
            }
        }
    }
}
