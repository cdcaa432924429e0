//! The plan of a sandbox: every value of its specification, and the pool that can supply it.

use std::collections::BTreeMap;
use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::build::StartCommand;
use shoal_core::catalogue::Entry;
use shoal_core::catalogue::merge::{Merged, Source, merge};
use shoal_core::driver::RuntimeInfo;
use shoal_core::ports::create::{CreateError, SandboxRequest};
use shoal_core::ports::resolve::{Meaning, Resolved};
use shoal_core::ports::sandboxes::{RuntimeForbidden, SandboxError};
use shoal_core::resources::{MilliCpu, RequestedResources, Resources};
use shoal_core::sandbox::{Lifecycle, OnTimeout, Purpose, SandboxSpec, SnapshotOrigin};
use shoal_core::template::{RuntimeName, Template};

use crate::access::Access;
use crate::drivers::Drivers;

/// A sandbox can grow in place to this multiple of its processor time when its template sets no
/// maximum. The runtime needs the maximum at the start.
const GROWTH: u32 = 4;

/// A pool, and which of its members fit a request.
#[derive(Debug, Clone)]
pub(crate) struct PoolKey {
    /// The catalogue entry of the pool.
    pub(crate) entry: Arc<Entry>,
    /// The digest of the members: of the entry, and of its image or its base's build.
    pub(crate) digest: String,
}

/// Plans sandboxes.
pub(crate) struct Planner {
    access: Arc<Access>,
    drivers: Arc<Drivers>,
    /// Whether sandboxes may be privileged.
    privileged: bool,
}

impl Planner {
    /// `drivers` know the runtimes, and bound how far a sandbox can grow.
    pub(crate) fn new(access: Arc<Access>, drivers: Arc<Drivers>, privileged: bool) -> Self {
        Self {
            access,
            drivers,
            privileged,
        }
    }

    /// Merges the request over its template, its image and the defaults, within the limits of the
    /// caller. The pool is the one whose members can become this sandbox, if there is one.
    ///
    /// # Errors
    /// When the limits, the runtime or the pause at the deadline cannot be granted.
    pub(crate) fn plan(
        &self,
        principal: &Principal,
        resolved: &Resolved,
        new: &SandboxRequest,
    ) -> Result<(SandboxSpec, Option<PoolKey>), CreateError> {
        let mut layers = resolved.layers();
        let below = merge(&layers);
        layers.insert(0, (Source::Request, new.layer()));
        let merged = merge(&layers);
        let mut spec = self.spec_of(resolved, &merged, &below, new);
        spec.runtime_from_operator = self.authorize_runtime(principal, resolved, &merged)?;
        if spec.privileged {
            self.check_privileged(spec.runtime.as_ref())?;
            // Programs keep the capabilities that they were saved with.
            if let Some(origin) = &mut spec.snapshot {
                origin.memory = false;
            }
        }
        let bounds = self.access.bounds(principal.team);
        let limits = if resolved.is_operators() {
            requested_over(bounds.nearest(spec.resources), &new.resources)
        } else {
            spec.resources
        };
        let grows_to = spec.cpu_ceiling;
        let granted = bounds.grant(limits, grows_to).map_err(SandboxError::from)?;
        spec.resources = granted.resources();
        spec.cpu_ceiling = granted.cpu_ceiling();
        if new.on_timeout == OnTimeout::Pause {
            self.check_pauses(spec.runtime.as_ref(), new.keep_memory)?;
        }
        let default = self.runtime_of(None).map(|info| &info.name);
        let pool = pool_of(resolved).filter(|_| {
            !spec.privileged && member_can_become(&spec, grows_to, &merged, &below, default)
        });
        Ok((spec, pool))
    }

    /// `below` is the merge of the layers below the request.
    fn spec_of(
        &self,
        resolved: &Resolved,
        merged: &Merged,
        below: &Merged,
        new: &SandboxRequest,
    ) -> SandboxSpec {
        let machine = self.drivers.capabilities().cpu;
        let grown = MilliCpu(below.cpu.value.0.saturating_mul(GROWTH));
        // The snapshot of a build belongs to the template's own image.
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
            // A pool member starts below the limits that a claim raises it to, on any machine.
            Meaning::Entry { .. } | Meaning::Image => {
                let most = resolved.base().and_then(|base| base.max_cpu);
                (
                    most.unwrap_or(grown).min(machine).max(below.cpu.value),
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
            // Without the daemon's token, a sandbox with private traffic would still be open.
            secure: new.secure || !network.allow_public_traffic,
            network,
            template_network: below.said_network(),
            persistent: merged.persistent.value,
            cpu_ceiling,
            snapshot,
            purpose: Purpose::Use,
            port: new.port.or_else(|| resolved.entry()?.port),
            privileged: new.privileged,
        }
    }

    /// Checks that `principal` may use the merged runtime. Returns whether the operator chose it.
    fn authorize_runtime(
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
            self.access
                .may_choose(principal, merged.runtime.value.as_ref())?;
        }
        Ok(from_operator)
    }

    /// The runtime of a sandbox, if it can save memory.
    pub(crate) fn memory_runtime(&self, spec: &SandboxSpec) -> Option<RuntimeInfo> {
        let info = self.runtime_of(spec.runtime.as_ref());
        let info = info.filter(|info| info.memory_snapshot)?;
        let driver = self.drivers.of_runtime(Some(&info.name));
        driver.checkpoints().is_ok().then(|| info.clone())
    }

    /// The runtime of this name, or the default one.
    fn runtime_of(&self, asked: Option<&RuntimeName>) -> Option<&RuntimeInfo> {
        let runtimes = &self.drivers.capabilities().runtimes;
        match asked {
            Some(name) => runtimes.iter().find(|info| info.name == *name),
            None => runtimes.first(),
        }
    }

    /// Refuses containers inside before anything starts.
    fn check_privileged(&self, runtime: Option<&RuntimeName>) -> Result<(), CreateError> {
        if !self.privileged {
            return Err(CreateError::PrivilegedForbidden);
        }
        match self.runtime_of(runtime) {
            Some(info) if !info.nested_containers => {
                Err(CreateError::NoNestedContainers(info.name.clone()))
            }
            // The start refuses an unknown runtime by name.
            _ => Ok(()),
        }
    }

    /// Refuses a pause at the deadline now if it would fail then.
    fn check_pauses(
        &self,
        runtime: Option<&RuntimeName>,
        keep_memory: bool,
    ) -> Result<(), CreateError> {
        self.drivers.of_runtime(runtime).checkpoints()?;
        match self.runtime_of(runtime) {
            Some(info) if keep_memory && !info.memory_snapshot => {
                Err(CreateError::CannotKeepMemory(info.name.clone()))
            }
            // The start refuses an unknown runtime by name.
            _ => Ok(()),
        }
    }
}

/// The snapshot that a build made of its template. Another runtime cannot use its memory, and boots
/// from its files.
fn snapshot_for(template: &Template, runtime: Option<&RuntimeName>) -> Option<SnapshotOrigin> {
    let snapshot = template.snapshot.clone()?;
    let same = template.runtime.as_ref() == runtime;
    Some(SnapshotOrigin {
        memory: snapshot.memory && same,
        ..snapshot
    })
}

/// `limits` with the values of the request. Those are refused when too large, never lowered.
fn requested_over(limits: Resources, asked: &RequestedResources) -> Resources {
    Resources {
        cpu: asked.cpu.unwrap_or(limits.cpu),
        memory: asked.memory.unwrap_or(limits.memory),
        disk: asked.disk.unwrap_or(limits.disk),
        pids: asked.pids.unwrap_or(limits.pids),
    }
}

/// The start command and its own environment.
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

/// The pool of the entry, unless the request replaces the entry's image.
fn pool_of(resolved: &Resolved) -> Option<PoolKey> {
    let entry = resolved.entry().filter(|entry| !entry.is_dynamic())?;
    entry.pool.as_ref()?;
    if resolved.image_from == Source::Request {
        return None;
    }
    let digest = match resolved.base() {
        Some(base) => entry.member_digest(&base.build.to_string()),
        None => entry.member_digest(&resolved.fetched.as_ref()?.digest),
    };
    Some(PoolKey {
        entry: entry.clone(),
        digest,
    })
}

/// Whether a running pool member can become this sandbox. `below` has the values that the member was
/// made with, and `grows_to` its maximum of processor time. Running programs cannot get other values of
/// variables that they started with.
fn member_can_become(
    spec: &SandboxSpec,
    grows_to: MilliCpu,
    merged: &Merged,
    below: &Merged,
    default: Option<&RuntimeName>,
) -> bool {
    let runtime = |named: &Option<RuntimeName>| named.as_ref().or(default).cloned();
    let before = below.env();
    let conflicts =
        |(name, value): (&String, &String)| before.get(name).is_some_and(|before| before != value);
    runtime(&spec.runtime) == runtime(&below.runtime.value)
        && merged.disk.value == below.disk.value
        && merged.pids.value == below.pids.value
        && spec.resources.cpu <= grows_to
        && !spec.env.iter().any(conflicts)
}
