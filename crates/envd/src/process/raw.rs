//! The few system calls that have no safe form: making a child, waiting for children, and closing
//! what was inherited.
//!
//! # Making a child
//!
//! `fork` copies the daemon's address space to throw the copy away a moment later. Here the child
//! runs in the daemon's own memory on a small stack of its own, while the calling thread (only that
//! one) sleeps until the child has become its program: `clone` with `CLONE_VM | CLONE_VFORK`.
//! Measured inside gVisor, from the call to the end of `/bin/true`: 3.2 ms with `fork`, 1.9 ms so.
//! What E2B does with a shell, `ionice` and `nice` around every program, the child does itself with
//! three system calls; each `exec` saved is another 1.5 to 4 ms there.
//!
//! The price is that the child must not allocate, lock, unwind, or run a signal handler of ours:
//! [`child`] only makes system calls on what [`Image`] prepared, with all signals blocked until every
//! handler is taken down. It changes its user before `exec` while it shares our memory; nobody can
//! use that, as the daemon is not dumpable.

#![expect(
    unsafe_code,
    reason = "clone, waitid and close of a number have no safe form"
)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::Rlimit;

use super::exit::Status;

/// The child's stack. It calls nothing deep; a page or two are touched.
const STACK: usize = 64 << 10;

/// How eagerly the kernel kills children when memory runs out, as in E2B: before the daemon.
const OOM_SCORE: &[u8] = b"100";

/// Best effort, the middle of its levels: what `ionice -c 2 -n 4` asks for.
const IO_PRIORITY: c_int = (2 << 13) | 4;

/// `IOPRIO_WHO_PROCESS`, which the C library does not name.
const IO_PRIORITY_OF_PROCESS: c_int = 1;

/// Texts as `execve` takes them: an array of pointers with a null at its end.
pub(super) struct Texts {
    texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Texts {
    /// Takes the texts in order.
    pub(super) fn new(texts: Vec<CString>) -> Self {
        let mut pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        pointers.push(ptr::null());
        Self { texts, pointers }
    }

    /// The texts.
    #[cfg(test)]
    pub(super) fn as_slice(&self) -> &[CString] {
        &self.texts
    }
}

// SAFETY: the pointers point into the texts, which move with them and are never changed.
unsafe impl Send for Texts {}
// SAFETY: as above.
unsafe impl Sync for Texts {}

/// A child, prepared to the last byte.
pub(super) struct Image<'a> {
    /// What to try to execute, in order, until one is there.
    pub(super) candidates: &'a Texts,
    /// The arguments, the program's name first.
    pub(super) arguments: &'a Texts,
    /// The same for `/bin/sh`, for a script without a first line; its second text is replaced by
    /// the candidate.
    pub(super) script_arguments: &'a Texts,
    /// The environment.
    pub(super) environment: &'a Texts,
    /// Where it starts.
    pub(super) cwd: &'a CString,
    /// Standard input, output and error. None is a standard descriptor of ours.
    pub(super) stdio: [BorrowedFd<'a>; 3],
    /// Whether standard input is a terminal to take control of.
    pub(super) terminal: bool,
    /// Who it is.
    pub(super) uid: u32,
    /// Its first group.
    pub(super) gid: u32,
    /// All its groups.
    pub(super) groups: &'a [u32],
    /// The limit of descriptors to go back to.
    pub(super) descriptors: Option<Rlimit>,
    /// Whether to go back to the usual priority.
    pub(super) reset_nice: bool,
}

/// What a child was doing when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Being made.
    Clone,
    /// Getting a session, a terminal, and its streams.
    Streams,
    /// Becoming its user.
    User,
    /// Going to its directory.
    Directory,
    /// Becoming its program.
    Execute,
}

/// Why there is no child.
#[derive(Debug)]
pub(super) struct Failure {
    /// What failed.
    pub(super) step: Step,
    /// How.
    pub(super) error: io::Error,
}

/// What parent and child share.
struct Shared<'a> {
    image: &'a Image<'a>,
    script_arguments: *mut *const c_char,
    handled: &'a [c_int],
    step: Step,
    errno: c_int,
}

/// Makes a child. Its process id is in `pid` before it runs at all, and stays there also when this
/// fails later: then the child has ended and must be waited for.
pub(super) fn spawn(image: &Image<'_>, pid: &AtomicI32) -> Result<i32, Failure> {
    let mut stack: Vec<u8> = Vec::with_capacity(STACK);
    let mut script_arguments = image.script_arguments.pointers.clone();
    let mut shared = Shared {
        image,
        script_arguments: script_arguments.as_mut_ptr(),
        handled: handled_signals(),
        step: Step::Clone,
        errno: 0,
    };
    let old = set_signal_mask(u64::MAX);
    // SAFETY: the stack is ours, its end is aligned to 16 bytes below, and the child runs on it
    // only while this thread sleeps. `shared` and all it points to outlive the child's use of them
    // for the same reason. `pid` is an aligned integer that the kernel writes once.
    let result = unsafe {
        let top = stack.as_mut_ptr().add(STACK);
        let top = top.sub(top as usize % 16);
        libc::clone(
            child,
            top.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID | libc::SIGCHLD,
            ptr::from_mut(&mut shared).cast(),
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
    if shared.errno != 0 {
        return Err(Failure {
            step: shared.step,
            error: io::Error::from_raw_os_error(shared.errno),
        });
    }
    Ok(result)
}

/// The child, from its birth to its program.
extern "C" fn child(shared: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes its `Shared` and sleeps while this runs.
    let shared = unsafe { &mut *shared.cast::<Shared<'_>>() };
    shared.errno = match become_image(shared) {
        Ok(never) => match never {},
        Err(errno) => errno,
    };
    // SAFETY: ends this child without running anything of ours.
    unsafe { libc::_exit(127) }
}

/// Nothing: a successful `exec` does not return.
enum Never {}

/// Turns `-1` into the error number.
fn check(result: i64) -> Result<(), c_int> {
    if result == -1 {
        // SAFETY: the C library's error number is always there to be read.
        Err(unsafe { *libc::__errno_location() })
    } else {
        Ok(())
    }
}

fn become_image(shared: &mut Shared<'_>) -> Result<Never, c_int> {
    let image = shared.image;
    shared.step = Step::Streams;
    reset_signals(shared.handled);
    // SAFETY: plain system calls with numbers; the descriptors are open, as `Image` borrows them.
    unsafe {
        check(libc::setsid().into())?;
        if image.terminal {
            check(libc::ioctl(image.stdio[0].as_raw_fd(), libc::TIOCSCTTY, 0).into())?;
        }
        check(libc::dup2(image.stdio[0].as_raw_fd(), 0).into())?;
        check(libc::dup2(image.stdio[1].as_raw_fd(), 1).into())?;
        check(libc::dup2(image.stdio[2].as_raw_fd(), 2).into())?;
        libc::umask(crate::hardening::UMASK);
    }
    set_priorities(image);
    shared.step = Step::User;
    // SAFETY: plain system calls. They are made directly, as the C library's functions would change
    // all threads, and here the threads are the daemon's.
    unsafe {
        let groups = image.groups;
        check(libc::syscall(
            libc::SYS_setgroups,
            groups.len(),
            groups.as_ptr(),
        ))?;
        check(libc::syscall(
            libc::SYS_setresgid,
            image.gid,
            image.gid,
            image.gid,
        ))?;
        check(libc::syscall(
            libc::SYS_setresuid,
            image.uid,
            image.uid,
            image.uid,
        ))?;
    }
    shared.step = Step::Directory;
    // SAFETY: the path ends with a zero.
    check(unsafe { libc::chdir(image.cwd.as_ptr()) }.into())?;
    shared.step = Step::Execute;
    set_signal_mask(0);
    Err(execute(shared))
}

/// Tries each candidate. Returns what was most wrong, as a shell would say it.
fn execute(shared: &Shared<'_>) -> c_int {
    let image = shared.image;
    let mut worst = libc::ENOENT;
    for candidate in image.candidates.texts.iter() {
        let environment = image.environment.pointers.as_ptr();
        // SAFETY: all arrays end with a null and all texts with a zero.
        let result = unsafe {
            libc::execve(
                candidate.as_ptr(),
                image.arguments.pointers.as_ptr(),
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
                // SAFETY: the array is a copy of `script_arguments`, which has at least two texts
                // and a null at its end.
                unsafe {
                    *shared.script_arguments.add(1) = candidate.as_ptr();
                    libc::execve(c"/bin/sh".as_ptr(), shared.script_arguments, environment);
                }
                return libc::ENOEXEC;
            }
            other => return other,
        }
    }
    worst
}

/// Takes down every handler, so that none runs in the child and nothing stays ignored.
fn reset_signals(handled: &[c_int]) {
    for signal in handled.iter() {
        // SAFETY: an all-zero action is the default action without flags.
        unsafe {
            let action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(*signal, &raw const action, ptr::null_mut());
        }
    }
}

/// Sets how the kernel treats the child. All of it is best effort: a sandbox may not allow it.
fn set_priorities(image: &Image<'_>) {
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
        if image.reset_nice {
            libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        }
        libc::syscall(libc::SYS_ioprio_set, IO_PRIORITY_OF_PROCESS, 0, IO_PRIORITY);
        if let Some(limit) = image.descriptors {
            let limit = libc::rlimit {
                rlim_cur: limit.current.unwrap_or(libc::RLIM_INFINITY),
                rlim_max: limit.maximum.unwrap_or(libc::RLIM_INFINITY),
            };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Replaces the calling thread's mask of blocked signals, all 64 of them.
fn set_signal_mask(mask: u64) -> u64 {
    let mut old = 0_u64;
    // SAFETY: both masks are as large as the last argument says. The system call is made directly,
    // as the C library would leave its own two signals open.
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

/// The signals that do not have their default action in the daemon. It sets its handlers before it
/// makes its first child, so they are asked for once.
fn handled_signals() -> &'static [c_int] {
    static HANDLED: OnceLock<Vec<c_int>> = OnceLock::new();
    HANDLED.get_or_init(|| {
        (1..=64)
            .filter(|signal| {
                // SAFETY: asks for an action; a number that is no signal is refused.
                unsafe {
                    let mut action: libc::sigaction = std::mem::zeroed();
                    libc::sigaction(*signal, ptr::null(), &raw mut action) == 0
                        && action.sa_sigaction != libc::SIG_DFL
                }
            })
            .collect()
    })
}

/// A child that has ended and not been waited for, if there is one. It stays so, and its process id
/// stays taken, until [`reap`].
pub(super) fn peek_ended() -> Option<i32> {
    let info = wait(libc::P_ALL, 0, libc::WNOWAIT)?;
    // SAFETY: `waitid` filled it in for a child.
    Some(unsafe { info.si_pid() }).filter(|pid| *pid > 0)
}

/// Waits for a child that has ended, which frees its process id.
pub(super) fn reap(pid: i32) -> Option<Status> {
    let info = wait(libc::P_PID, u32::try_from(pid).ok()?, 0)?;
    // SAFETY: `waitid` filled it in for a child.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let status = match info.si_code {
        libc::CLD_EXITED => Status::Exited(status),
        _ => Status::Killed(status),
    };
    (pid > 0).then_some(status)
}

fn wait(kind: libc::idtype_t, id: u32, flags: c_int) -> Option<libc::siginfo_t> {
    // SAFETY: all zeros is a valid value of this plain structure, and `waitid` fills it in.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | flags;
        (libc::waitid(kind, id, &raw mut info, flags) == 0).then_some(info)
    }
}

/// Closes a descriptor that the daemon was started with.
pub(crate) fn close_inherited(fd: i32) {
    // SAFETY: called before anything of ours is open, so nobody else owns the number. If the number
    // is not open at all, closing it does nothing.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}
