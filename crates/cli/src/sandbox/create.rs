//! `shoal sandbox create`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::find::NAME_LABEL;
use crate::template::with_near;
use crate::{output, parse, progress};

/// The label that names the OCI runtime.
const RUNTIME_LABEL: &str = "shoal/runtime";

/// The default template.
const TEMPLATE: &str = "base";

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal sandbox create
  shoal sandbox create python --timeout 1h --name box --label who=ci
  shoal sandbox create --cpu 2 --memory 2g --no-internet --allow-out 203.0.113.0/24")]
pub(crate) struct CreateArgs {
    /// The template [default: base].
    #[arg(value_name = "TEMPLATE", conflicts_with = "template")]
    name_of_template: Option<String>,
    /// The template, as an option.
    #[arg(long, short, value_name = "NAME")]
    template: Option<String>,
    #[command(flatten)]
    options: Options,
}

/// The options of a new sandbox.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How long the sandbox lives: 90s, 5m, 1h30m.
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = parse::duration)]
    timeout: Duration,
    /// A name for use in other commands; unique in the team.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A variable in the environment of every process; repeatable.
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = parse::pair)]
    env: Vec<(String, String)>,
    /// A label, for use with `ls` and `kill`; repeatable.
    #[arg(
        long,
        short,
        visible_alias = "label",
        visible_short_alias = 'l',
        value_name = "NAME=VALUE",
        value_parser = parse::pair
    )]
    meta: Vec<(String, String)>,
    /// Processors: 2, 0.5, 500m [default: the template's].
    #[arg(long, value_name = "NUMBER", value_parser = parse::milli_cpu)]
    cpu: Option<u32>,
    /// Memory: 512M, 2G [default: the template's].
    #[arg(long, value_name = "SIZE", value_parser = parse::mebibytes)]
    memory: Option<u32>,
    /// The OCI runtime: runsc (gVisor) or runc [default: the template's].
    #[arg(long, value_name = "NAME")]
    runtime: Option<String>,
    /// Disable internet access.
    #[arg(long)]
    no_internet: bool,
    /// An allowed address or range, despite denied ones; repeatable.
    #[arg(long, value_name = "RANGE")]
    allow_out: Vec<String>,
    /// A denied address or range; repeatable.
    #[arg(long, value_name = "RANGE")]
    deny_out: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct CreatedSandbox {
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
        let timeout = self.options.timeout;
        let template = self.name_of_template.or(self.template);
        let template = template.as_deref().unwrap_or(TEMPLATE);
        let answer = make(server, template, self.options).await?;
        if json {
            return output::json(&answer);
        }
        let made = read(answer)?;
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
}

/// Creates a sandbox and returns its id.
pub(super) async fn id_of_new(
    server: &Connection,
    template: &str,
    options: Options,
) -> Result<String, Failure> {
    Ok(read(make(server, template, options).await?)?.id)
}

async fn make(server: &Connection, template: &str, options: Options) -> Result<Value, Failure> {
    let spinner = progress::spinner("creating a sandbox");
    let body = options.body(template);
    let made = server.call(Method::POST, "/v2/sandboxes", Some(body)).await;
    spinner.finish_and_clear();
    match made {
        Err(failure) if failure.kind() == Kind::NotFound => {
            Err(no_template(server, template, failure).await)
        }
        made => made,
    }
}

fn read(answer: Value) -> Result<CreatedSandbox, Failure> {
    serde_json::from_value(answer)
        .map_err(|error| Failure::new(Kind::Server, format!("unexpected answer: {error}")))
}

/// Adds a similar template name, or how to make a template of an image.
async fn no_template(server: &Connection, template: &str, failure: Failure) -> Failure {
    let failure = with_near(server, template, failure).await;
    // A tag of a template is named in the message, and needs no image.
    if !template.contains([':', '/']) || failure.to_string().contains("it has ") {
        return failure;
    }
    let name = template.rsplit('/').next().unwrap_or(template);
    let name = name.split([':', '@']).next().unwrap_or(name);
    failure.with_hint(format!(
        "Is {template} an image? `shoal image pull {template}` and `shoal template create {name} \
         --image {template}` create a template from it."
    ))
}

impl Options {
    fn body(self, template: &str) -> Value {
        let mut metadata: BTreeMap<String, String> = self.meta.into_iter().collect();
        let labels = [(RUNTIME_LABEL, self.runtime), (NAME_LABEL, self.name)];
        for (label, value) in labels {
            if let Some(value) = value {
                metadata.insert(label.to_owned(), value);
            }
        }
        let env: BTreeMap<String, String> = self.env.into_iter().collect();
        let mut body = json!({
            "templateID": template,
            "timeout": self.timeout.as_secs(),
            "metadata": metadata,
            "envVars": env,
            "allow_internet_access": !self.no_internet,
        });
        if let Some(milli) = self.cpu {
            body["cpuLimit"] = json!(format!("{milli}m"));
        }
        if let Some(mib) = self.memory {
            body["memoryLimit"] = json!(format!("{mib}Mi"));
        }
        if !self.allow_out.is_empty() || !self.deny_out.is_empty() {
            body["network"] = json!({"allowOut": self.allow_out, "denyOut": self.deny_out});
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: CreateArgs,
    }

    fn body(words: &[&str]) -> Value {
        let line = Line::try_parse_from([&["create"], words].concat()).unwrap();
        line.args.options.body("t")
    }

    #[test]
    fn what_is_not_said_is_the_templates() {
        assert_eq!(
            body(&[]),
            json!({"templateID": "t", "timeout": 300, "metadata": {}, "envVars": {},
                   "allow_internet_access": true})
        );
    }

    #[test]
    fn what_is_said_is_asked_for() {
        let asked = body(&[
            "--name",
            "box",
            "-l",
            "a=b",
            "--cpu",
            "0.5",
            "--memory",
            "2g",
            "--timeout",
            "1h",
            "--no-internet",
            "--allow-out",
            "203.0.113.0/24",
            "--runtime",
            "runc",
            "-e",
            "A=1",
        ]);
        assert_eq!(
            asked,
            json!({"templateID": "t", "timeout": 3600, "envVars": {"A": "1"},
                   "metadata": {"a": "b", "shoal/name": "box", "shoal/runtime": "runc"},
                   "allow_internet_access": false, "cpuLimit": "500m", "memoryLimit": "2048Mi",
                   "network": {"allowOut": ["203.0.113.0/24"], "denyOut": []}})
        );
    }

    #[test]
    fn the_template_is_said_once() {
        assert!(Line::try_parse_from(["create", "python"]).is_ok());
        assert!(Line::try_parse_from(["create", "python", "-t", "base"]).is_err());
    }
}
