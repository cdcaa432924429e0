//! Stands in for runsc in containerd's handler `shoal`. A pod whose annotation names a checkpoint is restored from it;
//! everything else is runsc's own.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod begin;
mod call;
mod create;
mod elsewhere;
mod end;
mod failure;
mod mounts;
mod runtime;
mod spec;
mod verified;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use rustix::fs::Mode;

use crate::call::Call;
use crate::failure::Failure;

fn main() -> ExitCode {
    runtime::keep_umask(rustix::process::umask(Mode::from_raw_mode(0o077)));
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let call = Call::parse(&words);
    match run(&call, &words) {
        Ok(code) => code,
        Err(failure) => {
            failure.tell(call.log.as_deref());
            ExitCode::from(128)
        }
    }
}

fn run(call: &Call, words: &[OsString]) -> Result<ExitCode, Failure> {
    match (call.command.as_str(), call.state()) {
        ("create", Some(state)) => {
            let more = create::prepare(call, &state)?;
            replace(&call.with_flags(words, &more))
        }
        ("start", Some(state)) => match begin::restored(call, &state)? {
            Some(container) => begin::restore(call, &state, &container),
            None => replace(words),
        },
        ("kill", Some(state)) if call.is_fatal() => end::kill(call, words, &state),
        ("state", Some(state)) if end::awaits_its_start(&state, &call.id) => end::tell_state(words),
        ("delete", Some(state)) => {
            // The kubelet deletes a container more than once. A leftover is overwritten by the next container of its id.
            let _ = shoal_checkpoint::Records::at(&state).forget(&call.id);
            replace(words)
        }
        _ => replace(words),
    }
}

/// Becomes runsc.
fn replace(words: &[OsString]) -> Result<ExitCode, Failure> {
    let error = runtime::command()?.args(words).exec();
    let path = runtime::path()?;
    Err(Failure::Runtime { path, error })
}
