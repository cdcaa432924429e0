//! Commands that run inside a pod before and after its upgrade, through the daemon in it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use shoal_crds::kruise::{InitRequest, Sandbox};
use shoal_protocol::ENVD_PORT;
use shoal_protocol::client::{ClientError, Command, EnvdClient, Output};

use super::SandboxController;
use super::phase::Hook;
use crate::cache::key;
use crate::kruise::Pod;

/// The part of a failed command's error output that is shown, in bytes.
const TOLD: usize = 1024;
/// How often the end of the sandbox is looked for while a command runs, and the daemon while there is none.
const LOOK: Duration = Duration::from_millis(500);

/// The directory in which commands begin.
const HOOK_DIRECTORY: &str = "/";

impl SandboxController {
    /// Runs a command as root, to its end or for as long as it may take. `Some` is why it failed. `None` also when the
    /// sandbox is deleted meanwhile: nothing waits for the command then.
    pub(super) async fn run_hook(
        &self,
        sandbox: &Sandbox,
        pod: &Pod,
        hook: &Hook,
    ) -> Option<String> {
        let command = tokio::time::timeout(hook.timeout, execute(sandbox, pod, hook));
        tokio::select! {
            () = self.deleted(sandbox) => None,
            ended = command => match ended {
                // The text is partly the pod's, and as long as that likes.
                Ok(ended) => ended.err().map(|failure| failure.chars().take(TOLD).collect()),
                Err(_) => Some(format!("the command did not end within {} s", hook.timeout.as_secs())),
            },
        }
    }

    async fn deleted(&self, sandbox: &Sandbox) {
        let key = key(sandbox);
        let lives = |known: Option<Arc<Sandbox>>| {
            known.is_some_and(|known| known.metadata.deletion_timestamp.is_none())
        };
        while lives(self.sandboxes.get(&key)) {
            tokio::time::sleep(LOOK).await;
        }
    }
}

async fn execute(sandbox: &Sandbox, pod: &Pod, hook: &Hook) -> Result<(), String> {
    let address: IpAddr = pod
        .status
        .pod_ip
        .parse()
        .map_err(|_| "the pod has no address".to_owned())?;
    let settings = InitRequest::of(sandbox).unwrap_or_default();
    let mut client = EnvdClient::at(SocketAddr::new(address, ENVD_PORT)).with_user("root");
    if !settings.access_token.is_empty() {
        client = client
            .with_token_text(&settings.access_token)
            .map_err(|error| format!("the annotation with the settings: {error}"))?;
    }
    let (program, arguments) = hook
        .command
        .split_first()
        .ok_or("the hook has no command")?;
    let mut command = Command::new(program, arguments);
    // The home of root, where it would begin otherwise, may not exist.
    command.cwd = Some(HOOK_DIRECTORY.to_owned());
    // The daemon kills it, so that nothing runs on after the operator has given up.
    command.timeout = Some(hook.timeout);
    let unreachable = |error| format!("the command cannot run: {error}");
    let mut process = loop {
        match client.start(command.clone()).await {
            // A daemon that has just started again listens in a moment. The hook's time ends the wait.
            Err(ClientError::Unreachable(_)) => tokio::time::sleep(LOOK).await,
            started => break started.map_err(unreachable)?,
        }
    };
    let mut said = BytesMut::new();
    while let Some(output) = process.next().await.map_err(unreachable)? {
        match output {
            Output::Stderr(bytes) => keep(&mut said, &bytes),
            Output::Exit(exit) if exit.code == 0 => return Ok(()),
            Output::Exit(exit) => {
                let said = String::from_utf8_lossy(&said);
                return Err(format!("{}: {}", exit.status, said.trim()));
            }
            Output::Stdout(_) | Output::Terminal(_) => {}
        }
    }
    Err("the command's end was not told".to_owned())
}

/// Keeps the beginning of the error output.
fn keep(said: &mut BytesMut, bytes: &Bytes) {
    let room = TOLD.saturating_sub(said.len()).min(bytes.len());
    said.extend_from_slice(&bytes[..room]);
}
