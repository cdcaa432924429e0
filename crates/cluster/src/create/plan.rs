//! A request, checked: the sandbox to claim or to make, and when it ends.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp as Time};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as MetaTime;
use kube::Api;
use kube::api::ListParams;
use serde_json::Value;
use shoal_core::auth::Principal;
use shoal_core::driver::DriverError;
use shoal_core::ports::NoEntropy;
use shoal_core::ports::create::{CpuTarget, CreateError, ResizeCreated, SandboxRequest};
use shoal_core::ports::templates::TemplateError;
use shoal_core::resources::{MilliCpu, Resources};
use shoal_core::sandbox::OnTimeout;
use shoal_core::store::StoreError;
use shoal_crds::kruise::names::{annotation, label};
use shoal_crds::kruise::{Claiming, InitRequest, Sandbox, SandboxSet};
use shoal_crds::parts::Pairs;

use super::once::Once;
use super::{FOR_EVER, PRIORITY, READY, entry, kept_until, request, size};
use crate::identity;
use crate::lifecycle::STARTUP;
use crate::options::Options;
use crate::sandboxes::Sandboxes;
use crate::saves::SavedSandbox;
use crate::templates::{self, Found};
use crate::{failure, pod, random};

/// A request, checked.
pub(super) struct Plan {
    pub(super) set: Arc<SandboxSet>,
    /// The plan if the template is an entry of the catalogue.
    pub(super) entry: Option<entry::OfEntry>,
    /// The id of the snapshot that the request names.
    pub(super) restored_from: Option<String>,
    pub(super) claiming: Claiming,
    /// The resources of the main container of a sandbox with a size of its own.
    pub(super) size: Option<Value>,
    pub(super) resize: Option<ResizeCreated>,
    /// How long the sandbox lives; unlimited if absent.
    pub(super) timeout: Option<Duration>,
    /// Whether the internet is closed to it.
    pub(super) closed: bool,
    /// The only sandbox of the request's idempotency key.
    pub(super) once: Option<Once>,
    pub(super) options: Options,
}

impl Plan {
    /// A sandbox for an empty pool.
    pub(super) fn new_sandbox(&self) -> Sandbox {
        let status = self.set.status.as_ref();
        let revision = match &self.entry {
            Some(entry) => entry.revision(),
            None => status.map_or("", |status| status.update_revision.as_str()),
        };
        let mut sandbox = self.set.member(revision);
        self.claiming.claim(&mut sandbox);
        self.change(&mut sandbox);
        self.begin_when_ready(&mut sandbox);
        if self.entry.is_some() || self.has_own_pod() {
            // It comes from no pool, and returns to none.
            let labels = sandbox.metadata.labels.get_or_insert_default();
            labels.remove(label::SANDBOX_POOL);
        }
        let annotations = sandbox.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::SANDBOX_PRIORITY.to_owned(), PRIORITY.to_owned());
        if let Some(id) = &self.restored_from {
            annotations.insert(annotation::RESTORE_FROM.to_owned(), id.clone());
        }
        if let Some(once) = &self.once {
            once.name(&mut sandbox);
        }
        sandbox
    }

    /// Whether no member of a pool could be it: a clone, or one with a size of its own.
    pub(super) fn has_own_pod(&self) -> bool {
        self.restored_from.is_some() || self.size.is_some()
    }

    /// The changes of a create beside the claim.
    pub(super) fn change(&self, sandbox: &mut Sandbox) {
        if let Some(entry) = &self.entry {
            entry.change(sandbox);
        }
        if let (Some(size), Some(template)) = (&self.size, &mut sandbox.spec.template) {
            pod::set_resources(template, size);
        }
        if let (Some(resize), Some(template)) = (&self.resize, &mut sandbox.spec.template) {
            let cpu = target(resize, pod::cpu(template));
            pod::set_cpu(template, cpu);
        }
    }

    /// Leaves the sandbox the time until it is ready, when its own time begins.
    pub(super) fn begin_when_ready(&self, sandbox: &mut Sandbox) {
        let starts = self.ready_timeout() + STARTUP;
        for time in [
            &mut sandbox.spec.shutdown_time,
            &mut sandbox.spec.pause_time,
        ] {
            *time = time.take().map(|time| MetaTime(later(time.0, starts)));
        }
    }

    /// Whether a failed claim is followed by a new sandbox: its own limits could not be given to a member.
    pub(super) fn is_retried_after(&self, error: &CreateError) -> bool {
        let too_small = matches!(error, CreateError::Driver(DriverError::CannotResize(_)));
        self.resize.is_none() && too_small
    }

    /// How long the sandbox may take to become ready.
    pub(super) fn ready_timeout(&self) -> Duration {
        self.options.ready_timeout.unwrap_or(READY).min(READY)
    }
}

/// A time, so much later.
fn later(time: Time, by: Duration) -> Time {
    let by = SignedDuration::try_from(by).unwrap_or(FOR_EVER);
    time.checked_add(by).unwrap_or(Time::MAX)
}

impl Sandboxes {
    /// Checks a request.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub(super) async fn plan(
        &self,
        principal: &Principal,
        mut new: SandboxRequest,
    ) -> Result<Plan, CreateError> {
        let found = self.named(principal, &new).await?;
        request::refuse_unserved(&new)?;
        let set = found.set().clone();
        let id = identity::new_sandbox_id(principal.slug.as_str(), random::bytes()?)
            .map(|id| id.to_string());
        let entry = found.entry().map(|entry| {
            entry::fill(&mut new, entry);
            entry::OfEntry::of(entry, &new, principal, id.as_deref())
        });
        let mut options = Options::take(&mut new.metadata)?;
        // Clones of a snapshot wait in no pool, unless an entry names it.
        options.pooled_only &= found.snapshot().is_none();
        let size = size::of_request(&found, &new, &options)?;
        let saved = found.saved().and_then(SavedSandbox::init);
        let now = Time::now();
        let (pause_time, shutdown_time) = self.deadlines(&new, &options, now)?;
        request::need_template(&set, &new)?;
        let closed = new.network.egress.internet == Some(false) || request::is_closed(&set);
        let metadata = std::mem::take(&mut new.metadata);
        let (labels, mut annotations) = request::marks(&set, &new, metadata, &options)?;
        close_to_strangers(&new, &mut annotations)?;
        let init = (!options.skip_init).then(|| {
            let former = saved.unwrap_or_default();
            let mut env_vars = former.env_vars;
            env_vars.extend(request::identity_variables(&found, id.as_deref()));
            // The user's variables override these.
            env_vars.extend(new.env);
            Ok::<_, NoEntropy>(InitRequest {
                env_vars,
                access_token: hex(&random::bytes::<32>()?),
                former_token: former.access_token,
            })
        });
        let claiming = Claiming {
            id,
            owner: principal.key.to_string(),
            lock: hex(&random::bytes::<16>()?),
            at: now,
            claim_name: None,
            quota_key: None,
            shutdown_time,
            pause_time,
            labels,
            annotations,
            annotate_pod: false,
            init: init.transpose()?,
        };
        Ok(Plan {
            set,
            entry,
            restored_from: found.snapshot().map(|saved| saved.id().to_owned()),
            claiming,
            size,
            resize: new.resize,
            timeout: (!new.endless).then_some(new.timeout),
            closed,
            once: None,
            options,
        })
    }

    /// The targets of the request's names.
    async fn named(
        &self,
        principal: &Principal,
        new: &SandboxRequest,
    ) -> Result<Found, CreateError> {
        let (template, image) = (new.template.as_ref(), new.image.as_ref());
        match self.templates.named(principal, template, image) {
            Err(CreateError::Template(TemplateError::NotFound(name)))
                if self.look_up_set(principal, &name).await?
                    || self.look_up_snapshot(principal, &name).await? =>
            {
                self.templates.named(principal, template, image)
            }
            Err(CreateError::Template(TemplateError::NoBase { base, .. }))
                if self.look_up_snapshot(principal, &base.to_string()).await? =>
            {
                self.templates.named(principal, template, image)
            }
            found => found,
        }
    }

    /// Looks for a SandboxSet that the watch has not shown yet: `kubectl apply` may have ended a moment ago. Returns
    /// whether it exists.
    async fn look_up_set(&self, principal: &Principal, template: &str) -> Result<bool, StoreError> {
        let namespace = principal.slug.as_str();
        let Some(name) = templates::set_name(namespace, template) else {
            return Ok(false);
        };
        // A list needs no right that the watch has not.
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        let sets: Api<SandboxSet> = Api::namespaced(self.client.clone(), namespace);
        let found = sets.list(&named).await;
        let found = found.map_err(|error| failure::store(&error))?.items;
        let is_there = !found.is_empty();
        for set in found {
            self.templates.sets.put(set);
        }
        Ok(is_there)
    }

    /// Looks for a snapshot that another replica may have taken a moment ago. Returns whether it exists.
    pub(super) async fn look_up_snapshot(
        &self,
        principal: &Principal,
        template: &str,
    ) -> Result<bool, StoreError> {
        let Ok(reference) = template.parse() else {
            return Ok(false);
        };
        let namespace = principal.slug.as_str();
        self.look_up_save(namespace, &reference).await?;
        Ok(self.saves.find_meant(namespace, &reference).is_some())
    }

    /// When the sandbox is paused, and when it is deleted.
    fn deadlines(
        &self,
        new: &SandboxRequest,
        options: &Options,
        now: Time,
    ) -> Result<(Option<Time>, Option<Time>), CreateError> {
        if new.endless {
            return Ok((None, None));
        }
        if new.timeout.is_zero() {
            return Err(CreateError::NoTimeout);
        }
        let end = now + self.within_limit(new.timeout)?;
        Ok(match new.on_timeout {
            OnTimeout::Kill => (None, Some(end)),
            OnTimeout::Pause => (Some(end), Some(kept_until(end, options.kept_paused()))),
        })
    }
}

/// Gives a sandbox whose traffic is not public the token that its traffic needs.
fn close_to_strangers(new: &SandboxRequest, annotations: &mut Pairs) -> Result<(), NoEntropy> {
    if new.network.allow_public_traffic == Some(false) {
        let token = hex(&random::bytes::<32>()?);
        annotations.insert(annotation::TRAFFIC_ACCESS_TOKEN.to_owned(), token);
    }
    Ok(())
}

/// The request and the limit after a resize. A request is never above the limit.
fn target(resize: &ResizeCreated, before: [Option<MilliCpu>; 2]) -> [Option<MilliCpu>; 2] {
    let scaled = |cpu| {
        let before = Resources {
            cpu,
            ..Resources::default()
        };
        resize.limits(&before).cpu
    };
    match resize.cpu {
        CpuTarget::Factor(_) => before.map(|cpu| cpu.map(scaled)),
        CpuTarget::Absolute { request, limit } => {
            let [old_request, old_limit] = before;
            let limit = limit.or(old_limit);
            let request = request.or(old_request);
            [
                request.map(|cpu| limit.map_or(cpu, |limit| cpu.min(limit))),
                limit,
            ]
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_amounts_change_what_they_name_only() {
        let amounts = |request: u32, limit: u32| {
            [request, limit].map(|milli| (milli > 0).then_some(MilliCpu(milli)))
        };
        let before = amounts(100, 500);
        for (asked, expected) in [
            (amounts(0, 750), amounts(100, 750)),
            (amounts(200, 0), amounts(200, 500)),
            (amounts(200, 1500), amounts(200, 1500)),
            // A pod's request is at most its limit.
            (amounts(0, 50), amounts(50, 50)),
            (amounts(900, 0), amounts(500, 500)),
        ] {
            let [request, limit] = asked;
            let resize = ResizeCreated {
                cpu: CpuTarget::Absolute { request, limit },
                early_return: false,
            };
            assert_eq!(target(&resize, before), expected, "{asked:?}");
        }
        let doubled = ResizeCreated {
            cpu: CpuTarget::Factor(2.0),
            early_return: false,
        };
        assert_eq!(target(&doubled, before), amounts(200, 1000));
        assert_eq!(target(&doubled, amounts(100, 0)), amounts(200, 0));
    }
}
