//! The rules of parked members: which ready members are parked, and which are woken.
//!
//! A pool keeps a few members hot, in memory. The others are parked: saved with their memory and ended. A claim
//! takes a hot member, and wakes a parked one if no hot one is left.

use std::time::Duration;

use super::TOGETHER;
use crate::clock::Timestamp;

/// How long the programs of a ready member run before they are frozen, or the member is parked. They finish the
/// work that follows the opening of their port.
pub const SETTLED: Duration = Duration::from_secs(10);

/// Where the memory of a ready member is. In the order in which claims take members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemberPlace {
    /// In memory.
    Hot,
    /// It is being woken.
    Waking,
    /// On the disk.
    Parked,
    /// It is being parked.
    Parking,
}

/// A ready member, as the plan sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyMember<K> {
    /// Its id.
    pub id: K,
    /// When it became ready.
    pub ready: Timestamp,
    /// Where its memory is.
    pub place: MemberPlace,
    /// It could not be parked, and is not tried again before this moment.
    pub not_before: Option<Timestamp>,
}

impl<K> ReadyMember<K> {
    fn is_parkable(&self, now: Timestamp) -> bool {
        self.not_before.is_none_or(|moment| now >= moment)
    }
}

/// The next members of a pool to park and to wake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkingPlan<K> {
    /// The members to park.
    pub park: Vec<K>,
    /// The members to wake.
    pub wake: Vec<K>,
}

impl<K> Default for ParkingPlan<K> {
    fn default() -> Self {
        Self {
            park: Vec::new(),
            wake: Vec::new(),
        }
    }
}

/// Plans which members to park and to wake, so that `hot` stay in memory. `starting` members are hot soon.
///
/// * The hot members that became ready first stay: claims take those, so that no member is parked only to be
///   woken for a claim.
/// * A member is parked once it has [`SETTLED`].
/// * A few members are parked and woken at a time.
#[must_use]
pub fn plan_parking<K: Clone + Ord>(
    hot: usize,
    starting: usize,
    members: &[ReadyMember<K>],
    now: Timestamp,
) -> ParkingPlan<K> {
    let mut members: Vec<&ReadyMember<K>> = members.iter().collect();
    members.sort_by(|a, b| (a.ready, &a.id).cmp(&(b.ready, &b.id)));
    let of = |places: &'static [MemberPlace]| {
        let members = members.iter().copied();
        members.filter(move |member| places.contains(&member.place))
    };
    let moving = of(&[MemberPlace::Waking, MemberPlace::Parking]).count();
    let few = TOGETHER.saturating_sub(moving);
    let in_memory = of(&[MemberPlace::Hot, MemberPlace::Waking]).count();
    // Those that cannot be parked, or are being woken, are among the ones that stay, wherever they stand.
    let parkable = || of(&[MemberPlace::Hot]).filter(|member| member.is_parkable(now));
    let stay = hot.saturating_sub(in_memory - parkable().count());
    let park = parkable()
        .skip(stay)
        .filter(|member| now.since(member.ready) >= SETTLED)
        .take(few);
    let wake = of(&[MemberPlace::Parked]).take(few.min(hot.saturating_sub(in_memory + starting)));
    let ids = |member: &ReadyMember<K>| member.id.clone();
    ParkingPlan {
        park: park.map(ids).collect(),
        wake: wake.map(ids).collect(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_millis(seconds * 1000)
    }

    fn member(id: u32, ready: i64, place: MemberPlace) -> ReadyMember<u32> {
        ReadyMember {
            id,
            ready: at(ready),
            place,
            not_before: None,
        }
    }

    #[test]
    fn the_first_stay_hot_and_the_settled_others_are_parked() {
        let hot = |id, ready| member(id, ready, MemberPlace::Hot);
        let members = [hot(4, 95), hot(2, 20), hot(1, 10), hot(3, 30)];
        let plan = plan_parking(2, 0, &members, at(100));
        assert_eq!((plan.park, plan.wake), (vec![3], vec![]));
        assert_eq!(plan_parking(2, 0, &members, at(105)).park, [3, 4]);
        assert_eq!(plan_parking(0, 0, &members, at(105)).park, [1, 2, 3, 4]);
        assert!(
            plan_parking(usize::MAX, 0, &members, at(105))
                .park
                .is_empty()
        );
    }

    #[test]
    fn a_member_that_cannot_be_parked_is_one_of_the_hot_for_a_while() {
        let stuck = ReadyMember {
            not_before: Some(at(200)),
            ..member(3, 30, MemberPlace::Hot)
        };
        let members = [
            member(1, 10, MemberPlace::Hot),
            member(2, 20, MemberPlace::Hot),
            stuck,
        ];
        assert_eq!(plan_parking(2, 0, &members, at(100)).park, [2]);
        assert_eq!(plan_parking(0, 0, &members, at(100)).park, [1, 2]);
        assert_eq!(
            plan_parking(2, 0, &members, at(200)).park,
            [3],
            "it is tried again"
        );
    }

    #[test]
    fn parked_members_are_woken_when_too_few_are_hot_and_none_start() {
        let members = [
            member(1, 10, MemberPlace::Parked),
            member(2, 20, MemberPlace::Parked),
            member(3, 30, MemberPlace::Hot),
        ];
        assert_eq!(plan_parking(2, 0, &members, at(100)).wake, [1]);
        assert!(plan_parking(2, 1, &members, at(100)).wake.is_empty());
        assert_eq!(plan_parking(usize::MAX, 1, &members, at(100)).wake, [1, 2]);
    }

    fn places() -> impl Strategy<Value = MemberPlace> {
        prop_oneof![
            Just(MemberPlace::Hot),
            Just(MemberPlace::Waking),
            Just(MemberPlace::Parked),
            Just(MemberPlace::Parking),
        ]
    }

    fn settle(hot: usize, members: &mut [ReadyMember<u32>]) -> ParkingPlan<u32> {
        let plan = plan_parking(hot, 0, members, at(1_000));
        for member in members {
            match member.place {
                MemberPlace::Waking => member.place = MemberPlace::Hot,
                MemberPlace::Parking => member.place = MemberPlace::Parked,
                MemberPlace::Hot | MemberPlace::Parked => {}
            }
            if plan.park.contains(&member.id) {
                member.place = MemberPlace::Parking;
            }
            if plan.wake.contains(&member.id) {
                member.place = MemberPlace::Waking;
            }
        }
        plan
    }

    proptest! {
        #[test]
        fn a_pool_that_is_left_alone_settles_with_the_wanted_number_hot(
            hot in 0usize..12,
            states in prop::collection::vec((places(), 0i64..900, any::<bool>()), 0..20),
        ) {
            let made = |(id, (place, ready, stuck)): (usize, &(MemberPlace, i64, bool))| ReadyMember {
                not_before: (*stuck && *place == MemberPlace::Hot).then_some(at(2_000)),
                ..member(u32::try_from(id).unwrap_or_default(), *ready, *place)
            };
            let mut members: Vec<_> = states.iter().enumerate().map(made).collect();
            for _ in 0..20 {
                let plan = settle(hot, &mut members);
                let moved = plan.park.len() + plan.wake.len();
                prop_assert!(moved <= TOGETHER);
                prop_assert!(plan.park.iter().all(|id| !plan.wake.contains(id)));
            }
            let last = settle(hot, &mut members);
            prop_assert_eq!(last.park.len() + last.wake.len(), 0, "it has settled");
            let in_memory = members.iter().filter(|member| member.place == MemberPlace::Hot).count();
            let stuck = members.iter().filter(|member| member.not_before.is_some()).count();
            prop_assert_eq!(in_memory, hot.min(members.len()).max(stuck));
        }
    }
}
