//! `shoal sandbox pause`, `resume`, `fork` and `resize`.

use std::time::Duration;

use clap::Args;
use http::Method;
use serde_json::{Value, json};
use shoal_protocol::native::{ResizeSandbox, SandboxResources};

use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::{output, parse};

#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// The sandbox.
    #[arg(value_name = "ID")]
    id: String,
    /// Save files only; the sandbox boots when it resumes.
    #[arg(long)]
    files_only: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The sandbox.
    #[arg(value_name = "ID")]
    id: String,
    /// How long it lives after the resume.
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = parse::duration)]
    timeout: Duration,
    /// Discard the saved memory and boot from the files.
    #[arg(long)]
    reboot: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// The sandbox.
    #[arg(value_name = "ID")]
    id: String,
    /// The number of copies.
    #[arg(long, short = 'n', default_value_t = 1)]
    count: u32,
    /// How long each copy lives.
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = parse::duration)]
    timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct ResizeArgs {
    /// The sandbox.
    #[arg(value_name = "ID")]
    id: String,
    /// Processors: 2, 0.5, 500m.
    #[arg(long, value_name = "NUMBER", required_unless_present = "memory", value_parser = parse::milli_cpu)]
    cpu: Option<u32>,
    /// Memory: 512M, 2G; a bare number is MiB.
    #[arg(long, value_name = "SIZE", value_parser = parse::mebibytes)]
    memory: Option<u32>,
}

/// Adds a similar id when a sandbox does not exist.
pub(super) async fn explained<T>(
    server: &Connection,
    id: &str,
    answer: Result<T, Failure>,
) -> Result<T, Failure> {
    match answer {
        Err(failure) if failure.kind() == Kind::NotFound => Err(server.no_sandbox(id).await),
        answer => answer,
    }
}

impl PauseArgs {
    pub(crate) async fn run(self, server: &Connection) -> Result<(), Failure> {
        let id = server.sandbox_id(&self.id).await?;
        let path = format!("/sandboxes/{}/pause", encode(&id));
        let body = if self.files_only {
            json!({"memory": false})
        } else {
            json!({})
        };
        explained(server, &id, server.post(&path, body).await).await?;
        output::line(&id)
    }
}

impl ResumeArgs {
    pub(crate) async fn run(self, server: &Connection, json: bool) -> Result<(), Failure> {
        let id = server.sandbox_id(&self.id).await?;
        let path = format!("/v2/sandboxes/{}/connect", encode(&id));
        let body = json!({"timeout": self.timeout.as_secs(), "memory": !self.reboot});
        let answer = server.call(Method::POST, &path, Some(body)).await;
        let answer: Value = explained(server, &id, answer).await?;
        if json {
            return output::json(&answer);
        }
        output::line(&id)
    }
}

impl ForkArgs {
    pub(crate) async fn run(self, server: &Connection, json: bool) -> Result<u8, Failure> {
        let id = server.sandbox_id(&self.id).await?;
        let path = format!("/sandboxes/{}/fork", encode(&id));
        let body = json!({"count": self.count, "timeout": self.timeout.as_secs()});
        let answer = server.call(Method::POST, &path, Some(body)).await;
        let members: Vec<Value> = explained(server, &id, answer).await?;
        if json {
            output::json(&members)?;
        }
        let mut code = 0;
        for member in &members {
            if let Some(id) = member.pointer("/sandbox/sandboxID").and_then(Value::as_str) {
                if !json {
                    output::line(id)?;
                }
                continue;
            }
            let said = member.pointer("/error/message").and_then(Value::as_str);
            let failure = Failure::new(Kind::Server, said.unwrap_or("a member failed").to_owned());
            failure.tell();
            code = failure.code();
        }
        Ok(code)
    }
}

impl ResizeArgs {
    pub(crate) async fn run(self, server: &Connection, json: bool) -> Result<(), Failure> {
        let id = server.sandbox_id(&self.id).await?;
        let path = format!("/sandbox/{}/resources", encode(&id));
        let asked = ResizeSandbox {
            cpu: self.cpu.map(|milli| format!("{milli}m").into()),
            memory: self.memory.map(|mib| format!("{mib}Mi").into()),
        };
        let answer = server.native(Method::PATCH, &path, Some(&asked)).await;
        let now: SandboxResources = explained(server, &id, answer).await?;
        if json {
            return output::json(&now);
        }
        let cpu = f64::from(now.cpu_milli) / 1000.0;
        output::line(&format!("{cpu} processors, {} MiB", now.memory_mb))
    }
}
