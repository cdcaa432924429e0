//! A running Jupyter kernel: the typical memory of an agent's sandbox.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use shoal_protocol::client::{Command as Line, EnvdClient, Process, Upload};

use crate::api::run;
use crate::bare::succeed;

/// The package on PyPI.
const PACKAGE: &str = "ipykernel==7.4.0";

/// The Python of the template `base`.
const PYTHON: &str = "3.11";

/// Its path in a sandbox.
const PLACE: &str = "/home/user/kernel";

/// Extra memory, so that about 65 MB are written.
const LOADED: &str = "b = bytes(range(256)) * (24 << 12)";

/// The file that marks the kernel as ready.
const READY: &str = "/tmp/kernel-is-ready";

/// The kernel's packages in a directory of the machine.
#[derive(Debug)]
pub(crate) struct Kernel {
    directory: PathBuf,
}

impl Kernel {
    /// Downloads the packages once.
    pub(crate) fn fetch(work: &Path) -> anyhow::Result<Self> {
        let directory = work.join("kernel");
        let kernel = Self { directory };
        let place = kernel.lower().join(PLACE.trim_start_matches('/'));
        if !place.join("ipykernel").is_dir() {
            download(work, &place)?;
        }
        // `pip` and the server close directories to others, and the bare container reads these as its user.
        let mut chmod = Command::new("chmod");
        succeed(chmod.args(["-R", "a+rX"]).arg(kernel.lower()))?;
        Ok(kernel)
    }

    /// A directory that can be an overlay layer with the packages.
    pub(crate) fn lower(&self) -> PathBuf {
        self.directory.join("lower")
    }

    /// The port of the kernel that [`Kernel::SCRIPT`] starts.
    pub(crate) const PORT: u16 = 5001;

    /// The script in the archive that starts a kernel.
    pub(crate) const SCRIPT: &str = "start.sh";

    /// An archive of the packages under `place` for a build, and its digest.
    pub(crate) fn archive(&self, place: &str) -> anyhow::Result<(Vec<u8>, String)> {
        let script = format!(
            "PYTHONPATH=/{place} PYTHONDONTWRITEBYTECODE=1 exec python3 -m ipykernel_launcher \
             -f /tmp/kernel.json --ip=0.0.0.0 --shell={}\n",
            Self::PORT
        );
        fs::write(self.lower().join(place).join(Self::SCRIPT), script)?;
        let archive = self.directory.join("kernel.tar.gz");
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(self.lower()).arg("-czf").arg(&archive);
        succeed(tar.arg(place))?;
        let bytes = fs::read(&archive)?;
        let digest = Command::new("sha256sum").arg(&archive).output()?;
        let digest = String::from_utf8(digest.stdout)?;
        let hash = digest.split(' ').next().unwrap_or_default();
        Ok((bytes, hash.to_owned()))
    }

    /// Uploads the packages into a sandbox.
    pub(crate) async fn put(&self, envd: &EnvdClient) -> anyhow::Result<()> {
        let archive = self.directory.join("kernel.tar");
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(self.lower()).arg("-cf").arg(&archive);
        succeed(tar.arg("."))?;
        let bytes = fs::read(&archive)?;
        let target = Upload::to("/tmp/kernel.tar");
        envd.upload_bytes(&target, bytes.into()).await?;
        // Parent directories exist already, with their own modes.
        let line = "tar -C / --no-overwrite-dir -xf /tmp/kernel.tar ./home/user/kernel && rm /tmp/kernel.tar";
        run(envd, line).await?;
        Ok(())
    }

    /// The command line that starts it.
    pub(crate) fn line() -> String {
        format!(
            "PYTHONPATH={PLACE} PYTHONDONTWRITEBYTECODE=1 exec python3 -m ipykernel_launcher \
             -f /tmp/kernel.json --IPKernelApp.exec_lines='{LOADED}; open(\"{READY}\", \"w\").close()'"
        )
    }

    /// A command line that ends when it is ready.
    pub(crate) fn ready() -> String {
        format!("for i in $(seq 600); do [ -e {READY} ] && exit; sleep 0.1; done; exit 1")
    }

    /// Starts it in a sandbox and waits until it is ready.
    pub(crate) async fn start(envd: &EnvdClient) -> anyhow::Result<Process> {
        let process = envd.start(Line::shell(&Self::line())).await?;
        run(envd, &Self::ready()).await?;
        Ok(process)
    }
}

/// Downloads the packages into a directory.
fn download(work: &Path, place: &Path) -> anyhow::Result<()> {
    let venv = work.join("kernel-venv");
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let mut pip = Command::new(venv.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"])
        .args(["--only-binary=:all:", "--python-version", PYTHON])
        .arg("--target")
        .arg(place)
        .arg(PACKAGE);
    succeed(&mut pip)?;
    let _ = fs::remove_dir_all(venv);
    Ok(())
}
