//! Pools, under gVisor.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Context;
use http::Method;
use serde_json::{Value, json};

use crate::api::{Api, Sandbox, asked, millis};
use crate::machine::memory;
use crate::measure::crowd;
use crate::report::{Promise, Report, Row, Unit};
use crate::server::Server;
use crate::stats::Samples;

/// The name of the entry.
const NAME: &str = "warm";
/// Pool size for single claims.
const SMALL: usize = 4;
/// The number of single claims.
const CLAIMS: usize = 100;
/// Pool size for parallel claims, if the memory holds twice as many, and the number of clients.
const LARGE: usize = 100;
const CLIENTS: usize = 16;
/// The estimated memory of a member, and the memory left to the machine, in MiB.
const EACH: f64 = 48.0;
const SPARE: f64 = 2048.0;
/// Pool size for the refill.
const REFILL: usize = 20;
/// Pool size for claims of parked members.
const PARKED: usize = 8;
/// Longer than ready members run before they are frozen.
const SETTLED: Duration = Duration::from_secs(15);
/// How long idle members are observed.
const WATCHED: Duration = Duration::from_secs(30);
/// The timeout for filling a pool.
const FILL_TIMEOUT: Duration = Duration::from_secs(300);

/// The note about this group in BENCHMARKS.md.
pub(crate) const NOTE: &str = "**pools**: a catalogue entry with the image of `base`. Its \
members have less memory and processor time than claimed sandboxes, so a claim raises both; there \
is no `warmupCmd` and no `startupCmd`. A claim: from the request to its 201, with a full pool and \
no other request. Compared with a create of `base`. Parked members: their `warmupCmd` starts a web \
server in Python, which the create does not. Claims per second: all members, while the pool \
refills. Refill: from the end of all members until as many new ones are ready. Compared with as \
many creates, one after another.";

/// Runs the group.
pub(crate) async fn measure(server: &Server, report: &mut Report) -> anyhow::Result<()> {
    let api = Api::of(server)?;
    let outcome = pools(server, &api, report).await;
    put(&api, json!([])).await?;
    api.clear().await?;
    outcome
}

async fn pools(server: &Server, api: &Api, report: &mut Report) -> anyhow::Result<()> {
    fill(api, SMALL).await?;
    let (mut claims, mut colds) = <(Samples, Samples)>::default();
    for round in 0..CLAIMS {
        let claimed = claim(api, NAME).await?;
        claims.push(claimed.took);
        api.kill(&claimed).await?;
        if round % 5 == 0 {
            let cold = api.create("runsc").await?;
            colds.push(cold.took);
            api.kill(&cold).await?;
        }
        full(api, SMALL).await?;
    }
    let row = Row::new("claim from a pool (runsc)", Unit::Millis, claims);
    report.add(
        row.beside("create", colds.clone())
            .promised(Promise::AtMost(5.0)),
    );
    parked(api, &colds, report).await?;
    refill(server, api, &colds, report).await?;
    burst(api, report).await
}

/// Claims parked members, which wake. Members that take their place are in memory, and are claimed first.
async fn parked(api: &Api, colds: &Samples, report: &mut Report) -> anyhow::Result<()> {
    let more = json!({"hot": 0, "warmupCmd": "python3,-m http.server 8888", "probePort": 8888});
    fill_with(api, PARKED, more).await?;
    until(api, "parked", |pool| pool["parked"] == json!(PARKED)).await?;
    let mut parked: HashSet<String> = members(api, NAME).await?.into_iter().collect();
    let mut claims = Samples::default();
    while !parked.is_empty() {
        let claimed = claim(api, NAME).await?;
        if parked.remove(claimed.id.as_str()) {
            claims.push(claimed.took);
        }
        api.kill(&claimed).await?;
    }
    let row = Row::new(
        "claim of a parked member with a web server (runsc)",
        Unit::Millis,
        claims,
    );
    report.add(row.beside("create without one", colds.clone()));
    put(api, json!([])).await
}

async fn refill(
    server: &Server,
    api: &Api,
    colds: &Samples,
    report: &mut Report,
) -> anyhow::Result<()> {
    fill(api, REFILL).await?;
    let what = "a waiting member (runsc)";
    let promised = Promised {
        processor: 1.0,
        memory: None,
    };
    idle(api, NAME, what, &promised, report).await?;
    let what = "server memory with waiting members";
    report.add(Row::new(what, Unit::Mib, Samples::one(server.memory()?)));
    let begun = Instant::now();
    let path = format!("/api/v1/pool/{NAME}");
    api.call(Method::DELETE, &path, Value::Null).await?;
    full(api, REFILL).await?;
    let took = Samples::one(millis(begun.elapsed()));
    let one_by_one = Samples::one(colds.median() * REFILL as f64);
    let row = Row::new(
        format!("pool refill, {REFILL} members (runsc)"),
        Unit::Millis,
        took,
    );
    report.add(row.beside(format!("{REFILL} creates, one after another"), one_by_one));
    Ok(())
}

/// The targets of a waiting member.
pub(super) struct Promised {
    /// Milliseconds of processor time per minute.
    pub(super) processor: f64,
    /// MiB.
    pub(super) memory: Option<f64>,
}

/// The cost of waiting members.
pub(super) async fn idle(
    api: &Api,
    name: &str,
    what: &str,
    promised: &Promised,
    report: &mut Report,
) -> anyhow::Result<()> {
    let members = members(api, name).await?;
    let ids: HashSet<&str> = members.iter().map(String::as_str).collect();
    // Ready members run for a while before they are frozen.
    tokio::time::sleep(SETTLED).await;
    let processes = crowd::processes(&ids)?;
    let before = crowd::ticks(&processes);
    let begun = Instant::now();
    tokio::time::sleep(WATCHED).await;
    let spent = (crowd::ticks(&processes) - before) / 100.0;
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    let each = spent * 1e3 / minutes / ids.len() as f64;
    let row = Row::new(
        format!("processor time per minute of {what}"),
        Unit::Millis,
        Samples::one(each),
    );
    report.add(row.promised(Promise::AtMost(promised.processor)));
    let proportional: f64 = processes.iter().map(|pid| crowd::proportional(*pid)).sum();
    let row = Row::new(
        format!("memory of {what} (PSS)"),
        Unit::Mib,
        Samples::one(proportional / ids.len() as f64),
    );
    report.add(match promised.memory {
        Some(most) => row.promised(Promise::AtMost(most)),
        None => row,
    });
    Ok(())
}

/// Empties a pool as fast as possible.
async fn burst(api: &Api, report: &mut Report) -> anyhow::Result<()> {
    let room = (memory("MemAvailable") - SPARE) / EACH / 2.0;
    let size = (0..LARGE).take_while(|n| (*n as f64) < room).count();
    fill(api, size).await?;
    let begun = Instant::now();
    let clients = (0..CLIENTS).map(|client| {
        let api = api.clone();
        let claims = (client..size).step_by(CLIENTS).count();
        tokio::spawn(async move {
            let mut made = Vec::new();
            for _ in 0..claims {
                made.push(claim(&api, NAME).await?);
            }
            anyhow::Ok(made)
        })
    });
    let mut claimed: Vec<Sandbox> = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        claimed.extend(client.await??);
    }
    let rate = claimed.len() as f64 / begun.elapsed().as_secs_f64();
    let what = format!("claims per second, {CLIENTS} clients, {size} members (runsc)");
    let row = Row::new(what, Unit::PerSecond, Samples::one(rate));
    report.add(row.promised(Promise::AtLeast(150.0)));
    let times = claimed.iter().map(|sandbox| sandbox.took).collect();
    let what = format!("claim, {CLIENTS} parallel clients (runsc)");
    report.add(Row::new(what, Unit::Millis, times));
    put(api, json!([])).await?;
    for sandbox in &claimed {
        api.kill(sandbox).await?;
    }
    Ok(())
}

pub(super) async fn claim(api: &Api, name: &str) -> anyhow::Result<Sandbox> {
    let body = asked(&json!(name), 1800);
    let (answer, took) = api.call(Method::POST, "/sandboxes", body).await?;
    let origin = answer["shoal"]["origin"].as_str().unwrap_or_default();
    anyhow::ensure!(origin == "pooled", "a claim got a {origin} start");
    api.sandbox(&answer, took)
}

pub(super) async fn put(api: &Api, entries: Value) -> anyhow::Result<()> {
    let body = json!({"templates": entries});
    api.call(Method::POST, "/api/v1/config/templates", body)
        .await?;
    Ok(())
}

/// Configures a pool of this size and waits until it is full.
async fn fill(api: &Api, size: usize) -> anyhow::Result<()> {
    fill_with(api, size, json!({})).await
}

/// As [`fill`], with `more` fields of the pool.
async fn fill_with(api: &Api, size: usize, more: Value) -> anyhow::Result<()> {
    let (base, _) = api
        .call(Method::GET, "/api/v1/templates/base", Value::Null)
        .await?;
    let image = base["data"]["image"].as_str().context("no image")?;
    let mut entry = json!({
        "name": NAME, "image": image, "description": "a benchmark pool",
        "runtime": "runsc",
        "resources": {"cpuLimit": "2", "memoryLimit": "1Gi"},
        "pool": {"size": size, "resources": {"cpuLimit": "200m", "memoryLimit": "128Mi"}},
    });
    if let (Some(pool), Value::Object(more)) = (entry["pool"].as_object_mut(), more) {
        pool.extend(more);
    }
    put(api, json!([entry])).await?;
    full(api, size).await
}

pub(super) async fn full(api: &Api, size: usize) -> anyhow::Result<()> {
    let is_full = |pool: &Value| pool["ready"] == json!(size) && pool["starting"] == json!(0);
    until(api, "full", is_full).await
}

async fn until(api: &Api, what: &str, there: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
    let end = Instant::now() + FILL_TIMEOUT;
    loop {
        let (pools, _) = api.call(Method::GET, "/api/v1/pool", Value::Null).await?;
        let pool = &pools["data"][0];
        if there(pool) {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < end, "the pool is not {what}: {pool}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn members(api: &Api, name: &str) -> anyhow::Result<Vec<String>> {
    let path = format!("/api/v1/pool/sandbox/{name}");
    let (members, _) = api.call(Method::GET, &path, Value::Null).await?;
    let names = members["data"].as_array().into_iter().flatten();
    Ok(names
        .filter_map(|member| member["name"].as_str().map(str::to_owned))
        .collect())
}
