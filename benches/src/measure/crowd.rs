//! Many idle sandboxes.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::api::{Api, Sandbox, millis};
use crate::machine::{keyed, memory};
use crate::report::{Promise, Report, Row, Unit};
use crate::server::Server;
use crate::stats::Samples;

/// The number of sandboxes, if the memory holds them.
const CROWD: usize = 200;
/// The estimated memory of one, and the memory left to the machine, in MiB.
const EACH: f64 = 64.0;
const SPARE: f64 = 3072.0;
/// The number of parallel creates.
const AT_ONCE: usize = 8;
/// The number of creates to compare.
const COMPARED: usize = 16;
/// How long idle sandboxes are observed.
const WATCHED: Duration = Duration::from_secs(5);

/// Fills the machine and measures the effect.
pub(crate) async fn measure(server: &mut Server, report: &mut Report) -> anyhow::Result<()> {
    let room = (memory("MemAvailable") - SPARE) / EACH;
    let crowd = (0..CROWD).take_while(|n| (*n as f64) < room).count();
    let api = Api::of(server)?;
    let alone = creates(&api).await?;
    let empty = server.memory()?;
    let begun = Instant::now();
    let mut sandboxes = Vec::new();
    while sandboxes.len() < crowd {
        let wanted = AT_ONCE.min(crowd - sandboxes.len());
        let tasks = (0..wanted).map(|_| {
            let api = api.clone();
            tokio::spawn(async move { api.create("runsc").await })
        });
        for task in tasks.collect::<Vec<_>>() {
            sandboxes.push(task.await??);
        }
    }
    let rate = crowd as f64 / begun.elapsed().as_secs_f64();
    let what = format!("creates per second, {AT_ONCE} in parallel (runsc)");
    report.add(Row::new(what, Unit::PerSecond, Samples::one(rate)));
    idle(server, &sandboxes, empty, report).await?;
    let crowded = creates(&api).await?;
    report.add(
        Row::new(
            format!("create → ready beside {crowd} others (runsc)"),
            Unit::Millis,
            crowded,
        )
        .beside("the same with none", alone)
        .promised(Promise::Ratio(1.3)),
    );
    let again = millis(server.crash_and_start().await?);
    let what = format!("server start after a crash, {crowd} sandboxes adopted");
    report.add(Row::new(what, Unit::Millis, Samples::one(again)));
    clear(server, sandboxes, report).await
}

async fn creates(api: &Api) -> anyhow::Result<Samples> {
    let mut times = Samples::default();
    for _ in 0..COMPARED {
        let sandbox = api.create("runsc").await?;
        times.push(sandbox.took);
        api.kill(&sandbox).await?;
    }
    Ok(times)
}

/// The cost of idle sandboxes.
async fn idle(
    server: &Server,
    sandboxes: &[Sandbox],
    empty: f64,
    report: &mut Report,
) -> anyhow::Result<()> {
    let crowd = sandboxes.len();
    let what = format!("server memory, {crowd} idle sandboxes");
    report.add(
        Row::new(what, Unit::Mib, Samples::one(server.memory()?))
            .beside("with none", Samples::one(empty))
            .promised(Promise::AtMost(60.0)),
    );
    let ids: HashSet<&str> = sandboxes.iter().map(|s| s.id.as_str()).collect();
    let processes = processes(&ids)?;
    let before = ticks(&processes);
    let begun = Instant::now();
    tokio::time::sleep(WATCHED).await;
    let spent = (ticks(&processes) - before) / 100.0;
    let share = spent / begun.elapsed().as_secs_f64() / crowd as f64 * 100.0;
    let what = "processor time of an idle sandbox (runsc)";
    report.add(Row::new(what, Unit::Percent, Samples::one(share)));
    let proportional: f64 = processes.iter().map(|pid| proportional(*pid)).sum();
    let what = "memory of an idle sandbox (runsc) (PSS)";
    let each = Samples::one(proportional / crowd as f64);
    report.add(Row::new(what, Unit::Mib, each));
    Ok(())
}

async fn clear(
    server: &Server,
    sandboxes: Vec<Sandbox>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let api = Api::of(server)?;
    let (begun, crowd) = (Instant::now(), sandboxes.len());
    for some in sandboxes.chunks(AT_ONCE) {
        let tasks = some.iter().cloned().map(|sandbox| {
            let api = api.clone();
            tokio::spawn(async move { api.kill(&sandbox).await })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await??;
        }
    }
    let rate = crowd as f64 / begun.elapsed().as_secs_f64();
    let what = format!("kills per second, {AT_ONCE} in parallel (runsc)");
    report.add(Row::new(what, Unit::PerSecond, Samples::one(rate)));
    Ok(())
}

/// The daemon's size, and its memory in a sandbox.
pub(crate) async fn daemon(
    server: &Server,
    program: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    let size = fs::metadata(program.with_file_name("shoal-envd"))?.len() as f64;
    let size = Samples::one(size / f64::from(1 << 20));
    report.add(Row::new("size of the daemon", Unit::Mib, size).promised(Promise::AtMost(8.0)));
    let api = Api::of(server)?;
    let sandbox = api.create("runc").await?;
    let envd = sandbox.envd()?;
    crate::api::run(&envd, "true").await?;
    let pid = fs::read_to_string(server.sandbox(&sandbox.id).join("pid"))?;
    let status = fs::read_to_string(format!("/proc/{}/status", pid.trim()))?;
    let resident = Samples::one(keyed(&status, "VmRSS") / 1024.0);
    let what = "resident memory of the daemon after a command (runc)";
    report.add(Row::new(what, Unit::Mib, resident).promised(Promise::AtMost(8.0)));
    api.kill(&sandbox).await?;
    Ok(())
}

/// The processes in the cgroups of these sandboxes.
pub(super) fn processes(sandboxes: &HashSet<&str>) -> anyhow::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let pid = path.file_name().and_then(|n| n.to_str()?.parse().ok());
        let Some(pid) = pid else { continue };
        // The process may have ended meanwhile.
        let groups = fs::read_to_string(path.join("cgroup")).unwrap_or_default();
        let is_of = |line: &str| {
            line.rsplit('/')
                .next()
                .is_some_and(|name| sandboxes.contains(name))
        };
        if groups.lines().any(is_of) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// The processor time of the processes, in hundredths of a second.
pub(super) fn ticks(processes: &[u32]) -> f64 {
    let of = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Some(number(11)? + number(12)?)
    };
    processes.iter().filter_map(of).sum()
}

pub(super) fn proportional(pid: u32) -> f64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
    keyed(&rollup.unwrap_or_default(), "Pss") / 1024.0
}

/// The note about this group in BENCHMARKS.md.
pub(crate) const NOTE: &str = "**many sandboxes**: 200, or as many as the machine's memory \
holds, each created from `base` and idle. The server's memory is its resident set. The crash is a \
`SIGKILL`. The start ends when the API answers, which is after every sandbox has been found \
again.";
