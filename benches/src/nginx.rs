//! An nginx to compare with.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, ensure};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::http::Client;

/// The size of the file system that nginx writes to.
const DISK: u64 = 1280 << 20;

/// A running nginx.
#[derive(Debug)]
pub(crate) struct Nginx {
    child: Child,
    directory: PathBuf,
}

impl Nginx {
    /// Starts nginx as a file server (`PUT` and `GET`) on the first port and as a proxy to `target`
    /// on the second.
    pub(crate) async fn start(
        data: &Path,
        files: u16,
        proxy: u16,
        target: SocketAddr,
    ) -> anyhow::Result<Self> {
        let directory = data.join("nginx");
        fs::create_dir_all(&directory)?;
        mount_disk(data, &directory).await?;
        for part in ["files", "temp"] {
            fs::create_dir_all(directory.join(part))?;
        }
        let config = directory.join("nginx.conf");
        fs::write(&config, text(&directory, files, proxy, target))?;
        let child = Command::new("nginx")
            .arg("-p")
            .arg(&directory)
            .arg("-c")
            .arg(&config)
            .args(["-e", "stderr"])
            .spawn()
            .context("cannot start nginx")?;
        let mut nginx = Self { child, directory };
        nginx.wait(files).await?;
        Ok(nginx)
    }

    async fn wait(&mut self, port: u16) -> anyhow::Result<()> {
        let url = format!("http://127.0.0.1:{port}/here");
        fs::write(self.directory.join("files/here"), "here")?;
        let client = Client::new();
        for _ in 0..500 {
            if client.call(http::Method::GET, &url, &[], "").await.is_ok() {
                return Ok(());
            }
            let ended = self.child.try_wait()?;
            ensure!(ended.is_none(), "nginx ended with {ended:?}");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        anyhow::bail!("nginx does not answer")
    }

    /// Stops nginx and removes its files.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().context("nginx has ended")?;
        kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGTERM)?;
        self.child.wait().await?;
        umount2(&self.directory, MntFlags::MNT_DETACH)?;
        fs::remove_file(self.directory.with_extension("btrfs"))?;
        Ok(())
    }
}

/// Mounts btrfs from a preallocated file, as Shoal does for its sandboxes.
async fn mount_disk(data: &Path, directory: &Path) -> anyhow::Result<()> {
    let image = data.join("nginx.btrfs");
    // An aborted run may have left it mounted.
    let _ = umount2(directory, MntFlags::MNT_DETACH);
    let file = fs::File::create(&image)?;
    let size = nix::libc::off_t::try_from(DISK)?;
    nix::fcntl::posix_fallocate(&file, 0, size)?;
    drop(file);
    // mkfs writes to stderr despite `-q`.
    let run = async |program: &str, args: &[&std::ffi::OsStr]| {
        let mut command = Command::new(program);
        let quiet = command
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let status = quiet.status().await?;
        ensure!(status.success(), "{program} ended with {status}");
        Ok(())
    };
    run(
        "mkfs.btrfs",
        &["-q".as_ref(), "-f".as_ref(), image.as_ref()],
    )
    .await?;
    let options = "loop,noatime".as_ref();
    run(
        "mount",
        &["-o".as_ref(), options, image.as_ref(), directory.as_ref()],
    )
    .await
}

fn text(directory: &Path, files: u16, proxy: u16, target: SocketAddr) -> String {
    let directory = directory.display();
    format!(
        "daemon off;
worker_processes auto;
user root;
pid {directory}/pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  client_max_body_size 0;
  client_body_buffer_size 256k;
  client_body_temp_path {directory}/temp/body;
  proxy_temp_path {directory}/temp/proxy;
  fastcgi_temp_path {directory}/temp/fastcgi;
  uwsgi_temp_path {directory}/temp/uwsgi;
  scgi_temp_path {directory}/temp/scgi;
  keepalive_requests 1000000;
  upstream sandbox {{ server {target}; keepalive 128; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{files};
    root {directory}/files;
    dav_methods PUT DELETE;
  }}
  server {{
    listen 127.0.0.1:{proxy};
    location / {{
      proxy_pass http://sandbox;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_request_buffering off;
      proxy_buffering off;
    }}
  }}
}}
"
    )
}
