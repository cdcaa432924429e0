//! Template builds over E2B's API.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use http::Method;
use serde_json::{Value, json};

use crate::api::Api;

/// The timeout of a build.
const BUILD_TIMEOUT: Duration = Duration::from_secs(300);

/// The timeout of a builtin template's build, which downloads packages.
const BUILTIN_TIMEOUT: Duration = Duration::from_secs(1200);

/// An announced build.
pub(crate) struct Build {
    pub(crate) template: String,
    id: String,
}

impl Build {
    /// Announces a build of the template `name`.
    pub(crate) async fn announce(api: &Api, name: &str) -> anyhow::Result<Self> {
        let body = json!({"name": name});
        let (announced, _) = api.call(Method::POST, "/v3/templates", body).await?;
        let text = |key: &str| {
            let value = announced[key].as_str().map(str::to_owned);
            value.with_context(|| format!("the answer has no {key}"))
        };
        Ok(Self {
            template: text("templateID")?,
            id: text("buildID")?,
        })
    }

    /// Starts the build and polls until it ends. Returns the log.
    pub(crate) async fn run(
        &self,
        api: &Api,
        plan: Value,
        every: Duration,
    ) -> anyhow::Result<Vec<String>> {
        let Self { template, id } = self;
        let path = format!("/v2/templates/{template}/builds/{id}");
        api.call(Method::POST, &path, plan).await?;
        let begun = Instant::now();
        let path = format!("/templates/{template}/builds/{id}/status?logsOffset=0");
        loop {
            let (status, _) = api.call(Method::GET, &path, Value::Null).await?;
            let lines = status["logs"].as_array().into_iter().flatten();
            let said: Vec<String> = lines
                .filter_map(|l| l.as_str().map(str::to_owned))
                .collect();
            match status["status"].as_str() {
                Some("ready") => return Ok(said),
                Some("error") => anyhow::bail!("the build failed: {said:?}"),
                _ => ensure!(
                    begun.elapsed() < BUILD_TIMEOUT,
                    "the build timed out: {said:?}"
                ),
            }
            tokio::time::sleep(every).await;
        }
    }
}

/// Builds a builtin template if it is missing, and waits until it is ready.
pub(crate) async fn built(api: &Api, name: &str) -> anyhow::Result<()> {
    let path = format!("/api/v1/templates/{name}/build");
    let begun = Instant::now();
    // An existing template may have an older daemon; cached steps do not run again.
    api.call(Method::POST, &path, json!({"force": false}))
        .await?;
    let path = format!("/templates/{name}");
    loop {
        let (template, _) = api.call(Method::GET, &path, Value::Null).await?;
        match template["builds"][0]["status"].as_str() {
            Some("ready") => return Ok(()),
            Some("error") => anyhow::bail!("the build of {name} failed"),
            status => ensure!(
                begun.elapsed() < BUILTIN_TIMEOUT,
                "{name} is still {status:?}"
            ),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
