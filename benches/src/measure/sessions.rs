//! Sessions: their machines, windows and files, under gVisor.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use http::Method;
use serde_json::{Value, json};
use shoal_protocol::client::{Command, EnvdClient, Output};

use crate::api::{Api, asked, millis, run};
use crate::http::Lines;
use crate::measure::pool;
use crate::report::{Promise, Report, Row, Unit};
use crate::server::Server;
use crate::stats::Samples;
use crate::template;

/// The template of their machines.
const NAME: &str = "session-v1";

/// First commands, with and without a pool.
const FIRST: usize = 20;
/// The pool size.
const POOLED: usize = 2;
/// Commands in an open window.
const FURTHER: usize = 200;
/// Edits on each side.
const EDITS: usize = 200;
/// Files of the session whose machine starts again.
const RESUMED: usize = 1000;
/// Files that are pushed to a new machine.
const PUSHED: usize = 10_000;
/// Rounds of pushes and of resumes.
const ROUNDS: usize = 9;
/// The time in which the 10,000 files of an ended sandbox have been deleted.
const CLEARED: Duration = Duration::from_secs(2);

/// The note about this group in BENCHMARKS.md.
pub(crate) const NOTE: &str = "**sessions**: machines of `session-v1`, built first if it is \
missing. First command: from the request of `exec` in a new session to its first output; compared \
with a create of the same template and the first output of a command there. Further commands: \
`true` in an open window, compared with `commands.run(\"true\")` in a sandbox of the template, each \
until its end. An edit in the session: from the `PUT` of a file until a program in the machine, \
which waits with inotify, has read it and its output has reached the client. An edit inside: from \
the end of the command that wrote it until a read over the API has returned it. Files pushed to a new \
machine: the first command of a session with 10,000 files, less the first command of one with none; \
compared with `tar x` of the same files in a sandbox. Each of the two begins when the files of the former \
sandbox are gone. Resume: the first output of a session with \
1,000 files whose machine has ended.";

/// Prints a line for each event on the file `watched`: its content.
const WATCHER: &str = r#"python3 -uc "
import ctypes, os
libc = ctypes.CDLL(None)
fd = libc.inotify_init()
libc.inotify_add_watch(fd, b'.', 8)
print('ready')
while True:
    os.read(fd, 65536)
    print(open('watched').read())
""#;

/// Runs the group.
pub(crate) async fn measure(server: &Server, report: &mut Report) -> anyhow::Result<()> {
    let api = Api::of(server)?;
    template::built(&api, NAME).await?;
    let outcome = all(&api, report).await;
    pool::put(&api, json!([])).await?;
    api.clear().await?;
    outcome
}

async fn all(api: &Api, report: &mut Report) -> anyhow::Result<()> {
    let empty = first(api, report).await?;
    pooled(api, report).await?;
    further(api, report).await?;
    edits(api, report).await?;
    resume(api, report).await?;
    push(api, &empty, report).await
}

/// A session.
struct Session<'a> {
    api: &'a Api,
    path: String,
}

impl<'a> Session<'a> {
    async fn create(api: &'a Api) -> anyhow::Result<Self> {
        let (made, _) = api
            .call(Method::POST, "/api/v1/sessions", json!({}))
            .await?;
        let id = made["data"]["id"].as_str().context("no id")?;
        let path = format!("/api/v1/sessions/{id}");
        Ok(Self { api, path })
    }

    async fn start(&self, command: &str, window: &str) -> anyhow::Result<Lines> {
        let body = json!({"command": command, "window": window});
        self.api.lines(&format!("{}/exec", self.path), &body).await
    }

    /// Runs a command; returns the time to its first output, and to its end, in milliseconds.
    async fn run(&self, command: &str) -> anyhow::Result<(f64, f64)> {
        let begun = Instant::now();
        let mut lines = self.start(command, "main").await?;
        let mut first = None;
        while let Some(event) = event(&mut lines).await? {
            if event["type"] == "output" && first.is_none() {
                first = Some(millis(begun.elapsed()));
            }
            if event["type"] == "exit" {
                ensure!(event["code"] == 0, "{command} ended with {event}");
                let ended = millis(begun.elapsed());
                return Ok((first.unwrap_or(ended), ended));
            }
            ensure!(event["type"] != "notice", "{event}");
        }
        anyhow::bail!("{command} has no end")
    }

    fn file(&self, name: &str) -> String {
        format!("{}/files/content?path={name}", self.path)
    }

    async fn end_machine(&self) -> anyhow::Result<()> {
        let path = format!("{}/reset", self.path);
        let (asked, _) = self.api.call(Method::POST, &path, json!({})).await?;
        let token = asked["data"]["token"].as_str().context("no token")?;
        let body = json!({"token": token});
        self.api.call(Method::POST, &path, body).await?;
        Ok(())
    }

    async fn delete(self) -> anyhow::Result<()> {
        self.api
            .call(Method::DELETE, &self.path, Value::Null)
            .await?;
        Ok(())
    }
}

async fn event(lines: &mut Lines) -> anyhow::Result<Option<Value>> {
    let line = lines.next().await?;
    Ok(line.map(|line| serde_json::from_slice(&line)).transpose()?)
}

/// The first output of a command, which may continue after it.
async fn first_output(envd: &EnvdClient, line: &str) -> anyhow::Result<()> {
    let mut process = envd.start(Command::shell(line)).await?;
    while let Some(output) = process.next().await? {
        if let Output::Stdout(_) = output {
            return Ok(());
        }
    }
    anyhow::bail!("{line} has no output")
}

async fn create(api: &Api) -> anyhow::Result<crate::api::Sandbox> {
    let body = asked(&json!(NAME), 1800);
    let (answer, took) = api.call(Method::POST, "/sandboxes", body).await?;
    api.sandbox(&answer, took)
}

async fn first(api: &Api, report: &mut Report) -> anyhow::Result<Samples> {
    let [mut ours, mut clones] = <[Samples; 2]>::default();
    for round in 0..=FIRST {
        let session = Session::create(api).await?;
        let (output, _) = session.run("echo here").await?;
        session.delete().await?;
        let begun = Instant::now();
        let sandbox = create(api).await?;
        first_output(&sandbox.envd()?, "echo here").await?;
        let clone = millis(begun.elapsed());
        api.kill(&sandbox).await?;
        // Round 0 is the warm-up.
        if round > 0 {
            ours.push(output);
            clones.push(clone);
        }
    }
    let row = Row::new(
        "session: first command → output",
        Unit::Millis,
        ours.clone(),
    );
    report.add(
        row.beside("create, first output of a command", clones)
            .promised(Promise::Ratio(1.3)),
    );
    Ok(ours)
}

async fn pooled(api: &Api, report: &mut Report) -> anyhow::Result<()> {
    let entry = json!({
        "name": NAME, "template": NAME, "description": "a benchmark pool",
        "pool": {"size": POOLED},
    });
    pool::put(api, json!([entry])).await?;
    let mut ours = Samples::default();
    for _ in 0..FIRST {
        pool::full(api, POOLED).await?;
        let session = Session::create(api).await?;
        ours.push(session.run("echo here").await?.0);
        session.delete().await?;
    }
    pool::put(api, json!([])).await?;
    let what = "session: first command → output, from a pool";
    report.add(Row::new(what, Unit::Millis, ours).promised(Promise::AtMost(250.0)));
    Ok(())
}

async fn further(api: &Api, report: &mut Report) -> anyhow::Result<()> {
    let session = Session::create(api).await?;
    let sandbox = create(api).await?;
    let envd = sandbox.envd()?;
    let [mut ours, mut commands] = <[Samples; 2]>::default();
    for round in 0..=FURTHER {
        let (_, ended) = session.run("true").await?;
        let command = run(&envd, "true").await?;
        if round > 0 {
            ours.push(ended);
            commands.push(command);
        }
    }
    api.kill(&sandbox).await?;
    session.delete().await?;
    let row = Row::new("session: a further command", Unit::Millis, ours);
    report.add(
        row.beside("`commands.run(\"true\")`", commands)
            .promised(Promise::Ratio(1.2)),
    );
    Ok(())
}

async fn edits(api: &Api, report: &mut Report) -> anyhow::Result<()> {
    let session = Session::create(api).await?;
    let watched = session.file("watched");
    api.put(&watched, b"0".to_vec()).await?;
    let mut lines = session.start(WATCHER, "watcher").await?;
    printed(&mut lines, "ready").await?;
    let [mut to, mut from] = <[Samples; 2]>::default();
    for edit in 1..=EDITS {
        let text = format!("edit-{edit}-");
        let begun = Instant::now();
        api.put(&watched, text.clone().into_bytes()).await?;
        printed(&mut lines, &text).await?;
        to.push(millis(begun.elapsed()));
    }
    for edit in 1..=EDITS {
        let text = format!("inside-{edit}\n");
        let command = format!("echo -n '{text}' > inside");
        session.run(&command).await?;
        let begun = Instant::now();
        let read = api.get(&session.file("inside")).await?;
        from.push(millis(begun.elapsed()));
        ensure!(read == text.as_bytes(), "{read:?} is not {text:?}");
    }
    session.delete().await?;
    for (what, samples, most) in [
        ("session: an edit → seen inside by inotify", to, 50.0),
        ("session: an edit inside → read over the API", from, 200.0),
    ] {
        let worst = Samples::one(samples.p99());
        report.add(Row::new(what, Unit::Millis, samples));
        let row = Row::new(format!("{what}, p99"), Unit::Millis, worst);
        report.add(row.promised(Promise::AtMost(most)));
    }
    Ok(())
}

/// Waits until a command has printed a text.
async fn printed(lines: &mut Lines, text: &str) -> anyhow::Result<()> {
    let mut seen = String::new();
    while let Some(event) = event(lines).await? {
        seen.push_str(event["data"].as_str().unwrap_or_default());
        if seen.contains(text) {
            return Ok(());
        }
        ensure!(event["type"] == "output", "{event} before {text:?}");
    }
    anyhow::bail!("no {text:?} in {seen:?}")
}

/// A session that has files and no machine yet.
async fn with_files(api: &Api, count: usize) -> anyhow::Result<Session<'_>> {
    let session = Session::create(api).await?;
    for file in 0..count {
        let path = session.file(&name(file));
        api.put(&path, content(file)).await?;
    }
    Ok(session)
}

fn name(file: usize) -> String {
    format!("d{}/f{file}.txt", file / 100)
}

fn content(file: usize) -> Vec<u8> {
    format!("file {file}\n").repeat(64).into_bytes()
}

async fn resume(api: &Api, report: &mut Report) -> anyhow::Result<()> {
    let session = with_files(api, RESUMED).await?;
    session.run("echo here").await?;
    let mut ours = Samples::default();
    for _ in 0..ROUNDS {
        session.end_machine().await?;
        ours.push(session.run("echo here").await?.0);
    }
    session.delete().await?;
    let what = format!("session: new machine with {RESUMED} files → first output");
    report.add(Row::new(what, Unit::Millis, ours).promised(Promise::AtMost(1000.0)));
    Ok(())
}

async fn push(api: &Api, empty: &Samples, report: &mut Report) -> anyhow::Result<()> {
    let session = with_files(api, PUSHED).await?;
    let [mut ours, mut untarred] = <[Samples; 2]>::default();
    for _ in 0..ROUNDS {
        tokio::time::sleep(CLEARED).await;
        ours.push(session.run("echo here").await?.0 - empty.median());
        session.end_machine().await?;
        let sandbox = create(api).await?;
        let envd = sandbox.envd()?;
        run(&envd, &make_archive()).await?;
        tokio::time::sleep(CLEARED).await;
        untarred.push(run(&envd, "mkdir x && tar xf files.tar -C x").await?);
        api.kill(&sandbox).await?;
    }
    session.delete().await?;
    let what = format!("session: {PUSHED} files to a new machine");
    report.add(
        Row::new(what, Unit::Millis, ours)
            .beside("`tar x` of the same inside", untarred)
            .promised(Promise::Ratio(1.5)),
    );
    Ok(())
}

/// A command that makes an archive of the files.
fn make_archive() -> String {
    format!(
        "python3 -c \"
import io, tarfile
with tarfile.open('files.tar', 'w') as tar:
    for n in range({PUSHED}):
        entry = tarfile.TarInfo(f'd{{n // 100}}/f{{n}}.txt')
        data = f'file {{n}}'.encode() + bytes([10])
        entry.size = len(data) * 64
        tar.addfile(entry, io.BytesIO(data * 64))
\""
    )
}
