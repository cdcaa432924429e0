//! Finds missing requirements of the machine, and leftovers of crashes.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use nix::sys::utsname::uname;
use shoal_core::ports::doctor::{Finding, Health};
use shoal_node::cgroup::Hierarchy;
use shoal_node::home::MACHINE;

use crate::driver::OciConfig;
use crate::runtime::{Kind, detect, on_path, weakness};

/// The oldest kernel that is known to support everything: `pidfd`, the new mount calls, and
/// overlays in user namespaces.
const KERNEL_LEAST: (u32, u32) = (5, 19);

/// Space for the first template, the disk of sandboxes, and some reserve.
const DISK_LEAST: u64 = 5 << 30;

/// The loader's name in a dynamically linked program, near its start.
const INTERPRETER: &[u8] = b"/ld-";
const INTERPRETER_WITHIN: usize = 8192;

/// Checks everything that the driver needs of this machine. Changes nothing.
#[must_use]
pub fn examine(config: &OciConfig) -> Vec<Finding> {
    let mut findings = vec![root(), kernel()];
    findings.extend(runtimes(config));
    findings.extend([
        program("nft", "nftables", Health::Missing),
        groups(),
        file_system("overlay", Health::Missing),
        file_system("btrfs", Health::Warning),
        program("mkfs.btrfs", "btrfs-progs", Health::Warning),
        program("losetup", "mount", Health::Warning),
        program("mmdebstrap", "mmdebstrap", Health::Warning),
        forwarding(),
        daemon(&config.envd),
        space(&config.data),
        directory(&config.data),
        passage(Path::new(MACHINE)),
    ]);
    findings
}

fn root() -> Finding {
    if nix::unistd::geteuid().is_root() {
        Finding::good("root", "yes")
    } else {
        let cure = "run it with sudo";
        Finding::bad("root", Health::Missing, "no", cure)
    }
}

fn kernel() -> Finding {
    let release = uname().map(|name| name.release().to_string_lossy().into_owned());
    let release = release.unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= KERNEL_LEAST {
        Finding::good("kernel", release)
    } else {
        let (major, minor) = KERNEL_LEAST;
        let cure = format!("boot Linux {major}.{minor} or later");
        Finding::bad("kernel", Health::Warning, release, cure)
    }
}

fn runtimes(config: &OciConfig) -> Vec<Finding> {
    let (found, missing) = detect(&config.runtimes, Path::new("/"));
    let mut findings: Vec<_> = found
        .iter()
        .map(|runtime| {
            let usual = if runtime.kind == config.runtimes.default {
                ", the default"
            } else {
                ""
            };
            let detail = format!(
                "{} ({}{usual})",
                runtime.info.version, runtime.info.isolation
            );
            match weakness(runtime.kind, &runtime.info.version) {
                None => Finding::good(runtime.kind.program(), detail),
                Some(why) => {
                    let cure = "install a later release";
                    Finding::bad(runtime.kind.program(), Health::Warning, why, cure)
                }
            }
        })
        .collect();
    findings.extend(missing.into_iter().map(|missing| {
        // The default runtime is never replaced silently.
        let health = if missing.kind == config.runtimes.default {
            Health::Missing
        } else {
            Health::Warning
        };
        let cure = match missing.kind {
            Kind::Runsc => "scripts/setup run",
            Kind::Runc => "sudo apt-get install runc",
        };
        Finding::bad(missing.kind.program(), health, missing.reason, cure)
    }));
    findings
}

fn program(name: &'static str, package: &str, health: Health) -> Finding {
    let beside = Path::new("/usr/sbin").join(name);
    match on_path(Path::new(name)).or_else(|| beside.is_file().then_some(beside)) {
        Some(path) => Finding::good(name, path.display().to_string()),
        None => {
            let cure = format!("sudo apt-get install {package}");
            Finding::bad(name, health, "is not installed", cure)
        }
    }
}

fn groups() -> Finding {
    match Hierarchy::detect(Path::new("shoal")) {
        Ok(_) => Finding::good("cgroups", "cpu, memory and pids"),
        Err(error) => {
            let cure = "sudo mount -t cgroup2 none /sys/fs/cgroup";
            Finding::bad("cgroups", Health::Missing, error.to_string(), cure)
        }
    }
}

fn file_system(name: &'static str, health: Health) -> Finding {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if known.split_whitespace().any(|known| known == name) {
        return Finding::good(name, "in the kernel");
    }
    let cure = format!("sudo modprobe {name}");
    Finding::bad(name, health, "not in the kernel, or not loaded", cure)
}

fn forwarding() -> Finding {
    let said = fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap_or_default();
    match said.trim() {
        "1" => Finding::good("IP forwarding", "on"),
        _ => Finding::good("IP forwarding", "off; the server switches it on"),
    }
}

fn daemon(envd: &Path) -> Finding {
    const WHAT: &str = "shoal-envd";
    const CURE: &str = "make build";
    match fs::read(envd) {
        Err(error) => {
            let detail = format!("{}: {error}", envd.display());
            Finding::bad(WHAT, Health::Missing, detail, CURE)
        }
        Ok(bytes) => {
            let head = bytes.get(..INTERPRETER_WITHIN).unwrap_or(&bytes);
            let dynamic = head.windows(INTERPRETER.len()).any(|w| w == INTERPRETER);
            if dynamic {
                let detail = "is linked dynamically: it will not start in every image";
                Finding::bad(WHAT, Health::Warning, detail, CURE)
            } else {
                Finding::good(WHAT, envd.display().to_string())
            }
        }
    }
}

fn space(data: &Path) -> Finding {
    const WHAT: &str = "disk space";
    // Before the first start only a parent directory exists.
    let there = data.ancestors().find(|path| path.exists());
    let there = there.unwrap_or(Path::new("/"));
    match statvfs(there) {
        Ok(stat) => {
            let free = stat.blocks_available() * stat.fragment_size();
            let detail = format!("{} MiB free at {}", free >> 20, there.display());
            if free >= DISK_LEAST || data.join("disk.btrfs").exists() {
                Finding::good(WHAT, detail)
            } else {
                let cure = "free some, or name a larger disk with --data";
                Finding::bad(WHAT, Health::Warning, detail, cure)
            }
        }
        Err(errno) => Finding::bad(
            WHAT,
            Health::Warning,
            errno.to_string(),
            "choose another --data",
        ),
    }
}

fn directory(data: &Path) -> Finding {
    const WHAT: &str = "data directory";
    /// The permissions that only the owner may have.
    const OTHERS: u32 = 0o077;
    match fs::metadata(data) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let detail = format!("{}: made at the first start", data.display());
            Finding::good(WHAT, detail)
        }
        Err(error) => {
            let detail = format!("{}: {error}", data.display());
            Finding::bad(WHAT, Health::Missing, detail, "choose another --data")
        }
        Ok(metadata) if metadata.permissions().mode() & OTHERS != 0 => {
            let detail = format!("{}: open to other users of this machine", data.display());
            let cure = format!("sudo chmod go= {} (the next start does)", data.display());
            Finding::bad(WHAT, Health::Warning, detail, cure)
        }
        Ok(_) => Finding::good(WHAT, data.display().to_string()),
    }
}

/// Root of a runc sandbox is another user of the machine and must reach its mount point.
fn passage(machine: &Path) -> Finding {
    const WHAT: &str = "mount points";
    match closed_above(machine) {
        Some(above) => {
            let detail = format!("{} cannot be traversed: runc needs that", above.display());
            let cure = format!("sudo chmod o+x {}", above.display());
            Finding::bad(WHAT, Health::Warning, detail, cure)
        }
        None => Finding::good(WHAT, format!("below {}", machine.display())),
    }
}

/// The first parent of `path` that root of a user namespace cannot traverse.
fn closed_above(path: &Path) -> Option<&Path> {
    const PASS: u32 = 0o001;
    let mut above = path.ancestors();
    above.find(|path| fs::metadata(path).is_ok_and(|m| m.permissions().mode() & PASS == 0))
}
