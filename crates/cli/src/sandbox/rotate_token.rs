//! `shoal sandbox rotate-token`.

use clap::Args;
use http::Method;
use shoal_protocol::native::SandboxTokens;

use super::rest::explained;
use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct RotateTokenArgs {
    /// The sandbox.
    #[arg(value_name = "ID")]
    id: String,
}

impl RotateTokenArgs {
    pub(crate) async fn run(self, server: &Connection, json: bool) -> Result<(), Failure> {
        let path = format!("/sandbox/{}/rotate-token", encode(&self.id));
        let answer = server.native(Method::POST, &path, None::<&()>).await;
        let tokens: SandboxTokens = explained(server, &self.id, answer).await?;
        if json {
            return output::json(&tokens);
        }
        if let Some(token) = &tokens.envd_access_token {
            output::line(&format!("access token: {token}"))?;
        }
        if let Some(token) = &tokens.traffic_access_token {
            output::line(&format!("traffic token: {token}"))?;
        }
        Ok(())
    }
}
