//! The settings of the daemon in a sandbox's pod, and the passes with which it takes its first.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use parking_lot::Mutex;
use shoal_core::ports::inside::InsideError;
use shoal_crds::kruise::{InitRequest, Sandbox};
use shoal_protocol::ENVD_PORT;
use shoal_protocol::client::{ClientError, EnvdClient};
use shoal_protocol::init::InitRequest as DaemonSettings;
use shoal_protocol::pass::{InitPass, InitSecret, SECRET_KEY, SECRET_NAME};

use crate::record;
use crate::sandboxes::Sandboxes;

/// How long the daemon is asked, how long one attempt may take, and the pause after the first, which doubles up to the
/// time of an attempt. In a pod that was just started, the daemon may not listen yet.
const PATIENCE: Duration = Duration::from_secs(15);
const ATTEMPT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(200);

/// The status with which a daemon refuses first settings without its pass.
const NO_PASS: u16 = 403;

/// Computes passes from the operator's secret.
pub(crate) struct Passes {
    secrets: Api<Secret>,
    known: Mutex<Option<InitSecret>>,
}

impl Passes {
    pub(crate) fn new(secrets: Api<Secret>) -> Self {
        Self {
            secrets,
            known: Mutex::default(),
        }
    }

    /// The pass of a sandbox. None without a secret: another operator makes the pods, or templates bring
    /// runtimes of their own.
    async fn of(&self, sandbox: &Sandbox) -> Result<Option<InitPass>, InsideError> {
        let known = self.known.lock().clone();
        let secret = match known {
            Some(known) => Some(known),
            None => self.read().await?,
        };
        let uid = sandbox.metadata.uid.as_deref().unwrap_or_default();
        Ok(secret.map(|secret| secret.pass(uid)))
    }

    async fn read(&self) -> Result<Option<InitSecret>, InsideError> {
        let found = self.secrets.get_opt(SECRET_NAME).await.map_err(|error| {
            InsideError::Unreachable(format!("cannot read the Secret {SECRET_NAME}: {error}"))
        })?;
        let data = found.and_then(|secret| secret.data);
        let entry = data.as_ref().and_then(|data| data.get(SECRET_KEY));
        let secret = entry.and_then(|entry| InitSecret::from_slice(&entry.0));
        self.known.lock().clone_from(&secret);
        Ok(secret)
    }
}

impl Sandboxes {
    /// Gives the daemon of a claimed sandbox its settings, which it may have already.
    pub(crate) async fn initialize_again(&self, sandbox: &Sandbox) -> Result<(), InsideError> {
        match (self.address(sandbox), record::access_token(sandbox)) {
            (Some(address), Some(_)) => {
                let settings = InitRequest::of(sandbox).unwrap_or_default();
                self.initialize(sandbox, address, settings).await
            }
            _ => Ok(()),
        }
    }

    /// Gives the daemon of a sandbox these settings.
    pub(crate) async fn initialize(
        &self,
        sandbox: &Sandbox,
        address: IpAddr,
        settings: InitRequest,
    ) -> Result<(), InsideError> {
        let pass = self.passes.of(sandbox).await?;
        match send(address, &settings, pass.as_ref()).await {
            Err(NotTaken::Pass) => {}
            Err(NotTaken::Other(error)) => return Err(error),
            Ok(()) => return Ok(()),
        }
        // The secret may be another one now.
        *self.passes.known.lock() = None;
        let pass = self.passes.of(sandbox).await?;
        match send(address, &settings, pass.as_ref()).await {
            Err(NotTaken::Pass) => Err(InsideError::Refused(format!(
                "its pod was made with another pass: is the Secret {SECRET_NAME} in kubernetes.namespace that of \
                 the operator?"
            ))),
            Err(NotTaken::Other(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }
}

/// Why a daemon has not taken its settings.
enum NotTaken {
    /// It wants another pass.
    Pass,
    Other(InsideError),
}

/// Gives the daemon at this address its settings. One that has them already takes them again.
///
/// # Errors
/// When it does not answer, has another token, or wants another pass.
async fn send(
    address: IpAddr,
    settings: &InitRequest,
    pass: Option<&InitPass>,
) -> Result<(), NotTaken> {
    let mut client = EnvdClient::at(SocketAddr::new(address, ENVD_PORT));
    if let Some(pass) = pass {
        client = client.with_pass(pass);
    }
    let refused = |text: String| NotTaken::Other(InsideError::Refused(text));
    if !settings.former_token.is_empty() {
        // The daemon of a clone has the token of its source until it takes its own.
        client = client
            .with_token_text(&settings.former_token)
            .map_err(|error| refused(error.to_string()))?;
    }
    let request = DaemonSettings::for_pod(settings.env_vars.clone(), &settings.access_token)
        .map_err(|error| refused(error.to_string()))?;
    let mut pause = PAUSE;
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let failed = match tokio::time::timeout(ATTEMPT, client.init(&request)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(ClientError::Refused { status, .. })) if status.as_u16() == NO_PASS => {
                return Err(NotTaken::Pass);
            }
            Ok(Err(error @ ClientError::Refused { .. })) => return Err(refused(error.to_string())),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        if tokio::time::Instant::now() + pause > until {
            return Err(NotTaken::Other(InsideError::Unreachable(failed)));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(ATTEMPT);
    }
}
