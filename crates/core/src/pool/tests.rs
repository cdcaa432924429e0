use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp::from_unix_seconds(1_000);

fn bounds(size: usize, min_ready: usize, max: usize) -> PoolBounds {
    PoolBounds {
        size,
        min_ready,
        max,
        scale_down_after: Duration::from_secs(60),
        hot: usize::MAX,
    }
}

fn ready(id: u32, since: i64) -> PlannedMember<u32> {
    PlannedMember {
        id,
        ready: Some(Timestamp::from_unix_seconds(since)),
        outdated: false,
    }
}

fn old(id: u32) -> PlannedMember<u32> {
    PlannedMember {
        outdated: true,
        ..ready(id, 1)
    }
}

fn starting(id: u32) -> PlannedMember<u32> {
    PlannedMember {
        ready: None,
        ..ready(id, 0)
    }
}

fn quiet(bounds: &PoolBounds, members: &[PlannedMember<u32>]) -> PoolPlan<u32> {
    plan(bounds, &Demand::default(), members, NOW)
}

#[test]
fn an_empty_pool_is_filled_a_few_at_a_time() {
    let ten = bounds(10, 10, 10);
    assert_eq!(quiet(&ten, &[]).make, TOGETHER);
    assert_eq!(quiet(&ten, &[starting(1)]).make, TOGETHER - 1);
    let nine: Vec<_> = (0..9).map(|n| ready(n, 1)).collect();
    assert_eq!(quiet(&ten, &nine).make, 1);
}

#[test]
fn surplus_members_are_removed_unfinished_ones_first() {
    let two = bounds(2, 2, 2);
    let members = [ready(1, 10), ready(2, 30), starting(3), ready(4, 20)];
    let plan = quiet(&two, &members);
    assert_eq!((plan.make, plan.end), (0, vec![3, 2]));
    assert_eq!(quiet(&bounds(0, 0, 0), &members).end.len(), 4);
}

#[test]
fn outdated_members_are_replaced_a_few_at_a_time_and_min_ready_is_kept() {
    let members: Vec<_> = (0..6).map(old).collect();
    let plan = quiet(&bounds(6, 3, 6), &members);
    assert_eq!((plan.make, plan.end), (3, vec![0, 1, 2]));
    // No ready member may be missing and no member may be surplus: one is replaced anyway.
    let plan = quiet(&bounds(6, 6, 6), &members);
    assert_eq!((plan.make, plan.end), (1, vec![0]));
    // With room for more, new members are created before old ones are removed.
    let plan = quiet(&bounds(6, 6, 9), &members);
    assert_eq!((plan.make, plan.end), (3, vec![]));
    let half = PlannedMember {
        ready: None,
        ..old(9)
    };
    assert_eq!(quiet(&bounds(1, 1, 1), &[half]).end, [9]);
}

#[test]
fn a_pool_grows_when_it_is_empty_and_shrinks_without_requests() {
    let small = bounds(2, 2, 5);
    let mut demand = Demand::default();
    for _ in 0..9 {
        demand = demand.asked(true, &small, NOW);
    }
    assert_eq!(demand.current(&small, NOW), 3);
    let two = [ready(1, 1), ready(2, 2)];
    assert_eq!(plan(&small, &demand, &two, NOW).make, 3);
    let later = NOW + Duration::from_secs(59);
    assert_eq!(demand.asked(false, &small, later).extra, 3);
    let quiet = NOW + Duration::from_secs(60);
    assert_eq!(plan(&small, &demand, &two, quiet).make, 0);
    assert_eq!(demand.asked(true, &small, quiet).extra, 1);
}

#[test]
fn retries_back_off() {
    assert_eq!(back_off(1), Duration::from_secs(1));
    assert_eq!(back_off(3), Duration::from_secs(4));
    assert_eq!(back_off(9), Duration::from_secs(256));
    for failures in [10, 32, 33, u32::MAX] {
        assert_eq!(back_off(failures), Duration::from_secs(300), "{failures}");
    }
}

fn any_bounds() -> impl Strategy<Value = PoolBounds> {
    (0usize..12, 0usize..12, 0usize..6)
        .prop_map(|(size, ready, more)| bounds(size, ready.min(size), size + more))
}

fn any_members() -> impl Strategy<Value = Vec<PlannedMember<u32>>> {
    let member = (prop::option::of(0i64..50), any::<bool>());
    prop::collection::vec(member, 0..20).prop_map(|members| {
        let numbered = (0u32..).zip(members);
        numbered
            .map(|(id, (since, outdated))| PlannedMember {
                id,
                ready: since.map(Timestamp::from_unix_seconds),
                outdated,
            })
            .collect()
    })
}

fn any_demand() -> impl Strategy<Value = Demand> {
    (0usize..8, prop::option::of(900i64..1_000)).prop_map(|(extra, last)| Demand {
        extra,
        last: last.map(Timestamp::from_unix_seconds),
    })
}

/// The members after the plan is carried out.
fn carried_out(
    members: &[PlannedMember<u32>],
    plan: &PoolPlan<u32>,
    first: u32,
) -> Vec<PlannedMember<u32>> {
    let left = members.iter().filter(|m| !plan.end.contains(&m.id));
    let made = (first..).take(plan.make).map(starting);
    left.cloned().chain(made).collect()
}

proptest! {
    #[test]
    fn a_plan_never_exceeds_the_maximum(
        bounds in any_bounds(), members in any_members(), demand in any_demand()
    ) {
        let plan = plan(&bounds, &demand, &members, NOW);
        let after = carried_out(&members, &plan, 100);
        prop_assert!(plan.make == 0 || after.len() <= bounds.max);
        prop_assert!(plan.make <= TOGETHER);
        let mut ended = plan.end.clone();
        ended.sort_unstable();
        ended.dedup();
        prop_assert_eq!(ended.len(), plan.end.len());
        // Only existing members are removed, and current ones only when they are surplus.
        let current = after.iter().filter(|m| !m.outdated).count();
        let lost = members.iter().filter(|m| !m.outdated && plan.end.contains(&m.id)).count();
        prop_assert!(lost == 0 || current >= bounds.size);
    }

    #[test]
    fn a_plan_keeps_as_many_ready_members_as_possible(
        bounds in any_bounds(), members in any_members()
    ) {
        let count = |members: &[PlannedMember<u32>]| members.iter().filter(|m| m.ready.is_some()).count();
        let plan = quiet(&bounds, &members);
        let after = count(&carried_out(&members, &plan, 100));
        let floor = bounds.min_ready.min(bounds.max.saturating_sub(1));
        prop_assert!(after >= floor.min(count(&members)));
    }

    /// Repeated plans converge to the desired pool while new members become ready.
    #[test]
    fn repeated_plans_converge_to_the_desired_pool(bounds in any_bounds(), members in any_members()) {
        let mut members = members;
        for round in 0..60u32 {
            let plan = quiet(&bounds, &members);
            members = carried_out(&members, &plan, 1_000 * (round + 1));
            for member in &mut members {
                member.ready = member.ready.or(Some(Timestamp::from_unix_seconds(i64::from(round))));
            }
        }
        prop_assert_eq!(members.len(), bounds.size);
        prop_assert!(members.iter().all(|member| !member.outdated));
        let settled = quiet(&bounds, &members);
        prop_assert_eq!((settled.make, settled.end), (0, vec![]));
        let ids: BTreeMap<_, _> = members.iter().map(|m| (m.id, ())).collect();
        prop_assert_eq!(ids.len(), bounds.size);
    }
}
