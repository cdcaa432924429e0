//! When a sandbox is parked: saved with its memory and ended while it is idle, until it is needed.
//!
//! [`Activity`] has the observations of one sandbox: its requests and its processor time. [`ParkingRules::judge`]
//! decides. The daemon's own knowledge is judged last, by [`Inside::is_idle`].

mod settings;

use std::time::Duration;

use crate::clock::Timestamp;
use crate::id::ExecutionId;
use crate::resources::{Mib, MilliCpu};

pub use self::settings::{InvalidParkingLabel, ParkingLabel, ParkingSettings};

/// The shortest time between two looks at the sandboxes.
const SHORTEST_LOOK: Duration = Duration::from_millis(250);

/// The longest time between two looks at the sandboxes.
pub const LONGEST_LOOK: Duration = Duration::from_secs(5);

/// A reading of processor time this many looks after the last one says nothing of the moments between.
const STALE_LOOKS: u32 = 4;

/// The processor time that an idle sandbox may use beyond twice that of its runtime: the daemon's own.
const SPARE_CPU: MilliCpu = MilliCpu(20);

/// A sandbox that ends sooner than this is not worth saving.
const ENDS_SOON: Duration = Duration::from_secs(10);

/// The longest idle time while the machine is short of memory.
const HURRIED: Duration = Duration::from_secs(5);

/// The least time until the next attempt after a failed one.
const AFTER_FAILURE: Duration = Duration::from_secs(60);

/// The most doublings of the idle time.
const MOST_DOUBLINGS: u32 = 16;

/// The rules by which one sandbox is parked: see [`ParkingSettings::rules`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParkingRules {
    /// The time for which a sandbox must be idle.
    pub after: Duration,
    /// How many times longer that is, at most, for a sandbox that is woken often.
    pub backoff: u32,
    /// The reserve on the disk.
    pub disk_room: Mib,
}

/// The facts about a sandbox and the disk by which it is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Now.
    pub now: Timestamp,
    /// When it entered its present state.
    pub since: Timestamp,
    /// Whether its runtime can save and restore memory.
    pub keeps_memory: bool,
    /// Its deadline.
    pub ends_at: Option<Timestamp>,
    /// Its memory in bytes, which a save writes at most.
    pub memory: u64,
    /// The bytes that are free for it, on the disk and in its team's share; `None` if not known.
    pub room: Option<u64>,
}

/// The daemon's view of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Inside {
    /// Programs that run, other than the daemon, its kernels and the start command.
    pub programs: usize,
    /// Connections that it opened to the outside.
    pub connections: usize,
}

/// Why a sandbox is not parked now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stays {
    /// Its runtime cannot save memory.
    CannotSave,
    /// Requests to it are under way.
    Used,
    /// It was used, or computed, too recently.
    TooRecent,
    /// Its deadline is near.
    EndsSoon,
    /// The disk has no room for its memory.
    NoRoom,
}

impl Inside {
    /// Whether nothing runs that a park would interrupt.
    #[must_use]
    pub fn is_idle(self) -> bool {
        self.programs == 0 && self.connections == 0
    }
}

impl ParkingRules {
    /// How often the sandbox is looked at.
    #[must_use]
    pub fn look_every(&self) -> Duration {
        (self.after / 2).clamp(SHORTEST_LOOK, LONGEST_LOOK)
    }

    /// The rules while the machine is short of memory.
    #[must_use]
    pub fn hurried(&self) -> Self {
        Self {
            after: self.after.min(HURRIED),
            backoff: 1,
            ..*self
        }
    }

    /// The idle time of a sandbox whose last `short` parks were short.
    #[must_use]
    pub fn idle_time(&self, short: u32) -> Duration {
        let factor = 1u32 << short.min(MOST_DOUBLINGS);
        self.after.saturating_mul(factor.min(self.backoff.max(1)))
    }

    /// Judges a sandbox: parks it, or says why it stays.
    ///
    /// # Errors
    /// The first reason why it stays.
    pub fn judge(&self, activity: &Activity, facts: &Facts) -> Result<(), Stays> {
        if !facts.keeps_memory {
            return Err(Stays::CannotSave);
        }
        if activity.open > 0 || activity.closed {
            return Err(Stays::Used);
        }
        let required = self.idle_time(activity.short_parks);
        let is_idle = activity
            .idle_since(facts.since)
            .is_some_and(|since| facts.now.since(since) >= required);
        if !is_idle || activity.not_before.is_some_and(|at| facts.now < at) {
            return Err(Stays::TooRecent);
        }
        if facts
            .ends_at
            .is_some_and(|end| end.since(facts.now) < ENDS_SOON)
        {
            return Err(Stays::EndsSoon);
        }
        if !has_room(facts.memory, self.disk_room, facts.room) {
            return Err(Stays::NoRoom);
        }
        Ok(())
    }
}

/// Whether a save of `memory` bytes leaves `reserve` of the `room`, which is `None` if it is not known.
#[must_use]
pub fn has_room(memory: u64, reserve: Mib, room: Option<u64>) -> bool {
    room.is_none_or(|room| room >= memory.saturating_add(reserve.bytes()))
}

/// A reading of a sandbox's processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuReading {
    /// When it was read.
    pub at: Timestamp,
    /// The run.
    pub execution: ExecutionId,
    /// Nanoseconds since the run began.
    pub nanos: u64,
}

/// The use of one sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activity {
    /// Requests under way.
    open: usize,
    /// Connections that are open, also while nothing is sent.
    connections: usize,
    /// Whether it is about to be parked: requests must wake it.
    closed: bool,
    /// When the last request ended.
    used_at: Option<Timestamp>,
    /// The last reading of its processor time.
    reading: Option<CpuReading>,
    /// The first of the last readings between which it computed nothing.
    quiet_since: Option<Timestamp>,
    /// How many of its last parks were short.
    short_parks: u32,
    /// No attempt before this moment, after a failed one.
    not_before: Option<Timestamp>,
}

impl Activity {
    /// A request begins. False if the sandbox is about to be parked: then it must be woken.
    pub fn enter(&mut self) -> bool {
        if !self.closed {
            self.open += 1;
        }
        !self.closed
    }

    /// A request ends that [`Activity::enter`] let in.
    pub fn leave(&mut self, now: Timestamp) {
        self.open = self.open.saturating_sub(1);
        self.touch(now);
    }

    /// The sandbox was used.
    pub fn touch(&mut self, now: Timestamp) {
        self.used_at = self.used_at.max(Some(now));
    }

    /// A connection was opened that may be idle.
    pub fn connect(&mut self) {
        self.connections += 1;
    }

    /// A connection was closed.
    pub fn disconnect(&mut self) {
        self.connections = self.connections.saturating_sub(1);
    }

    /// Whether connections are open.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connections > 0
    }

    /// Lets no request in until [`Activity::reopen`]. False if one is under way.
    pub fn close(&mut self) -> bool {
        let can = self.open == 0 && !self.closed;
        self.closed |= can;
        can
    }

    /// Lets requests in again.
    pub fn reopen(&mut self) {
        self.closed = false;
    }

    /// Compares a reading with the last one. `idle` is the processor time that an idle sandbox of the
    /// runtime uses; `look_every` how often readings are taken.
    pub fn read(&mut self, reading: CpuReading, idle: MilliCpu, look_every: Duration) {
        let quiet = self.reading.is_some_and(|last| {
            let over = reading.at.since(last.at);
            let is_next = last.execution == reading.execution && over <= look_every * STALE_LOOKS;
            is_next && !is_busy(reading.nanos.saturating_sub(last.nanos), over, idle)
        });
        if !quiet || self.quiet_since.is_none() {
            self.quiet_since = Some(reading.at);
        }
        self.reading = Some(reading);
    }

    /// It was woken after it had been parked for `parked`.
    pub fn woken(&mut self, parked: Duration, rules: &ParkingRules) {
        let is_short = parked < rules.idle_time(self.short_parks);
        self.short_parks = match is_short {
            true => (self.short_parks + 1).min(MOST_DOUBLINGS),
            false => self.short_parks / 2,
        };
    }

    /// It could not be parked.
    pub fn failed(&mut self, now: Timestamp, rules: &ParkingRules) {
        self.not_before = Some(now + rules.after.max(AFTER_FAILURE));
    }

    /// Since when it has been idle; `None` while that is not known. `since` is when it entered its state.
    #[must_use]
    pub fn idle_since(&self, since: Timestamp) -> Option<Timestamp> {
        let used_at = self.used_at.unwrap_or(since);
        Some(self.quiet_since?.max(used_at).max(since))
    }

    /// Requests under way.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open
    }
}

/// Whether this much processor time is more than that of an idle sandbox.
fn is_busy(nanos: u64, over: Duration, idle: MilliCpu) -> bool {
    let allowed = u128::from(idle.0) * 2 + u128::from(SPARE_CPU.0);
    u128::from(nanos) * 1000 > over.as_nanos() * allowed
}

#[cfg(test)]
mod tests;
