//! Requests through the gateway.

use std::time::Instant;

use anyhow::{Context, ensure};
use http::Method;
use tokio::process::Command;

use crate::api::{Sandbox, millis};
use crate::http::Client;
use crate::report::{Promise, Report, Row, Unit};
use crate::server::Server;
use crate::stats::Samples;

/// How long one turn lasts, and how many there are.
const SECONDS: u32 = 2;
const ROUNDS: usize = 5;

/// What is asked for: the daemon's sign of life, the fastest server there is in a sandbox.
const PATH: &str = "/health";

/// Loads the gateway in turns with nginx's proxy on the port `nginx`, which leads to `sandbox`.
pub(crate) async fn measure(
    server: &Server,
    runtime: &str,
    sandbox: &Sandbox,
    nginx: u16,
    report: &mut Report,
) -> anyhow::Result<()> {
    let port = shoal_protocol::ENVD_PORT;
    let headers = sandbox.headers(port);
    let gateway = format!("{}{PATH}", server.url());
    let proxy = format!("http://127.0.0.1:{nginx}{PATH}");
    let direct = format!("http://{}:{port}{PATH}", server.address(&sandbox.id)?);
    let mut rates: [Samples; 3] = Default::default();
    let mut slowest: [Samples; 2] = Default::default();
    for round in 0..=ROUNDS {
        for (way, url) in [&gateway, &proxy, &direct].into_iter().enumerate() {
            let load = load(url, &headers).await?;
            if round > 0 {
                rates[way].push(load.rate);
                if let Some(slowest) = slowest.get_mut(way) {
                    slowest.push(load.p99);
                }
            }
        }
    }
    let [ours, nginx, direct] = rates;
    let what = format!("gateway, 50 connections ({runtime})");
    report.add(
        Row::new(&what, Unit::PerSecond, ours.clone())
            .beside("nginx's proxy to the same", nginx)
            .promised(Promise::RatioAtLeast(0.9)),
    );
    report.add(Row::new(&what, Unit::PerSecond, ours).beside("the same without a proxy", direct));
    let [ours, bare] = slowest;
    report.add(
        Row::new(
            format!("its slowest of 100 requests ({runtime})"),
            Unit::Millis,
            ours,
        )
        .beside("nginx's", bare),
    );
    first_byte(&gateway, &proxy, &headers, runtime, report).await
}

/// One request at a time on a kept connection.
async fn first_byte(
    gateway: &str,
    proxy: &str,
    headers: &[(String, String)],
    runtime: &str,
    report: &mut Report,
) -> anyhow::Result<()> {
    let client = Client::new();
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let mut times: [Samples; 2] = Default::default();
    for round in 0..300 {
        for (way, url) in [gateway, proxy].into_iter().enumerate() {
            let begun = Instant::now();
            client.call(Method::GET, url, &headers, "").await?;
            if round >= 20 {
                times[way].push(millis(begun.elapsed()));
            }
        }
    }
    let [ours, bare] = times;
    let what = format!("one request through the gateway ({runtime})");
    report.add(Row::new(what, Unit::Millis, ours).beside("nginx's proxy to the same", bare));
    Ok(())
}

struct Load {
    /// Answers a second.
    rate: f64,
    /// Milliseconds that 99 of 100 requests stay below.
    p99: f64,
}

async fn load(url: &str, headers: &[(String, String)]) -> anyhow::Result<Load> {
    let mut command = Command::new("wrk");
    command.args(["-t1", "-c50", "--latency"]);
    command.arg(format!("-d{SECONDS}s"));
    for (name, value) in headers {
        command.arg("-H").arg(format!("{name}: {value}"));
    }
    let output = command.arg(url).output().await.context("wrk")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "wrk {url}: {said}");
    ensure!(!said.contains("Non-2xx"), "wrk {url}: {said}");
    let after = |key: &str| {
        let rest = said.lines().find_map(|line| line.trim().strip_prefix(key));
        rest.map(|rest| rest.trim().to_owned())
            .with_context(|| format!("wrk said no {key}: {said}"))
    };
    Ok(Load {
        rate: after("Requests/sec:")?.parse()?,
        p99: duration(&after("99%")?).with_context(|| said.clone().into_owned())?,
    })
}

/// Reads `wrk`'s `12.3ms`, in milliseconds.
fn duration(text: &str) -> Option<f64> {
    for (unit, factor) in [("us", 1e-3), ("ms", 1.0), ("s", 1e3)] {
        if let Some(number) = text.strip_suffix(unit) {
            return Some(number.parse::<f64>().ok()? * factor);
        }
    }
    None
}

/// What was measured.
pub(crate) const NOTE: &str = "**gateway**: `wrk` with one thread and 50 kept connections asks \
the daemon's `GET /health`, the fastest server there is in a sandbox, so that the proxies weigh \
most; nginx (one worker a core, kept upstream connections, no buffering, no log, the forwarding \
headers set) proxies to the same address that the gateway connects to. Load, proxy and sandbox \
share the machine's cores.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_unit() {
        assert_eq!(duration("250.00us"), Some(0.25));
        assert_eq!(duration("12.50ms"), Some(12.5));
        assert_eq!(duration("1.50s"), Some(1500.0));
        assert_eq!(duration("fast"), None);
    }
}
