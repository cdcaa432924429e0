//! The operator's settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use shoal_core::driver::ExportKey;
use shoal_core::image::ImageName;
use shoal_core::limits::PerSandbox;
use shoal_core::memory::FreeMemory;
use shoal_core::parking::ParkingSettings;
use shoal_core::resources::{Mib, MilliCpu};
use shoal_core::template::{RuntimeName, TemplateKey};

/// The most that an imported snapshot may have: the memory and the disk of a large sandbox. What
/// the disk has room for is less on most machines, and bounds it too.
const IMPORT_MAX: u64 = 64 << 30;

/// The largest archive, in bytes, unless the configuration says another.
pub const UPLOAD_MAX: u64 = 4 << 30;

/// The limits of all requests.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The longest life of a sandbox from its start.
    pub max_timeout: Duration,
    /// How many sandboxes a tenant may have at once.
    pub sandboxes_per_team: usize,
    /// How many sandboxes there may be at once.
    pub sandboxes: usize,
    /// How much processor time the running sandboxes of a tenant may have together; as much as
    /// they like when nothing is said.
    pub cpu_per_team: Option<MilliCpu>,
    /// Which keys may create sandboxes without a deadline.
    pub endless: Endless,
    /// How much memory the running sandboxes of a tenant may have together; some times what the
    /// machine has when nothing is said.
    pub memory_per_team: Option<Mib>,
    /// How much of the disk a tenant may hold; most of it when nothing is said.
    pub disk_per_team: Option<Mib>,
    /// How many snapshots a tenant may keep.
    pub snapshots_per_team: u32,
    /// The limits of one sandbox.
    pub per_sandbox: PerSandbox,
    /// How much of the machine's memory creates and resumes leave free.
    pub free_memory: FreeMemory,
    /// How many forks one request makes; some for each processor when nothing is said.
    pub forks: Option<usize>,
}

/// Which keys may create sandboxes without a deadline, which `max_timeout` does not bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Endless {
    /// Admin keys.
    #[default]
    Admins,
    /// Every key.
    Everyone,
}

impl Default for Limits {
    /// A day, as the field's largest plan; sandboxes as far as a machine carries them.
    fn default() -> Self {
        Self {
            max_timeout: Duration::from_secs(24 * 3600),
            sandboxes_per_team: 1000,
            sandboxes: 1000,
            cpu_per_team: None,
            endless: Endless::default(),
            memory_per_team: None,
            disk_per_team: None,
            snapshots_per_team: 1000,
            per_sandbox: PerSandbox::default(),
            free_memory: FreeMemory::default(),
            forks: None,
        }
    }
}

/// The defaults for requests that name neither a template nor an image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Defaults {
    /// This template.
    pub template: Option<TemplateKey>,
    /// This image, when there is no such template.
    pub image: Option<ImageName>,
}

/// Which keys may start a build of a built-in template. It takes minutes of this machine, partly as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BuildOnDemand {
    /// Those of admin keys.
    #[default]
    Admins,
    /// Those of every key.
    Everyone,
}

/// Which keys may name an image. This machine fetches it from wherever the request says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CustomImages {
    /// Those of admin keys, which may pull images anyway.
    #[default]
    Admins,
    /// Those of every key.
    Everyone,
}

/// Which runtimes a key may choose that is no admin's. Those of admins may choose any that is found, and
/// what the operator wrote into an entry of the catalogue everybody gets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AllowedRuntimes {
    /// The default one alone.
    #[default]
    Default,
    /// Any that is found.
    Any,
    /// These, and the default one.
    Named(Vec<RuntimeName>),
}

/// How the engine works.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The limits of all requests.
    pub limits: Limits,
    /// The defaults for requests without a template and an image.
    pub defaults: Defaults,
    /// Which keys may name an image.
    pub custom_images: CustomImages,
    /// Which keys may start a build of a built-in template.
    pub build_on_demand: BuildOnDemand,
    /// Which runtimes a key may choose that is no admin's.
    pub runtimes: AllowedRuntimes,
    /// Whether sandboxes may be privileged: containers run in them.
    pub privileged: bool,
    /// Where the logs of sandboxes are kept.
    pub logs: PathBuf,
    /// The directory of uploads for builds.
    pub uploads: PathBuf,
    /// The most bytes of one copy in a build, from an upload or from another stage.
    pub upload_max: u64,
    /// The key that seals exported snapshots. By default it is specific to this installation.
    pub export_key: Option<ExportKey>,
    /// The most bytes of an imported snapshot, memory and files together.
    pub import_max: u64,
    /// The most bytes of a team's archives. By default four of the largest, or half of what all teams
    /// may have.
    pub uploads_per_team: Option<u64>,
    /// The most bytes of all teams' archives. By default a quarter of the file system.
    pub uploads_of_all: Option<u64>,
    /// The most bytes of the logs of a team's sandboxes, including ended ones.
    pub logs_per_team: u64,
    /// How long the record and the log of a sandbox are kept after its end.
    pub keep_ended: Duration,
    /// How often the use of each sandbox is sampled.
    pub sample_every: Duration,
    /// When idle sandboxes are parked; `None` for never.
    pub parking: Option<ParkingSettings>,
}

impl EngineConfig {
    /// Logs and uploads in directories of `data`, and for the rest what the field does: samples every
    /// 5 s, 7 days of logs.
    #[must_use]
    pub fn new(data: &Path) -> Self {
        Self {
            limits: Limits::default(),
            defaults: Defaults::default(),
            custom_images: CustomImages::default(),
            build_on_demand: BuildOnDemand::default(),
            runtimes: AllowedRuntimes::default(),
            privileged: false,
            logs: data.join("logs"),
            uploads: data.join("uploads"),
            upload_max: UPLOAD_MAX,
            export_key: None,
            import_max: IMPORT_MAX,
            uploads_per_team: None,
            uploads_of_all: None,
            logs_per_team: 256 << 20,
            keep_ended: Duration::from_secs(7 * 24 * 3600),
            sample_every: Duration::from_secs(5),
            parking: None,
        }
    }
}
