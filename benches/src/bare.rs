//! The bare OCI runtime, driven by hand: the bundle of one of Shoal's sandboxes, over an overlay of the
//! same layers, in its own network namespace.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};
use shoal_protocol::ENVD_PORT;

use crate::api::{Sandbox, millis};
use crate::http::Client;
use crate::server::Server;

/// The flags that Shoal passes to `runsc`.
const RUNSC_FLAGS: [&str; 7] = [
    "--platform=systrap",
    "--overlay2=none",
    "--file-access=exclusive",
    "--network=sandbox",
    "--net-disconnect-ok",
    "--allow-suid",
    "--host-settings=ignore",
];

/// The timeout of the daemon's first answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The directory of the mount points.
const ROOTS: &str = "/run/shoal-bench";

/// The access token of the daemons in bare containers.
const TOKEN: &str = "bare";

/// The cgroup of the bare containers in each hierarchy.
const CGROUP: &str = "shoal-bench";

/// The filter rules of the namespace, similar to those of a slot.
const RULES: &str = "table inet bench {
  set blocked { type ipv4_addr; flags interval;
    elements = { 10.0.0.0/8, 100.64.0.0/10, 169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16 } }
  chain input { type filter hook input priority 0; policy accept;
    ct state established,related accept; }
  chain output { type filter hook output priority 0; policy accept;
    ct state established,related accept; ip daddr @blocked reject; }
}
";

/// Starts containers of one runtime.
#[derive(Debug)]
pub(crate) struct Bare {
    runtime: String,
    directory: PathBuf,
    config: Value,
    lower: String,
    made: u16,
}

/// A running container. [`Bare::remove`] cleans up after it.
#[derive(Debug)]
pub(crate) struct Container {
    name: String,
    directory: PathBuf,
    /// Creating the network, in milliseconds.
    pub(crate) network: f64,
    /// Mounting the root and `run --detach`, in milliseconds.
    pub(crate) run: f64,
    /// From the beginning until the daemon answered, in milliseconds.
    pub(crate) answered: f64,
}

impl Bare {
    /// Uses the bundle of `sandbox`, and the layers of `plain`, a sandbox that mounts its layers
    /// directly.
    pub(crate) fn like(
        server: &Server,
        runtime: &str,
        sandbox: &Sandbox,
        plain: &Sandbox,
    ) -> anyhow::Result<Self> {
        let config = fs::read(server.sandbox(&sandbox.id).join("config.json"))?;
        let bare = Self {
            runtime: runtime.to_owned(),
            directory: server.data().join("bare").join(runtime),
            config: serde_json::from_slice(&config)?,
            lower: lower_of(&plain.id)?,
            made: 0,
        };
        bare.sweep();
        fs::create_dir_all(&bare.directory)?;
        Ok(bare)
    }

    /// Removes the user namespace from the bundle: `runc exec` cannot join a network namespace that
    /// was created outside it.
    pub(crate) fn without_user_namespace(mut self) -> Self {
        if let Some(linux) = self.config["linux"].as_object_mut() {
            linux.remove("uidMappings");
            linux.remove("gidMappings");
            if let Some(Value::Array(namespaces)) = linux.get_mut("namespaces") {
                namespaces.retain(|namespace| namespace["type"] != "user");
            }
        }
        self
    }

    /// The same, with the newest snapshot whose memory has more than `more_than` bytes. The bound
    /// keeps the snapshot of a small template from being used for a large one.
    pub(crate) fn of_saved(
        server: &Server,
        sandbox: &Sandbox,
        plain: &Sandbox,
        more_than: u64,
    ) -> anyhow::Result<(Self, PathBuf)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(server.data().join("disk/.snapshots"))? {
            let place = entry?.path();
            // Files-only snapshots have no memory.
            if let Ok(pages) = fs::metadata(place.join("memory/pages.img"))
                && pages.len() > more_than
            {
                found.push((pages.modified()?, place));
            }
        }
        let (_, place) = found.into_iter().max().context("there is no snapshot")?;
        let image = server.data().join("bare-image");
        let _ = fs::remove_dir_all(&image);
        fs::create_dir_all(image.join("upper"))?;
        std::os::unix::fs::symlink(place.join("memory"), image.join("memory"))?;
        let mut bare = Self::like(server, "runsc", sandbox, plain)?;
        bare.over(&place.join("files/upper"));
        Ok((bare, image))
    }

    /// Adds a directory as the top layer of containers started from now on.
    pub(crate) fn over(&mut self, directory: &Path) {
        self.lower = format!("{}:{}", directory.display(), self.lower);
    }

    /// Starts a container with its network and waits until its daemon answers.
    pub(crate) async fn start(&mut self) -> anyhow::Result<Container> {
        self.begin(None).await
    }

    async fn begin(&mut self, image: Option<&Path>) -> anyhow::Result<Container> {
        self.made += 1;
        let name = format!("shb{}{}", &self.runtime[3..], self.made);
        let directory = self.directory.join(&name);
        fs::create_dir_all(directory.join("work"))?;
        fs::create_dir_all(root_of(&name))?;
        match image {
            None => fs::create_dir_all(directory.join("upper"))?,
            Some(image) => {
                let mut copy = Command::new("cp");
                succeed(copy.arg("-a").arg(image.join("upper")).arg(&directory))?;
            }
        }
        let config = serde_json::to_vec(&self.config_of(&name))?;
        fs::write(directory.join("config.json"), config)?;
        let [a, b] = self.made.to_be_bytes();
        let net = |last: u8| Ipv4Addr::new(10, 97, a.wrapping_mul(64) + (b >> 6), (b << 2) + last);
        let begun = Instant::now();
        make_network(&name, net(1), net(2))?;
        let network = begun.elapsed();
        self.run(&name, &directory, image)?;
        let run = begun.elapsed();
        answer(net(2)).await?;
        Ok(Container {
            name,
            directory,
            network: millis(network),
            run: millis(run - network),
            answered: millis(begun.elapsed()),
        })
    }

    fn config_of(&self, name: &str) -> Value {
        let mut config = self.config.clone();
        config["root"]["path"] = json!(root_of(name));
        config["linux"]["cgroupsPath"] = json!(format!("/{CGROUP}/{name}"));
        let namespaces = config["linux"]["namespaces"].as_array_mut();
        for namespace in namespaces.into_iter().flatten() {
            if namespace["type"] == "network" {
                namespace["path"] = json!(format!("/run/netns/{name}"));
            }
        }
        config
    }

    fn run(&self, name: &str, directory: &Path, image: Option<&Path>) -> anyhow::Result<()> {
        let part = |part: &str| directory.join(part).display().to_string();
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            self.lower,
            part("upper"),
            part("work")
        );
        mount(
            Some("overlay"),
            &root_of(name),
            Some("overlay"),
            MsFlags::empty(),
            Some(options.as_str()),
        )?;
        let mut command = self.command();
        match image {
            None => command.arg("run"),
            Some(image) => command
                .args(["restore", "--image-path"])
                .arg(image.join("memory")),
        };
        command.args(["--detach", "--bundle"]);
        command.arg(directory).arg(name).stdout(Stdio::null());
        // The daemon reads its access token before it listens. A restored one has it in memory.
        feed(&mut command, &format!("{TOKEN}\n"))
    }

    /// Starts a background program in a container.
    pub(crate) fn leave(&self, container: &Container, program: &[&str]) -> anyhow::Result<()> {
        let mut command = self.command();
        command
            .args([
                "exec",
                "--detach",
                "--user",
                "1000:1000",
                "--cwd",
                "/home/user",
            ])
            .arg(&container.name)
            .args(program);
        succeed(&mut command)
    }

    /// Checkpoints a container, which continues, and copies its upper directory. Returns the
    /// milliseconds without and with a sync.
    pub(crate) fn checkpoint(
        &self,
        container: &Container,
        image: &Path,
    ) -> anyhow::Result<(f64, f64)> {
        let _ = fs::remove_dir_all(image);
        fs::create_dir_all(image)?;
        let begun = Instant::now();
        let mut command = self.command();
        command
            .args([
                "checkpoint",
                "--compression=none",
                "--leave-running",
                "--image-path",
            ])
            .arg(image.join("memory"))
            .arg(&container.name);
        succeed(&mut command)?;
        let upper = container.directory.join("upper");
        let copy = image.join("upper");
        succeed(Command::new("cp").arg("-a").arg(upper).arg(&copy))?;
        let written = millis(begun.elapsed());
        succeed(Command::new("sync").arg("--file-system").arg(&copy))?;
        Ok((written, millis(begun.elapsed())))
    }

    /// Starts a container from a checkpoint.
    pub(crate) async fn restore(&mut self, image: &Path) -> anyhow::Result<Container> {
        self.begin(Some(image)).await
    }

    /// Runs a program in a container as the template's user; returns the milliseconds.
    pub(crate) fn exec(&self, container: &Container, program: &[&str]) -> anyhow::Result<f64> {
        let mut command = self.command();
        command
            .args(["exec", "--user", "1000:1000", "--cwd", "/home/user"])
            .args(["--env", "HOME=/home/user"])
            .arg(&container.name)
            .args(program);
        let begun = Instant::now();
        succeed(&mut command)?;
        Ok(millis(begun.elapsed()))
    }

    /// Ends and removes a container; returns the milliseconds.
    pub(crate) fn remove(&self, container: &Container) -> anyhow::Result<f64> {
        let begun = Instant::now();
        succeed(self.command().args(["delete", "--force", &container.name]))?;
        umount2(&root_of(&container.name), MntFlags::MNT_DETACH)?;
        fs::remove_dir(root_of(&container.name))?;
        succeed(Command::new("ip").args(["netns", "del", &container.name]))?;
        let took = millis(begun.elapsed());
        fs::remove_dir_all(&container.directory)?;
        Ok(took)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.runtime);
        command.arg("--root").arg(self.directory.join("state"));
        if self.runtime == "runsc" {
            command.args(RUNSC_FLAGS);
        }
        command
    }
}

impl Bare {
    /// Removes everything, including leftovers of an aborted run.
    fn sweep(&self) {
        // Missing things are ignored; a leftover fails the next start by its name.
        for entry in fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let (path, name) = (entry.path(), entry.file_name());
            if !path.join("config.json").exists() {
                continue;
            }
            let quiet = |command: &mut Command| {
                let _ = command.stderr(Stdio::null()).status();
            };
            quiet(self.command().args(["delete", "--force"]).arg(&name));
            let _ = umount2(&root_of(&name), MntFlags::MNT_DETACH);
            let _ = fs::remove_dir(root_of(&name));
            quiet(Command::new("ip").args(["netns", "del"]).arg(&name));
        }
        // gVisor mounts an empty namespace in its state directory.
        let _ = umount2(
            &self.directory.join("state/null-netns"),
            MntFlags::MNT_DETACH,
        );
        let _ = fs::remove_dir_all(&self.directory);
        for root in fs::read_dir("/sys/fs/cgroup")
            .into_iter()
            .flatten()
            .flatten()
        {
            let _ = fs::remove_dir(root.path().join(CGROUP));
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.sweep();
    }
}

/// The mount point of a bare container. Root of a user namespace is another user of the machine, and must reach it.
fn root_of(name: impl AsRef<Path>) -> PathBuf {
    Path::new(ROOTS).join(name)
}

/// The layers of a sandbox's overlay, from the mount table.
fn lower_of(sandbox: &str) -> anyhow::Result<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let root = format!("/{sandbox}/root");
    let is_root = |line: &&str| {
        let place = line.split(' ').nth(4);
        place.is_some_and(|place| place.ends_with(&root))
    };
    let line = mounts.lines().find(is_root);
    let options = line.and_then(|line| line.rsplit(' ').next());
    let lower = options.and_then(|o| o.split(',').find_map(|o| o.strip_prefix("lowerdir=")));
    Ok(lower.context("the sandbox has no overlay")?.to_owned())
}

/// Creates a namespace with a veth to the host, a route and rules, in four commands.
fn make_network(name: &str, host: Ipv4Addr, inside: Ipv4Addr) -> anyhow::Result<()> {
    succeed(Command::new("ip").args(["netns", "add", name]))?;
    let outside = format!(
        "link add {name} type veth peer name eth0 netns {name}\n\
         addr add {host}/30 dev {name}\nlink set {name} up\n"
    );
    feed(Command::new("ip").args(["-batch", "-"]), &outside)?;
    let own = format!(
        "link set lo up\naddr add {inside}/30 dev eth0\nlink set eth0 up\n\
         route add default via {host}\n"
    );
    feed(Command::new("ip").args(["-n", name, "-batch", "-"]), &own)?;
    let mut nft = Command::new("ip");
    feed(nft.args(["netns", "exec", name, "nft", "-f", "-"]), RULES)
}

/// Polls as often as Shoal does, on new connections.
async fn answer(address: Ipv4Addr) -> anyhow::Result<()> {
    let url = format!("http://{address}:{ENVD_PORT}/health");
    let end = Instant::now() + ANSWER_TIMEOUT;
    loop {
        let client = Client::new();
        let attempt = client.call(http::Method::GET, &url, &[], "");
        let attempt = tokio::time::timeout(Duration::from_millis(100), attempt).await;
        if matches!(attempt, Ok(Ok(_))) {
            return Ok(());
        }
        ensure!(Instant::now() < end, "{url} does not answer");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Runs a command and fails if it does.
pub(crate) fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
    let status = quiet.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

fn feed(command: &mut Command, input: &str) -> anyhow::Result<()> {
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let status = child.wait()?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
