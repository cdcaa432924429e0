//! Creating and killing, one at a time.

use std::time::Duration;

use crate::api::{Api, Sandbox};
use crate::bare::Bare;
use crate::report::{Promise, Report, Row, Unit};
use crate::server::Server;
use crate::stats::Samples;

/// After this the server has done what it puts off while sandboxes start (the next network slot),
/// which the bare runtime is not to pay for.
const SETTLED: Duration = Duration::from_millis(350);

/// The server's own phases that take time.
const PHASES: [&str; 3] = ["rootfs", "start", "ready"];

/// Creates in turns with the bare runtime. `plain` shows which layers there are.
pub(crate) async fn measure(
    server: &Server,
    runtime: &str,
    promise: f64,
    plain: &Sandbox,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let api = Api::of(server)?;
    // The first of each warms the page cache and shows the bundle.
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
        Row::new(&what, Unit::Millis, created.clone()).beside("the same, network made ahead", run),
    );
    report.add(
        Row::new(&what, Unit::Millis, created)
            .beside("the same with network, until the daemon answers", answered),
    );
    for (samples, phase) in phases.into_iter().zip(PHASES) {
        let what = format!("its phase `{phase}` ({runtime})");
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

/// What was measured.
pub(crate) const NOTE: &str = "**create → ready**: from `POST /sandboxes` on a kept connection to \
its answer, when the daemon inside has answered and the state is on disk. Shoal takes a network \
slot (two namespaces, two veth pairs, rules) that was made ahead. Beside it, by hand: `ip netns \
add`, a veth pair with addresses and a route (`ip -batch`), rules (`nft -f`), an overlay of the \
same layers, and `run --detach` of the bundle of one of Shoal's own sandboxes with the same flags \
and the daemon as its program; it is over when `run` returns, before the daemon answers. Its \
upper directory lies on the machine's own file system, and with runc its root is not mapped to \
the users of the sandbox (Shoal's is). `bundle` and directories are written before the clock \
starts. Between a kill and the next bare start the \
server is given time to make its next slot. The second row leaves the making of the network out of the bare time, the third waits for \
the daemon to answer there too.";
