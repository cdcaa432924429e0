//! Pause and resume of a sandbox with much memory, under gVisor.

use anyhow::Context;
use http::Method;
use serde_json::json;
use shoal_protocol::client::Command;

use crate::api::{Api, Sandbox, run};
use crate::bare::Bare;
use crate::measure::rest::{of, resume};
use crate::report::{Promise, Report, Row, Unit};
use crate::server::Server;
use crate::stats::Samples;

/// The note about this group in BENCHMARKS.md.
pub(crate) const NOTE: &str = "**1 GiB of memory**: a sandbox whose program has written 1 GiB of \
random bytes. Pause: from the request to its answer, when everything is synced to disk. Compared \
with `runsc checkpoint --leave-running` of a bare container with the same program, `cp -a` of its \
upper directory, and `sync -f`. Resume: from the request until `true` has run, once right after the \
pause, when the former run is still ending and the memory is on the disk only, and once a second \
later. Compared with an overlay and \
`runsc restore --detach` of the bare checkpoint, in a network created in advance, until the daemon \
answers.";

/// The file that says that the memory is written.
const READY: &str = "/tmp/large-ready";

/// Holds 1 GiB.
const PROGRAM: &str = "open F, '/dev/urandom'; read F, $x, 1 << 20; $y = $x x 1024; \
                       open R, '>/tmp/large-ready'; close R; sleep 99999";

/// The time in which a paused sandbox's processes have surely ended.
const ENDED: std::time::Duration = std::time::Duration::from_secs(1);

/// Runs the group.
pub(crate) async fn measure(
    server: &Server,
    plain: &Sandbox,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let api = Api::of(server)?;
    let sandbox = create(&api).await?;
    let envd = sandbox.envd()?;
    let _lives = envd
        .start(Command::shell(&format!("exec perl -e \"{}\"", escaped())))
        .await?;
    let ready = format!("for i in $(seq 600); do [ -e {READY} ] && exit; sleep 0.1; done; exit 1");
    run(&envd, &ready).await?;
    let mut bare = Bare::like(server, "runsc", &sandbox, plain)?;
    let container = bare.start().await?;
    bare.leave(&container, &["perl", "-e", PROGRAM])?;
    bare.exec(&container, &["bash", "-c", &ready])?;
    let image = server.data().join("bare-image");

    let [
        mut paused,
        mut on_disk,
        mut at_once,
        mut later,
        mut answered,
    ] = <[Samples; 5]>::default();
    for _ in 0..rounds {
        for wait in [false, true] {
            let path = of(&sandbox, "pause");
            paused.push(api.call(Method::POST, &path, json!({})).await?.1);
            let resumed = if wait {
                tokio::time::sleep(ENDED).await;
                &mut later
            } else {
                &mut at_once
            };
            resumed.push(resume(&api, &sandbox).await?);
        }
        let (_, synced) = bare.checkpoint(&container, &image)?;
        on_disk.push(synced);
        let restored = bare.restore(&image).await?;
        answered.push(restored.answered - restored.network);
        bare.remove(&restored)?;
    }
    let row = |what: &str, samples| Row::new(what, Unit::Millis, samples);
    report.add(
        row("pause of 1 GiB", paused)
            .beside(
                "`runsc checkpoint`, `cp -a` of the upper directory, `sync -f`",
                on_disk,
            )
            .promised(Promise::Ratio(1.2)),
    );
    let beside = "overlay, `runsc restore`, until the daemon answers";
    report.add(
        row("resume of 1 GiB, a second after the pause", later)
            .beside(beside, answered.clone())
            .promised(Promise::AtMost(300.0)),
    );
    report.add(row("resume of 1 GiB, right after the pause", at_once).beside(beside, answered));
    bare.remove(&container)?;
    std::fs::remove_dir_all(&image)?;
    api.kill(&sandbox).await?;
    Ok(())
}

/// The program for a command line in double quotes.
fn escaped() -> String {
    PROGRAM.replace('$', "\\$")
}

/// A sandbox with room for the memory, which only the native API can ask for.
async fn create(api: &Api) -> anyhow::Result<Sandbox> {
    let body = json!({"template": "base", "memory": "2Gi", "cpu": "2", "timeout": 1800});
    let (made, _) = api.call(Method::POST, "/api/v1/sandbox", body).await?;
    let id = made["data"]["id"].as_str().context("no id")?;
    let path = format!("/sandboxes/{id}/connect");
    let (answer, took) = api
        .call(Method::POST, &path, json!({"timeout": 1800}))
        .await?;
    api.sandbox(&answer, took)
}
