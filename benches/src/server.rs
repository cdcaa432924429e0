//! The measured server.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::http::Client;
use crate::machine::keyed;

/// The timeout of a start; a first start builds the template `base`.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// The address range of network slots, four addresses for each.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
const NETWORK_BITS: u8 = 16;

/// A running `shoal serve`.
#[derive(Debug)]
pub(crate) struct Server {
    program: PathBuf,
    data: PathBuf,
    port: u16,
    child: Child,
}

impl Server {
    /// Starts the program and waits until it serves.
    pub(crate) async fn start(program: &Path, data: &Path, port: u16) -> anyhow::Result<Self> {
        fs::create_dir_all(data)?;
        let child = spawn(program, data, port)?;
        let mut server = Self {
            program: program.to_owned(),
            data: data.canonicalize()?,
            port,
            child,
        };
        server.wait().await?;
        Ok(server)
    }

    /// Kills the server with SIGKILL, restarts it, and returns the time until it serves.
    pub(crate) async fn crash_and_start(&mut self) -> anyhow::Result<Duration> {
        self.child.kill().await?;
        let begun = Instant::now();
        self.child = spawn(&self.program, &self.data, self.port)?;
        self.wait().await?;
        Ok(begun.elapsed())
    }

    /// Stops the server with SIGTERM.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            anyhow::bail!("the server ended by itself with {status}");
        }
        kill(self.pid()?, Signal::SIGTERM)?;
        let status = self.child.wait().await?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn api_key(&self) -> anyhow::Result<String> {
        let key = fs::read_to_string(self.data.join("api-key"))?;
        Ok(key.trim().to_owned())
    }

    /// Resident memory in MiB.
    pub(crate) fn memory(&self) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        Ok(keyed(&status, "VmRSS") / 1024.0)
    }

    /// The address at which the host reaches a sandbox.
    pub(crate) fn address(&self, sandbox: &str) -> anyhow::Result<Ipv4Addr> {
        let manifest = self.sandbox(sandbox).join("sandbox.json");
        let manifest: serde_json::Value = serde_json::from_slice(&fs::read(manifest)?)?;
        let slot = manifest["slot"].as_u64().context("no slot")?;
        Ok(Ipv4Addr::from(
            u32::from(NETWORK) + u32::try_from(slot)? * 4 + 2,
        ))
    }

    /// The directory of a sandbox.
    pub(crate) fn sandbox(&self, sandbox: &str) -> PathBuf {
        self.data.join("sandboxes").join(sandbox)
    }

    fn pid(&self) -> anyhow::Result<Pid> {
        let pid = self.child.id().context("the server has ended")?;
        Ok(Pid::from_raw(i32::try_from(pid)?))
    }

    async fn wait(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + START_TIMEOUT;
        let (client, url) = (Client::new(), format!("{}/health", self.url()));
        loop {
            if client.call(http::Method::GET, &url, &[], "").await.is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                anyhow::bail!("the server ended with {status}; its log says why");
            }
            ensure!(Instant::now() < end, "the server does not answer");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn spawn(program: &Path, data: &Path, port: u16) -> anyhow::Result<Child> {
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(data.join("server.log"))?;
    Command::new(program)
        .args(["serve", "--log-level=warn"])
        .arg("--data")
        .arg(data)
        .arg(format!("--listen=127.0.0.1:{port}"))
        .arg(format!("--set=network.range={NETWORK}/{NETWORK_BITS}"))
        .arg("--set=disk.size=8GiB")
        // The crowd asks for more than a team's default, eight times the machine's memory.
        .arg("--set=limits.memory_per_team=1000GiB")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))
}
