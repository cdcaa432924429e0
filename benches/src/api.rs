//! The API, called as an SDK does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use http::Method;
use serde_json::{Value, json};
use shoal_protocol::client::{Command, EnvdClient, Output, Tcp};
use shoal_protocol::{ENVD_PORT, headers};

use crate::http::{Client, Lines};
use crate::server::Server;

/// A client with a key.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    client: Client,
    url: String,
    key: String,
}

/// A sandbox that was created.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    token: String,
    pub(crate) url: String,
    /// From the request to its answer, in milliseconds.
    pub(crate) took: f64,
    /// The server's own phases, in milliseconds.
    pub(crate) phases: Value,
}

impl Api {
    pub(crate) fn of(server: &Server) -> anyhow::Result<Self> {
        Ok(Self {
            client: Client::new(),
            url: server.url(),
            key: server.api_key()?,
        })
    }

    /// Creates a sandbox of `base`, which is ready when this returns.
    pub(crate) async fn create(&self, runtime: &str) -> anyhow::Result<Sandbox> {
        let mut body = asked(&json!("base"), 1800);
        body["metadata"] = json!({"shoal/runtime": runtime});
        let (answer, took) = self.call(Method::POST, "/sandboxes", body).await?;
        self.sandbox(&answer, took)
    }

    /// Calls a route; returns the answer and the time in milliseconds.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Value,
    ) -> anyhow::Result<(Value, f64)> {
        let headers = [
            ("x-api-key", self.key.as_str()),
            ("content-type", "application/json"),
        ];
        let url = format!("{}{path}", self.url);
        let begun = Instant::now();
        let answer = self.client.call(method, &url, &headers, body.to_string());
        let answer = answer.await?;
        let took = millis(begun.elapsed());
        let answer = if answer.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&answer)?
        };
        Ok((answer, took))
    }

    /// Posts a body, and returns the lines of the answer as they come.
    pub(crate) async fn lines(&self, path: &str, body: &Value) -> anyhow::Result<Lines> {
        let headers = [
            ("x-api-key", self.key.as_str()),
            ("content-type", "application/json"),
        ];
        let url = format!("{}{path}", self.url);
        self.client.lines(&url, &headers, body.to_string()).await
    }

    /// Writes bytes to a path of the API; returns the time in milliseconds.
    pub(crate) async fn put(&self, path: &str, bytes: Vec<u8>) -> anyhow::Result<f64> {
        let headers = [("x-api-key", self.key.as_str())];
        let url = format!("{}{path}", self.url);
        let begun = Instant::now();
        self.client.call(Method::PUT, &url, &headers, bytes).await?;
        Ok(millis(begun.elapsed()))
    }

    /// Reads the bytes at a path of the API.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<bytes::Bytes> {
        let headers = [("x-api-key", self.key.as_str())];
        let url = format!("{}{path}", self.url);
        self.client.call(Method::GET, &url, &headers, "").await
    }

    /// The sandbox in a create's answer.
    pub(crate) fn sandbox(&self, answer: &Value, took: f64) -> anyhow::Result<Sandbox> {
        let text = |key: &str| {
            let value = answer[key].as_str().map(str::to_owned);
            value.with_context(|| format!("the answer has no {key}"))
        };
        Ok(Sandbox {
            id: text("sandboxID")?,
            token: text("envdAccessToken")?,
            url: self.url.clone(),
            took,
            phases: answer["shoal"]["phases"].clone(),
        })
    }

    /// Kills all sandboxes, such as leftovers of a failed measurement.
    pub(crate) async fn clear(&self) -> anyhow::Result<()> {
        let headers = [("x-api-key", self.key.as_str())];
        let url = format!("{}/sandboxes", self.url);
        let answer = self.client.call(Method::GET, &url, &headers, "").await?;
        let answer: Value = serde_json::from_slice(&answer)?;
        for sandbox in answer.as_array().into_iter().flatten() {
            let id = sandbox["sandboxID"].as_str().context("no id")?;
            let url = format!("{url}/{id}");
            self.client.call(Method::DELETE, &url, &headers, "").await?;
        }
        Ok(())
    }

    /// Kills a sandbox; returns the time in milliseconds.
    pub(crate) async fn kill(&self, sandbox: &Sandbox) -> anyhow::Result<f64> {
        let url = format!("{}/sandboxes/{}", self.url, sandbox.id);
        let headers = [("x-api-key", self.key.as_str())];
        let begun = Instant::now();
        self.client.call(Method::DELETE, &url, &headers, "").await?;
        Ok(millis(begun.elapsed()))
    }
}

impl Sandbox {
    /// A client of its daemon, through the gateway.
    pub(crate) fn envd(&self) -> anyhow::Result<EnvdClient> {
        let address: std::net::SocketAddr = self.url.trim_start_matches("http://").parse()?;
        let client = EnvdClient::over(Arc::new(Tcp(address)), &address.to_string())
            .with_header(headers::SANDBOX_ID, &self.id)
            .with_header(headers::SANDBOX_PORT, &ENVD_PORT.to_string());
        Ok(client.with_token_text(&self.token)?)
    }

    /// The headers that route a request to one of its ports.
    pub(crate) fn headers(&self, port: u16) -> Vec<(String, String)> {
        vec![
            (headers::SANDBOX_ID.to_string(), self.id.clone()),
            (headers::SANDBOX_PORT.to_string(), port.to_string()),
            (headers::ACCESS_TOKEN.to_string(), self.token.clone()),
        ]
    }
}

/// The body of a create by the released SDKs.
pub(crate) fn asked(template: &Value, timeout: u32) -> Value {
    json!({
        "templateID": template, "timeout": timeout, "secure": true, "allow_internet_access": true,
        "metadata": {}, "envVars": {}, "autoPause": false,
    })
}

/// Runs a command line as `commands.run` does; returns the time in milliseconds.
pub(crate) async fn run(envd: &EnvdClient, line: &str) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let mut process = envd.start(Command::shell(line)).await?;
    let mut code = None;
    while let Some(output) = process.next().await? {
        if let Output::Exit(exit) = output {
            code = Some(exit.code);
        }
    }
    anyhow::ensure!(code == Some(0), "{line} ended with {code:?}");
    Ok(millis(begun.elapsed()))
}

/// Milliseconds.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
