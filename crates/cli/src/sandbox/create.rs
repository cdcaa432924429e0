//! `shoal sandbox create`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::template::with_near;
use crate::{output, parse, progress};

/// The label that names the OCI runtime.
const RUNTIME_LABEL: &str = "shoal/runtime";

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// What it starts from.
    #[arg(long, short, default_value = "base", value_name = "NAME")]
    template: String,
    /// How long it lives.
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = parse::duration)]
    timeout: Duration,
    /// A variable in the environment of every process; as often as needed.
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = parse::pair)]
    env: Vec<(String, String)>,
    /// A label, by which `ls` finds it; as often as needed.
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = parse::pair)]
    meta: Vec<(String, String)>,
    /// The OCI runtime: runsc (gVisor) or runc [default: the template's].
    #[arg(long, value_name = "NAME")]
    runtime: Option<String>,
    /// Without a way to the internet.
    #[arg(long)]
    no_internet: bool,
}

#[derive(Debug, Deserialize)]
struct Made {
    #[serde(rename = "sandboxID")]
    id: String,
    #[serde(default)]
    shoal: Option<Ran>,
}

#[derive(Debug, Deserialize)]
struct Ran {
    runtime: String,
    #[serde(default)]
    phases: BTreeMap<String, f64>,
}

impl CreateArgs {
    pub(crate) async fn run(self, server: &Connection, json: bool) -> Result<(), Failure> {
        let spinner = progress::spinner("making a sandbox");
        let timeout = self.timeout;
        let template = self.template.clone();
        let made = server
            .call(Method::POST, "/v2/sandboxes", Some(self.body()))
            .await;
        spinner.finish_and_clear();
        let answer: Value = match made {
            Err(failure) if failure.kind() == Kind::NotFound => {
                return Err(with_near(server, &template, failure).await);
            }
            made => made?,
        };
        if json {
            return output::json(&answer);
        }
        let made: Made = serde_json::from_value(answer)
            .map_err(|error| Failure::new(Kind::Server, format!("a strange answer: {error}")))?;
        output::line(&made.id)?;
        if let Some(ran) = made.shoal.filter(|_| output::is_terminal()) {
            let took: f64 = ran.phases.values().sum();
            eprintln!(
                "{} in {took:.0} ms; lives for {}",
                ran.runtime,
                output::span(timeout)
            );
        }
        Ok(())
    }

    fn body(self) -> Value {
        let mut metadata: BTreeMap<String, String> = self.meta.into_iter().collect();
        if let Some(runtime) = self.runtime {
            metadata.insert(RUNTIME_LABEL.to_owned(), runtime);
        }
        let env: BTreeMap<String, String> = self.env.into_iter().collect();
        json!({
            "templateID": self.template,
            "timeout": self.timeout.as_secs(),
            "metadata": metadata,
            "envVars": env,
            "allow_internet_access": !self.no_internet,
        })
    }
}
