//! What the server may ask of the kernel, and with it every program that it starts.
//!
//! Sandboxes need mounts, namespaces and networks, so the server stays root with the capabilities
//! for these. It gives up all others, and a filter refuses the system calls that neither it nor any
//! of its programs makes: loading kernels and modules, clocks, swap, raw I/O, handles to files.
//!
//! The filter is a list of refusals, because programs inherit it: the OCI runtimes, `mount`,
//! `mkfs.btrfs`, `nft`, and, in a build of an image, whatever a package installs. An allow list long
//! enough for these would refuse little more. A runtime puts a filter of its own on each sandbox.
//!
//! `no_new_privs` stays off: sandboxes would inherit it, and `sudo` inside `runc` would end.

use std::collections::BTreeMap;
use std::io;

use anyhow::Context;
use caps::{CapSet, Capability, CapsHashSet};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// What the server and its programs may do as root.
pub(crate) const KEPT: [Capability; 16] = [
    // Files of images and sandboxes have owners and modes of their own.
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    // Package scripts end processes of other users.
    Capability::CAP_KILL,
    // Devices of images that `mmdebstrap` makes.
    Capability::CAP_MKNOD,
    // Slots, packet filters; a listener below port 1024.
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_BIND_SERVICE,
    // gVisor reads and writes frames of its interface.
    Capability::CAP_NET_RAW,
    // Root of a user namespace is mapped, and packages have files with capabilities.
    Capability::CAP_SETFCAP,
    // Users of sandboxes; the overlay of a user namespace is mounted as its root.
    Capability::CAP_SETGID,
    Capability::CAP_SETPCAP,
    Capability::CAP_SETUID,
    // Mounts, namespaces, btrfs quotas, control groups.
    Capability::CAP_SYS_ADMIN,
    // `mmdebstrap` and the runtimes change their root.
    Capability::CAP_SYS_CHROOT,
    // The user namespace of a child is opened by its `/proc`, which the kernel closes to others once a
    // thread of this process has acted as another user.
    Capability::CAP_SYS_PTRACE,
];

macro_rules! calls {
    ($($(#[$condition:meta])* $name:ident = $number:ident;)*) => {
        /// The calls that are refused with `EPERM`, by their names and numbers.
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

/// On x86-64 a call has a second number, of the x32 ABI; some have one of their own there.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 1 << 30;
#[cfg(target_arch = "x86_64")]
const X32_KEXEC_LOAD: i64 = 528;

/// Gives up what the server does not need, in the calling thread and whatever it starts from now on:
/// call it before there is a second thread. Does nothing when this is not root.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn give_up() -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    drop_capabilities().context("cannot give up capabilities")?;
    install_filter().context("cannot install the filter of system calls")
}

fn drop_capabilities() -> Result<(), caps::errors::CapsError> {
    let kept: CapsHashSet = KEPT.into_iter().collect();
    for capability in caps::all() {
        // What this kernel does not know, nobody has.
        let is_there = caps::has_cap(None, CapSet::Bounding, capability).unwrap_or(false);
        if is_there && !kept.contains(&capability) {
            caps::drop(None, CapSet::Bounding, capability)?;
        }
    }
    // A container may have been given fewer than all.
    let had = caps::read(None, CapSet::Permitted)?;
    let left: CapsHashSet = had.intersection(&kept).copied().collect();
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, &left)?;
    caps::set(None, CapSet::Permitted, &left)
}

/// The filter: [`REFUSED`] in every spelling; programs of another architecture are ended.
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

/// The library's own way sets `no_new_privs`.
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
    // SAFETY: the program lives until the kernel has copied it, and its length is that of the list.
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
