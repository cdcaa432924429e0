//! The system calls that a sandbox on a shared kernel may make.
//!
//! It is an allow list, so new system calls are refused until they have been reviewed. Excluded on
//! purpose: keys, BPF, userfaultfd, io_uring, performance counters, loading code into the kernel,
//! all kinds of mounts, new namespaces, other processes' memory, clocks, and machine-wide switches.

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArgBuilder, LinuxSeccompBuilder,
    LinuxSeccompOperator, LinuxSyscall, LinuxSyscallBuilder,
};

/// Allowed with any arguments.
const ALLOWED: &str = "
accept accept4 access alarm arch_prctl bind brk
capget capset chdir chmod chown clock_getres clock_gettime clock_nanosleep close close_range
connect copy_file_range creat
dup dup2 dup3
epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait
epoll_wait_old eventfd eventfd2 execve execveat exit exit_group
faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl
fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate
futex futex_requeue futex_wait futex_waitv futex_wake futimesat
getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid
getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit get_robust_list
getrusage getsid getsockname getsockopt get_thread_area gettid gettimeofday getuid getxattr
inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel ioctl io_destroy
io_getevents io_pgetevents ioprio_get ioprio_set io_setup io_submit
kill
landlock_add_rule landlock_create_ruleset landlock_restrict_self
lchown lgetxattr link linkat listen listxattr llistxattr lremovexattr lseek lsetxattr lstat
madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat
mlock mlock2 mlockall mmap mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend
mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap
name_to_handle_at nanosleep newfstatat
open openat openat2
pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl
pread64 preadv preadv2 prlimit64 process_mrelease pselect6 pwrite64 pwritev pwritev2
read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr
rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
sched_getaffinity sched_getattr sched_getparam sched_get_priority_max sched_get_priority_min
sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam
sched_setscheduler sched_yield select semctl semget semop semtimedop sendfile sendmmsg sendmsg
sendto setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid
setresuid setreuid setrlimit set_robust_list setsid setsockopt set_thread_area set_tid_address
setuid setxattr shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 splice
stat statfs statx symlink symlinkat sync sync_file_range syncfs sysinfo
tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime
timerfd_create timerfd_gettime timerfd_settime times tkill truncate
umask uname unlink unlinkat utime utimensat utimes
vfork vmsplice
wait4 waitid write writev
";

/// The flags of `clone` that create namespaces.
const NEW_NAMESPACES: u64 = 0x7e02_0000;

/// The allowed socket families: those of the sandbox's own network. Others lead around it (vsock,
/// to the machine's hypervisor), or to parts of the kernel that no program here needs (ciphers,
/// Bluetooth, CAN).
const FAMILIES: [libc::c_int; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];

/// The bits that the kernel reads of an `int` argument. It ignores the upper half of the register,
/// so a comparison of the whole register could be evaded.
const INT: u64 = 0xffff_ffff;

fn rule(names: &[&str]) -> LinuxSyscallBuilder {
    LinuxSyscallBuilder::default()
        .names(
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>(),
        )
        .action(LinuxSeccompAction::ScmpActAllow)
}

/// The seccomp filter.
///
/// # Errors
/// When a field is missing, which no input can cause.
pub(super) fn filter() -> Result<LinuxSeccomp, OciSpecError> {
    let without_namespaces = LinuxSeccompArgBuilder::default()
        .index(0usize)
        .value(NEW_NAMESPACES)
        .value_two(0u64)
        .op(LinuxSeccompOperator::ScmpCmpMaskedEq)
        .build()?;
    // `socketpair` too: it reaches the family's kernel code as well.
    let made = FAMILIES.map(|family| ("socket", family));
    let made = made.into_iter().chain([("socketpair", libc::AF_UNIX)]);
    let sockets = made.map(|(call, family)| {
        let of_family = LinuxSeccompArgBuilder::default()
            .index(0usize)
            .value(INT)
            .value_two(u64::from(family.unsigned_abs()))
            .op(LinuxSeccompOperator::ScmpCmpMaskedEq)
            .build()?;
        rule(&[call]).args(vec![of_family]).build()
    });
    // Its arguments are in memory, which a filter cannot read. Callers fall back to `clone`.
    let clone3: LinuxSyscall = rule(&["clone3"])
        .action(LinuxSeccompAction::ScmpActErrno)
        .errno_ret(libc::ENOSYS.unsigned_abs())
        .build()?;
    let allowed: Vec<&str> = ALLOWED.split_whitespace().collect();
    let mut syscalls = vec![
        rule(&allowed).build()?,
        rule(&["clone"]).args(vec![without_namespaces]).build()?,
        clone3,
    ];
    for socket in sockets {
        syscalls.push(socket?);
    }
    LinuxSeccompBuilder::default()
        .default_action(LinuxSeccompAction::ScmpActErrno)
        .default_errno_ret(libc::EPERM.unsigned_abs())
        // Not the 32-bit calls next to those of x86-64. There, `socketcall` creates sockets with
        // arguments in memory, so a filter could not check families. A process that makes one is
        // killed; gVisor does not support them either.
        .architectures(vec![Arch::ScmpArchX86_64, Arch::ScmpArchAarch64])
        .syscalls(syscalls)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the filter allows a call with this register as its first argument.
    fn lets_through(call: &str, register: u64) -> bool {
        let filter = filter().unwrap();
        let rules = filter.syscalls().as_deref().unwrap_or_default();
        rules
            .iter()
            .filter(|rule| rule.names().iter().any(|name| name == call))
            .filter(|rule| rule.action() == LinuxSeccompAction::ScmpActAllow)
            .any(|rule| {
                let arguments = rule.args().as_deref().unwrap_or_default();
                arguments.iter().all(|argument| {
                    assert_eq!(argument.index(), 0);
                    let value = argument.value();
                    match argument.op() {
                        LinuxSeccompOperator::ScmpCmpNe => register != value,
                        LinuxSeccompOperator::ScmpCmpEq => register == value,
                        LinuxSeccompOperator::ScmpCmpMaskedEq => {
                            Some(register & value) == argument.value_two()
                        }
                        other => panic!("{other:?}"),
                    }
                })
            })
    }

    #[test]
    fn a_socket_is_of_the_sandboxs_own_network_however_its_family_is_written() {
        for family in [
            libc::AF_UNIX,
            libc::AF_INET,
            libc::AF_INET6,
            libc::AF_NETLINK,
        ] {
            assert!(lets_through("socket", u64::from(family.unsigned_abs())));
        }
        assert!(lets_through(
            "socketpair",
            u64::from(libc::AF_UNIX.unsigned_abs())
        ));
        // The kernel reads an `int` from the register.
        for upper in [0, 1 << 32, 0xffff_ffff << 32] {
            for family in [libc::AF_VSOCK, libc::AF_ALG, libc::AF_PACKET, libc::AF_XDP] {
                let register = upper | u64::from(family.unsigned_abs());
                assert!(!lets_through("socket", register), "{register:#x}");
            }
            for family in [
                libc::AF_INET,
                libc::AF_TIPC,
                libc::AF_VSOCK,
                libc::AF_NETLINK,
            ] {
                let register = upper | u64::from(family.unsigned_abs());
                assert!(!lets_through("socketpair", register), "{register:#x}");
            }
        }
    }

    #[test]
    fn a_clone_asks_for_no_namespace_however_its_flags_are_written() {
        assert!(lets_through("clone", 17));
        for upper in [0, 1 << 32] {
            assert!(!lets_through("clone", upper | 0x1000_0000 | 17));
        }
    }

    #[test]
    fn what_opens_the_kernel_is_not_on_the_list() {
        let allowed: Vec<&str> = ALLOWED.split_whitespace().collect();
        for never in [
            "bpf",
            "keyctl",
            "add_key",
            "request_key",
            "userfaultfd",
            "io_uring_setup",
            "io_uring_enter",
            "perf_event_open",
            "kexec_load",
            "kexec_file_load",
            "init_module",
            "finit_module",
            "mount",
            "umount2",
            "fsopen",
            "fsmount",
            "move_mount",
            "open_tree",
            "mount_setattr",
            "pivot_root",
            "unshare",
            "setns",
            "clone",
            "clone3",
            "ptrace",
            "process_vm_readv",
            "process_vm_writev",
            "pidfd_getfd",
            "open_by_handle_at",
            "reboot",
            "swapon",
            "settimeofday",
            "clock_settime",
            "acct",
            "quotactl",
            "syslog",
        ] {
            assert!(!allowed.contains(&never), "{never}");
        }
        let mut sorted = allowed.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), allowed.len(), "a call is listed once");
    }
}
