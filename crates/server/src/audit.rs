//! The audit log on disk: `<data>/audit/<team>.jsonl`, one JSON line for each event.
//!
//! A separate thread writes. Callers never wait: when the queue is full or the disk fails, events are
//! lost, counted, logged, and noted in the audit log itself. Each team has its own files, so that a
//! busy team rotates away only its own events. Events of strangers and of traffic are rate limited.

mod files;
mod previews;
mod routes;

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

use self::files::Files;
pub(crate) use self::previews::AuditedPreviews;
pub(crate) use self::routes::AuditedRoutes;
use crate::config::Config;

/// The queue's length: some seconds of a busy server.
const WAITING: usize = 8192;

/// The maximum number of events per minute of strangers, and of traffic.
const BOUNDED_PER_MINUTE: u32 = 600;
const MINUTE: Duration = Duration::from_secs(60);

/// File names of other sources. Team names cannot contain an underscore.
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
    /// Opens the log in the data directory, or one that drops events if it is disabled.
    ///
    /// # Errors
    /// When the directory cannot be created.
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

    /// The sink of events.
    pub(crate) fn log(&self) -> Arc<dyn AuditLog> {
        self.log.clone()
    }

    /// Flushes the queue and stops the writer. Blocks.
    pub(crate) fn end(self) {
        if let Some((sender, writer)) = self.writer
            && sender.send(Job::End).is_ok()
            && writer.join().is_err()
        {
            tracing::error!("the audit log's writer panicked");
        }
    }
}

/// The callers' end.
struct Queue {
    sender: SyncSender<Job>,
    lost: Arc<AtomicU64>,
    /// For strangers and for traffic.
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

/// A limit per minute. The number of dropped events is logged with the next minute's first event.
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
                    tracing::warn!(left_out, "the audit log dropped a flood of events");
                }
                true
            }
        }
    }
}

/// Writes in batches, until it is asked to end.
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
            // The note of a loss is not an event itself; its count is reported again.
            let noted = if name == SERVER { missing } else { 0 };
            lost.fetch_add(count as u64 + noted.saturating_sub(1), Ordering::Relaxed);
            if complained.is_none_or(|at| at.elapsed() >= MINUTE) {
                complained = Some(Instant::now());
                tracing::error!(%error, "cannot write the audit log: events are lost");
            }
        }
    }
    files.sync();
}

fn lost_line(count: u64) -> Vec<u8> {
    let now = SystemClock.now();
    let event = AuditEvent::new(now, "audit.lost", AuditResult::Failed).on(&count.to_string());
    // Serializing an event cannot fail.
    let mut line = serde_json::to_vec(&event).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Records that the gateway refused a request without a valid key or token.
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
