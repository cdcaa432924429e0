//! Templates: cached builds, and creates from a built template.

use std::time::{Duration, Instant};

use anyhow::ensure;
use http::Method;
use serde_json::{Value, json};

use crate::api::{Api, Sandbox, asked, millis};
use crate::bare::Bare;
use crate::report::{Promise, Report, Row, Unit};
use crate::server::Server;
use crate::stats::Samples;
use crate::template::Build;

/// The name of the template.
const NAME: &str = "bench-built";

/// The polling interval of a build.
const AGAIN: Duration = Duration::from_millis(2);

/// The note about this group in BENCHMARKS.md.
pub(crate) const NOTE: &str = "**templates**: a template based on `base` with three `RUN` steps, \
built over E2B's API. The second build: from the request that announces it until its status is \
`ready`, polled every 2 ms. Compared with the first build, which runs the steps. A create from \
the template: from the request until the sandbox is ready, restored from its memory. Compared \
with an overlay and `runsc restore --detach` of the checkpoint of a bare container with only the \
daemon, in a network created in advance, until the command returns; and the same until the daemon \
answers.";

/// Runs the group.
pub(crate) async fn measure(
    server: &Server,
    plain: &Sandbox,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let api = Api::of(server)?;
    // A leftover of an earlier run.
    let _ = forget(&api).await;
    let outcome = templates(server, &api, plain, rounds, report).await;
    forget(&api).await?;
    outcome
}

async fn templates(
    server: &Server,
    api: &Api,
    plain: &Sandbox,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let first = Samples::one(build(api, false).await?.0);
    let mut second = Samples::default();
    for _ in 0..rounds {
        let (took, said) = build(api, true).await?;
        let ran = said.iter().filter(|line| line.starts_with("step ")).count();
        ensure!(ran == 0, "the second build ran a step: {said:?}");
        second.push(took);
    }
    report.add(
        Row::new("second build of the same steps", Unit::Millis, second)
            .beside("the first", first)
            .promised(Promise::AtMost(1000.0)),
    );
    let mut bare = Bare::like(server, "runsc", plain, plain)?;
    let container = bare.start().await?;
    let image = server.data().join("bare-image");
    bare.checkpoint(&container, &image)?;
    bare.remove(&container)?;
    let [mut created, mut restored, mut answered] = <[Samples; 3]>::default();
    for _ in 0..rounds {
        let body = asked(&json!(NAME), 600);
        let (answer, took) = api.call(Method::POST, "/sandboxes", body).await?;
        created.push(took);
        let origin = answer["shoal"]["origin"].as_str().unwrap_or_default();
        ensure!(
            origin == "restored",
            "a create did not restore, but was {origin:?}"
        );
        api.kill(&api.sandbox(&answer, took)?).await?;
        let container = bare.restore(&image).await?;
        restored.push(container.run);
        answered.push(container.answered - container.network);
        bare.remove(&container)?;
    }
    std::fs::remove_dir_all(&image)?;
    let what = "create → ready from a built template";
    report.add(
        Row::new(what, Unit::Millis, created.clone())
            .beside("overlay, `runsc restore`", restored)
            .promised(Promise::Ratio(1.2)),
    );
    report.add(
        Row::new(what, Unit::Millis, created)
            .beside("the same, until the daemon answers", answered),
    );
    Ok(())
}

/// Builds the template; returns the time in milliseconds and the log.
async fn build(api: &Api, again: bool) -> anyhow::Result<(f64, Vec<String>)> {
    let begun = Instant::now();
    let build = Build::announce(api, NAME).await?;
    let run = |line: &str| json!({"type": "RUN", "args": [line]});
    let steps = [
        "echo step 1; echo 1 > ~/one",
        "echo step 2; echo 2 > ~/two",
        "echo step 3; cat ~/one ~/two > ~/three",
    ];
    let steps: Vec<Value> = steps.into_iter().map(run).collect();
    // The cache of an earlier run must not serve the first build.
    let body = json!({"fromTemplate": "base", "steps": steps, "force": !again});
    // The first build is long: frequent polling would slow it down.
    let every = if again { AGAIN } else { AGAIN * 50 };
    let said = build.run(api, body, every).await?;
    Ok((millis(begun.elapsed()), said))
}

async fn forget(api: &Api) -> anyhow::Result<()> {
    let path = format!("/templates/{NAME}");
    api.call(Method::DELETE, &path, Value::Null).await?;
    Ok(())
}
