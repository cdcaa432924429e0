//! Create and kill, one at a time.

use std::time::Duration;

use crate::api::{Api, Sandbox};
use crate::bare::Bare;
use crate::report::{Promise, Report, Row, Unit};
use crate::server::Server;
use crate::stats::Samples;

/// Time for the server's deferred work (the next network slot), so that it does not slow the bare
/// runtime down.
const SETTLED: Duration = Duration::from_millis(350);

/// The phases that the server reports.
const PHASES: [&str; 3] = ["rootfs", "start", "ready"];

/// Creates in turns with the bare runtime, over the layers of `plain`.
pub(crate) async fn measure(
    server: &Server,
    runtime: &str,
    promise: f64,
    plain: &Sandbox,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let api = Api::of(server)?;
    // Warm-up, and the source of the bundle.
    let shown = api.create(runtime).await?;
    let mut bare = Bare::like(server, runtime, &shown, plain)?;
    api.kill(&shown).await?;
    let first = bare.start().await?;
    bare.remove(&first)?;
    let [
        mut created,
        mut killed,
        mut whole,
        mut run,
        mut answered,
        mut removed,
    ]: [Samples; 6] = Default::default();
    let mut phases: [Samples; 3] = Default::default();
    for _ in 0..rounds {
        let sandbox = api.create(runtime).await?;
        created.push(sandbox.took);
        for (samples, phase) in phases.iter_mut().zip(PHASES) {
            samples.push(sandbox.phases[phase].as_f64().unwrap_or(f64::NAN));
        }
        killed.push(api.kill(&sandbox).await?);
        tokio::time::sleep(SETTLED).await;
        let container = bare.start().await?;
        whole.push(container.network + container.run);
        run.push(container.run);
        answered.push(container.answered);
        removed.push(bare.remove(&container)?);
    }
    let what = format!("create → ready ({runtime})");
    report.add(
        Row::new(&what, Unit::Millis, created.clone())
            .beside(format!("network, overlay, `{runtime} run`"), whole)
            .promised(Promise::Ratio(promise)),
    );
    report.add(
        Row::new(&what, Unit::Millis, created.clone())
            .beside("the same, network created in advance", run),
    );
    report.add(
        Row::new(&what, Unit::Millis, created)
            .beside("the same with network, until the daemon answers", answered),
    );
    for (samples, phase) in phases.into_iter().zip(PHASES) {
        let what = format!("create: phase `{phase}` ({runtime})");
        report.add(Row::new(what, Unit::Millis, samples));
    }
    report.add(
        Row::new(format!("kill ({runtime})"), Unit::Millis, killed).beside(
            format!("`{runtime} delete --force`, unmount, `ip netns del`"),
            removed,
        ),
    );
    Ok(())
}

/// The note about this group in BENCHMARKS.md.
pub(crate) const NOTE: &str = "**create → ready**: from `POST /sandboxes` on a kept-alive \
connection to its answer, when the daemon has answered and the state is on disk. Shoal takes a \
network slot (two namespaces, two veth pairs, rules) that it created in advance. The comparison \
runs by hand: `ip netns add`, a veth pair with addresses and a route (`ip -batch`), rules (`nft \
-f`), an overlay of the same layers, and `run --detach` of the bundle of one of Shoal's own \
sandboxes, with the same flags and the daemon as its program. It ends when `run` returns, before \
the daemon answers. Its upper directory is on the machine's own file system, and with runc its \
root is not mapped to other users, as Shoal's is. The bundle and directories are written before \
the clock starts. After each kill the server gets time to prepare its next slot. The second row \
excludes the network from the comparison; the third waits for the daemon's answer there too.";
