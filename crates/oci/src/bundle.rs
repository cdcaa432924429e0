//! The OCI bundle of a sandbox.

mod seccomp;

use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit};
use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Capability, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxDeviceCgroup,
    LinuxDeviceCgroupBuilder, LinuxDeviceType, LinuxIdMappingBuilder, LinuxNamespaceBuilder,
    LinuxNamespaceType, LinuxResourcesBuilder, Mount, MountBuilder, PosixRlimitBuilder,
    PosixRlimitType, Process, ProcessBuilder, RootBuilder, Spec, SpecBuilder, UserBuilder,
};

use sha2::{Digest, Sha256};
use shoal_node::daemon::ENVD_PATH;
use shoal_node::network::GUEST_ADDRESS;
use shoal_node::rootfs::USERS;

use crate::runtime::Kind;

/// The port of envd.
pub(crate) const ENVD_PORT: u16 = 49983;

/// The address of the events service inside, which E2B's clients expect.
const EVENTS_ADDRESS: &str = "192.0.2.1";

/// The limit on a process's open files: the default of most distributions.
const OPEN_FILES_SOFT: u64 = 1 << 16;
const OPEN_FILES_HARD: u64 = 1 << 20;

/// The initial search path of processes.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The capabilities of root in a sandbox. They suffice to act for users of the sandbox and on its
/// own files. They exclude mounts, networks, devices, modules and other processes' memory.
const CAPABILITIES: [Capability; 11] = [
    Capability::AuditWrite,
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::NetBindService,
    Capability::Setfcap,
    Capability::Setgid,
    Capability::Setpcap,
    Capability::Setuid,
];

/// The additional capabilities of root in a privileged sandbox, for mounts, networks, namespaces and device files of
/// gVisor's kernel.
/// Docker needs them, and gives some of them to its containers. None reaches the machine's kernel, so a runtime that shares
/// it never gets them.
const PRIVILEGED_CAPABILITIES: [Capability; 5] = [
    Capability::Mknod,
    Capability::NetAdmin,
    Capability::NetRaw,
    Capability::SysAdmin,
    Capability::SysChroot,
];

/// The read-only path that Docker writes to: gVisor's own settings.
const KERNEL_SETTINGS: &str = "/proc/sys";

/// The hidden and the read-only paths below `/proc` and `/sys`.
const MASKED: [&str; 13] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/kernel/security",
];
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The parameters of one sandbox.
#[derive(Debug)]
pub(crate) struct Bundle<'a> {
    pub(crate) kind: Kind,
    pub(crate) hostname: &'a str,
    pub(crate) root: &'a Path,
    pub(crate) network_namespace: &'a Path,
    pub(crate) cgroup: PathBuf,
    /// The first host user of the sandbox's range, if it has a user namespace.
    pub(crate) first_user: u32,
    pub(crate) env: &'a [String],
    /// Whether containers run inside. For gVisor alone.
    pub(crate) privileged: bool,
}

impl Bundle<'_> {
    /// The OCI runtime configuration.
    ///
    /// # Errors
    /// When a field is missing, which no input can cause.
    pub(crate) fn spec(&self) -> Result<Spec, OciSpecError> {
        let mut linux = LinuxBuilder::default()
            .namespaces(self.namespaces()?)
            .cgroups_path(&self.cgroup)
            .masked_paths(MASKED.map(str::to_owned))
            .readonly_paths(self.read_only())
            .resources(
                LinuxResourcesBuilder::default()
                    .devices(devices()?)
                    .build()?,
            );
        if self.kind.has_user_namespace() {
            let mapping = LinuxIdMappingBuilder::default()
                .host_id(self.first_user)
                .container_id(0u32)
                .size(USERS)
                .build()?;
            linux = linux
                .uid_mappings(vec![mapping])
                .gid_mappings(vec![mapping])
                .seccomp(seccomp::filter()?);
        }
        SpecBuilder::default()
            .version("1.0.2")
            .hostname(self.hostname)
            .root(
                RootBuilder::default()
                    .path(self.root)
                    .readonly(false)
                    .build()?,
            )
            .process(self.process()?)
            .mounts(mounts(self.kind, self.privileged)?)
            .linux(linux.build()?)
            .build()
    }

    fn read_only(&self) -> Vec<String> {
        let paths = READ_ONLY.into_iter();
        let kept = paths.filter(|path| !(self.privileged && *path == KERNEL_SETTINGS));
        kept.map(str::to_owned).collect()
    }

    fn namespaces(&self) -> Result<Vec<oci_spec::runtime::LinuxNamespace>, OciSpecError> {
        use LinuxNamespaceType as Type;

        let mut kinds = vec![Type::Pid, Type::Ipc, Type::Uts, Type::Mount];
        if self.kind.has_user_namespace() {
            kinds.push(Type::User);
        }
        let mut namespaces = kinds
            .into_iter()
            .map(|kind| LinuxNamespaceBuilder::default().typ(kind).build())
            .collect::<Result<Vec<_>, _>>()?;
        namespaces.push(
            LinuxNamespaceBuilder::default()
                .typ(Type::Network)
                .path(self.network_namespace)
                .build()?,
        );
        Ok(namespaces)
    }

    fn process(&self) -> Result<Process, OciSpecError> {
        let mut env = vec![format!("PATH={PATH}")];
        env.extend_from_slice(self.env);
        // Root of a user namespace may not raise a limit above this process's own.
        let (_, own) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((0, OPEN_FILES_SOFT));
        let more = PRIVILEGED_CAPABILITIES
            .into_iter()
            .filter(|_| self.privileged);
        let capabilities = || {
            CAPABILITIES
                .into_iter()
                .chain(more.clone())
                .collect::<std::collections::HashSet<_>>()
        };
        ProcessBuilder::default()
            .terminal(false)
            .user(UserBuilder::default().uid(0u32).gid(0u32).build()?)
            .cwd("/")
            // Memory resumes only with the arguments that it was saved with, so all versions of
            // envd must accept the same ones. The token therefore comes by standard input.
            .args([
                ENVD_PATH.to_owned(),
                format!("--port={ENVD_PORT}"),
                format!("--events={EVENTS_ADDRESS}:80"),
            ])
            .env(env)
            .capabilities(
                LinuxCapabilitiesBuilder::default()
                    .bounding(capabilities())
                    .effective(capabilities())
                    .permitted(capabilities())
                    .inheritable(std::collections::HashSet::new())
                    .ambient(std::collections::HashSet::new())
                    .build()?,
            )
            .rlimits([PosixRlimitBuilder::default()
                .typ(PosixRlimitType::RlimitNofile)
                .soft(OPEN_FILES_SOFT.min(own))
                .hard(OPEN_FILES_HARD.min(own))
                .build()?])
            // `sudo` without a password is a documented feature, and it needs this. It yields root
            // of the user-space kernel or of the user namespace, never of the machine.
            .no_new_privileges(false)
            .build()
    }
}

fn mounts(kind: Kind, privileged: bool) -> Result<Vec<Mount>, OciSpecError> {
    let mount = |destination: &str, kind: &str, options: &[&str]| {
        MountBuilder::default()
            .destination(destination)
            .typ(kind)
            .source(kind)
            .options(options.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>())
            .build()
    };
    let mut mounts = vec![
        mount("/proc", "proc", &["nosuid", "noexec", "nodev"])?,
        mount(
            "/dev",
            "tmpfs",
            &["nosuid", "strictatime", "mode=755", "size=65536k"],
        )?,
        mount(
            "/dev/pts",
            "devpts",
            &[
                "nosuid",
                "noexec",
                "newinstance",
                "ptmxmode=0666",
                "mode=0620",
            ],
        )?,
        mount(
            "/dev/shm",
            "tmpfs",
            &["nosuid", "nodev", "mode=1777", "size=65536k"],
        )?,
    ];
    if kind.has_user_namespace() {
        // A user namespace that does not own the network cannot mount the machine's `/sys`, so it
        // gets an empty one.
        mounts.push(mount(
            "/sys",
            "tmpfs",
            &["nosuid", "noexec", "nodev", "ro", "mode=755"],
        )?);
        mounts.push(mount(
            "/dev/mqueue",
            "mqueue",
            &["nosuid", "noexec", "nodev"],
        )?);
    } else if privileged {
        // gVisor's own, not the machine's.
        mounts.push(mount("/sys", "sysfs", &["nosuid", "noexec", "nodev"])?);
        mounts.push(mount(
            "/sys/fs/cgroup",
            "cgroup",
            &["nosuid", "noexec", "nodev"],
        )?);
    } else {
        mounts.push(mount(
            "/sys",
            "sysfs",
            &["nosuid", "noexec", "nodev", "ro"],
        )?);
    }
    Ok(mounts)
}

/// Only the harmless devices, which a runtime creates itself: null, zero, full, random, urandom,
/// tty, console, ptmx and the terminals.
fn devices() -> Result<Vec<LinuxDeviceCgroup>, OciSpecError> {
    let rule = |allow: bool, typ, major: Option<i64>, minor: Option<i64>| {
        let mut rule = LinuxDeviceCgroupBuilder::default()
            .allow(allow)
            .typ(typ)
            .access("rwm");
        if let Some(major) = major {
            rule = rule.major(major);
        }
        if let Some(minor) = minor {
            rule = rule.minor(minor);
        }
        rule.build()
    };
    let mut rules = vec![rule(false, LinuxDeviceType::A, None, None)?];
    for (major, minor) in [
        (1, 3),
        (1, 5),
        (1, 7),
        (1, 8),
        (1, 9),
        (5, 0),
        (5, 1),
        (5, 2),
    ] {
        rules.push(rule(true, LinuxDeviceType::C, Some(major), Some(minor))?);
    }
    rules.push(rule(true, LinuxDeviceType::C, Some(136), None)?);
    Ok(rules)
}

/// The sandbox's own files below `/etc`, as paths and contents.
pub(crate) fn own_files(hostname: &str) -> [(&'static str, String); 4] {
    let hosts = format!(
        "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
         {GUEST_ADDRESS}\t{hostname}\n{EVENTS_ADDRESS}\tevents.e2b.local\n"
    );
    let resolv = shoal_node::network::NAME_ADDRESSES
        .map(|address| format!("nameserver {address}\n"))
        .concat();
    [
        ("hosts", hosts),
        ("hostname", format!("{hostname}\n")),
        ("machine-id", format!("{}\n", machine_id(hostname))),
        ("resolv.conf", resolv),
    ]
}

/// The sandbox's machine-id(5): constant for the life of the sandbox, and different in a clone.
fn machine_id(hostname: &str) -> String {
    let digest = Sha256::new()
        .chain_update("shoal machine-id ")
        .chain_update(hostname)
        .finalize();
    hex::encode(&digest[..16])
}

#[cfg(test)]
mod tests;
