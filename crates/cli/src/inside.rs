//! The way into a sandbox: its daemon, through the gateway.

use serde::Deserialize;
use shoal_protocol::ENVD_PORT;
use shoal_protocol::client::EnvdClient;
use shoal_protocol::headers::{SANDBOX_ID, SANDBOX_PORT};

use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::output::nearest;
use crate::sandbox::Listed;

/// What opens a sandbox.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Access {
    #[serde(default)]
    envd_access_token: Option<String>,
    /// The domain below which its ports have names.
    #[serde(default)]
    pub(crate) domain: Option<String>,
    state: String,
}

impl Connection {
    /// Asks about a sandbox; when there is none, says which one may have been meant.
    pub(crate) async fn sandbox<T: serde::de::DeserializeOwned>(
        &self,
        id: &str,
    ) -> Result<T, Failure> {
        match self.get(&format!("/sandboxes/{}", encode(id))).await {
            Err(failure) if failure.kind() == Kind::NotFound => Err(self.no_sandbox(id).await),
            answer => answer,
        }
    }

    /// The daemon inside a sandbox.
    pub(crate) async fn inside(&self, id: &str, user: Option<&str>) -> Result<EnvdClient, Failure> {
        let access: Access = self.sandbox(id).await?;
        if access.state != "running" {
            let message = format!("sandbox {id} is {}", access.state);
            return Err(Failure::new(Kind::NotNow, message));
        }
        let mut envd = EnvdClient::over(self.dial(), &self.origin.authority())
            .with_header(SANDBOX_ID, id)
            .with_header(SANDBOX_PORT, &ENVD_PORT.to_string());
        if let Some(token) = &access.envd_access_token {
            let bad = |_| Failure::new(Kind::Server, "the sandbox's token makes no sense");
            envd = envd.with_token_text(token).map_err(bad)?;
        }
        Ok(match user {
            Some(user) => envd.with_user(user),
            None => envd,
        })
    }

    /// Says that there is no such sandbox, and which one may have been meant.
    pub(crate) async fn no_sandbox(&self, id: &str) -> Failure {
        let failure = Failure::not_found(format!("there is no sandbox {id:?}"));
        let known: Vec<Listed> = self.get("/sandboxes").await.unwrap_or_default();
        match nearest(id, known.iter().map(|sandbox| sandbox.id.as_str())) {
            Some(near) => failure.with_hint(format!("Did you mean {near}?")),
            None if known.is_empty() => failure.with_hint("No sandbox runs now."),
            None => failure.with_hint("`shoal sandbox ls` shows those that run."),
        }
    }
}
