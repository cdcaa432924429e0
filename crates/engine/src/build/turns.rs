//! Whose build is carried out next.
//!
//! Few go on at the same time, and each may take hours. So that no team holds all turns while another
//! waits, there is one more for a team that has none, and those that have fewest go first.

use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::id::TeamId;
use tokio::sync::Notify;

/// How many builds are carried out at once; the others wait for their turn.
const AT_ONCE: usize = 2;

/// How many are when one is of a team that had none under way.
const AT_MOST: usize = AT_ONCE + 1;

/// The turns of builds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Somebody else may be next.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    /// The teams of those that are carried out.
    running: Vec<TeamId>,
    /// Those that wait, the first first.
    waiting: Vec<(u64, TeamId)>,
    /// How many have come.
    came: u64,
}

impl Queue {
    fn running_of(&self, team: TeamId) -> usize {
        self.running.iter().filter(|one| **one == team).count()
    }

    /// Who may go now: of the team that has fewest under way, and of those the first.
    fn next(&self) -> Option<u64> {
        let waiting = self.waiting.iter();
        let ranked = waiting.map(|(number, team)| (self.running_of(*team), *number));
        let (under_way, number) = ranked.min()?;
        let most = if under_way == 0 { AT_MOST } else { AT_ONCE };
        (self.running.len() < most).then_some(number)
    }
}

/// A build waits for its turn, until this is dropped.
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

/// A build is carried out, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    shared: Arc<Shared>,
    team: TeamId,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        if let Some(place) = queue.running.iter().position(|team| *team == self.team) {
            queue.running.swap_remove(place);
        }
        drop(queue);
        self.shared.changed.notify_waiters();
    }
}

impl Turns {
    /// Waits for the turn of a build of this team.
    pub(crate) async fn acquire(&self, team: TeamId) -> Turn {
        let number = {
            let mut queue = self.0.queue.lock();
            queue.came += 1;
            let number = queue.came;
            queue.waiting.push((number, team));
            number
        };
        // Whoever does not wait any more leaves the queue.
        let _waiting = Waiting {
            shared: &self.0,
            number,
        };
        loop {
            let changed = self.0.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // What changes between the two lines is heard of.
            changed.as_mut().enable();
            {
                let mut queue = self.0.queue.lock();
                if queue.next() == Some(number) {
                    queue.running.push(team);
                    return Turn {
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

    type Asking = Pin<Box<dyn Future<Output = Turn>>>;

    fn team(number: u8) -> TeamId {
        TeamId::from_entropy([number; 16])
    }

    /// Somebody who asks, and has got in line.
    fn ask(turns: &Turns, of: u8) -> (Asking, Option<Turn>) {
        let turns = turns.clone();
        let mut asking: Asking = Box::pin(async move { turns.acquire(team(of)).await });
        let got = asking.as_mut().now_or_never();
        (asking, got)
    }

    #[test]
    fn no_team_holds_all_turns_while_another_waits() {
        let turns = Turns::default();
        let (_, first) = ask(&turns, 1);
        let (_, second) = ask(&turns, 1);
        let (mut third, none) = ask(&turns, 1);
        assert!(first.is_some() && second.is_some() && none.is_none());
        let (_, other) = ask(&turns, 2);
        assert!(other.is_some(), "it has none under way");
        let (mut another, none) = ask(&turns, 3);
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
    fn of_equals_the_first_goes_first_and_who_left_holds_up_nobody() {
        let turns = Turns::default();
        let held: Vec<_> = (1..=3).map(|of| ask(&turns, of).1.unwrap()).collect();
        let (left, _) = ask(&turns, 4);
        let (mut first, _) = ask(&turns, 5);
        let (mut second, _) = ask(&turns, 6);
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
