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

/// The length of a turn, and the number of turns.
const SECONDS: u32 = 2;
const ROUNDS: usize = 5;

/// The requested path: the daemon's health check, the fastest endpoint in a sandbox.
const PATH: &str = "/health";

/// Loads the gateway in turns with nginx's proxy to `sandbox` on port `nginx`.
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
            .beside("nginx's proxy", nginx)
            .promised(Promise::RatioAtLeast(0.9)),
    );
    report.add(Row::new(&what, Unit::PerSecond, ours).beside("no proxy", direct));
    let [ours, bare] = slowest;
    report.add(
        Row::new(
            format!("gateway, p99 latency ({runtime})"),
            Unit::Millis,
            ours,
        )
        .beside("nginx's proxy", bare),
    );
    first_byte(&gateway, &proxy, &headers, runtime, report).await
}

/// One request at a time on a kept-alive connection.
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
    report.add(Row::new(what, Unit::Millis, ours).beside("nginx's proxy", bare));
    Ok(())
}

struct Load {
    /// Responses per second.
    rate: f64,
    /// The 99th percentile of the latency, in milliseconds.
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
            .with_context(|| format!("no {key} in the output of wrk: {said}"))
    };
    Ok(Load {
        rate: after("Requests/sec:")?.parse()?,
        p99: duration(&after("99%")?).with_context(|| said.clone().into_owned())?,
    })
}

/// Parses a duration of `wrk`, such as `12.3ms`, to milliseconds.
fn duration(text: &str) -> Option<f64> {
    for (unit, factor) in [("us", 1e-3), ("ms", 1.0), ("s", 1e3)] {
        if let Some(number) = text.strip_suffix(unit) {
            return Some(number.parse::<f64>().ok()? * factor);
        }
    }
    None
}

/// The note about this group in BENCHMARKS.md.
pub(crate) const NOTE: &str = "**gateway**: `wrk` with one thread and 50 kept-alive connections \
requests the daemon's `GET /health`, the fastest endpoint in a sandbox, so that the proxy's share \
is largest. nginx (one worker per core, kept-alive upstream connections, no buffering, no log, \
forwarding headers set) proxies to the address that the gateway connects to. Load generator, \
proxy and sandbox share the machine's cores.";

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
