//! The start of a container that is restored.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

use shoal_checkpoint::{ContainerRecord, Contents, Records, Restore};

use crate::call::Call;
use crate::create::PAUSE;
use crate::failure::Failure;
use crate::{end, runtime};

/// The container of the call, if its start is a restore.
pub(crate) fn restored(call: &Call, state: &Path) -> Result<Option<ContainerRecord>, Failure> {
    match Records::at(state).container(&call.id) {
        Ok(container) => Ok(Some(container).filter(|container| container.restores)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::io("the container's record", error)),
    }
}

/// Restores a container. If that fails, the sandbox ends: at once, or when the shim ends the pod's own container.
pub(crate) fn restore(
    call: &Call,
    state: &Path,
    container: &ContainerRecord,
) -> Result<ExitCode, Failure> {
    let begun = attempt(call, state, container);
    if begun.is_err() && container.name.is_some() {
        end::end_sandbox(call, &container.sandbox);
    }
    begun
}

fn attempt(call: &Call, state: &Path, container: &ContainerRecord) -> Result<ExitCode, Failure> {
    let records = Records::at(state);
    let failed = |error| Failure::io("the sandbox's record", error);
    let sandbox = records.sandbox(&container.sandbox).map_err(failed)?;
    let restore = sandbox.restore.ok_or(Failure::Incomplete("a checkpoint"))?;
    let name = container.name.as_deref().unwrap_or(PAUSE);
    records
        .mark_begun(&container.sandbox, name)
        .map_err(failed)?;
    let ended = runsc(call, &words(call, &restore))?
        .status()
        .map_err(|error| Failure::io("runsc", error))?;
    if !ended.success() {
        return Err(Failure::NotRestored {
            id: restore.id,
            why: format!("runsc says why above ({ended})"),
        });
    }
    records
        .mark_restored(&container.sandbox, name)
        .map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

/// The command of runsc in place of the start.
fn words(call: &Call, restore: &Restore) -> Vec<OsString> {
    match restore.contents {
        // Its files were there since it was created.
        Contents::Files => vec!["start".into(), OsString::from(&call.id)],
        Contents::Memory => {
            let mut image = OsString::from("--image-path=");
            image.push(&restore.directory);
            let flags = ["restore", "--detach", "--background"].map(OsString::from);
            flags
                .into_iter()
                .chain([image, OsString::from(&call.id)])
                .collect()
        }
    }
}

/// Another call of runsc, with the flags of this one.
pub(crate) fn runsc(call: &Call, words: &[OsString]) -> Result<Command, Failure> {
    let mut command = runtime::command()?;
    command.args(&call.global).args(words);
    Ok(command)
}
