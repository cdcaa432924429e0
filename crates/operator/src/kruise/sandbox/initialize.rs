//! Settings for a daemon that has none: its container has started again, or its pod is a new one.
//!
//! The settings of a claimed sandbox's daemon are in an annotation. They are sent again for each
//! container, so that a sandbox works after a resume and after a crash of its program.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use shoal_crds::kruise::names::{condition, reason};
use shoal_crds::kruise::{InitRequest, Sandbox, SandboxStatus};
use shoal_protocol::ENVD_PORT;
use shoal_protocol::client::{ClientError, EnvdClient};
use shoal_protocol::init::InitRequest as DaemonSettings;

use super::SandboxController;
use crate::cache::key;
use crate::conditions::{self, State, Truth};
use crate::kruise::Pod;

/// How long an attempt may take, and when the next one follows.
const ATTEMPT: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(5);

/// The container whose daemon has no settings yet.
pub(super) fn due<'a>(sandbox: &Sandbox, pod: &'a Pod) -> Option<&'a str> {
    InitRequest::of(sandbox)?;
    let container = pod.first_container().filter(|_| pod.is_ready())?;
    let known = sandbox.condition(condition::RUNTIME_INITIALIZED);
    let known = known.is_some_and(|known| known.status == "True" && known.message == container);
    (!known).then_some(container)
}

impl SandboxController {
    /// Sends the daemon its settings, and says in the status whether it took them. When it did not: when to
    /// try again.
    pub(super) async fn initialize(
        &self,
        sandbox: &Sandbox,
        pod: &Pod,
        container: &str,
        status: &mut SandboxStatus,
    ) -> Option<Duration> {
        let failure = self.send(sandbox, pod).await.err();
        let (truth, reason, message) = match &failure {
            // The message distinguishes this container from the next one.
            None => (Truth::True, reason::SUCCEEDED, container),
            Some(failure) => (Truth::False, reason::FAILED, failure.as_str()),
        };
        let known = sandbox.condition(condition::RUNTIME_INITIALIZED);
        if failure.is_some() && known.is_none_or(|known| known.message != message) {
            let (namespace, name) = key(sandbox);
            tracing::warn!(
                namespace,
                name,
                failure = message,
                "the runtime has no settings"
            );
        }
        let state = State::new(condition::RUNTIME_INITIALIZED, truth, reason, message);
        let (generation, now) = (sandbox.metadata.generation, jiff::Timestamp::now());
        conditions::set(&mut status.conditions, &state, generation, now);
        failure.map(|_| AGAIN)
    }

    async fn send(&self, sandbox: &Sandbox, pod: &Pod) -> Result<(), String> {
        let address: IpAddr = pod
            .status
            .pod_ip
            .parse()
            .map_err(|_| "the pod has no address".to_owned())?;
        let settings = InitRequest::of(sandbox).unwrap_or_default();
        let wrong = |error| format!("the annotation with the settings: {error}");
        // The daemon of a clone has the token of its source until it takes its own.
        let known = [&settings.former_token, &settings.access_token];
        let known = known.into_iter().find(|token| !token.is_empty());
        let mut client = EnvdClient::at(SocketAddr::new(address, ENVD_PORT))
            .with_token_text(known.map_or("", String::as_str))
            .map_err(wrong)?;
        if let Some(secret) = &self.injection.secret {
            let uid = sandbox.metadata.uid.as_deref().unwrap_or_default();
            client = client.with_pass(&secret.pass(uid));
        }
        let request = DaemonSettings::for_pod(settings.env_vars, &settings.access_token);
        let request = request.map_err(wrong)?;
        match tokio::time::timeout(ATTEMPT, client.init(&request)).await {
            Ok(Ok(_)) => Ok(()),
            // The answer is not trusted: it could be of any length, and different each time.
            Ok(Err(ClientError::Refused { status, .. })) => Err(format!(
                "the runtime refused its settings with status {status}"
            )),
            Ok(Err(error)) => Err(format!("the runtime took no settings: {error}")),
            Err(_) => Err("the runtime did not answer in time".to_owned()),
        }
    }
}
