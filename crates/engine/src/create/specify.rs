//! What a sandbox is to be, value by value.

use std::collections::BTreeMap;

use shoal_core::auth::Principal;
use shoal_core::build::StartCommand;
use shoal_core::catalogue::merge::{Merged, Source, merge};
use shoal_core::driver::RuntimeInfo;
use shoal_core::image::Image;
use shoal_core::resources::{AskedResources, MilliCpu, Resources};
use shoal_core::sandbox::{Lifecycle, OnTimeout, Purpose, SandboxSpec, SnapshotOrigin};
use shoal_core::template::{RuntimeName, Template};

use super::{CreateError, NewSandbox};
use crate::access::RuntimeForbidden;
use crate::config::Endless;
use crate::engine::{Engine, SandboxError};
use crate::pool::Wanted;
use crate::resolve::{Meaning, Resolved};

/// How many times its own processor time a sandbox can be given in place, when its template does not
/// say: a runtime has to know when it starts.
const GROWTH: u32 = 4;

/// What a sandbox of a template begins with, when it was built. Memory is of the runtime that it was
/// saved in: another one boots from the files.
fn snapshot_for(template: &Template, runtime: Option<&RuntimeName>) -> Option<SnapshotOrigin> {
    let snapshot = template.snapshot.clone()?;
    let same = template.runtime.as_ref() == runtime;
    Some(SnapshotOrigin {
        memory: snapshot.memory && same,
        ..snapshot
    })
}

/// `limits`, with what a request says itself, which is refused rather than lowered.
fn said_by_request(limits: Resources, asked: &AskedResources) -> Resources {
    Resources {
        cpu: asked.cpu.unwrap_or(limits.cpu),
        memory: asked.memory.unwrap_or(limits.memory),
        disk: asked.disk.unwrap_or(limits.disk),
        pids: asked.pids.unwrap_or(limits.pids),
    }
}

/// What runs in a sandbox from its start on, and with which variables of its own.
fn start_of(resolved: &Resolved) -> (Option<StartCommand>, BTreeMap<String, String>) {
    match &resolved.meaning {
        Meaning::Template(template) => (template.start.clone(), template.build_env.clone()),
        Meaning::Snapshot(snapshot) => {
            let spec = &snapshot.spec;
            (spec.start.clone(), spec.start_env.clone())
        }
        Meaning::Entry { found, .. } => match resolved.base() {
            Some(base) => (base.start.clone(), base.build_env.clone()),
            None => (found.entry.start(), BTreeMap::new()),
        },
        Meaning::Image => (None, BTreeMap::new()),
    }
}

/// What a sandbox is to be, and from where it may come.
pub(crate) struct Specified {
    pub(crate) spec: SandboxSpec,
    /// What its name means.
    pub(crate) resolved: Resolved,
    /// Its image, when that says what the template does not.
    pub(crate) image: Option<Image>,
    /// The members of a pool that would do.
    pub(crate) wanted: Option<Wanted>,
}

/// The pool of what was resolved, if it has one.
fn wanted(resolved: &Resolved, image: Option<&Image>) -> Option<Wanted> {
    let entry = resolved.entry().filter(|entry| !entry.is_dynamic())?;
    entry.pool.as_ref()?;
    if resolved.image_from == Source::Request {
        return None;
    }
    let digest = match resolved.base() {
        Some(base) => entry.member_digest(&base.build.to_string()),
        None => entry.member_digest(&image?.digest),
    };
    Some(Wanted {
        entry: entry.clone(),
        digest,
    })
}

/// Whether a sandbox that was made without a request can become this one while it runs. `unasked` is
/// what it was made as, and `grows_to` the processor time that it can be given. What was started with other variables than are asked for cannot be told.
fn can_be_taken_over(
    spec: &SandboxSpec,
    grows_to: MilliCpu,
    merged: &Merged,
    unasked: &Merged,
    usual: Option<&RuntimeName>,
) -> bool {
    let runtime = |said: &Option<RuntimeName>| said.as_ref().or(usual).cloned();
    let before = unasked.env();
    let conflicts =
        |(name, value): (&String, &String)| before.get(name).is_some_and(|before| before != value);
    runtime(&spec.runtime) == runtime(&unasked.runtime.value)
        && merged.disk.value == unasked.disk.value
        && merged.pids.value == unasked.pids.value
        && spec.resources.cpu <= grows_to
        && !spec.env.iter().any(conflicts)
}

impl Engine {
    /// What a sandbox is to be: what was said, and the rest from its template, its image, and the
    /// defaults, with the members of a pool that would do for it.
    /// `image` is its image when that was brought here already.
    pub(crate) async fn specified(
        &self,
        principal: &Principal,
        new: NewSandbox,
        image: Option<Image>,
    ) -> Result<Specified, CreateError> {
        if new.endless && self.limits().endless == Endless::Admins && !principal.admin {
            return Err(CreateError::EndlessForbidden);
        }
        self.shared.sandboxes.check_timeout(new.timeout)?;
        if new.timeout.is_zero() {
            return Err(CreateError::NoTimeout);
        }
        new.network.validate()?;
        let resolved = self.resolve(principal, new.template.as_ref(), new.image.as_ref())?;
        self.specified_as(principal, resolved, new, image).await
    }

    /// The same, of what was resolved already.
    pub(crate) async fn specified_as(
        &self,
        principal: &Principal,
        resolved: Resolved,
        new: NewSandbox,
        image: Option<Image>,
    ) -> Result<Specified, CreateError> {
        let image = match image {
            None if resolved.needs_image() => Some(self.shared.image_of(&resolved).await?),
            brought => brought,
        };
        let mut layers = resolved.layers(image.as_ref());
        let unasked = merge(&layers);
        layers.insert(0, (Source::Request, new.layer()));
        let merged = merge(&layers);
        let mut spec = self.spec_of(&resolved, &merged, &unasked, &new);
        spec.runtime_from_operator = self.may_run(principal, &resolved, &merged)?;
        let bounds = self.shared.access.bounds(principal.team);
        let wanted_limits = if resolved.is_operators() {
            said_by_request(bounds.nearest(spec.resources), &new.resources)
        } else {
            spec.resources
        };
        let granted = bounds.grant(wanted_limits, spec.cpu_ceiling);
        let granted = granted.map_err(SandboxError::from)?;
        let grows_to = spec.cpu_ceiling;
        spec.resources = granted.resources();
        spec.cpu_ceiling = granted.cpu_ceiling();
        if new.on_timeout == OnTimeout::Pause && new.keep_memory {
            self.must_keep_memory(spec.runtime.as_ref())?;
        }
        let wanted = wanted(&resolved, image.as_ref());
        let usual = self.capabilities().runtimes.first().map(|info| &info.name);
        let wanted =
            wanted.filter(|_| can_be_taken_over(&spec, grows_to, &merged, &unasked, usual));
        Ok(Specified {
            spec,
            resolved,
            image,
            wanted,
        })
    }

    /// `merged` is what the sandbox is to be, and `unasked` what it would be if the request said
    /// nothing.
    fn spec_of(
        &self,
        resolved: &Resolved,
        merged: &Merged,
        unasked: &Merged,
        new: &NewSandbox,
    ) -> SandboxSpec {
        let machine = self.shared.driver.capabilities().cpu;
        let grown = MilliCpu(unasked.cpu.value.0.saturating_mul(GROWTH));
        // What was saved stands on the template's own image, and goes on in no other.
        let saved = resolved.base();
        let saved = saved.and_then(|base| snapshot_for(base, merged.runtime.value.as_ref()));
        let (cpu_ceiling, template_name, snapshot) = match &resolved.meaning {
            Meaning::Snapshot(snapshot) => {
                let clone = snapshot.spec_of_clone();
                (clone.cpu_ceiling, clone.template_name, clone.snapshot)
            }
            Meaning::Template(template) => (
                template.max_cpu.unwrap_or(grown).min(machine),
                resolved.name.clone(),
                saved,
            ),
            // A member of a pool begins with less than it is raised to, whatever the machine has.
            Meaning::Entry { .. } | Meaning::Image => {
                let most = resolved.base().and_then(|base| base.max_cpu);
                (
                    most.unwrap_or(grown).min(machine).max(unasked.cpu.value),
                    resolved.name.clone(),
                    saved,
                )
            }
        };
        let mut network = merged.network();
        if new.network.said_open && network.egress.internet.is_none() {
            network.egress.internet = Some(true);
        }
        let (start, start_env) = start_of(resolved);
        SandboxSpec {
            start,
            start_env,
            template: resolved.id.clone(),
            template_name,
            template_key: resolved.key.clone(),
            image: resolved.image.clone(),
            runtime: merged.runtime.value.clone(),
            runtime_from_operator: false,
            resources: merged.resources(),
            user: merged.user.value.clone(),
            workdir: merged.workdir.value.clone(),
            env: merged.env(),
            metadata: merged.metadata(),
            lifecycle: Lifecycle {
                timeout: new.timeout,
                on_timeout: new.on_timeout,
                auto_resume: new.auto_resume,
                keep_memory: new.keep_memory,
                endless: new.endless,
            },
            // Without the daemon's token a private sandbox would be open all the same.
            secure: new.secure || !network.allow_public_traffic,
            network,
            template_network: unasked.said_network(),
            persistent: merged.persistent.value,
            cpu_ceiling,
            snapshot,
            purpose: Purpose::Use,
            port: new.port.or_else(|| resolved.entry()?.port),
        }
    }

    /// Whether a sandbox of `principal` may run in what was merged for it. Says whether the operator chose
    /// that.
    fn may_run(
        &self,
        principal: &Principal,
        resolved: &Resolved,
        merged: &Merged,
    ) -> Result<bool, RuntimeForbidden> {
        let from_operator = merged.runtime.from != Source::Request
            && match &resolved.meaning {
                Meaning::Snapshot(snapshot) => snapshot.spec.runtime_from_operator,
                _ => resolved.is_operators(),
            };
        if !from_operator {
            self.shared
                .access
                .may_choose(principal, merged.runtime.value.as_ref())?;
        }
        Ok(from_operator)
    }

    /// The runtime that a sandbox runs in, when it can save memory.
    pub(crate) fn memory_runtime(&self, spec: &SandboxSpec) -> Option<RuntimeInfo> {
        let info = self.runtime_of(spec.runtime.as_ref());
        info.filter(|info| info.memory_snapshot).cloned()
    }

    /// The runtime of this name, or the usual one.
    fn runtime_of(&self, asked: Option<&RuntimeName>) -> Option<&RuntimeInfo> {
        let runtimes = &self.capabilities().runtimes;
        match asked {
            Some(name) => runtimes.iter().find(|info| info.name == *name),
            None => runtimes.first(),
        }
    }

    /// Whether what is to be paused at its deadline can be: said now, and not in the night.
    fn must_keep_memory(&self, runtime: Option<&RuntimeName>) -> Result<(), CreateError> {
        match self.runtime_of(runtime) {
            Some(info) if !info.memory_snapshot => {
                Err(CreateError::CannotKeepMemory(info.name.clone()))
            }
            // An unknown one is refused by the driver, by name.
            _ => Ok(()),
        }
    }
}
