//! Limits that change at once, that a crash leaves half changed, and that a team may have together.

use shoal_core::limits::{Bounds, reserve};
use shoal_core::resources::{Mib, MilliCpu, RequestedResources, Resources};
use shoal_core::sandbox::SandboxRecord;
use shoal_core::state::State;
use shoal_core::store::SandboxStore;
use shoal_engine::{CpuTarget, Endless, Infeasible, Resize, ResizeCreated};

use super::*;

fn cpu(milli: u32) -> Resize {
    Resize {
        cpu: Some(MilliCpu(milli)),
        memory: None,
    }
}

fn memory(mib: u32) -> Resize {
    Resize {
        cpu: None,
        memory: Some(Mib(mib)),
    }
}

fn scaled(factor: f64, early_return: bool) -> SandboxRequest {
    let cpu = CpuTarget::Factor(factor);
    SandboxRequest {
        resize: Some(ResizeCreated { cpu, early_return }),
        ..new("base")
    }
}

impl Fixture {
    fn resize_aside(
        &self,
        id: &SandboxId,
        resize: Resize,
    ) -> tokio::task::JoinHandle<Result<Arc<SandboxRecord>, SandboxError>> {
        let (permit, _) = self.engine.authorize(&self.me, id).unwrap();
        let engine = self.engine.clone();
        tokio::spawn(async move { engine.resize(&permit, resize).await })
    }

    fn limits(&self, id: &SandboxId) -> (MilliCpu, Mib) {
        let (_, record) = self.engine.authorize(&self.me, id).unwrap();
        let noted = record.spec.resources;
        let in_force = self.driver.resources(id).unwrap();
        assert_eq!((noted.cpu, noted.memory), (in_force.cpu, in_force.memory));
        (noted.cpu, noted.memory)
    }
}

#[tokio::test]
async fn two_who_change_different_limits_at_once_both_have_their_way() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let resizes = fixture.driver.resizes();
    resizes.shut();
    let first = fixture.resize_aside(&id, cpu(3000));
    until("resizing", || resizes.waiting() == 1).await;
    let second = fixture.resize_aside(&id, memory(1024));
    tokio::task::yield_now().await;
    resizes.open();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(fixture.limits(&id), (MilliCpu(3000), Mib(1024)));
}

#[tokio::test]
async fn what_is_changed_while_a_new_sandbox_is_resized_leaves_that_alone() {
    // Between the announcement and the change, and while that is under way.
    for under_way in [false, true] {
        let fixture = fixture().await;
        let resizes = fixture.driver.resizes();
        resizes.shut();
        let made = fixture
            .engine
            .create(&fixture.me, scaled(2.0, true), None)
            .await;
        let made = made.unwrap().record;
        let twice = MilliCpu(made.spec.resources.cpu.0 * 2);
        let (permit, _) = fixture.engine.authorize(&fixture.me, &made.id).unwrap();
        if under_way {
            until("resizing", || resizes.waiting() == 1).await;
        }
        let (changed, ()) = tokio::join!(fixture.engine.resize(&permit, memory(1024)), async {
            resizes.open();
        });
        changed.unwrap();
        let now = || fixture.engine.authorize(&fixture.me, &made.id).unwrap().1;
        until("resized", || !now().resizing).await;
        assert_eq!(fixture.limits(&made.id), (twice, Mib(1024)));
        assert_eq!(now().aim, None);
    }
}

#[tokio::test]
async fn a_new_sandbox_that_is_paused_before_it_was_resized_is_not_ended_for_that() {
    let fixture = fixture().await;
    // The pause is given as soon as the change has been announced, so that it comes between.
    let made = fixture
        .engine
        .create(&fixture.me, scaled(2.0, true), None)
        .await
        .unwrap()
        .record;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &made.id).unwrap();
    fixture.engine.pause(&permit, None, false).await.unwrap();
    let now = || fixture.engine.authorize(&fixture.me, &made.id).unwrap().1;
    until("settled", || !now().resizing).await;
    assert_eq!(now().spec.resources.cpu, MilliCpu(4000));
}

/// Leaves a sandbox as a server that was killed in the middle of a resize would have.
async fn half_resized(fixture: &Fixture, id: &SandboxId, aim: Option<Resources>, state: State) {
    let store = SqliteStore::open(&fixture.directory.path().join("shoal.db")).unwrap();
    let found = store.sandbox(id).await.unwrap().unwrap();
    let next = SandboxRecord {
        resizing: true,
        aim,
        state,
        ..found.value
    };
    store.commit(next, Some(found.version)).await.unwrap();
}

#[tokio::test]
async fn a_restart_finishes_a_resize_that_was_on_its_way() {
    let fixture = fixture().await;
    let driver = &fixture.driver;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(fixture.create().await);
    }
    let before = driver.resources(&ids[0]).unwrap();
    let aim = Resources {
        cpu: MilliCpu(4000),
        ..before
    };
    // Announced; put in force already; by a server that did not note what it was to be.
    half_resized(&fixture, &ids[0], Some(aim), State::Running).await;
    half_resized(&fixture, &ids[1], Some(aim), State::Running).await;
    half_resized(&fixture, &ids[2], None, State::Running).await;
    for id in &ids[1..] {
        let granted = Bounds::none().grant(aim, aim.cpu).unwrap();
        shoal_core::driver::Resizer::resize(driver, id, granted)
            .await
            .unwrap();
    }
    let engine = engine_on(fixture.directory.path(), driver, &fixture.clock, |_| {}).await;
    for (id, expected) in ids.iter().zip([aim.cpu, aim.cpu, before.cpu]) {
        let now = || engine.authorize(&fixture.me, id).unwrap().1;
        until("settled", || !now().resizing && now().aim.is_none()).await;
        assert_eq!(now().spec.resources.cpu, expected);
        assert_eq!(driver.resources(id).unwrap().cpu, expected);
    }
}

#[tokio::test]
async fn a_restart_goes_back_to_the_old_limits_when_others_cannot_be_had() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let before = fixture.driver.resources(&id).unwrap();
    let aim = Resources {
        cpu: MilliCpu(4000),
        ..before
    };
    half_resized(&fixture, &id, Some(aim), State::Running).await;
    fixture.driver.refuse(Refusals {
        resize: true,
        ..Refusals::default()
    });
    let directory = fixture.directory.path();
    let engine = engine_on(directory, &fixture.driver, &fixture.clock, |_| {}).await;
    let now = || engine.authorize(&fixture.me, &id).unwrap().1;
    until("settled", || !now().resizing && now().aim.is_none()).await;
    assert_eq!(now().spec.resources.cpu, before.cpu);
}

/// A fixture whose team may have so much; a sandbox of `base` has 2000.
async fn fixture_of_quota(milli: u32) -> Fixture {
    fixture_with(|config| config.limits.cpu_per_team = Some(MilliCpu(milli))).await
}

#[tokio::test]
async fn no_sandbox_is_made_forked_or_resumed_beyond_what_its_team_may_have() {
    let fixture = fixture_of_quota(6000).await;
    let (engine, me) = (&fixture.engine, &fixture.me);
    let first = fixture.create().await;
    let (permit, _) = engine.authorize(me, &first).unwrap();
    engine.pause(&permit, None, false).await.unwrap();
    let others = [fixture.create().await, fixture.create().await];
    let (other, _) = engine.authorize(me, &others[0]).unwrap();
    let forked = engine.fork(me, &other, 3, Duration::from_secs(60)).await;
    let forked = forked.unwrap();
    assert_eq!(forked.iter().filter(|one| one.is_ok()).count(), 1);
    let refused = engine.create(me, new("base"), None).await.unwrap_err();
    assert!(
        matches!(
            refused,
            CreateError::Full(QuotaExceeded::Cpu {
                asked: MilliCpu(2000),
                left: MilliCpu(0)
            })
        ),
        "{refused}"
    );
    let refused = engine.resume(&permit, Duration::from_secs(60), true).await;
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, SandboxError::Full(QuotaExceeded::Cpu { .. })),
        "{refused}"
    );
    engine.kill(&other).await.unwrap();
    let resumed = engine.resume(&permit, Duration::from_secs(60), true).await;
    resumed.unwrap();
}

#[tokio::test]
async fn nobody_is_given_more_than_there_is_or_than_the_template_allows() {
    let fixture = fixture().await;
    let machine = fixture.engine.capabilities();
    let (cpu, memory) = (
        machine.cpu,
        Mib(machine.memory.0 - reserve(machine.memory).0),
    );
    let asked = async |cpu: Option<MilliCpu>, memory: Option<Mib>, template: &str| {
        let resources = RequestedResources {
            cpu,
            memory,
            ..RequestedResources::default()
        };
        let new = SandboxRequest {
            resources,
            ..new(template)
        };
        fixture.engine.create(&fixture.me, new, None).await
    };
    let most = MilliCpu(3000);
    let capped = Template {
        max_cpu: Some(most),
        ..template("capped", "test/image:1")
    };
    fixture.engine.put_template(capped).await.unwrap();
    for (cpu, memory, template) in [
        (Some(MilliCpu(cpu.0 + 1)), None, "base"),
        (None, Some(Mib(memory.0 + 1)), "base"),
        (Some(MilliCpu(most.0 + 1)), None, "capped"),
    ] {
        let refused = asked(cpu, memory, template).await.unwrap_err();
        assert!(
            matches!(refused, CreateError::Sandbox(SandboxError::Infeasible(_))),
            "{refused}"
        );
    }
    assert!(fixture.driver.sandboxes().is_empty());
    asked(Some(cpu), Some(memory), "base").await.unwrap();
    asked(Some(most), None, "capped").await.unwrap();
}

#[tokio::test]
async fn two_who_ask_at_once_do_not_both_have_what_there_is_for_one() {
    // Room for one of twice the size, and not for another of any size.
    let fixture = fixture_of_quota(5000).await;
    let asked = || fixture.engine.create(&fixture.me, scaled(2.0, false), None);
    let (one, other) = tokio::join!(asked(), asked());
    let made = [&one, &other].into_iter().filter(|made| made.is_ok());
    assert_eq!(made.count(), 1, "{one:?} {other:?}");
    let refused = one.err().or(other.err()).unwrap();
    let by_quota = matches!(
        refused,
        CreateError::Sandbox(SandboxError::Infeasible(Infeasible::Team { .. }))
            | CreateError::Full(QuotaExceeded::Cpu { .. })
    );
    assert!(by_quota, "{refused}");
    assert_eq!(fixture.driver.sandboxes().len(), 1);
}

#[tokio::test]
async fn two_resizes_at_once_do_not_both_have_what_is_left() {
    let fixture = fixture_of_quota(6000).await;
    let ids = [fixture.create().await, fixture.create().await];
    let resizes = fixture.driver.resizes();
    resizes.shut();
    let all: Vec<_> = ids
        .iter()
        .map(|id| fixture.resize_aside(id, cpu(4000)))
        .collect();
    let ended = || all.iter().filter(|one| one.is_finished()).count();
    until("one is refused", || resizes.waiting() + ended() == 2).await;
    resizes.open();
    let all = futures_util::future::join_all(all).await;
    let refused: Vec<_> = all
        .into_iter()
        .filter_map(|one| one.unwrap().err())
        .collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(
        refused[0]
            .to_string()
            .contains("your team has left (2000m)"),
        "{}",
        refused[0]
    );
}

#[tokio::test]
async fn a_hundred_members_of_a_fork_run_or_as_many_as_there_is_room_for() {
    for (most, expected) in [(101, 100), (100, 99), (60, 59)] {
        let fixture = fixture_with(|config| config.limits.sandboxes = most).await;
        let id = fixture.create().await;
        let (permit, source) = fixture.engine.authorize(&fixture.me, &id).unwrap();
        let count = shoal_engine::FORKS_MAX.min(most);
        let forked = fixture
            .engine
            .fork(&fixture.me, &permit, count, Duration::from_secs(60))
            .await
            .unwrap();
        assert_eq!(forked.len(), count);
        let (made, failed): (Vec<_>, Vec<_>) = forked.into_iter().partition(Result::is_ok);
        assert_eq!(made.len(), expected);
        for one in failed {
            let full = one.unwrap_err();
            assert!(
                matches!(full, CreateError::Full(QuotaExceeded::Installation(_))),
                "{full}"
            );
        }
        let runs: std::collections::HashSet<_> = made
            .iter()
            .map(|one| one.as_ref().unwrap().record.id.clone())
            .collect();
        assert_eq!(runs.len(), expected, "each is one of its own");
        assert!(!runs.contains(&source.id));
        let there = fixture.driver.sandboxes();
        assert_eq!(there.len(), expected + 1);
        assert!(fixture.driver.kept().is_empty(), "no copy stays");
    }
}

fn endless() -> SandboxRequest {
    SandboxRequest {
        endless: true,
        ..new("base")
    }
}

#[tokio::test]
async fn a_sandbox_without_a_deadline_outlives_every_limit_and_is_an_admins_to_make() {
    let fixture = fixture().await;
    let (engine, me) = (&fixture.engine, &fixture.me);
    let refused = engine.create(me, endless(), None).await.unwrap_err();
    assert!(matches!(refused, CreateError::EndlessForbidden));
    let admin = Principal {
        admin: true,
        ..me.clone()
    };
    let made = engine.create(&admin, endless(), None).await.unwrap();
    let id = made.record.id.clone();
    let mortal = fixture.create().await;
    let (permit, _) = engine.authorize(me, &id).unwrap();
    fixture.clock.advance(Duration::from_secs(30 * 24 * 3600));
    until("over", || !fixture.lives(&mortal)).await;
    assert!(fixture.lives(&id));
    // No call gives it a deadline.
    let minute = Duration::from_secs(60);
    engine.set_timeout(&permit, minute).await.unwrap();
    engine.connect(&permit, minute, true).await.unwrap();
    engine.pause(&permit, None, false).await.unwrap();
    engine.resume(&permit, minute, true).await.unwrap();
    let mortal = fixture.create().await;
    fixture.clock.advance(Duration::from_secs(301));
    until("over", || !fixture.lives(&mortal)).await;
    let (_, record) = engine.authorize(me, &id).unwrap();
    assert!(record.state.is_running() && record.ends_at().is_none());
    // A fork of it has its own timeout.
    let forked = engine.fork(me, &permit, 1, minute).await.unwrap();
    let forked = forked.into_iter().next().unwrap().unwrap().record;
    assert!(forked.ends_at().is_some());
}

#[tokio::test]
async fn every_key_may_make_one_without_a_deadline_where_the_operator_says_so() {
    let fixture = fixture_with(|config| config.limits.endless = Endless::Everyone).await;
    let made = fixture.engine.create(&fixture.me, endless(), None).await;
    assert!(made.unwrap().record.ends_at().is_none());
}
