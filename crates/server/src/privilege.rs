//! Capabilities and system calls of the server and of every program that it starts.
//!
//! Sandboxes need mounts, namespaces and networks, so the server stays root with the capabilities
//! for these. It drops all others, and a filter refuses system calls that neither it nor its programs
//! make: loading kernels and modules, clocks, swap, raw I/O, file handles.
//!
//! The filter is a deny list, because programs inherit it: the OCI runtimes, `mount`, `mkfs.btrfs`,
//! `nft`, and package scripts when an image is bootstrapped. An allow list long enough for these would
//! refuse little more. Runtimes install a filter of their own for each sandbox.
//!
//! `no_new_privs` stays off: sandboxes would inherit it, and `sudo` inside `runc` would fail.

use std::collections::BTreeMap;
use std::io;

use anyhow::Context;
use caps::{CapSet, Capability, CapsHashSet};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// The capabilities that the server and its programs keep.
pub(crate) const KEPT: [Capability; 16] = [
    // Files of images and sandboxes have arbitrary owners and modes.
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    // Package scripts kill processes of other users.
    Capability::CAP_KILL,
    // `mmdebstrap` creates device nodes in images.
    Capability::CAP_MKNOD,
    // Slots, packet filters, listeners below port 1024.
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_BIND_SERVICE,
    // gVisor reads and writes raw frames.
    Capability::CAP_NET_RAW,
    // Mapping root of a user namespace, and package files with capabilities.
    Capability::CAP_SETFCAP,
    // Users of sandboxes; mounting the overlay of a user namespace as its root.
    Capability::CAP_SETGID,
    Capability::CAP_SETPCAP,
    Capability::CAP_SETUID,
    // Mounts, namespaces, btrfs quotas, cgroups.
    Capability::CAP_SYS_ADMIN,
    // `mmdebstrap` and the runtimes call chroot.
    Capability::CAP_SYS_CHROOT,
    // Opening a child's user namespace through `/proc`, which the kernel protects once a thread of
    // this process has acted as another user.
    Capability::CAP_SYS_PTRACE,
];

macro_rules! calls {
    ($($(#[$condition:meta])* $name:ident = $number:ident;)*) => {
        /// The refused calls (`EPERM`), by name and number.
        pub(crate) const REFUSED: &[(&str, i64)] = &[
            $($(#[$condition])* (stringify!($name), libc::$number),)*
        ];
    };
}

calls! {
    acct = SYS_acct;
    add_key = SYS_add_key;
    clock_settime = SYS_clock_settime;
    delete_module = SYS_delete_module;
    fanotify_init = SYS_fanotify_init;
    finit_module = SYS_finit_module;
    init_module = SYS_init_module;
    io_uring_enter = SYS_io_uring_enter;
    io_uring_register = SYS_io_uring_register;
    io_uring_setup = SYS_io_uring_setup;
    kexec_file_load = SYS_kexec_file_load;
    kexec_load = SYS_kexec_load;
    lookup_dcookie = SYS_lookup_dcookie;
    nfsservctl = SYS_nfsservctl;
    open_by_handle_at = SYS_open_by_handle_at;
    perf_event_open = SYS_perf_event_open;
    quotactl = SYS_quotactl;
    quotactl_fd = SYS_quotactl_fd;
    reboot = SYS_reboot;
    request_key = SYS_request_key;
    settimeofday = SYS_settimeofday;
    swapoff = SYS_swapoff;
    swapon = SYS_swapon;
    syslog = SYS_syslog;
    #[cfg(target_arch = "x86_64")]
    ioperm = SYS_ioperm;
    #[cfg(target_arch = "x86_64")]
    iopl = SYS_iopl;
    #[cfg(target_arch = "x86_64")]
    uselib = SYS_uselib;
}

/// On x86-64 a call has a second number in the x32 ABI; for some it differs.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 1 << 30;
#[cfg(target_arch = "x86_64")]
const X32_KEXEC_LOAD: i64 = 528;

/// Drops unneeded privileges of the calling thread and its future children. Call it before the second
/// thread starts. Does nothing without root.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn give_up() -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    drop_capabilities().context("cannot drop capabilities")?;
    install_filter().context("cannot install the system call filter")
}

fn drop_capabilities() -> Result<(), caps::errors::CapsError> {
    let kept: CapsHashSet = KEPT.into_iter().collect();
    for capability in caps::all() {
        // This kernel does not know the capability.
        let is_there = caps::has_cap(None, CapSet::Bounding, capability).unwrap_or(false);
        if is_there && !kept.contains(&capability) {
            caps::drop(None, CapSet::Bounding, capability)?;
        }
    }
    // A container may have fewer.
    let had = caps::read(None, CapSet::Permitted)?;
    let left: CapsHashSet = had.intersection(&kept).copied().collect();
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, &left)?;
    caps::set(None, CapSet::Permitted, &left)
}

/// The filter: [`REFUSED`] under all its numbers. Programs of other architectures are killed.
fn filter() -> anyhow::Result<BpfProgram> {
    let mut rules = BTreeMap::new();
    for (_, number) in REFUSED {
        rules.insert(*number, vec![]);
        #[cfg(target_arch = "x86_64")]
        rules.insert(*number | X32, vec![]);
    }
    #[cfg(target_arch = "x86_64")]
    rules.insert(X32_KEXEC_LOAD | X32, vec![]);
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM.unsigned_abs()),
        architecture,
    )?;
    Ok(BpfProgram::try_from(filter)?)
}

/// The library's own function sets `no_new_privs`.
#[expect(
    unsafe_code,
    reason = "no library installs a filter without no_new_privs"
)]
fn install_filter() -> anyhow::Result<()> {
    let mut program: Vec<libc::sock_filter> = filter()?
        .iter()
        .map(|step| libc::sock_filter {
            code: step.code,
            jt: step.jt,
            jf: step.jf,
            k: step.k,
        })
        .collect();
    let program = libc::sock_fprog {
        len: program.len().try_into()?,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program outlives the call that copies it, and its length is the list's.
    let installed = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    };
    if installed != 0 {
        return Err(io::Error::last_os_error().into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
