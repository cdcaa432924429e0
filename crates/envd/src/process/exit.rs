//! Exit statuses, formatted as by E2B's daemon, which uses Go's texts.

use shoal_protocol::process::process_event::EndEvent;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// Exited with this code.
    Exited(i32),
    /// Killed by this signal.
    Killed(i32),
}

impl Status {
    /// The end event on the wire.
    pub(crate) fn to_event(self) -> EndEvent {
        let status = self.to_string();
        EndEvent {
            exit_code: match self {
                Self::Exited(code) => code,
                Self::Killed(_) => -1,
            },
            exited: matches!(self, Self::Exited(_)),
            error: (self != Self::Exited(0)).then(|| status.clone()),
            status,
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit status {code}"),
            Self::Killed(signal) => match name(*signal) {
                Some(name) => write!(f, "signal: {name}"),
                None => write!(f, "signal: signal {signal}"),
            },
        }
    }
}

/// Go's name of a signal.
fn name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGABRT => "aborted",
        libc::SIGALRM => "alarm clock",
        libc::SIGBUS => "bus error",
        libc::SIGCHLD => "child exited",
        libc::SIGCONT => "continued",
        libc::SIGFPE => "floating point exception",
        libc::SIGHUP => "hangup",
        libc::SIGILL => "illegal instruction",
        libc::SIGINT => "interrupt",
        libc::SIGIO => "I/O possible",
        libc::SIGKILL => "killed",
        libc::SIGPIPE => "broken pipe",
        libc::SIGPROF => "profiling timer expired",
        libc::SIGPWR => "power failure",
        libc::SIGQUIT => "quit",
        libc::SIGSEGV => "segmentation fault",
        libc::SIGSTKFLT => "stack fault",
        libc::SIGSTOP => "stopped (signal)",
        libc::SIGSYS => "bad system call",
        libc::SIGTERM => "terminated",
        libc::SIGTRAP => "trace/breakpoint trap",
        libc::SIGTSTP => "stopped",
        libc::SIGTTIN => "stopped (tty input)",
        libc::SIGTTOU => "stopped (tty output)",
        libc::SIGURG => "urgent I/O condition",
        libc::SIGUSR1 => "user defined signal 1",
        libc::SIGUSR2 => "user defined signal 2",
        libc::SIGVTALRM => "virtual timer expired",
        libc::SIGWINCH => "window changed",
        libc::SIGXCPU => "CPU time limit exceeded",
        libc::SIGXFSZ => "file size limit exceeded",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_has_no_error() {
        let event = Status::Exited(0).to_event();
        assert_eq!((event.exit_code, event.exited), (0, true));
        assert_eq!(event.status, "exit status 0");
        assert_eq!(event.error, None);
    }

    #[test]
    fn a_failure_repeats_its_status_as_the_error() {
        let event = Status::Exited(3).to_event();
        assert_eq!((event.exit_code, event.exited), (3, true));
        assert_eq!(event.error.as_deref(), Some("exit status 3"));
    }

    #[test]
    fn a_signal_has_no_exit_code() {
        let event = Status::Killed(libc::SIGKILL).to_event();
        assert_eq!((event.exit_code, event.exited), (-1, false));
        assert_eq!(event.status, "signal: killed");
        assert_eq!(event.error.as_deref(), Some("signal: killed"));
        let event = Status::Killed(libc::SIGTERM).to_event();
        assert_eq!(event.status, "signal: terminated");
        assert_eq!(Status::Killed(35).to_event().status, "signal: signal 35");
    }
}
