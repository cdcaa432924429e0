//! Parked members: a pool keeps a few in memory and the others on the disk.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::catalogue::EntryName;
use shoal_core::clock::Timestamp;
use shoal_core::detail::Chain;
use shoal_core::id::SandboxId;
use shoal_core::pool::{MemberPlace, ParkingPlan, ReadyMember, plan_parking};
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::state::{KillReason, StateKind};

use super::Pools;
use super::fill::PooledEntry;
use super::members::{MemberState, PoolMembers};
use crate::sandboxes::Command;

/// When a member that stays in memory is tried again.
const AGAIN: Duration = Duration::from_secs(300);

impl MemberState {
    /// Whether it is ready, and on the disk.
    pub(super) fn is_parked(&self) -> bool {
        self.ready.is_some() && self.place == MemberPlace::Parked
    }
}

impl PoolMembers {
    /// Plans which members to park and to wake, and notes that they are. `coming` members are about to be started.
    /// Only members with this `digest` count: others are about to be replaced.
    fn plan_parking(
        &self,
        entry: &EntryName,
        (hot, coming): (usize, usize),
        digest: &str,
        now: Timestamp,
    ) -> ParkingPlan<SandboxId> {
        let mut pools = self.by_entry.lock();
        let pool = pools.entry(entry.clone()).or_default();
        let all_stay =
            hot >= pool.members.len() && pool.members.values().all(|m| m.place == MemberPlace::Hot);
        if all_stay {
            return ParkingPlan::default();
        }
        let members = pool.members.iter();
        let ready: Vec<_> = members
            .filter(|(_, member)| member.digest.as_deref() == Some(digest))
            .filter_map(|(id, member)| {
                Some(ReadyMember {
                    id: id.clone(),
                    ready: member.ready?,
                    place: member.place,
                    not_before: member.not_before,
                })
            })
            .collect();
        let starting = pool.members.values().filter(|m| m.ready.is_none()).count();
        let plan = plan_parking(hot, starting + coming, &ready, now);
        let moves = [
            (&plan.park, MemberPlace::Parking),
            (&plan.wake, MemberPlace::Waking),
        ];
        for (ids, place) in moves {
            for id in ids {
                if let Some(member) = pool.members.get_mut(id) {
                    member.place = place;
                }
            }
        }
        plan
    }

    /// The ready members in memory.
    fn hot(&self, entry: &EntryName) -> Vec<SandboxId> {
        let pools = self.by_entry.lock();
        let members = pools.get(entry).into_iter().flat_map(|pool| &pool.members);
        let hot = members.filter(|(_, m)| m.ready.is_some() && m.place == MemberPlace::Hot);
        hot.map(|(id, _)| id.clone()).collect()
    }

    /// Notes where the memory of a member is, unless it was claimed. It is not parked before `not_before`.
    fn set_place(
        &self,
        entry: &EntryName,
        id: &SandboxId,
        place: MemberPlace,
        not_before: Option<Timestamp>,
    ) {
        {
            let mut pools = self.by_entry.lock();
            let pool = pools.get_mut(entry);
            let Some(member) = pool.and_then(|pool| pool.members.get_mut(id)) else {
                return;
            };
            (member.place, member.not_before) = (place, not_before);
        }
        self.changed.notify_one();
    }
}

impl Pools {
    /// Whether pools keep no member in memory: the machine is short of memory, or was so a while ago. Otherwise members
    /// would be woken as soon as their parks have made room.
    pub(super) async fn must_save_memory(&self, pools: &[PooledEntry]) -> bool {
        let mut is_short = self.parts.sandboxes.is_short_of_memory().await;
        for pool in pools {
            is_short |= self.note_parked(&pool.entry.name);
        }
        let now = self.parts.clock.now();
        if is_short {
            *self.parts.members.scarce_until.lock() = Some(now + AGAIN);
        }
        let until = *self.parts.members.scarce_until.lock();
        until.is_some_and(|until| now < until)
    }

    /// Notes the members that were parked to make room for other sandboxes. Whether there were any.
    fn note_parked(&self, entry: &EntryName) -> bool {
        let members = &self.parts.members;
        let mut parked = members.hot(entry);
        parked.retain(|id| {
            let record = self.parts.sandboxes.record(id);
            record.is_some_and(|record| record.state.kind() == StateKind::Parked)
        });
        for id in &parked {
            members.set_place(entry, id, MemberPlace::Parked, None);
        }
        !parked.is_empty()
    }

    /// Parks members of a pool that has too many in memory, and wakes some where it has too few. `coming` members
    /// are about to be started. With `scarce` memory, none stays in it.
    pub(super) fn park_and_wake(self: &Arc<Self>, pool: &PooledEntry, coming: usize, scarce: bool) {
        let Some(digest) = &pool.digest else {
            return;
        };
        let (name, now) = (&pool.entry.name, self.parts.clock.now());
        let hot = if scarce { 0 } else { pool.bounds.hot };
        let plan = self
            .parts
            .members
            .plan_parking(name, (hot, coming), digest, now);
        for id in plan.park {
            let (pools, entry) = (self.clone(), name.clone());
            self.parts.work.spawn_until_stop(async move {
                pools.park_member(&entry, &id).await;
            });
        }
        for id in plan.wake {
            let (pools, entry) = (self.clone(), name.clone());
            self.parts.work.spawn_until_stop(async move {
                pools.wake_member(&entry, &id).await;
            });
        }
    }

    async fn park_member(&self, entry: &EntryName, id: &SandboxId) {
        let parked = self.parts.sandboxes.park_member(id).await;
        let stays = match &parked {
            Ok(true) => None,
            Ok(false) => {
                tracing::debug!(template = %entry, sandbox.id = %id, "a member of a pool stays in memory");
                Some(AGAIN)
            }
            // It was claimed, or has ended.
            Err(SandboxError::NotFound(_)) => Some(AGAIN),
            Err(error) => {
                tracing::warn!(template = %entry, sandbox.id = %id, error = %Chain(error), "a member of a pool cannot be parked");
                Some(AGAIN)
            }
        };
        let place = stays.map_or(MemberPlace::Parked, |_| MemberPlace::Hot);
        let not_before = stays.map(|time| self.parts.clock.now() + time);
        self.parts.members.set_place(entry, id, place, not_before);
    }

    /// A member that cannot be woken could not be claimed either: it is replaced.
    async fn wake_member(&self, entry: &EntryName, id: &SandboxId) {
        let woken = self.parts.sandboxes.call(id, Command::WakeMember).await;
        let Err(error) = woken else {
            return self
                .parts
                .members
                .set_place(entry, id, MemberPlace::Hot, None);
        };
        let message = Chain(&error).to_string();
        let now = self.parts.clock.now();
        if self.parts.members.start_failed(entry, id, message, now) {
            tracing::warn!(template = %entry, sandbox.id = %id, error = %Chain(&error), "a parked member of a pool cannot be woken");
            self.end_members(vec![id.clone()], KillReason::Failed);
            self.parts.members.changed.notify_one();
        }
    }
}
