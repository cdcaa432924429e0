//! System calls without a safe wrapper: spawning a child, reaping, and closing inherited
//! descriptors.
//!
//! # Spawning
//!
//! `fork` copies the daemon's address space, only to discard the copy. Here the child runs in the
//! daemon's memory on its own small stack, while the calling thread sleeps until the child calls
//! `exec`: `clone` with `CLONE_VM | CLONE_VFORK`. Measured in gVisor, from the call to the end of
//! `/bin/true`: 3.2 ms with `fork`, 1.9 ms with this. E2B wraps every program in a shell, `ionice`
//! and `nice`. The child does the same with three system calls and saves one `exec` each, 1.5 to 4
//! ms in gVisor.
//!
//! In return the child must not allocate, lock, unwind or run a signal handler of the daemon.
//! [`child`] only makes system calls on data that [`ExecSpec`] prepared, with all signals blocked
//! until every handler is reset. It changes its user before `exec` while sharing the daemon's
//! memory; that cannot be exploited, because the daemon is not dumpable.

#![expect(
    unsafe_code,
    reason = "clone, waitid and close of a raw descriptor have no safe wrapper"
)]

mod reap;

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::Rlimit;

pub(super) use reap::{peek_ended, reap};

/// Stack size of the child. Call depth is small; it touches a page or two.
const STACK_SIZE: usize = 64 << 10;

/// `oom_score_adj` of children, as in E2B: the kernel kills them before the daemon.
const OOM_SCORE: &[u8] = b"100";

/// Best-effort class, middle level: `ionice -c 2 -n 4`.
const IO_PRIORITY: c_int = (2 << 13) | 4;

/// `IOPRIO_WHO_PROCESS`, which libc does not define.
const IO_PRIORITY_OF_PROCESS: c_int = 1;

/// A null-terminated array of C strings for `execve`.
pub(super) struct CStringArray {
    texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl CStringArray {
    /// Builds the array in the given order.
    pub(super) fn new(texts: Vec<CString>) -> Self {
        let mut pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        pointers.push(ptr::null());
        Self { texts, pointers }
    }

    /// The strings.
    #[cfg(test)]
    pub(super) fn as_slice(&self) -> &[CString] {
        &self.texts
    }
}

// SAFETY: the pointers point into the heap buffers of the strings, which are owned and never
// changed.
unsafe impl Send for CStringArray {}
// SAFETY: as above.
unsafe impl Sync for CStringArray {}

/// A fully prepared child.
pub(super) struct ExecSpec<'a> {
    /// Programs to try, in order.
    pub(super) candidates: &'a CStringArray,
    /// Arguments, with the program's name first.
    pub(super) arguments: &'a CStringArray,
    /// Arguments of `/bin/sh` for a script without `#!`. The second one is replaced by the
    /// candidate.
    pub(super) script_arguments: &'a CStringArray,
    /// The environment.
    pub(super) environment: &'a CStringArray,
    /// Working directory.
    pub(super) cwd: &'a CString,
    /// Standard input, output and error. None of them is descriptor 0, 1 or 2.
    pub(super) stdio: [BorrowedFd<'a>; 3],
    /// Whether standard input becomes the controlling terminal.
    pub(super) terminal: bool,
    /// User id.
    pub(super) uid: u32,
    /// Primary group id.
    pub(super) gid: u32,
    /// All group ids.
    pub(super) groups: &'a [u32],
    /// Descriptor limit to restore.
    pub(super) descriptors: Option<Rlimit>,
    /// Whether to reset the priority.
    pub(super) reset_nice: bool,
}

/// Step at which spawning failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// `clone`.
    Clone,
    /// Session, terminal and streams.
    Streams,
    /// User and groups.
    User,
    /// Working directory.
    Directory,
    /// `exec`.
    Execute,
}

/// A spawn failure.
#[derive(Debug)]
pub(super) struct Failure {
    /// The failed step.
    pub(super) step: Step,
    /// The error.
    pub(super) error: io::Error,
}

/// Data shared by parent and child.
struct ChildState<'a> {
    spec: &'a ExecSpec<'a>,
    script_arguments: *mut *const c_char,
    handled: &'a [c_int],
    step: Step,
    errno: c_int,
}

/// Spawns a child. The kernel stores its process id in `pid` before the child runs. The id stays
/// there if a later step fails: that child has exited and must be reaped.
pub(super) fn spawn(spec: &ExecSpec<'_>, pid: &AtomicI32) -> Result<i32, Failure> {
    let mut stack: Vec<u8> = Vec::with_capacity(STACK_SIZE);
    let mut script_arguments = spec.script_arguments.pointers.clone();
    let mut state = ChildState {
        spec,
        script_arguments: script_arguments.as_mut_ptr(),
        handled: handled_signals(),
        step: Step::Clone,
        errno: 0,
    };
    let old = set_signal_mask(u64::MAX);
    // SAFETY: the stack is owned by this function, its top is aligned to 16 bytes, and the child
    // uses it only while this thread sleeps. `state` and everything it points to outlive that use
    // for the same reason. `pid` is an aligned integer that the kernel writes once.
    let result = unsafe {
        let top = stack.as_mut_ptr().add(STACK_SIZE);
        let top = top.sub(top as usize % 16);
        libc::clone(
            child,
            top.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID | libc::SIGCHLD,
            ptr::from_mut(&mut state).cast(),
            pid.as_ptr(),
        )
    };
    let clone_error = io::Error::last_os_error();
    set_signal_mask(old);
    if result < 0 {
        return Err(Failure {
            step: Step::Clone,
            error: clone_error,
        });
    }
    pid.store(result, Ordering::SeqCst);
    if state.errno != 0 {
        return Err(Failure {
            step: state.step,
            error: io::Error::from_raw_os_error(state.errno),
        });
    }
    Ok(result)
}

/// The child, from `clone` to `exec`.
extern "C" fn child(state: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes its `ChildState` and sleeps while this runs.
    let state = unsafe { &mut *state.cast::<ChildState<'_>>() };
    state.errno = match exec_child(state) {
        Ok(never) => match never {},
        Err(errno) => errno,
    };
    // SAFETY: exits the child without running destructors or exit handlers.
    unsafe { libc::_exit(127) }
}

/// Uninhabited: a successful `exec` does not return.
enum Never {}

/// Converts `-1` into `errno`.
fn check(result: i64) -> Result<(), c_int> {
    if result == -1 {
        // SAFETY: `errno` is always readable.
        Err(unsafe { *libc::__errno_location() })
    } else {
        Ok(())
    }
}

fn exec_child(state: &mut ChildState<'_>) -> Result<Never, c_int> {
    let spec = state.spec;
    state.step = Step::Streams;
    reset_signals(state.handled);
    // SAFETY: plain system calls on integers; `ExecSpec` borrows the descriptors, so they are open.
    unsafe {
        check(libc::setsid().into())?;
        if spec.terminal {
            check(libc::ioctl(spec.stdio[0].as_raw_fd(), libc::TIOCSCTTY, 0).into())?;
        }
        check(libc::dup2(spec.stdio[0].as_raw_fd(), 0).into())?;
        check(libc::dup2(spec.stdio[1].as_raw_fd(), 1).into())?;
        check(libc::dup2(spec.stdio[2].as_raw_fd(), 2).into())?;
        libc::umask(super::UMASK);
    }
    set_priorities(spec);
    state.step = Step::User;
    set_user(spec)?;
    state.step = Step::Directory;
    // SAFETY: the path is null-terminated.
    check(unsafe { libc::chdir(spec.cwd.as_ptr()) }.into())?;
    state.step = Step::Execute;
    set_signal_mask(0);
    Err(execute(state))
}

/// Changes the user and the groups. A daemon without root cannot, and runs processes of its own user
/// only.
fn set_user(spec: &ExecSpec<'_>) -> Result<(), c_int> {
    if spec.uid != 0 && rustix::process::geteuid().as_raw() == spec.uid {
        return Ok(());
    }
    // SAFETY: plain system calls. Made directly, because the libc wrappers change all threads,
    // which here belong to the daemon.
    unsafe {
        let groups = spec.groups;
        check(libc::syscall(
            libc::SYS_setgroups,
            groups.len(),
            groups.as_ptr(),
        ))?;
        check(libc::syscall(
            libc::SYS_setresgid,
            spec.gid,
            spec.gid,
            spec.gid,
        ))?;
        check(libc::syscall(
            libc::SYS_setresuid,
            spec.uid,
            spec.uid,
            spec.uid,
        ))?;
    }
    Ok(())
}

/// Tries each candidate. Returns the most relevant error, with a shell's precedence.
fn execute(state: &ChildState<'_>) -> c_int {
    let spec = state.spec;
    let mut worst = libc::ENOENT;
    for candidate in spec.candidates.texts.iter() {
        let environment = spec.environment.pointers.as_ptr();
        // SAFETY: all arrays and strings are null-terminated.
        let result = unsafe {
            libc::execve(
                candidate.as_ptr(),
                spec.arguments.pointers.as_ptr(),
                environment,
            )
        };
        let Err(errno) = check(result.into()) else {
            continue;
        };
        match errno {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::EACCES => worst = libc::EACCES,
            libc::ENOEXEC => {
                // SAFETY: the array is a copy of `script_arguments`, which has at least two strings
                // and a terminating null.
                unsafe {
                    *state.script_arguments.add(1) = candidate.as_ptr();
                    libc::execve(c"/bin/sh".as_ptr(), state.script_arguments, environment);
                }
                return libc::ENOEXEC;
            }
            other => return other,
        }
    }
    worst
}

/// The kernel's `sigaction`: handler, flags, restorer and mask. All zeros is the default action.
/// The libc wrappers would withhold two signals.
type Action = [u64; 4];

/// Reads or sets a signal's action.
fn action(signal: c_int, new: *const Action, old: *mut Action) -> bool {
    // SAFETY: the pointers are null or point to actions, whose mask has eight bytes.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, old, size_of::<u64>()) == 0 }
}

/// Resets every handler, so that none runs in the child and no signal stays ignored.
fn reset_signals(handled: &[c_int]) {
    let default: Action = [0; 4];
    for signal in handled.iter() {
        action(*signal, &raw const default, ptr::null_mut());
    }
}

/// Sets priorities of the child. Best effort: a sandbox may forbid it.
fn set_priorities(spec: &ExecSpec<'_>) {
    // SAFETY: plain system calls; the path and the buffer are constants.
    unsafe {
        let file = libc::open(
            c"/proc/self/oom_score_adj".as_ptr(),
            libc::O_WRONLY | libc::O_CLOEXEC,
        );
        if file >= 0 {
            libc::write(file, OOM_SCORE.as_ptr().cast(), OOM_SCORE.len());
            libc::close(file);
        }
        if spec.reset_nice {
            libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        }
        libc::syscall(libc::SYS_ioprio_set, IO_PRIORITY_OF_PROCESS, 0, IO_PRIORITY);
        if let Some(limit) = spec.descriptors {
            let limit = libc::rlimit {
                rlim_cur: limit.current.unwrap_or(libc::RLIM_INFINITY),
                rlim_max: limit.maximum.unwrap_or(libc::RLIM_INFINITY),
            };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Replaces the calling thread's signal mask, all 64 signals.
fn set_signal_mask(mask: u64) -> u64 {
    let mut old = 0_u64;
    // SAFETY: both masks have the size of the last argument. Called directly, because libc would
    // leave its own two signals unblocked.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            &raw mut old,
            size_of::<u64>(),
        );
    }
    old
}

/// Signals with a non-default action in the daemon. Cached, because the daemon installs its
/// handlers before it spawns its first child.
fn handled_signals() -> &'static [c_int] {
    static HANDLED: OnceLock<Vec<c_int>> = OnceLock::new();
    HANDLED.get_or_init(|| {
        let is_handled = |signal: &c_int| {
            let mut found: Action = [0; 4];
            action(*signal, ptr::null(), &raw mut found) && found[0] != 0
        };
        (1..=64).filter(is_handled).collect()
    })
}

/// Closes all inherited descriptors except the standard three. Must run before the daemon opens
/// any.
pub(crate) fn close_inherited() {
    // SAFETY: the daemon owns none of these descriptors.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, c_int::MAX, 0) };
    if closed == 0 {
        return;
    }
    // Kernels without `close_range`: one by one.
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let open: Vec<c_int> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in open {
        // SAFETY: as above. The descriptor of the directory itself is closed already.
        unsafe { libc::close(fd) };
    }
}
