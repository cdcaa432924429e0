//! The pool of connections into sandboxes.
//!
//! Each connection takes a descriptor of the server, which all tenants share. A connection is *busy*
//! while a request uses it, and *idle* while it is kept for the next one. Idle ones are closed when
//! their place is needed, the least recently used first. A sandbox may have as many busy connections
//! as places remain free, and a team twice as many, so others always find places.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_core::id::{ExecutionId, SandboxId, TeamId};
use tokio::time::Instant;

/// The maximum number of idle connections in total.
const IDLE_MOST: usize = 1000;

/// The maximum number of idle connections of a sandbox: enough for a client with fifty parallel requests,
/// whose connections are idle together between two of them. A closed one costs a new one, and a port for a
/// minute.
pub(crate) const IDLE_OF_SANDBOX: usize = 64;

/// The idle timeout of a connection.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// The owner of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    pub(crate) team: TeamId,
    pub(crate) sandbox: SandboxId,
    pub(crate) execution: ExecutionId,
}

/// Why no connection may be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The sandbox or its team has used up its share.
    Share,
    /// All places are busy.
    All,
}

/// The port and HTTP version of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) port: u16,
    pub(crate) http2: bool,
}

/// A connection that may be kept.
pub(crate) trait Keep {
    /// Whether the connection is open, as far as known.
    fn is_open(&self) -> bool;
}

/// The pool: counts of busy connections, and the idle ones.
#[derive(Debug)]
pub(crate) struct Places<C> {
    most: usize,
    state: Arc<Mutex<State<C>>>,
}

#[derive(Debug)]
struct State<C> {
    busy: usize,
    busy_of_sandbox: HashMap<SandboxId, usize>,
    busy_of_team: HashMap<TeamId, usize>,
    idle: Idle<C>,
}

#[derive(Debug)]
struct Idle<C> {
    /// The next key; keys increase.
    next: u64,
    by_age: BTreeMap<u64, Waiting<C>>,
    by_run: HashMap<ExecutionId, Vec<(Line, u64)>>,
}

#[derive(Debug)]
struct Waiting<C> {
    execution: ExecutionId,
    since: Instant,
    connection: C,
    place: Arc<Place<C>>,
}

/// A connection's place, released when its last reference is dropped.
#[derive(Debug)]
pub(crate) struct Place<C> {
    holder: Holder,
    busy: AtomicBool,
    state: Arc<Mutex<State<C>>>,
}

impl<C: Keep> Places<C> {
    /// A pool of `most` connections.
    pub(crate) fn new(most: usize) -> Self {
        let idle = Idle {
            next: 0,
            by_age: BTreeMap::new(),
            by_run: HashMap::new(),
        };
        let state = State {
            busy: 0,
            busy_of_sandbox: HashMap::new(),
            busy_of_team: HashMap::new(),
            idle,
        };
        Self {
            most,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Takes a place for a new connection; may close an idle one.
    ///
    /// # Errors
    /// See [`Full`].
    pub(crate) fn take(&self, holder: &Holder) -> Result<Arc<Place<C>>, Full> {
        let mut state = self.state.lock();
        state.admit(self.most, holder)?;
        let oldest = (state.busy + state.idle.by_age.len() >= self.most)
            .then(|| state.idle.pop_oldest())
            .flatten();
        state.begin(holder);
        // Dropping it takes the lock.
        drop(state);
        drop(oldest);
        Ok(Arc::new(Place {
            holder: holder.clone(),
            busy: AtomicBool::new(true),
            state: self.state.clone(),
        }))
    }

    /// The most recently used idle connection of a run.
    pub(crate) fn reuse(&self, execution: ExecutionId, line: Line) -> Option<(C, Arc<Place<C>>)> {
        let mut closed = Vec::new();
        let mut state = self.state.lock();
        let found = loop {
            let Some(waiting) = state.idle.take(execution, line) else {
                break None;
            };
            if waiting.connection.is_open() {
                state.begin(&waiting.place.holder);
                waiting.place.busy.store(true, Ordering::Release);
                break Some((waiting.connection, waiting.place));
            }
            closed.push(waiting);
        };
        drop(state);
        drop(closed);
        found
    }

    /// Keeps a connection for the next request.
    pub(crate) fn keep(&self, line: Line, connection: C, place: Arc<Place<C>>) {
        if !connection.is_open() {
            return;
        }
        let mut surplus = Vec::new();
        let mut state = self.state.lock();
        if place.busy.swap(false, Ordering::AcqRel) {
            state.end(&place.holder);
        }
        let execution = place.holder.execution;
        state.idle.put(line, connection, place);
        surplus.extend(state.idle.beyond(execution, IDLE_OF_SANDBOX));
        if state.idle.by_age.len() > self.idle_most() {
            surplus.extend(state.idle.pop_oldest());
        }
        drop(state);
        drop(surplus);
    }

    /// Closes the idle connections of a finished run.
    pub(crate) fn forget(&self, execution: ExecutionId) {
        let gone: Vec<_> = self.state.lock().idle.beyond(execution, 0).collect();
        drop(gone);
    }

    /// Closes connections that exceeded the idle timeout.
    pub(crate) fn close_old(&self) {
        let mut old = Vec::new();
        let mut state = self.state.lock();
        while let Some((_, waiting)) = state.idle.by_age.first_key_value()
            && waiting.since.elapsed() >= IDLE_TIME
        {
            old.extend(state.idle.pop_oldest());
        }
        drop(state);
        drop(old);
    }

    fn idle_most(&self) -> usize {
        IDLE_MOST.min(self.most / 4)
    }
}

impl<C> State<C> {
    fn admit(&self, most: usize, holder: &Holder) -> Result<(), Full> {
        let free = most.saturating_sub(self.busy);
        if free == 0 {
            return Err(Full::All);
        }
        let of_sandbox = self.busy_of_sandbox.get(&holder.sandbox);
        let of_team = self.busy_of_team.get(&holder.team);
        let within = |count: Option<&usize>, share| count.is_none_or(|count| *count < share);
        if within(of_sandbox, free) && within(of_team, 2 * free) {
            Ok(())
        } else {
            Err(Full::Share)
        }
    }

    fn begin(&mut self, holder: &Holder) {
        self.busy += 1;
        *self
            .busy_of_sandbox
            .entry(holder.sandbox.clone())
            .or_default() += 1;
        *self.busy_of_team.entry(holder.team).or_default() += 1;
    }

    fn end(&mut self, holder: &Holder) {
        self.busy -= 1;
        one_less(&mut self.busy_of_sandbox, &holder.sandbox);
        one_less(&mut self.busy_of_team, &holder.team);
    }
}

fn one_less<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl<C> Idle<C> {
    fn put(&mut self, line: Line, connection: C, place: Arc<Place<C>>) {
        let execution = place.holder.execution;
        let waiting = Waiting {
            execution,
            since: Instant::now(),
            connection,
            place,
        };
        self.by_age.insert(self.next, waiting);
        let of_run = self.by_run.entry(execution).or_default();
        of_run.push((line, self.next));
        self.next += 1;
    }

    fn take(&mut self, execution: ExecutionId, line: Line) -> Option<Waiting<C>> {
        let of_run = self.by_run.get(&execution)?;
        let newest = of_run.iter().rev().find(|(of, _)| *of == line)?.1;
        self.remove(newest)
    }

    fn pop_oldest(&mut self) -> Option<Waiting<C>> {
        let oldest = *self.by_age.first_key_value()?.0;
        self.remove(oldest)
    }

    /// Removes a run's connections beyond `most`, the oldest first.
    fn beyond(&mut self, execution: ExecutionId, most: usize) -> impl Iterator<Item = Waiting<C>> {
        std::iter::from_fn(move || {
            let of_run = self.by_run.get(&execution)?;
            let oldest = of_run.first().filter(|_| of_run.len() > most)?.1;
            self.remove(oldest)
        })
    }

    fn remove(&mut self, key: u64) -> Option<Waiting<C>> {
        let waiting = self.by_age.remove(&key)?;
        if let Some(of_run) = self.by_run.get_mut(&waiting.execution) {
            of_run.retain(|(_, of)| *of != key);
            if of_run.is_empty() {
                self.by_run.remove(&waiting.execution);
            }
        }
        Some(waiting)
    }
}

impl<C> Drop for Place<C> {
    fn drop(&mut self) {
        if *self.busy.get_mut() {
            self.state.lock().end(&self.holder);
        }
    }
}

#[cfg(test)]
mod tests;
