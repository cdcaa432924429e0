//! A pool whose members have a Python kernel that has begun, with gVisor.

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

/// What the template is called.
const TEMPLATE: &str = "bench-kernel";

/// What the entry is called: not so, for a team's own template comes before an entry.
const ENTRY: &str = "half-started";

/// How many members wait.
const SIZE: usize = 20;

/// How many are claimed at once.
const CLIENTS: usize = 4;

/// Where the packages are in the archive.
const PLACE: &str = "home/user/kernel";

/// What was measured.
pub(crate) const NOTE: &str = "**half-started kernels**: a pool of 20 over a template that has ipykernel, whose \
`warmupCmd` starts a kernel and whose `probePort` is the kernel's. The first member is warmed up, the \
others begin with its memory. Memory: the proportional set size of all processes of the members, \
divided by their number. Processor time: what the kernel's statistics say of the same processes, from \
when the members are held still. Refill: from the first of 20 claims until 20 others are ready; beside \
it 20 times one overlay and `runsc restore --detach` of what such a member begins with, in a network \
made ahead, until it returns.";

/// Measures all of it.
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
        "name": ENTRY, "template": template, "description": "a kernel that has begun",
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
    let shown = shown.context("nothing was claimed")?;
    let restored = restores(server, api, &shown, rounds).await?;
    report.add(
        Row::new(
            format!("refill of {SIZE} with half-started kernels, after a burst"),
            Unit::Millis,
            refilled,
        )
        .beside(format!("{SIZE} × overlay, `runsc restore`"), restored)
        .promised(Promise::Ratio(0.7)),
    );
    Ok(())
}

/// Claims as many as there are, several at once.
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

/// As many times as there are members what one restore of the bare tool takes, with the memory that
/// the pool's members begin with.
async fn restores(
    server: &Server,
    api: &Api,
    shown: &Sandbox,
    rounds: usize,
) -> anyhow::Result<Samples> {
    let plain = api.create("runsc").await?;
    // Of the first member: nothing was saved since.
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
    // An entry of the catalogue is everybody's, and so is what it stands on.
    let path = format!("/v2/templates/{template}");
    let public = json!({"public": true});
    api.call(Method::PATCH, &path, public).await?;
    Ok(template)
}
