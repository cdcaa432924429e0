//! Pause, resume, clone and resize.

use shoal_core::driver::{AfterSnapshot, Checkpointer, Start, StartKind};
use shoal_core::id::{ExecutionId, SnapshotId};
use shoal_core::resources::{Mib, MilliCpu};
use shoal_core::routes::NotResumed;
use shoal_core::sandbox::{OnTimeout, SandboxRecord};
use shoal_core::snapshot::Contents;
use shoal_core::state::{State, StateKind};
use shoal_core::store::SandboxStore;
use shoal_core::template::TemplateRef;
use shoal_engine::{CpuTarget, NewSnapshot, Resize, ResizeCreated, SnapshotFilter, TakeError};

use super::*;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn named(text: &str) -> Option<TemplateRef> {
    Some(text.parse().unwrap())
}

impl Fixture {
    fn state(&self, id: &SandboxId) -> StateKind {
        let (_, record) = self.engine.authorize(&self.me, id).unwrap();
        record.state.kind()
    }

    async fn pause(&self, id: &SandboxId) {
        let (permit, _) = self.engine.authorize(&self.me, id).unwrap();
        self.engine.pause(&permit, None, false).await.unwrap();
    }

    async fn take(&self, id: &SandboxId, new: NewSnapshot) -> String {
        let (permit, _) = self.engine.authorize(&self.me, id).unwrap();
        let taken = self.engine.snapshot(&self.me, &permit, new).await.unwrap();
        taken.reference(self.me.slug.as_str())
    }

    fn listed(&self) -> Vec<String> {
        let all = self.engine.snapshots(&self.me, &SnapshotFilter::default());
        let mut all: Vec<_> = all
            .iter()
            .map(|snapshot| snapshot.reference(self.me.slug.as_str()))
            .collect();
        all.sort();
        all
    }

    fn refuse(&self, change: impl FnOnce(&mut Refusals)) {
        let mut refusals = Refusals::default();
        change(&mut refusals);
        self.driver.refuse(refusals);
    }
}

#[tokio::test]
async fn a_paused_sandbox_rests_and_connecting_wakes_it() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let (permit, before) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let mut events = fixture.engine.subscribe();
    fixture.engine.pause(&permit, None, false).await.unwrap();
    assert_eq!(events.recv().await.unwrap().kind, EventKind::Paused);
    assert!(*fixture.guest.frozen.lock(), "its time stands still");
    let (_, rests) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    assert_eq!(rests.state.saved().unwrap().contents, Contents::Memory);
    let again = fixture.engine.pause(&permit, None, false).await;
    assert_eq!(
        again.unwrap_err().to_string(),
        "cannot pause a sandbox that is paused"
    );
    assert!(matches!(
        fixture.engine.routes().lookup(&id),
        Lookup::Paused
    ));

    fixture.clock.advance(seconds(3600));
    let connected = fixture
        .engine
        .connect(&permit, seconds(60), true)
        .await
        .unwrap();
    assert!(connected.resumed && !*fixture.guest.frozen.lock());
    let after = connected.record;
    assert_ne!(after.execution, before.execution);
    assert_eq!(after.spec, before.spec);
    assert_eq!(after.deadline.since(after.started_at), seconds(60));
    assert_eq!(after.report.as_ref().unwrap().origin, StartKind::Restored);
    assert_eq!(after.state.saved(), None);
    assert_eq!(events.recv().await.unwrap().kind, EventKind::Resumed);
    let connected = fixture
        .engine
        .connect(&permit, seconds(1), true)
        .await
        .unwrap();
    assert!(!connected.resumed);
    let running = fixture.engine.resume(&permit, seconds(9), true).await;
    assert!(matches!(running, Err(SandboxError::Refused(_))));
}

#[tokio::test]
async fn what_cannot_be_saved_runs_on_and_what_cannot_go_on_stays_saved() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    fixture.refuse(|refuses| refuses.save = true);
    assert!(fixture.engine.pause(&permit, None, false).await.is_err());
    assert_eq!(fixture.state(&id), StateKind::Running);
    assert!(!*fixture.guest.frozen.lock(), "its clock runs");
    let new = NewSnapshot::default();
    assert!(
        fixture
            .engine
            .snapshot(&fixture.me, &permit, new)
            .await
            .is_err()
    );
    assert_eq!(fixture.state(&id), StateKind::Running);
    assert!(fixture.listed().is_empty());

    fixture.refuse(|refuses| refuses.resume = true);
    fixture.pause(&id).await;
    assert!(
        fixture
            .engine
            .connect(&permit, seconds(9), true)
            .await
            .is_err()
    );
    assert_eq!(fixture.state(&id), StateKind::Paused);
    fixture.refuse(|_| {});
    assert!(
        fixture
            .engine
            .connect(&permit, seconds(9), true)
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_resume_whose_daemon_is_silent_says_so_and_stays_paused() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    fixture.pause(&id).await;
    *fixture.guest.lost.lock() = true;
    let resumed = fixture.engine.resume(&permit, seconds(9), true).await;
    let error = resumed.unwrap_err();
    assert!(matches!(error, SandboxError::NotResumed(_)), "{error}");
    assert!(error.to_string().starts_with("the sandbox cannot resume: "));
    assert_eq!(fixture.state(&id), StateKind::Paused);
    *fixture.guest.lost.lock() = false;
    let resumed = fixture.engine.resume(&permit, seconds(9), true).await;
    assert!(resumed.is_ok());
}

#[tokio::test]
async fn the_end_of_a_run_that_was_saved_ends_nothing() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    fixture.pause(&id).await;
    // News that was on its way when it was saved.
    fixture.driver.fail(&id, FailReason::Exited).await;
    let again = fixture.engine.connect(&permit, seconds(9), true).await;
    assert!(again.unwrap().resumed);
}

#[tokio::test]
async fn a_daemon_that_does_not_answer_is_a_reason_only_when_said() {
    let silent = FakeGuest {
        silent: true,
        ..FakeGuest::default()
    };
    let fixture = fixture_of(silent, |_| {}).await;
    let id = fixture.create().await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let refused = fixture.engine.pause(&permit, None, true).await;
    assert!(matches!(refused, Err(SandboxError::Unresponsive(_))));
    assert_eq!(fixture.state(&id), StateKind::Running);
    fixture.engine.pause(&permit, None, false).await.unwrap();
}

#[tokio::test]
async fn a_sandbox_rests_by_itself_at_its_deadline_and_traffic_wakes_it_once() {
    let fixture = fixture().await;
    let mut asked = new("base");
    asked.on_timeout = OnTimeout::Pause;
    asked.auto_resume = true;
    asked.timeout = seconds(420);
    let created = fixture
        .engine
        .create(&fixture.me, asked, None)
        .await
        .unwrap();
    let id = created.record.id.clone();
    let mut events = fixture.engine.subscribe();
    fixture.refuse(|refuses| refuses.save = true);
    fixture.clock.advance(seconds(421));
    let saves = fixture.driver.saves();
    until("tried", || saves.passed() == 1).await;
    fixture.refuse(|_| {});
    // One that cannot be saved at once is saved a little later.
    until("paused", || {
        fixture.clock.advance(seconds(10));
        fixture.state(&id) == StateKind::Paused
    })
    .await;
    assert_eq!(events.recv().await.unwrap().kind, EventKind::Paused);
    let routes = fixture.engine.routes();
    assert!(matches!(routes.lookup(&id), Lookup::Resumable(_)));
    let woken = futures_util::future::join_all((0..100).map(|_| routes.wake(&id))).await;
    let runs: Vec<_> = woken
        .into_iter()
        .map(|route| route.unwrap().execution)
        .collect();
    assert!(runs.iter().all(|run| *run == runs[0]), "one run for all");
    let (permit, record) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    assert_eq!(record.deadline.since(record.started_at), seconds(420));
    // The disk alone is nothing to talk to.
    let disk = Some(Contents::Filesystem);
    fixture.engine.pause(&permit, disk, false).await.unwrap();
    assert!(matches!(routes.lookup(&id), Lookup::Paused));
    fixture.engine.kill(&permit).await.unwrap();
    assert_eq!(routes.wake(&id).await.unwrap_err(), NotResumed::Gone);
}

#[tokio::test]
async fn who_rests_leaves_room_for_others_and_may_find_none() {
    let fixture = fixture_with(|config| config.limits.sandboxes_per_team = 1).await;
    let id = fixture.create().await;
    fixture.pause(&id).await;
    let other = fixture.create().await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let full = fixture.engine.connect(&permit, seconds(9), true).await;
    assert!(matches!(
        full,
        Err(SandboxError::Full(QuotaExceeded::Team(1)))
    ));
    assert_eq!(fixture.state(&id), StateKind::Paused);
    fixture.pause(&other).await;
    assert!(
        fixture
            .engine
            .connect(&permit, seconds(9), true)
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn clones_begin_where_the_snapshot_was_taken_and_say_the_token_of_the_original() {
    let fixture = fixture().await;
    let mut asked = new("base");
    asked.env.insert("OWN".to_owned(), "1".to_owned());
    let source = fixture
        .engine
        .create(&fixture.me, asked, None)
        .await
        .unwrap()
        .record;
    let reference = fixture.take(&source.id, NewSnapshot::default()).await;
    assert_eq!(fixture.listed(), std::slice::from_ref(&reference));
    let clone = fixture
        .engine
        .create(&fixture.me, new(&reference), None)
        .await;
    let clone = clone.unwrap().record;
    assert_ne!(clone.id, source.id);
    assert_eq!(clone.spec.env["OWN"], "1");
    assert_eq!(clone.report.as_ref().unwrap().origin, StartKind::Restored);
    assert!(matches!(
        fixture.driver.start(&clone.id),
        Some(Start::Snapshot { memory: true, .. })
    ));
    let token = fixture.engine.envd_access_token(&source).unwrap();
    let known = fixture.guest.known.lock().last().cloned().unwrap();
    assert_eq!(known.as_deref(), Some(token.reveal()));
    let begun = fixture.guest.begun.lock().last().cloned().unwrap();
    assert_eq!(
        Some(begun.access_token),
        fixture.engine.envd_access_token(&clone)
    );
    let stranger = principal(&fixture.engine, "other").await;
    let hidden = fixture
        .engine
        .create(&stranger, new(&reference), None)
        .await;
    assert!(matches!(hidden, Err(CreateError::Template(_))));
    let meant = reference.parse().unwrap();
    let foreign = fixture.engine.delete_snapshot(&stranger, &meant).await;
    assert!(foreign.is_err());
    let removed = fixture.engine.delete_snapshot(&fixture.me, &meant).await;
    removed.unwrap();
    assert!(fixture.listed().is_empty() && fixture.driver.kept().is_empty());
    assert!(fixture.lives(&clone.id));
}

#[tokio::test]
async fn a_name_means_its_last_taking_and_each_tag_has_one() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let take = |name: &str| {
        let new = NewSnapshot {
            name: named(name),
            ..NewSnapshot::default()
        };
        fixture.take(&id, new)
    };
    assert_eq!(take("work").await, "mine/work:default");
    assert_eq!(take("mine/work:v1").await, "mine/work:v1");
    take("work").await;
    assert_eq!(fixture.listed(), ["mine/work:default", "mine/work:v1"]);
    until("what was replaced is gone", || {
        fixture.driver.kept().len() == 2
    })
    .await;
    for reference in ["work", "mine/work", "mine/work:v1"] {
        let clone = fixture
            .engine
            .create(&fixture.me, new(reference), None)
            .await;
        assert_eq!(
            clone.unwrap().record.spec.template_name.as_deref(),
            Some("work")
        );
    }
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    for (name, expected) in [
        ("base", "'base' is the name of a template: choose another"),
        (
            "other/work",
            "'other/work' is in the namespace of another team",
        ),
    ] {
        let new = NewSnapshot {
            name: named(name),
            ..NewSnapshot::default()
        };
        let refused = fixture.engine.snapshot(&fixture.me, &permit, new).await;
        let refused: TakeError = refused.unwrap_err();
        assert_eq!(refused.to_string(), expected);
    }
    let all = "work".parse().unwrap();
    fixture
        .engine
        .delete_snapshot(&fixture.me, &all)
        .await
        .unwrap();
    assert!(fixture.driver.kept().is_empty());
}

#[tokio::test]
async fn a_snapshot_goes_by_itself_and_may_take_its_source_along() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let short = NewSnapshot {
        ttl: Some(seconds(1800)),
        ..NewSnapshot::default()
    };
    let reference = fixture.take(&id, short).await;
    fixture.take(&id, NewSnapshot::default()).await;
    let last = NewSnapshot {
        keep_running: false,
        ..NewSnapshot::default()
    };
    fixture.take(&id, last).await;
    assert!(!fixture.lives(&id));
    assert_eq!(fixture.listed().len(), 3);
    fixture.clock.advance(seconds(1800));
    assert!(!fixture.listed().contains(&reference), "no list shows it");
    let late = fixture
        .engine
        .create(&fixture.me, new(&reference), None)
        .await;
    assert!(late.is_err());
    while fixture.driver.kept().len() > 2 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_fork_makes_many_and_leaves_no_copy() {
    let fixture = fixture_with(|config| config.limits.sandboxes_per_team = 4).await;
    let id = fixture.create().await;
    let (permit, source) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let forked = fixture
        .engine
        .fork(&fixture.me, &permit, 4, seconds(60))
        .await
        .unwrap();
    let (made, failed): (Vec<_>, Vec<_>) = forked.into_iter().partition(Result::is_ok);
    // Each stands for itself: there is room for three.
    assert_eq!((made.len(), failed.len()), (3, 1));
    for member in made {
        let record = member.unwrap().record;
        assert_eq!(record.spec.template, source.spec.template);
        assert_eq!(record.deadline.since(record.started_at), seconds(60));
    }
    assert!(fixture.driver.kept().is_empty() && fixture.listed().is_empty());
    let many = fixture
        .engine
        .fork(&fixture.me, &permit, 5, seconds(60))
        .await;
    assert!(matches!(many, Err(SandboxError::Full(_))));
    fixture.pause(&id).await;
    let paused = fixture
        .engine
        .fork(&fixture.me, &permit, 1, seconds(60))
        .await;
    assert!(matches!(paused, Err(SandboxError::Refused(_))));
}

#[tokio::test]
async fn limits_change_in_place_within_what_there_is() {
    let fixture = fixture_with(|config| config.limits.cpu_per_team = Some(MilliCpu(9000))).await;
    let id = fixture.create().await;
    let (permit, before) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let cpu = |milli| Resize {
        cpu: Some(MilliCpu(milli)),
        memory: None,
    };
    let after = fixture.engine.resize(&permit, cpu(4000)).await.unwrap();
    assert_eq!(after.spec.resources.cpu, MilliCpu(4000));
    assert_eq!(after.execution, before.execution);
    assert_eq!(fixture.driver.resources(&id).unwrap().cpu, MilliCpu(4000));
    for (resize, word) in [
        (
            cpu(17_000),
            "than this machine has for one sandbox: at most 16000m",
        ),
        (cpu(8001), "than the template allows: at most 8000m"),
        (cpu(1), "cpu (thousandths) must be between"),
        (
            Resize {
                cpu: None,
                memory: Some(Mib(128 << 10)),
            },
            "than this machine has for one sandbox: at most 63488 MiB",
        ),
    ] {
        let refused = fixture.engine.resize(&permit, resize).await.unwrap_err();
        assert!(refused.to_string().contains(word), "{refused}");
    }
    fixture.create().await;
    fixture.engine.resize(&permit, cpu(7000)).await.unwrap();
    let refused = fixture.engine.resize(&permit, cpu(7001)).await.unwrap_err();
    assert!(
        refused.to_string().contains("your team has left (7000m)"),
        "{refused}"
    );
    fixture.refuse(|refuses| refuses.resize = true);
    assert!(fixture.engine.resize(&permit, cpu(500)).await.is_err());
    let (_, record) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    assert_eq!(
        record.spec.resources.cpu,
        MilliCpu(7000),
        "the old ones stay"
    );
}

#[tokio::test]
async fn a_sandbox_is_made_with_other_limits_or_not_handed_out() {
    let fixture = fixture().await;
    let asked = |cpu, early_return| SandboxRequest {
        resize: Some(ResizeCreated { cpu, early_return }),
        ..new("base")
    };
    let made = asked(CpuTarget::Factor(1.5), false);
    let made = fixture
        .engine
        .create(&fixture.me, made, None)
        .await
        .unwrap();
    assert_eq!(made.record.spec.resources.cpu, MilliCpu(3000));
    assert!(!made.record.resizing);
    let half = CpuTarget::Absolute {
        request: None,
        limit: Some(MilliCpu(500)),
    };
    let early = asked(half, true);
    let early = fixture
        .engine
        .create(&fixture.me, early, None)
        .await
        .unwrap();
    let id = early.record.id.clone();
    let settled = || {
        let (_, record) = fixture.engine.authorize(&fixture.me, &id).unwrap();
        !record.resizing && record.spec.resources.cpu == MilliCpu(500)
    };
    while !settled() {
        tokio::task::yield_now().await;
    }
    let there = fixture.driver.sandboxes();
    for factor in [5.0, 1e9, 0.000_001] {
        let asked = asked(CpuTarget::Factor(factor), false);
        let refused = fixture.engine.create(&fixture.me, asked, None).await;
        assert!(refused.is_err(), "{factor}");
    }
    fixture.refuse(|refuses| refuses.resize = true);
    let refused = asked(CpuTarget::Factor(2.0), false);
    assert!(
        fixture
            .engine
            .create(&fixture.me, refused, None)
            .await
            .is_err()
    );
    assert_eq!(fixture.driver.sandboxes(), there, "none is lost or left");
}

/// Puts a sandbox into a state as a server that was killed would have left it.
pub(super) async fn left_in(fixture: &Fixture, id: &SandboxId, state: State) {
    let store = SqliteStore::open(&fixture.directory.path().join("shoal.db")).unwrap();
    let found = store.sandbox(id).await.unwrap().unwrap();
    let next = SandboxRecord {
        state,
        ..found.value
    };
    store.commit(next, Some(found.version)).await.unwrap();
}

/// Sets the record of a sandbox back, as a store does that lost its last commits.
async fn noted_last(fixture: &Fixture, id: &SandboxId, state: State, execution: ExecutionId) {
    let store = SqliteStore::open(&fixture.directory.path().join("shoal.db")).unwrap();
    let found = store.sandbox(id).await.unwrap().unwrap();
    let next = SandboxRecord {
        state,
        execution,
        ..found.value
    };
    store.commit(next, Some(found.version)).await.unwrap();
}

#[tokio::test]
async fn a_pause_outlives_the_machine_and_one_that_was_gone_on_from_is_not_gone_back_to() {
    let fixture = fixture().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let id = fixture.create().await;
        fixture.pause(&id).await;
        ids.push(id);
    }
    let run = |id: &SandboxId| {
        fixture
            .engine
            .authorize(&fixture.me, id)
            .unwrap()
            .1
            .execution
    };
    let later = ExecutionId::from_entropy([7; 16]);
    // The machine crashed before the last commit was on its disk.
    noted_last(&fixture, &ids[0], State::Running, run(&ids[0])).await;
    // The checkpoint is the one that this run started from. Its removal was not on the disk either.
    noted_last(&fixture, &ids[1], State::Running, later).await;
    noted_last(&fixture, &ids[2], State::Pausing, later).await;
    let (driver, clock) = (&fixture.driver, &fixture.clock);
    let engine = engine_on(fixture.directory.path(), driver, clock, |_| {}).await;
    let (permit, record) = engine.authorize(&fixture.me, &ids[0]).unwrap();
    let state = || {
        engine
            .authorize(&fixture.me, &ids[0])
            .unwrap()
            .1
            .state
            .kind()
    };
    while state() != StateKind::Paused {
        tokio::task::yield_now().await;
    }
    assert_eq!(record.execution, run(&ids[0]));
    assert!(
        engine
            .connect(&permit, seconds(9), true)
            .await
            .unwrap()
            .resumed
    );
    for id in &ids[1..] {
        // The engine stops listing it before the driver has removed it.
        while driver.sandboxes().contains(id) {
            tokio::task::yield_now().await;
        }
        assert!(engine.authorize(&fixture.me, id).is_err());
    }
}

#[tokio::test]
async fn a_restart_resolves_what_was_on_its_way() {
    let fixture = fixture().await;
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(fixture.create().await);
    }
    let driver = &fixture.driver;
    let mut saved = None;
    for id in [&ids[1], &ids[3], &ids[5]] {
        saved = Some(driver.pause(id, Contents::Memory).await.unwrap());
    }
    let saved = saved.unwrap();
    let orphan = SnapshotId::from_entropy([9; 16]);
    driver
        .snapshot(&ids[0], orphan, Contents::Memory, AfterSnapshot::Resume)
        .await
        .unwrap();
    for (id, state) in [
        // Killed before it was saved, and after.
        (&ids[0], State::Pausing),
        (&ids[1], State::Pausing),
        (&ids[2], State::Snapshotting),
        (&ids[3], State::Resuming(saved.clone())),
        // Its checkpoint is gone.
        (&ids[4], State::Paused(saved.clone())),
        (&ids[5], State::Paused(saved)),
    ] {
        left_in(&fixture, id, state).await;
    }
    let engine = engine_on(fixture.directory.path(), driver, &fixture.clock, |_| {}).await;
    let mut events = engine.subscribe();
    let me = &fixture.me;
    let state = |id: &SandboxId| {
        let found = engine.authorize(me, id).ok();
        found.map(|(_, record)| record.state.kind())
    };
    for (id, expected) in [
        (&ids[0], Some(StateKind::Running)),
        (&ids[1], Some(StateKind::Paused)),
        (&ids[2], Some(StateKind::Running)),
        (&ids[3], Some(StateKind::Paused)),
        (&ids[4], None),
        (&ids[5], Some(StateKind::Paused)),
    ] {
        while state(id) != expected {
            let _ = tokio::time::timeout(seconds(10), events.recv()).await;
            tokio::task::yield_now().await;
        }
    }
    assert!(driver.kept().is_empty(), "nobody was told of that snapshot");
    for id in [&ids[1], &ids[3]] {
        let (permit, record) = engine.authorize(me, id).unwrap();
        assert!(record.state.saved().is_some());
        assert!(
            engine
                .connect(&permit, seconds(9), true)
                .await
                .unwrap()
                .resumed
        );
    }
}
