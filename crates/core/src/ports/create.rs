//! Creating a sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use crate::catalogue::merge::SettingsLayer;
use crate::driver::DriverError;
use crate::image::{ImageError, ImageName};
use crate::network::{InvalidRule, RequestedNetwork};
use crate::ports::NoEntropy;
use crate::ports::builds::BuiltinError;
use crate::ports::inside::InsideError;
use crate::ports::resolve::Resolved;
use crate::ports::sandboxes::{
    NameError, QuotaExceeded, RuntimeForbidden, SandboxError, TimeoutTooLong,
};
use crate::ports::templates::TemplateError;
use crate::resources::{InvalidResources, MilliCpu, RequestedResources, Resources};
use crate::sandbox::{OnTimeout, SandboxRecord};
use crate::store::StoreError;
use crate::template::{RuntimeName, TemplateKey, TemplateName};

/// A sandbox to create. Absent values come from the template.
#[derive(Debug, Clone)]
pub struct SandboxRequest {
    /// The template; when absent the image stands for itself, and without an image the default is used.
    pub template: Option<TemplateKey>,
    /// The image, over that of the template.
    pub image: Option<ImageName>,
    /// How long it lives.
    pub timeout: Duration,
    /// Whether it has no deadline at all.
    pub endless: bool,
    /// The action at the deadline.
    pub on_timeout: OnTimeout,
    /// Whether traffic wakes it when it is paused.
    pub auto_resume: bool,
    /// Whether a pause at the deadline keeps memory.
    pub keep_memory: bool,
    /// Whether the daemon inside requires its token.
    pub secure: bool,
    /// Its network, over that of the template.
    pub network: RequestedNetwork,
    /// The user's labels, over those of the template.
    pub metadata: BTreeMap<String, String>,
    /// Keys of `metadata` that become labels of the sandbox, where a backend has such.
    pub labels: BTreeSet<String>,
    /// The working directory of commands, over that of the template.
    pub workdir: Option<String>,
    /// The port of requests that name none, over that of the template.
    pub port: Option<NonZeroU16>,
    /// Environment of every process, over that of the template.
    pub env: BTreeMap<String, String>,
    /// The OCI runtime, over that of the template.
    pub runtime: Option<RuntimeName>,
    /// Limits, over those of the template.
    pub resources: RequestedResources,
    /// Limits to put in force in place, once it runs.
    pub resize: Option<ResizeCreated>,
    /// Whether containers run inside. No API offers this: the machines of sessions ask for it.
    pub privileged: bool,
}

impl SandboxRequest {
    /// A sandbox of this template, with E2B's defaults: 300 s, then killed; secured.
    #[must_use]
    pub fn of(template: impl Into<TemplateKey>) -> Self {
        Self {
            template: Some(template.into()),
            ..Self::unnamed()
        }
    }

    /// The same, of the default template.
    #[must_use]
    pub fn unnamed() -> Self {
        Self {
            template: None,
            image: None,
            timeout: Duration::from_secs(300),
            endless: false,
            on_timeout: OnTimeout::Kill,
            auto_resume: false,
            keep_memory: true,
            secure: true,
            network: RequestedNetwork::default(),
            metadata: BTreeMap::new(),
            labels: BTreeSet::new(),
            workdir: None,
            port: None,
            env: BTreeMap::new(),
            runtime: None,
            resources: RequestedResources::default(),
            resize: None,
            privileged: false,
        }
    }

    /// The values that a template may set too, as the topmost layer of a merge.
    #[must_use]
    pub fn layer(&self) -> SettingsLayer {
        let RequestedResources {
            cpu,
            memory,
            disk,
            pids,
        } = self.resources;
        SettingsLayer {
            cpu,
            memory,
            disk,
            pids,
            runtime: self.runtime.clone(),
            workdir: self.workdir.clone(),
            network: self.network.clone(),
            env: self.env.clone(),
            metadata: self.metadata.clone(),
            ..SettingsLayer::default()
        }
    }
}

/// How the limits of a sandbox change as soon as it runs (OpenKruise's in-place update).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResizeCreated {
    /// The new processor time.
    pub cpu: CpuTarget,
    /// Whether the create returns once the change is known to be feasible.
    pub early_return: bool,
}

/// Processor time to resize to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CpuTarget {
    /// A multiple of the template's.
    Factor(f64),
    /// Absolute amounts. Missing ones stay as they are.
    Absolute {
        /// The processor time that is reserved, where that differs from the limit.
        request: Option<MilliCpu>,
        /// The limit.
        limit: Option<MilliCpu>,
    },
}

impl ResizeCreated {
    /// The limits after the change.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float becomes the nearest number there is"
    )]
    pub fn limits(&self, before: &Resources) -> Resources {
        let cpu = match self.cpu {
            CpuTarget::Absolute { request, limit } => limit.or(request).unwrap_or(before.cpu),
            CpuTarget::Factor(factor) => {
                MilliCpu((f64::from(before.cpu.0) * factor).round() as u32)
            }
        };
        Resources { cpu, ..*before }
    }
}

/// Marks requests with the same key as repetitions of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The key.
    pub key: String,
    /// A digest of the request.
    pub request: [u8; 32],
}

/// A sandbox that was created and runs.
#[derive(Debug, Clone)]
pub struct Created {
    /// Its record.
    pub record: Arc<SandboxRecord>,
}

/// Why no sandbox was created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The template cannot be used.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The request names nothing, and no default is configured.
    #[error("neither a template nor an image is named, and no default is configured")]
    NoTemplate,
    /// The template belongs to the installation, and its first build is running.
    #[error("template '{template}' is being built for the first time, which takes some minutes")]
    BeingBuilt {
        /// The name of the template.
        template: TemplateName,
        /// The id of the build, by which it can be watched.
        build: String,
    },
    /// The template belongs to the installation, and its build failed.
    #[error("template '{template}' could not be built: {reason}")]
    NotBuilt {
        /// The name of the template.
        template: TemplateName,
        /// The reason.
        reason: String,
    },
    /// The template belongs to the installation, and its build could not begin.
    #[error(transparent)]
    Builtin(#[from] BuiltinError),
    /// The image of the template is not available.
    #[error("template '{template}' cannot be started: {error}")]
    Image {
        /// The name of the template.
        template: String,
        /// The reason.
        #[source]
        error: ImageError,
    },
    /// The caller may not name an image.
    #[error(
        "only an admin key may name an image: name a template, or set `templates.custom_images`"
    )]
    ImageForbidden,
    /// The caller may not choose this runtime.
    #[error(transparent)]
    Runtime(#[from] RuntimeForbidden),
    /// The runtime cannot save the memory that a pause at the deadline must keep.
    #[error(
        "runtime {0} cannot keep memory in a pause: keep the files alone, or use another runtime"
    )]
    CannotKeepMemory(RuntimeName),
    /// The runtime cannot run containers inside.
    #[error("runtime {0} cannot run containers in a sandbox: use runsc")]
    NoNestedContainers(RuntimeName),
    /// The operator does not allow privileged sandboxes.
    #[error(
        "privileged sandboxes are not allowed here: the operator may set `sessions.privileged`"
    )]
    PrivilegedForbidden,
    /// The request names a snapshot and another image; a snapshot has its own.
    #[error("a snapshot cannot be started with another image")]
    ImageOfSnapshot,
    /// The timeout is too long.
    #[error(transparent)]
    TimeoutTooLong(#[from] TimeoutTooLong),
    /// The caller may not create a sandbox without a deadline.
    #[error(
        "only an admin key may make a sandbox that never times out: give it a timeout, or set \
         `limits.never_timeout`"
    )]
    EndlessForbidden,
    /// The timeout is zero.
    #[error("the timeout is zero")]
    NoTimeout,
    /// A limit is invalid.
    #[error(transparent)]
    Resources(#[from] InvalidResources),
    /// A network rule is invalid.
    #[error(transparent)]
    Network(#[from] InvalidRule),
    /// The name is invalid or taken.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A limit on sandboxes is reached.
    #[error(transparent)]
    Full(#[from] QuotaExceeded),
    /// The idempotency key was used for another request.
    #[error("the idempotency key was used for another request")]
    IdempotencyMismatch,
    /// The same request is still in progress.
    #[error("a request with this idempotency key is still in progress")]
    IdempotencyInProgress,
    /// The same request created a sandbox that has ended since.
    #[error("the sandbox that this idempotency key made is gone")]
    IdempotencyGone,
    /// The driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The start command of the template failed.
    #[error("the start command of its template failed: {0}")]
    Start(String),
    /// The daemon inside does not answer.
    #[error(transparent)]
    Guest(#[from] InsideError),
    /// An option among the metadata is invalid.
    #[error("{0}")]
    InvalidOption(String),
    /// It was created and did not become ready. Nothing is left of it, unless the request keeps it.
    #[error("the sandbox did not become ready: {0}")]
    NotReady(String),
    /// The sandbox was ended while it was created.
    #[error(transparent)]
    Sandbox(SandboxError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

impl CreateError {
    /// The image of a resolved request is not available.
    #[must_use]
    pub fn image(resolved: &Resolved, error: ImageError) -> Self {
        let name = resolved.name.clone();
        Self::Image {
            template: name.unwrap_or_else(|| resolved.id.to_string()),
            error,
        }
    }
}

impl From<SandboxError> for CreateError {
    /// An error that has a variant of its own here becomes that variant.
    fn from(error: SandboxError) -> Self {
        match error {
            SandboxError::Driver(driver) => Self::Driver(driver),
            SandboxError::Guest(inside) => Self::Guest(inside),
            SandboxError::Store(store) => Self::Store(store),
            SandboxError::Full(full) => Self::Full(full),
            SandboxError::Resources(resources) => Self::Resources(resources),
            SandboxError::Entropy(entropy) => Self::Entropy(entropy),
            SandboxError::Runtime(forbidden) => Self::Runtime(forbidden),
            other => Self::Sandbox(other),
        }
    }
}
