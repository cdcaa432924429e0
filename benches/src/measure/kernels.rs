//! A pool whose members have a half-started Python kernel, under gVisor.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;
use http::Method;
use serde_json::{Value, json};

use crate::api::{Api, Sandbox, millis};
use crate::bare::Bare;
use crate::http::Client;
use crate::kernel::Kernel;
use crate::measure::pool;
use crate::report::{Promise, Report, Row, Unit};
use crate::server::Server;
use crate::stats::Samples;
use crate::template::Build;

/// The name of the template.
const TEMPLATE: &str = "bench-kernel";

/// The name of the entry. Different, because a team's own template takes precedence over an entry.
const ENTRY: &str = "half-started";

/// The pool size.
const SIZE: usize = 20;

/// The number of parallel clients.
const CLIENTS: usize = 4;

/// The path of the packages in the archive.
const PLACE: &str = "home/user/kernel";

/// The note about this group in BENCHMARKS.md.
pub(crate) const NOTE: &str = "**half-started kernels**: a pool of 20 based on a template with \
ipykernel. Its `warmupCmd` starts a kernel, and its `probePort` is the kernel's. The first member \
warms up; the others start from its memory. Memory: the PSS of all processes of the members, \
divided by their number. Processor time: from the kernel's statistics of the same processes, \
while the members are frozen. Refill: from the first of 20 claims until 20 others are ready. \
Compared with 20 times one overlay and `runsc restore --detach` of a member's initial memory, in \
a network created in advance, until the command returns.";

/// Runs the group.
pub(crate) async fn measure(
    server: &Server,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let api = Api::of(server)?;
    let outcome = pools(server, &api, rounds, report).await;
    pool::put(&api, json!([])).await?;
    api.clear().await?;
    outcome
}

async fn pools(
    server: &Server,
    api: &Api,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let template = build(server, api).await?;
    let entry = json!({
        "name": ENTRY, "template": template, "description": "a half-started kernel",
        "runtime": "runsc",
        "resources": {"cpuLimit": "2", "memoryLimit": "1Gi"},
        "pool": {
            "size": SIZE, "probePort": Kernel::PORT,
            "warmupCmd": format!("sh,/{PLACE}/{}", Kernel::SCRIPT),
            "resources": {"cpuLimit": "500m", "memoryLimit": "256Mi"},
        },
    });
    pool::put(api, json!([entry])).await?;
    pool::full(api, SIZE).await?;
    let what = "a waiting member with a half-started Python kernel";
    let promised = pool::Promised {
        processor: 1.0,
        memory: Some(57.0),
    };
    pool::idle(api, ENTRY, what, &promised, report).await?;
    let mut refilled = Samples::default();
    let mut shown = None;
    for _ in 0..rounds {
        let begun = Instant::now();
        let claimed = burst(api).await?;
        pool::full(api, SIZE).await?;
        refilled.push(millis(begun.elapsed()));
        for sandbox in &claimed {
            if let Some(before) = shown.replace(sandbox.clone()) {
                api.kill(&before).await?;
            }
        }
    }
    let shown = shown.context("no sandbox was claimed")?;
    let restored = restores(server, api, &shown, rounds).await?;
    report.add(
        Row::new(
            format!("pool refill after a burst, {SIZE} members with half-started kernels"),
            Unit::Millis,
            refilled,
        )
        .beside(format!("{SIZE} × overlay, `runsc restore`"), restored)
        .promised(Promise::Ratio(0.7)),
    );
    Ok(())
}

/// Claims all members with several clients.
async fn burst(api: &Api) -> anyhow::Result<Vec<Sandbox>> {
    let clients = (0..CLIENTS).map(|_| {
        let api = api.clone();
        tokio::spawn(async move {
            let mut claimed = Vec::new();
            for _ in 0..SIZE / CLIENTS {
                claimed.push(pool::claim(&api, ENTRY).await?);
            }
            anyhow::Ok(claimed)
        })
    });
    let mut claimed = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        claimed.extend(client.await??);
    }
    Ok(claimed)
}

/// The time of one bare restore of a member's initial memory, times the number of members.
async fn restores(
    server: &Server,
    api: &Api,
    shown: &Sandbox,
    rounds: usize,
) -> anyhow::Result<Samples> {
    let plain = api.create("runsc").await?;
    // The newest snapshot is the first member's.
    let (mut bare, image) = Bare::of_saved(server, shown, &plain, 0)?;
    let mut restored = Samples::default();
    for _ in 0..rounds.max(5) {
        let container = bare.restore(&image).await?;
        restored.push(container.run * SIZE as f64);
        bare.remove(&container)?;
    }
    fs::remove_dir_all(&image)?;
    api.kill(&plain).await?;
    Ok(restored)
}

/// Builds the template, and returns its id.
async fn build(server: &Server, api: &Api) -> anyhow::Result<String> {
    let (archive, hash) = Kernel::fetch(server.data())?.archive(PLACE)?;
    let build = Build::announce(api, TEMPLATE).await?;
    let template = build.template.clone();
    let path = format!("/templates/{template}/files/{hash}");
    let (link, _) = api.call(Method::GET, &path, Value::Null).await?;
    if link["present"] != json!(true) {
        let url = link["url"].as_str().context("the answer has no url")?;
        Client::new().call(Method::PUT, url, &[], archive).await?;
    }
    let plan = json!({
        "fromTemplate": "base",
        "steps": [{"type": "COPY", "args": [PLACE, format!("/{PLACE}"), "", ""], "filesHash": hash}],
    });
    build.run(api, plan, Duration::from_millis(100)).await?;
    // The template of a catalogue entry must be public, because all tenants can use the entry.
    let path = format!("/v2/templates/{template}");
    let public = json!({"public": true});
    api.call(Method::PATCH, &path, public).await?;
    Ok(template)
}
