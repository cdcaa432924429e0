//! The code interpreter, from restore to answer.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use http::Method;
use serde_json::json;
use shoal_protocol::client::{Command, Output};

use crate::api::{Api, Sandbox, asked, millis};
use crate::bare::Bare;
use crate::http::Client;
use crate::measure::{crowd, pool};
use crate::report::{Promise, Report, Row, Unit};
use crate::server::Server;
use crate::stats::Samples;
use crate::template;

/// The template.
const NAME: &str = "code-interpreter-v1";

/// The port of its server.
const PORT: u16 = 49999;

/// The pool size.
const POOLED: usize = 2;

/// More memory than any other template's snapshot has, in bytes.
const MUCH: u64 = 24 << 20;

/// How long a sandbox rests before its memory is measured.
const REST: Duration = Duration::from_secs(1);

/// The output of a cell, in bytes.
const PRINTED: usize = 10_000_000;

/// Drives a kernel from inside, as notebooks do; prints the median times of `1+1` and of the large
/// output, in milliseconds.
const INSIDE: &str = r#"
import statistics, time
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name='python3')
def ask(code):
    begun = time.perf_counter()
    client.execute_interactive(code, store_history=True, output_hook=lambda message: None)
    return (time.perf_counter() - begun) * 1e3
[ask('1+1') for _ in range(5)]
small = statistics.median(ask('1+1') for _ in range(50))
large = statistics.median(ask('print("x" * 10_000_000)') for _ in range(3))
print(small, large)
manager.shutdown_kernel(now=True)
"#;

/// The note about this group in BENCHMARKS.md.
pub(crate) const NOTE: &str = "**code interpreter**: the template `code-interpreter-v1`, built \
first if it is missing. From a create until its Python kernel answers `1+1`, restored from \
memory. Compared with an overlay and `runsc restore --detach` of the same memory, in a network \
created in advance, until the command returns. Executions on a used context, of `1+1` and of a \
cell that prints 10 MB: from the request to the end of the stream, through the gateway. Compared \
with `jupyter_client` inside the same sandbox, with a kernel of its own. From a claim until `1+1` \
is answered: a catalogue entry based on the template, with a full pool. Memory: the proportional \
set size (PSS) of all processes of a sandbox that has answered once, a second later.";

/// Runs the group.
pub(crate) async fn measure(
    server: &Server,
    plain: &Sandbox,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let api = Api::of(server)?;
    let client = Client::new();
    template::built(&api, NAME).await?;
    let shown = create(&api).await?;
    let (mut bare, image) = Bare::of_saved(server, &shown, plain, MUCH)?;
    api.kill(&shown).await?;
    let [mut answered, mut restored, mut resident] = <[Samples; 3]>::default();
    for _ in 0..rounds {
        let begun = Instant::now();
        let sandbox = create(&api).await?;
        execute(&client, &sandbox, "1+1").await?;
        answered.push(millis(begun.elapsed()));
        // Until then its memory is still being loaded.
        tokio::time::sleep(REST).await;
        let processes = crowd::processes(&HashSet::from([sandbox.id.as_str()]))?;
        let all = processes.into_iter().map(crowd::proportional);
        resident.push(all.fold(0.0, |a, b| a + b));
        api.kill(&sandbox).await?;
        let container = bare.restore(&image).await?;
        restored.push(container.run);
        bare.remove(&container)?;
    }
    fs::remove_dir_all(&image)?;
    let what = "create → first `1+1` (code interpreter)";
    report.add(
        Row::new(what, Unit::Millis, answered)
            .beside("overlay, `runsc restore`", restored)
            .promised(Promise::Ratio(1.3)),
    );
    let what = "memory of a used code interpreter (PSS)";
    report.add(Row::new(what, Unit::Mib, resident).promised(Promise::AtMost(120.0)));
    let sandbox = create(&api).await?;
    warm(&client, &sandbox, report).await?;
    api.kill(&sandbox).await?;
    let outcome = claimed(&api, &client, rounds, report).await;
    pool::put(&api, json!([])).await?;
    outcome
}

/// The same from a full pool of the template.
async fn claimed(
    api: &Api,
    client: &Client,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let entry = json!({
        "name": NAME, "template": NAME, "description": "a benchmark pool",
        "pool": {"size": POOLED},
    });
    pool::put(api, json!([entry])).await?;
    let mut answered = Samples::default();
    for _ in 0..rounds {
        pool::full(api, POOLED).await?;
        let begun = Instant::now();
        let sandbox = create(api).await?;
        execute(client, &sandbox, "1+1").await?;
        answered.push(millis(begun.elapsed()));
        api.kill(&sandbox).await?;
    }
    let what = "claim → first `1+1` (code interpreter)";
    report.add(Row::new(what, Unit::Millis, answered).promised(Promise::AtMost(60.0)));
    Ok(())
}

/// Executions on a used context.
async fn warm(client: &Client, sandbox: &Sandbox, report: &mut Report) -> anyhow::Result<()> {
    let [mut small, mut large] = <[Samples; 2]>::default();
    for round in 0..55 {
        let took = execute(client, sandbox, "1+1").await?;
        if round >= 5 {
            small.push(took);
        }
    }
    let code = format!("print(\"x\" * {PRINTED})");
    for _ in 0..3 {
        large.push(execute(client, sandbox, &code).await?);
    }
    let envd = sandbox.envd()?;
    let mut process = envd
        .start(Command::new("python3", ["-c", INSIDE]).with_cwd("/tmp"))
        .await?;
    let mut said = Vec::new();
    while let Some(output) = process.next().await? {
        if let Output::Stdout(bytes) = output {
            said.extend_from_slice(&bytes);
        }
    }
    let said = String::from_utf8(said)?;
    let mut inside = said.split_whitespace().map(str::parse::<f64>);
    let mut next = || inside.next().context("jupyter_client printed nothing");
    for (what, samples) in [
        ("`1+1` on a warm context", small),
        ("10 MB of stdout", large),
    ] {
        let there = Samples::one(next()??);
        report.add(
            Row::new(what, Unit::Millis, samples)
                .beside("`jupyter_client` inside", there)
                .promised(Promise::Ratio(1.5)),
        );
    }
    Ok(())
}

async fn create(api: &Api) -> anyhow::Result<Sandbox> {
    let body = asked(&json!(NAME), 600);
    let (answer, took) = api.call(Method::POST, "/sandboxes", body).await?;
    api.sandbox(&answer, took)
}

/// Executes code; returns the time in milliseconds.
async fn execute(client: &Client, sandbox: &Sandbox, code: &str) -> anyhow::Result<f64> {
    let mut headers = sandbox.headers(PORT);
    headers.push(("content-type".to_owned(), "application/json".to_owned()));
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let url = format!("{}/execute", sandbox.url);
    let begun = Instant::now();
    let body = json!({"code": code}).to_string();
    let answer = client.call(Method::POST, &url, &headers, body).await?;
    let took = millis(begun.elapsed());
    let text = std::str::from_utf8(&answer)?;
    ensure!(
        text.contains("end_of_execution") && !text.contains("\"error\""),
        "{}",
        text.chars().take(500).collect::<String>()
    );
    Ok(took)
}
