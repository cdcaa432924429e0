//! Machines in which containers run, and those whose commands run in a container.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use shoal_core::ports::inside::{CommandOutput, InsideError, SandboxClient, SandboxCommand};
use shoal_core::ports::sessions::SessionError;
use shoal_core::session::machine::{Gpus, MachineType, Nesting};
use shoal_core::template::RuntimeName;

use super::Service;
use super::live::Live;
use crate::window::{CONTAINER, WORKSPACE};

/// The user of the container, who also owns the session's files there.
const ROOT: &str = "root";

/// How long Docker may take to start, and an image to be there.
const STARTING: Duration = Duration::from_secs(900);

/// How much of a script's output is kept, in bytes.
const SAID_MAX: usize = 2000;

/// The exit code of the script when the image is the reason.
const IMAGE: i32 = 2;

/// Starts Docker, and the container `$2` of image `$1` if one is named, with the directory `$3`. It has the processes, the
/// network and the memory of the machine: a command is cancelled as in any other, and its server is at the preview.
const START: &str = r#"
image=$1 name=$2 home=$3
if ! command -v start-docker >/dev/null; then
    echo 'its template has no Docker: `sessions.docker_template` names one that has `start-docker`'
    exit 1
fi
start-docker || exit 1
[ -n "$image" ] || exit 0
[ "$(docker container inspect --format '{{.State.Running}}' "$name" 2>/dev/null)" = true ] && exit 0
docker rm --force "$name" >/dev/null 2>&1
if ! docker image inspect "$image" >/dev/null 2>&1; then
    said=$(docker pull --quiet "$image" 2>&1) || { echo "the image $image cannot be pulled: $said"; exit 2; }
fi
said=$(docker run --detach --interactive --name "$name" --network host --pid host --ipc host --user 0:0 \
    --volume "$home:$home" --workdir "$home" --entrypoint /bin/bash "$image" 2>&1) && exit 0
case $said in
*/bin/bash*'no such file'*) echo "the image $image has no /bin/bash, in which commands run"; exit 2 ;;
*) echo "the image $image does not start: $said"; exit 2 ;;
esac
"#;

/// The features of this server's machines for sessions.
#[derive(Debug, Clone)]
pub struct MachineSupport {
    /// The runtime of their sandboxes.
    pub runtime: RuntimeName,
    /// Whether that can run containers inside.
    pub nested_containers: bool,
    /// Whether the operator allows privileged sandboxes.
    pub privileged: bool,
}

/// Refuses a machine that this installation does not have, before anything is started.
pub(super) fn check(machine: &MachineType, support: &MachineSupport) -> Result<(), SessionError> {
    let MachineType::Sandbox { gpus, nesting, .. } = machine else {
        return Ok(());
    };
    let runtime = &support.runtime;
    if let Some(Gpus { kind, count }) = gpus {
        return Err(SessionError::NoSuchMachine {
            parameter: "gpu_type",
            reason: format!(
                "runtime {runtime} gives sandboxes of this machine no GPU ({count} × {kind} asked for)"
            ),
        });
    }
    let parameter = match nesting {
        Nesting::None => return Ok(()),
        Nesting::Privileged => "privileged",
        Nesting::Container(_) => "docker_image",
    };
    let reason = if !support.nested_containers {
        format!("runtime {runtime} cannot run containers in a sandbox: use runsc")
    } else if !support.privileged {
        "the operator has not allowed it (`sessions.privileged`)".to_owned()
    } else {
        return Ok(());
    };
    Err(SessionError::NoSuchMachine { parameter, reason })
}

/// The user to act as in the machine; its own if none is named.
pub(super) fn user(machine: &MachineType) -> Option<&'static str> {
    matches!(machine.nesting(), Nesting::Container(_)).then_some(ROOT)
}

/// The directory of the session's files, which exists then; the user's home if it is empty.
pub(super) async fn make_home(
    machine: &MachineType,
    client: &Arc<dyn SandboxClient>,
) -> Result<&'static str, SessionError> {
    if !matches!(machine.nesting(), Nesting::Container(_)) {
        return Ok("");
    }
    let made = run(client, SandboxCommand::new("/bin/mkdir", ["-p", WORKSPACE])).await?;
    match made {
        (0, _) => Ok(WORKSPACE),
        (_, said) => Err(SessionError::Docker(said)),
    }
}

impl Service {
    /// Has Docker running in a privileged machine, and the container of the session if it has one.
    pub(super) async fn start_docker(&self, live: &Live) -> Result<(), SessionError> {
        let record = live.record();
        let image = match record.machine.nesting() {
            Nesting::None => return Ok(()),
            Nesting::Privileged => "",
            Nesting::Container(image) => image,
        };
        let Some(permit) = self.permit(live).await? else {
            return Err(gone());
        };
        let client = self.parts.access.open(&permit, Some(ROOT)).await?;
        let words = ["-c", START, "sh", image, CONTAINER, WORKSPACE];
        let command = SandboxCommand::new("/bin/sh", words).with_timeout(STARTING);
        match run(&client, command).await? {
            (0, _) => Ok(()),
            (IMAGE, said) => Err(SessionError::Image(said)),
            (_, said) => Err(SessionError::Docker(said)),
        }
    }
}

/// The machine has ended, which its backend knows.
fn gone() -> SessionError {
    InsideError::Unreachable("the machine has ended".to_owned()).into()
}

/// Runs a command to its end: its exit code and its output.
async fn run(
    client: &Arc<dyn SandboxClient>,
    command: SandboxCommand,
) -> Result<(i32, String), InsideError> {
    let mut running = client.run(command).await?;
    let mut said = Vec::new();
    while let Some(output) = running.output.next().await {
        match output? {
            CommandOutput::Stdout(bytes) | CommandOutput::Stderr(bytes) => {
                said.extend_from_slice(&bytes);
                // The reason comes last.
                said.drain(..said.len().saturating_sub(SAID_MAX));
            }
            CommandOutput::Exit(exit) => {
                let mut said = String::from_utf8_lossy(&said).trim().to_owned();
                if let (true, Some(error)) = (said.is_empty(), exit.error) {
                    said = error;
                }
                return Ok((exit.code, said));
            }
        }
    }
    Err(InsideError::Unreachable("a command did not end".to_owned()))
}
