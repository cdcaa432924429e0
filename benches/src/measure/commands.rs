//! Commands on a running sandbox.

use crate::api::{Api, Sandbox, run};
use crate::bare::Bare;
use crate::report::{Promise, Report, Row, Unit};
use crate::server::Server;
use crate::stats::Samples;

/// Runs `true` in turns with the runtime's `exec`.
pub(crate) async fn measure(
    server: &Server,
    runtime: &str,
    promise: f64,
    plain: &Sandbox,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let api = Api::of(server)?;
    let sandbox = api.create(runtime).await?;
    let envd = sandbox.envd()?;
    let mut bare = Bare::like(server, runtime, &sandbox, plain)?.without_user_namespace();
    let container = bare.start().await?;
    let [mut ours, mut shell, mut plain]: [Samples; 3] = Default::default();
    let line = ["/bin/bash", "-l", "-c", "true"];
    for round in 0..=rounds {
        let times = (
            run(&envd, "true").await?,
            bare.exec(&container, &line)?,
            bare.exec(&container, &["/bin/true"])?,
        );
        // Round 0 is the warm-up.
        if round > 0 {
            ours.push(times.0);
            shell.push(times.1);
            plain.push(times.2);
        }
    }
    bare.remove(&container)?;
    api.kill(&sandbox).await?;
    let what = format!("`commands.run(\"true\")` ({runtime})");
    report.add(
        Row::new(&what, Unit::Millis, ours.clone())
            .beside(format!("`{runtime} exec … bash -l -c true`"), shell)
            .promised(Promise::Ratio(promise)),
    );
    report
        .add(Row::new(&what, Unit::Millis, ours).beside(format!("`{runtime} exec … true`"), plain));
    Ok(())
}

/// The note about this group in BENCHMARKS.md.
pub(crate) const NOTE: &str = "**commands.run**: `process.Process/Start` through the gateway on \
a kept-alive connection, as the SDKs call it (`/bin/bash -l -c true` as the template's user), \
until the end event. Compared with `exec` of the same command line and user in a bare container \
of the same bundle, and with `exec` of `/bin/true` without a shell; both from the start of the \
runtime's process to its end. With runc the container has no user namespace, because `runc exec` \
cannot enter a network namespace that was created outside it.";
