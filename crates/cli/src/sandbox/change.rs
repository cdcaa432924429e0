//! `shoal sandbox timeout` and `network`.

use std::time::Duration;

use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::rest::explained;
use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::{output, parse};

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  shoal sandbox timeout ID 1h")]
pub(crate) struct TimeoutArgs {
    /// The sandbox, by id or name.
    #[arg(value_name = "ID")]
    id: String,
    /// How long the sandbox lives from now: 90s, 5m, 1h30m.
    #[arg(value_name = "TIME", value_parser = parse::duration)]
    time: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = "\
All rules are replaced: absent ones are cleared. Private addresses stay blocked unless the
server's settings open them.

Examples:
  shoal sandbox network ID --no-internet --allow 203.0.113.7
  shoal sandbox network ID --deny 198.51.100.0/24
  shoal sandbox network ID --clear")]
pub(crate) struct NetworkArgs {
    /// The sandbox, by id or name.
    #[arg(value_name = "ID")]
    id: String,
    /// An allowed address or range, despite denied ones; repeatable.
    #[arg(long, visible_alias = "allow-out", value_name = "RANGE")]
    allow: Vec<String>,
    /// A denied address or range; repeatable.
    #[arg(long, visible_alias = "deny-out", value_name = "RANGE")]
    deny: Vec<String>,
    /// Disable internet access, except for --allow.
    #[arg(long)]
    no_internet: bool,
    /// Remove all rules.
    #[arg(long, conflicts_with_all = ["allow", "deny", "no_internet"])]
    clear: bool,
}

impl TimeoutArgs {
    pub(crate) async fn run(self, server: &Connection) -> Result<(), Failure> {
        let id = server.sandbox_id(&self.id).await?;
        let path = format!("/sandboxes/{}/timeout", encode(&id));
        let body = json!({"timeout": self.time.as_secs()});
        explained(server, &id, server.post(&path, body).await).await?;
        output::line(&id)
    }
}

impl NetworkArgs {
    pub(crate) async fn run(self, server: &Connection, json: bool) -> Result<(), Failure> {
        let id = server.sandbox_id(&self.id).await?;
        if let Some(body) = self.body() {
            let path = format!("/sandboxes/{}/network", encode(&id));
            let replaced = server.nothing(Method::PUT, &path, body).await;
            return explained(server, &id, replaced)
                .await
                .and_then(|()| output::line(&id));
        }
        let sandbox: Value = server.sandbox(&id).await?;
        if json {
            return output::json(&sandbox["network"]);
        }
        output::fields(&rules(&sandbox))
    }

    /// The new rules; none to show the current ones.
    fn body(&self) -> Option<Value> {
        let says = self.no_internet || !self.allow.is_empty() || !self.deny.is_empty();
        if !says && !self.clear {
            return None;
        }
        let mut body = json!({"allowOut": self.allow, "denyOut": self.deny});
        if self.no_internet {
            body["allow_internet_access"] = json!(false);
        }
        Some(body)
    }
}

/// Prints the rules of a sandbox.
pub(super) fn rules(sandbox: &Value) -> [(&'static str, String); 2] {
    let list = |name: &str| {
        let ranges = sandbox["network"][name].as_array();
        let ranges = ranges.into_iter().flatten().filter_map(Value::as_str);
        ranges.collect::<Vec<_>>().join(" ")
    };
    [
        ("allowed egress", list("allowOut")),
        ("denied egress", list("denyOut")),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: NetworkArgs,
    }

    fn body(words: &[&str]) -> Option<Value> {
        let line = Line::try_parse_from([&["network", "i1"], words].concat()).unwrap();
        line.args.body()
    }

    #[test]
    fn rules_are_replaced_cleared_or_shown() {
        assert_eq!(body(&[]), None);
        assert_eq!(
            body(&["--clear"]),
            Some(json!({"allowOut": [], "denyOut": []}))
        );
        assert_eq!(
            body(&["--allow", "203.0.113.7", "--no-internet"]),
            Some(
                json!({"allowOut": ["203.0.113.7"], "denyOut": [], "allow_internet_access": false})
            )
        );
        assert!(Line::try_parse_from(["network", "i1", "--clear", "--deny", "1.2.3.4"]).is_err());
    }

    #[test]
    fn rules_of_both_kinds_are_shown() {
        let sandbox = json!({"network": {"allowOut": ["1.2.3.4/32", "5.6.7.8/32"]}});
        let shown = rules(&sandbox).map(|(_, text)| text);
        assert_eq!(shown, ["1.2.3.4/32 5.6.7.8/32", ""]);
    }
}
