//! Waiting for children.

use std::ffi::c_int;

use crate::process::Status;

/// A zombie child, if any. It stays a zombie and keeps its process id until [`reap`].
pub(in crate::process) fn peek_ended() -> Option<i32> {
    let info = wait(libc::P_ALL, 0, libc::WNOWAIT)?;
    // SAFETY: `waitid` filled it in for a child.
    Some(unsafe { info.si_pid() }).filter(|pid| *pid > 0)
}

/// Reaps an exited child, which frees its process id.
pub(in crate::process) fn reap(pid: i32) -> Option<Status> {
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
