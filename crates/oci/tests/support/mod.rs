//! Fixtures of driver tests: a small image with this machine's own programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::auth::TokenSeed;
use shoal_core::driver::{Driver, Owner, Start, StartSpec};
use shoal_core::id::{ExecutionId, SandboxId, TeamId};
use shoal_core::image::ImageName;
use shoal_core::limits::Bounds;
use shoal_core::network::Egress;
use shoal_core::resources::{Mib, MilliCpu, Resources};
use shoal_images::{LayerSource, LayerStack};
use shoal_node::{DiskConfig, NetworkConfig};
use shoal_oci::{OciConfig, OciDriver, RuntimeConfig};

pub(crate) const IMAGE: &str = "test/tiny:1";

/// A daemon that reports that it runs, and waits.
const DAEMON: &str = "#!/bin/sh\necho ready\nexec sleep 100000\n";

/// An installation in a temporary directory.
pub(crate) struct Installation {
    pub(crate) directory: tempfile::TempDir,
    layer: PathBuf,
    /// The driver that was opened last, for clean-up after a failed test.
    last: Mutex<Option<OciDriver>>,
}

struct OneImage(PathBuf);

impl LayerSource for OneImage {
    fn layers(&self, image: &ImageName) -> Option<LayerStack> {
        (image.as_str() == IMAGE).then(|| LayerStack {
            digests: vec!["sha256:tiny".to_owned()],
            directories: vec![self.0.clone()],
            held: None,
        })
    }

    fn by_digest(&self, _: &[String]) -> Option<LayerStack> {
        self.layers(&IMAGE.parse().unwrap())
    }
}

/// Whether the requirements of driver tests are met; prints the missing ones.
pub(crate) fn can_run() -> bool {
    let root = nix::unistd::geteuid().is_root();
    let runsc = Command::new("runsc").arg("--version").output().is_ok();
    if !root || !runsc {
        eprintln!("skipped: the driver needs root and runsc");
    }
    root && runsc
}

impl Installation {
    pub(crate) fn new() -> Self {
        Self::with_daemon(DAEMON)
    }

    /// With another script instead of the daemon.
    pub(crate) fn with_daemon(script: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let layer = directory.path().join("layer");
        for program in ["sh", "sleep", "cat", "id", "dd"] {
            copy_program(program, &layer);
        }
        let daemon = directory.path().join("daemon");
        fs::write(&daemon, script).unwrap();
        fs::set_permissions(&daemon, fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            directory,
            layer,
            last: Mutex::new(None),
        }
    }

    pub(crate) fn open(&self) -> OciDriver {
        self.open_with(RuntimeConfig::default(), 4)
    }

    /// With other runtimes and limits on concurrent starts.
    pub(crate) fn open_with(&self, runtimes: RuntimeConfig, starts: usize) -> OciDriver {
        let config = OciConfig {
            data: self.directory.path().join("data"),
            envd: self.directory.path().join("daemon"),
            runtimes,
            network: NetworkConfig {
                warm: 0,
                ..NetworkConfig::default()
            },
            disk: DiskConfig::Btrfs {
                size: Some(Mib(1024)),
            },
            starts,
        };
        let driver = OciDriver::open(config, Arc::new(OneImage(self.layer.clone()))).unwrap();
        *self.last.lock() = Some(driver.clone());
        driver
    }

    /// Closes the driver that was opened last, as the end of its server would.
    pub(crate) fn forget(&self) {
        self.last.lock().take();
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        let Some(driver) = self.last.lock().take() else {
            return;
        };
        if leftovers(self, driver.instance()).is_empty() {
            return;
        }
        let clear = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                for found in driver.inventory().await.unwrap() {
                    driver.destroy(&found.id).await.unwrap();
                }
                driver.close().await.unwrap();
            });
        };
        // A second panic would hide the first.
        if std::thread::spawn(clear).join().is_err() {
            eprintln!("{} is not cleared", self.directory.path().display());
        }
    }
}

/// Copies a program of this machine with its shared libraries.
fn copy_program(name: &str, layer: &Path) {
    let program = Path::new("/bin").join(name);
    let said = Command::new("ldd").arg(&program).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let libraries = said.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.map(Path::new).chain([program.as_path()]) {
        let target = layer.join(file.strip_prefix("/").unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(file, target).unwrap();
    }
}

pub(crate) fn order(id: &str, runtime: Option<&str>) -> StartSpec {
    let id: SandboxId = id.parse().unwrap();
    StartSpec {
        execution: ExecutionId::from_entropy([7; 16]),
        guest_token: TokenSeed::new([7; 32]).envd_access_token(&id),
        id,
        start: Start::Image(IMAGE.parse().unwrap()),
        runtime: runtime.map(|name| name.parse().unwrap()),
        limits: Bounds::none()
            .grant(
                Resources {
                    memory: Mib(256),
                    disk: Mib(64),
                    ..Resources::default()
                },
                MilliCpu(2000),
            )
            .unwrap(),
        owner: Owner {
            team: TeamId::from_entropy([1; 16]),
            disk: None,
        },
        egress: Egress::default(),
        env: std::iter::once(("A".to_owned(), "1".to_owned())).collect(),
        privileged: false,
        keep_connections: false,
    }
}

/// All resources of an installation that may remain on this machine.
pub(crate) fn leftovers(installation: &Installation, instance: &str) -> Vec<String> {
    let data = installation.directory.path().join("data");
    let mut left = Vec::new();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let run = format!("/run/shoal/{instance}");
    let is_ours = |line: &&str| line.contains(&*data.to_string_lossy()) || line.contains(&run);
    left.extend(mounts.lines().filter(is_ours).map(str::to_owned));
    let groups = fs::read_dir("/sys/fs/cgroup").unwrap();
    let groups = groups.map(|entry| entry.unwrap().path().join("shoal").join(instance));
    left.extend(
        groups
            .chain([run.into()])
            .filter(|p| p.exists())
            .map(|p| p.display().to_string()),
    );
    for directory in ["sandboxes", "disk"] {
        let entries = fs::read_dir(data.join(directory)).into_iter().flatten();
        left.extend(entries.map(|entry| entry.unwrap().path().display().to_string()));
    }
    let links = fs::read_dir("/sys/class/net").unwrap();
    let links = links.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    left.extend(links.filter(|name| name.contains(instance)));
    let tables = Command::new("nft")
        .args(["list", "tables"])
        .output()
        .unwrap();
    let tables = String::from_utf8(tables.stdout).unwrap();
    left.extend(
        tables
            .lines()
            .filter(|line| line.contains(instance))
            .map(str::to_owned),
    );
    left
}
