//! The way into a sandbox: its daemon, through the gateway.

use serde::Deserialize;
use shoal_protocol::ENVD_PORT;
use shoal_protocol::client::EnvdClient;
use shoal_protocol::headers::{SANDBOX_ID, SANDBOX_PORT};

use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};

/// The credentials of a sandbox.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Access {
    /// The sandbox.
    #[serde(rename = "sandboxID")]
    pub(crate) id: String,
    #[serde(default)]
    envd_access_token: Option<String>,
    /// The domain below which its ports have names.
    #[serde(default)]
    pub(crate) domain: Option<String>,
    state: String,
}

impl Connection {
    /// Asks about a sandbox, which may be named by its name or the beginning of its id; when there
    /// is none, says which one may have been meant.
    pub(crate) async fn sandbox<T: serde::de::DeserializeOwned>(
        &self,
        id: &str,
    ) -> Result<T, Failure> {
        let id = self.sandbox_id(id).await?;
        match self.get(&format!("/sandboxes/{}", encode(&id))).await {
            Err(failure) if failure.kind() == Kind::NotFound => Err(self.no_sandbox(&id).await),
            answer => answer,
        }
    }

    /// The daemon inside a sandbox.
    pub(crate) async fn inside(&self, id: &str, user: Option<&str>) -> Result<EnvdClient, Failure> {
        let access: Access = self.sandbox(id).await?;
        let id = access.id.as_str();
        if access.state != "running" {
            let failure = Failure::new(Kind::NotNow, format!("sandbox {id} is {}", access.state));
            return Err(failure.with_hint(format!("`shoal sandbox resume {id}` resumes it.")));
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
}
