//! The queue of builds.
//!
//! Few builds run at the same time, and each may take hours. So that no team can occupy all slots,
//! one extra slot is reserved for teams without a running build, and teams with the fewest running
//! builds go first.

use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::id::TeamId;
use tokio::sync::Notify;

/// How many builds run at once.
const SLOTS: usize = 2;

/// How many run at once when one belongs to a team that had no running build.
const SLOTS_MAX: usize = SLOTS + 1;

/// Builds that run or wait.
#[derive(Debug, Clone, Default)]
pub(super) struct BuildQueue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Wakes waiting builds to check whether they are next.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    /// The teams of the running builds.
    running: Vec<TeamId>,
    /// The waiting builds, in order of arrival.
    waiting: Vec<(u64, TeamId)>,
    /// How many builds have arrived so far.
    arrived: u64,
}

impl Queue {
    fn running_of(&self, team: TeamId) -> usize {
        self.running.iter().filter(|one| **one == team).count()
    }

    /// The build that may run now: of the team with the fewest running builds, the first to arrive.
    fn next(&self) -> Option<u64> {
        let waiting = self.waiting.iter();
        let ranked = waiting.map(|(number, team)| (self.running_of(*team), *number));
        let (running, number) = ranked.min()?;
        let most = if running == 0 { SLOTS_MAX } else { SLOTS };
        (self.running.len() < most).then_some(number)
    }
}

/// A place in the queue, left on drop.
struct Waiting<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.waiting.retain(|(number, _)| *number != self.number);
        drop(queue);
        self.shared.changed.notify_waiters();
    }
}

/// The right of a build to run, returned on drop.
#[derive(Debug)]
pub(super) struct BuildSlot {
    shared: Arc<Shared>,
    team: TeamId,
}

impl Drop for BuildSlot {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        if let Some(at) = queue.running.iter().position(|team| *team == self.team) {
            queue.running.swap_remove(at);
        }
        drop(queue);
        self.shared.changed.notify_waiters();
    }
}

impl BuildQueue {
    /// Waits for a slot for a build of this team.
    pub(super) async fn acquire(&self, team: TeamId) -> BuildSlot {
        let number = {
            let mut queue = self.0.queue.lock();
            queue.arrived += 1;
            let number = queue.arrived;
            queue.waiting.push((number, team));
            number
        };
        // A caller that stops waiting leaves the queue.
        let _waiting = Waiting {
            shared: &self.0,
            number,
        };
        loop {
            let changed = self.0.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Before the check: a change in between must wake this caller.
            changed.as_mut().enable();
            {
                let mut queue = self.0.queue.lock();
                if queue.next() == Some(number) {
                    queue.running.push(team);
                    return BuildSlot {
                        shared: Arc::clone(&self.0),
                        team,
                    };
                }
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;

    use futures_util::FutureExt;

    use super::*;

    type Asking = Pin<Box<dyn Future<Output = BuildSlot>>>;

    fn team(number: u8) -> TeamId {
        TeamId::from_entropy([number; 16])
    }

    /// A build that has joined the queue, with its slot if it got one at once.
    fn ask(queue: &BuildQueue, of: u8) -> (Asking, Option<BuildSlot>) {
        let queue = queue.clone();
        let mut asking: Asking = Box::pin(async move { queue.acquire(team(of)).await });
        let got = asking.as_mut().now_or_never();
        (asking, got)
    }

    #[test]
    fn no_team_occupies_all_slots_while_another_waits() {
        let queue = BuildQueue::default();
        let (_, first) = ask(&queue, 1);
        let (_, second) = ask(&queue, 1);
        let (mut third, none) = ask(&queue, 1);
        assert!(first.is_some() && second.is_some() && none.is_none());
        let (_, other) = ask(&queue, 2);
        assert!(other.is_some(), "it has none under way");
        let (mut another, none) = ask(&queue, 3);
        assert!(none.is_none(), "there is one more, not more");
        // It came later, and goes first.
        drop(first);
        assert!(third.as_mut().now_or_never().is_none());
        let another = another.as_mut().now_or_never();
        assert!(another.is_some());
        drop((second, other));
        assert!(third.as_mut().now_or_never().is_some());
    }

    #[test]
    fn builds_run_in_order_of_arrival_and_a_cancelled_one_blocks_nobody() {
        let queue = BuildQueue::default();
        let held: Vec<_> = (1..=3).map(|of| ask(&queue, of).1.unwrap()).collect();
        let (left, _) = ask(&queue, 4);
        let (mut first, _) = ask(&queue, 5);
        let (mut second, _) = ask(&queue, 6);
        drop(left);
        let mut held = held.into_iter();
        drop(held.next());
        assert!(second.as_mut().now_or_never().is_none());
        let first = first.as_mut().now_or_never();
        assert!(first.is_some());
        drop(held.next());
        assert!(second.as_mut().now_or_never().is_some());
    }
}
