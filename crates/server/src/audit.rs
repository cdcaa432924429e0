//! The audit log on disk: `<data>/audit/<team>.jsonl`, a line of JSON for each event.
//!
//! A thread of its own writes. Callers never wait for it: when the queue is full or the disk fails,
//! events are lost, which is counted, logged, and noted in the log itself. Each team has files of its
//! own, so that a team that makes many calls rotates away its own events alone. What strangers and
//! traffic cause is bounded in its rate besides.

mod catalog;
mod files;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use http::Response;
use shoal_core::audit::{AuditEvent, AuditLog, AuditResult, AuditSource, NoAudit};
use shoal_core::clock::Clock;
use shoal_engine::SystemClock;
use shoal_gateway::OwnAnswer;

pub(crate) use self::catalog::AuditedCatalog;
use self::files::Files;
use crate::config::Config;

/// How many events wait for the disk: some seconds of a busy server.
const WAITING: usize = 8192;

/// How many events of strangers, and of traffic, are kept in a minute.
const BOUNDED_PER_MINUTE: u32 = 600;
const MINUTE: Duration = Duration::from_secs(60);

/// The names of files that are no team's: no team's name has such a character.
const STRANGERS: &str = "_strangers";
const GATEWAY: &str = "_gateway";
const SERVER: &str = "_server";

/// The log, and the thread that writes it.
pub(crate) struct Audit {
    log: Arc<dyn AuditLog>,
    writer: Option<(SyncSender<Job>, JoinHandle<()>)>,
}

enum Job {
    Write(String, Vec<u8>),
    End,
}

impl Audit {
    /// Opens the log below the data directory; one that keeps nothing if none is configured.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub(crate) fn open(config: &Config) -> anyhow::Result<Self> {
        let Some(settings) = config.audit else {
            return Ok(Self {
                log: Arc::new(NoAudit),
                writer: None,
            });
        };
        let directory = config.data.join("audit");
        let files = Files::open(directory.clone(), settings)
            .with_context(|| format!("cannot open the audit log {}", directory.display()))?;
        let (sender, jobs) = sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = lost.clone();
        let writer = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write(&jobs, files, &counted))?;
        let log = Arc::new(Queue {
            sender: sender.clone(),
            lost,
            bounded: [Bound::default(), Bound::default()],
        });
        Ok(Self {
            log,
            writer: Some((sender, writer)),
        })
    }

    /// Where events go.
    pub(crate) fn log(&self) -> Arc<dyn AuditLog> {
        self.log.clone()
    }

    /// Writes what waits, and ends. Blocks.
    pub(crate) fn end(self) {
        if let Some((sender, writer)) = self.writer
            && sender.send(Job::End).is_ok()
            && writer.join().is_err()
        {
            tracing::error!("the audit log's writer panicked");
        }
    }
}

/// What callers see of it.
struct Queue {
    sender: SyncSender<Job>,
    lost: Arc<AtomicU64>,
    /// Of strangers, and of traffic.
    bounded: [Bound; 2],
}

impl AuditLog for Queue {
    fn record(&self, source: AuditSource, event: AuditEvent) {
        let (name, bound) = match source {
            AuditSource::Team(team) => (team.to_string(), None),
            AuditSource::Stranger => (STRANGERS.to_owned(), Some(&self.bounded[0])),
            AuditSource::Gateway => (GATEWAY.to_owned(), Some(&self.bounded[1])),
            AuditSource::Server => (SERVER.to_owned(), None),
        };
        if bound.is_some_and(|bound| !bound.admits(Instant::now())) {
            return;
        }
        let Ok(mut line) = serde_json::to_vec(&event) else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        line.push(b'\n');
        match self.sender.try_send(Job::Write(name, line)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// So many events a minute; how many were left out is logged with the next minute's first.
#[derive(Debug, Default)]
struct Bound(parking_lot::Mutex<Option<(Instant, u32)>>);

impl Bound {
    fn admits(&self, now: Instant) -> bool {
        let mut window = self.0.lock();
        match window.as_mut() {
            Some((begun, count)) if now.duration_since(*begun) < MINUTE => {
                *count += 1;
                *count <= BOUNDED_PER_MINUTE
            }
            _ => {
                let left_out = window.map_or(0, |(_, n)| n.saturating_sub(BOUNDED_PER_MINUTE));
                *window = Some((now, 1));
                drop(window);
                if left_out > 0 {
                    tracing::warn!(left_out, "the audit log leaves out a flood of refusals");
                }
                true
            }
        }
    }
}

/// Writes until it is told to end. What comes together is written together.
fn write(jobs: &Receiver<Job>, mut files: Files, lost: &AtomicU64) {
    let mut complained: Option<Instant> = None;
    let mut ends = false;
    while !ends {
        let mut lines: HashMap<String, Vec<u8>> = HashMap::new();
        let Ok(first) = jobs.recv() else {
            return;
        };
        for job in std::iter::once(first).chain(jobs.try_iter().take(WAITING)) {
            match job {
                Job::Write(name, line) => lines.entry(name).or_default().extend(line),
                Job::End => ends = true,
            }
        }
        let missing = lost.swap(0, Ordering::Relaxed);
        if missing > 0 {
            lines
                .entry(SERVER.to_owned())
                .or_default()
                .extend(lost_line(missing));
        }
        for (name, lines) in lines {
            let Err(error) = files.append(&name, &lines) else {
                continue;
            };
            let count = lines.iter().filter(|byte| **byte == b'\n').count();
            // A note of a loss is no event; what it counts is told again.
            let noted = if name == SERVER { missing } else { 0 };
            lost.fetch_add(count as u64 + noted.saturating_sub(1), Ordering::Relaxed);
            if complained.is_none_or(|at| at.elapsed() >= MINUTE) {
                complained = Some(Instant::now());
                tracing::error!(%error, "the audit log cannot be written: events are lost");
            }
        }
    }
    files.sync();
}

fn lost_line(count: u64) -> Vec<u8> {
    let now = SystemClock.now();
    let event = AuditEvent::new(now, "audit.lost", AuditResult::Failed).on(&count.to_string());
    // An event can always be written.
    let mut line = serde_json::to_vec(&event).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Records that the gateway let a request not pass for want of a key or token.
pub(crate) fn refused<B>(
    log: &dyn AuditLog,
    answer: &Response<B>,
    sandbox: &str,
    address: Option<IpAddr>,
) {
    let status = answer.status().as_u16();
    if AuditResult::of_status(status) != AuditResult::Denied
        || answer.extensions().get::<OwnAnswer>().is_none()
    {
        return;
    }
    let event = AuditEvent::new(SystemClock.now(), "gateway.refuse", AuditResult::Denied);
    let mut event = event.on(sandbox);
    event.status = Some(status);
    event.address = address;
    log.record(AuditSource::Stranger, event);
}

#[cfg(test)]
mod tests;
