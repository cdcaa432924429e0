//! Pause, resume, snapshots, clones, forks and resizes, under gVisor.

use std::collections::HashSet;
use std::time::Instant;

use http::Method;
use serde_json::{Value, json};

use crate::api::{Api, Sandbox, asked, millis, run};
use crate::bare::Bare;
use crate::kernel::Kernel;
use crate::measure::crowd;
use crate::report::{Promise, Report, Row, Unit};
use crate::server::Server;
use crate::stats::Samples;

/// The members of a fork.
const FORKS: usize = 20;

/// The note about this group in BENCHMARKS.md.
pub(crate) const NOTE: &str = "**pause, resume, clone**: a sandbox with a running Python kernel \
(ipykernel) and another 24 MiB in memory; the table has the size of the written pages. Pause: \
from the request to its answer, when everything is synced to disk and the sandbox is being ended. \
Compared with `runsc checkpoint --leave-running` of a bare container with the same program, not \
synced, and `cp -a` of its upper directory. Resume and clone: from the request until `true` has \
run. Compared with an overlay and `runsc restore --detach` of the bare checkpoint, in a network \
created in advance, until the command returns; and the same until the daemon answers. The server \
reports the freeze of a snapshot. A fork is compared with as many clones, one after another. A \
paused sandbox: the processes in its cgroup.";

/// Runs the group.
pub(crate) async fn measure(
    server: &Server,
    plain: &Sandbox,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let api = Api::of(server)?;
    let sandbox = api.create("runsc").await?;
    let kernel = Kernel::fetch(server.data())?;
    let envd = sandbox.envd()?;
    kernel.put(&envd).await?;
    let _lives = Kernel::start(&envd).await?;
    let mut bare = Bare::like(server, "runsc", &sandbox, plain)?;
    bare.over(&kernel.lower());
    let container = bare.start().await?;
    bare.leave(&container, &["bash", "-c", &Kernel::line()])?;
    bare.exec(&container, &["bash", "-c", &Kernel::ready()])?;
    let image = server.data().join("bare-image");

    let [mut paused, mut resumed, mut checkpointed, mut on_disk] = <[Samples; 4]>::default();
    let [mut cloned, mut restored, mut answered, mut frozen] = <[Samples; 4]>::default();
    let mut pages = 0.0;
    for _ in 0..rounds {
        let (_, took) = api
            .call(Method::POST, &of(&sandbox, "pause"), json!({}))
            .await?;
        paused.push(took);
        let (written, synced) = bare.checkpoint(&container, &image)?;
        checkpointed.push(written);
        on_disk.push(synced);
        resumed.push(resume(&api, &sandbox).await?);
        let container = bare.restore(&image).await?;
        restored.push(container.run);
        answered.push(container.answered - container.network);
        bare.remove(&container)?;
        let (taken, _) = api
            .call(Method::POST, &of(&sandbox, "snapshots"), json!({}))
            .await?;
        frozen.push(taken["shoal"]["freeze"].as_f64().unwrap_or(f64::NAN));
        pages = taken["shoal"]["memoryBytes"].as_f64().unwrap_or(f64::NAN) / f64::from(1 << 20);
        cloned.push(clone(&api, &taken).await?);
        forget(&api, &taken).await?;
    }
    report_pause(report, pages, paused, checkpointed, on_disk);
    let bare_runs = [restored, answered];
    report_runs(report, [resumed, cloned.clone()], bare_runs);
    report.add(
        Row::new("freeze during a snapshot", Unit::Millis, frozen).promised(Promise::AtMost(150.0)),
    );
    fork(&api, &sandbox, cloned.median(), report).await?;
    unchanged(&api, &sandbox, report).await?;
    resting(&api, &sandbox, report).await?;
    resize(&api, &sandbox, report).await?;
    bare.remove(&container)?;
    std::fs::remove_dir_all(&image)?;
    api.kill(&sandbox).await?;
    Ok(())
}

fn report_runs(
    report: &mut Report,
    [resumed, cloned]: [Samples; 2],
    [restored, answered]: [Samples; 2],
) {
    for (what, samples) in [("resume", resumed), ("clone", cloned)] {
        let what = format!("{what} → first command");
        report.add(
            Row::new(&what, Unit::Millis, samples.clone())
                .beside("overlay, `runsc restore`", restored.clone())
                .promised(Promise::Ratio(1.2)),
        );
        report.add(
            Row::new(&what, Unit::Millis, samples)
                .beside("the same, until the daemon answers", answered.clone()),
        );
    }
}

fn report_pause(
    report: &mut Report,
    pages: f64,
    paused: Samples,
    checkpointed: Samples,
    on_disk: Samples,
) {
    let what = format!("pause, with {pages:.0} MiB of memory");
    report.add(
        Row::new(&what, Unit::Millis, paused.clone())
            .beside(
                "`runsc checkpoint`, `cp -a` of the upper directory",
                checkpointed,
            )
            .promised(Promise::Ratio(1.3)),
    );
    report.add(Row::new(what, Unit::Millis, paused).beside("the same and `sync -f`", on_disk));
}

/// The path of an action on a sandbox.
pub(super) fn of(sandbox: &Sandbox, what: &str) -> String {
    format!("/sandboxes/{}/{what}", sandbox.id)
}

/// Resumes a sandbox; returns the milliseconds until a command has run.
pub(super) async fn resume(api: &Api, sandbox: &Sandbox) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let body = json!({"timeout": 1800});
    api.call(Method::POST, &of(sandbox, "connect"), body)
        .await?;
    run(&sandbox.envd()?, "true").await?;
    Ok(millis(begun.elapsed()))
}

async fn clone(api: &Api, taken: &Value) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let body = asked(&taken["snapshotID"], 600);
    let (answer, took) = api.call(Method::POST, "/sandboxes", body).await?;
    let made = api.sandbox(&answer, took)?;
    run(&made.envd()?, "true").await?;
    let took = millis(begun.elapsed());
    api.kill(&made).await?;
    Ok(took)
}

async fn forget(api: &Api, taken: &Value) -> anyhow::Result<()> {
    let id = taken["snapshotID"].as_str().unwrap_or_default();
    let path = format!("/templates/{}", id.replace(':', "%3A"));
    api.call(Method::DELETE, &path, Value::Null).await?;
    Ok(())
}

async fn fork(api: &Api, sandbox: &Sandbox, one: f64, report: &mut Report) -> anyhow::Result<()> {
    let begun = Instant::now();
    let body = json!({"count": FORKS, "timeout": 600});
    let (members, _) = api.call(Method::POST, &of(sandbox, "fork"), body).await?;
    let members = members.as_array().into_iter().flatten();
    let made: Vec<Sandbox> = members
        .map(|member| api.sandbox(&member["sandbox"], 0.0))
        .collect::<anyhow::Result<_>>()?;
    let mut commands = tokio::task::JoinSet::new();
    for fork in &made {
        let envd = fork.envd()?;
        commands.spawn(async move { run(&envd, "true").await });
    }
    while let Some(ran) = commands.join_next().await {
        ran??;
    }
    let took = Samples::one(millis(begun.elapsed()));
    anyhow::ensure!(made.len() == FORKS, "a fork has too few members");
    for fork in &made {
        api.kill(fork).await?;
    }
    let alone = Samples::one(one * f64::from(u32::try_from(FORKS)?));
    report.add(
        Row::new(
            format!("fork into {FORKS} → first commands"),
            Unit::Millis,
            took,
        )
        .beside(format!("{FORKS} clones, one after another"), alone)
        .promised(Promise::Ratio(0.7)),
    );
    Ok(())
}

/// A snapshot of a sandbox with large files that did not change since the last one.
async fn unchanged(api: &Api, sandbox: &Sandbox, report: &mut Report) -> anyhow::Result<()> {
    let mut little = Samples::default();
    let mut much = Samples::default();
    for samples in [&mut little, &mut much] {
        for round in 0..6 {
            let (taken, took) = api
                .call(Method::POST, &of(sandbox, "snapshots"), json!({}))
                .await?;
            // The first after a write flushes it.
            if round > 0 {
                samples.push(took);
            }
            forget(api, &taken).await?;
        }
        let write = "head -c 1073741824 /dev/urandom > big; sync";
        run(&sandbox.envd()?, write).await?;
    }
    report.add(
        Row::new("snapshot with 1 GiB of unchanged files", Unit::Millis, much)
            .beside("the same with an almost empty disk", little)
            .promised(Promise::Ratio(1.3)),
    );
    Ok(())
}

/// The memory of a paused sandbox, which has no processes.
async fn resting(api: &Api, sandbox: &Sandbox, report: &mut Report) -> anyhow::Result<()> {
    api.call(Method::POST, &of(sandbox, "pause"), json!({}))
        .await?;
    let processes = crowd::processes(&HashSet::from([sandbox.id.as_str()]))?;
    let resident = processes
        .into_iter()
        .map(crowd::proportional)
        .fold(0.0, |a, b| a + b);
    report.add(
        Row::new(
            "resident memory of a paused sandbox",
            Unit::Mib,
            Samples::one(resident),
        )
        .promised(Promise::AtMost(0.0)),
    );
    resume(api, sandbox).await?;
    Ok(())
}

async fn resize(api: &Api, sandbox: &Sandbox, report: &mut Report) -> anyhow::Result<()> {
    let mut took = Samples::default();
    let path = format!("/api/v1/sandbox/{}/resources", sandbox.id);
    for cpu in ["1", "2"].iter().cycle().take(40) {
        let body = json!({"cpu": cpu});
        took.push(api.call(Method::PATCH, &path, body).await?.1);
    }
    report.add(Row::new("resize", Unit::Millis, took).promised(Promise::AtMost(20.0)));
    Ok(())
}
