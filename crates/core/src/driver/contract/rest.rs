//! What every driver promises of sandboxes that are saved, and of limits that change.

use super::{Subject, destroy, event, found, id, make, run};
use crate::driver::{CreateOrder, DriverError, DriverEvent, Found, Origin, Owner, Source, Start};
use crate::id::{ExecutionId, SandboxId, SnapshotId, TeamId};
use crate::limits::Bounds;
use crate::resources::{Mib, MilliCpu, Resources};
use crate::snapshot::{Contents, Saved};

/// Runs this part of the suite.
pub(super) async fn check(subject: &dyn Subject) {
    for contents in kinds(subject) {
        what_is_paused_rests_and_goes_on(subject, contents).await;
        a_run_can_be_taken_back(subject, contents).await;
        a_snapshot_outlives_its_source_and_starts_many(subject, contents).await;
        what_a_snapshot_leaves_still_goes_on_or_ends(subject, contents).await;
    }
    what_is_not_there_is_said(subject).await;
    limits_change_in_place(subject).await;
    disk_is_counted_for_one_team_at_a_time(subject).await;
    assert!(snapshots(subject).await.is_empty(), "none is left");
}

/// What the default runtime can keep; what it cannot is refused by name.
fn kinds(subject: &dyn Subject) -> Vec<Contents> {
    let order = subject.order(id("ikind"), run(1));
    let runtimes = &subject.driver().capabilities().runtimes;
    let chosen = runtimes
        .iter()
        .find(|info| order.runtime.as_ref().is_none_or(|name| *name == info.name));
    let memory = chosen.is_some_and(|info| info.memory_snapshot);
    if memory {
        vec![Contents::Filesystem, Contents::Memory]
    } else {
        vec![Contents::Filesystem]
    }
}

fn snapshot(number: u8) -> SnapshotId {
    SnapshotId::from_entropy([number; 16])
}

async fn snapshots(subject: &dyn Subject) -> Vec<SnapshotId> {
    let snapshots = subject.driver().snapshots().await;
    snapshots.unwrap_or_else(|error| panic!("the search fails: {error}"))
}

async fn pause(subject: &dyn Subject, id: &SandboxId, contents: Contents) -> Saved {
    let saved = subject.driver().pause(id, contents).await;
    let saved = saved.unwrap_or_else(|error| panic!("{id} is not paused: {error}"));
    assert_eq!(saved.contents, contents, "it says what was kept");
    saved
}

fn again(subject: &dyn Subject, id: &SandboxId, execution: ExecutionId) -> CreateOrder {
    CreateOrder {
        start: Start::Paused { memory: true },
        ..subject.order(id.clone(), execution)
    }
}

async fn start(subject: &dyn Subject, order: CreateOrder, contents: Contents) -> SandboxId {
    let id = order.id.clone();
    let started = subject.driver().create(order).await;
    let report = started.unwrap_or_else(|error| panic!("{id} does not start: {error}"));
    let expected = match contents {
        Contents::Memory => Origin::Restored,
        Contents::Filesystem => Origin::Cold,
    };
    assert_eq!(report.origin, expected, "it says how it came to run");
    id
}

async fn one(subject: &dyn Subject) -> Found {
    let mut found = found(subject).await;
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

async fn what_is_paused_rests_and_goes_on(subject: &dyn Subject, contents: Contents) {
    let driver = subject.driver();
    let id = make(subject, "irest", run(1)).await;
    let saved = pause(subject, &id, contents).await;
    let there = one(subject).await;
    assert!(
        !there.alive
            && there
                .paused
                .as_ref()
                .is_some_and(|paused| paused.saved == saved && paused.execution == run(1)),
        "{there:?}"
    );
    assert!(
        matches!(driver.usage(&id).await, Err(DriverError::NotFound(_))),
        "what rests uses nothing"
    );
    assert_eq!(pause(subject, &id, contents).await, saved, "once is enough");
    for _ in 0..2 {
        let ready = driver.prepare_resume(&id).await;
        ready.unwrap_or_else(|error| panic!("it is not made ready: {error}"));
    }
    start(subject, again(subject, &id, run(2)), contents).await;
    let there = one(subject).await;
    assert!(there.alive && there.execution == run(2) && there.paused.is_some());
    for _ in 0..2 {
        let discarded = driver.discard_pause(&id).await;
        discarded.unwrap_or_else(|error| panic!("it is not forgotten: {error}"));
    }
    assert!(one(subject).await.paused.is_none());
    // Its end is news again, and that of the run before was none.
    subject.stop(&id).await;
    let DriverEvent::Failed { execution, .. } = event(subject).await else {
        panic!("an end is a failure");
    };
    assert_eq!(execution, run(2));
    destroy(subject, &id).await;
}

async fn a_run_can_be_taken_back(subject: &dyn Subject, contents: Contents) {
    let driver = subject.driver();
    let id = make(subject, "iback", run(1)).await;
    pause(subject, &id, contents).await;
    for number in [2, 3] {
        start(subject, again(subject, &id, run(number)), contents).await;
        for _ in 0..2 {
            let back = driver.back_to_pause(&id).await;
            back.unwrap_or_else(|error| panic!("it is not taken back: {error}"));
        }
        let there = one(subject).await;
        assert!(!there.alive && there.paused.is_some(), "{there:?}");
    }
    destroy(subject, &id).await;
}

async fn a_snapshot_outlives_its_source_and_starts_many(subject: &dyn Subject, contents: Contents) {
    let driver = subject.driver();
    let source = make(subject, "isource", run(1)).await;
    let taken = driver.snapshot(&source, snapshot(9), contents, Source::GoesOn);
    let taken = taken.await;
    let saved = taken.unwrap_or_else(|error| panic!("no snapshot is taken: {error}"));
    assert_eq!(saved.contents, contents);
    assert_eq!(snapshots(subject).await, [snapshot(9)]);
    assert!(one(subject).await.alive, "the source goes on");
    let used = driver.usage(&source).await;
    assert!(used.is_ok(), "{used:?}");
    destroy(subject, &source).await;
    for name in ["iclonea", "icloneb"] {
        let order = CreateOrder {
            start: Start::Snapshot {
                id: snapshot(9),
                memory: true,
            },
            ..subject.order(id(name), run(2))
        };
        start(subject, order, contents).await;
    }
    for _ in 0..2 {
        let removed = driver.remove_snapshot(snapshot(9)).await;
        removed.unwrap_or_else(|error| panic!("it is not removed: {error}"));
    }
    assert!(snapshots(subject).await.is_empty());
    let alive = found(subject).await.iter().all(|found| found.alive);
    assert!(alive, "the clones go on");
    for name in ["iclonea", "icloneb"] {
        destroy(subject, &id(name)).await;
    }
}

async fn what_a_snapshot_leaves_still_goes_on_or_ends(subject: &dyn Subject, contents: Contents) {
    let driver = subject.driver();
    let source = make(subject, "istill", run(1)).await;
    for number in [7, 8] {
        let taken = driver.snapshot(&source, snapshot(number), contents, Source::StaysStill);
        let saved = taken.await;
        saved.unwrap_or_else(|error| panic!("no snapshot is taken: {error}"));
        assert!(one(subject).await.alive, "it stands still and is there");
        if number == 7 {
            let gone_on = driver.go_on(&source).await;
            gone_on.unwrap_or_else(|error| panic!("it does not go on: {error}"));
        }
    }
    destroy(subject, &source).await;
    for number in [7, 8] {
        let removed = driver.remove_snapshot(snapshot(number)).await;
        removed.unwrap_or_else(|error| panic!("it is not removed: {error}"));
    }
}

async fn what_is_not_there_is_said(subject: &dyn Subject) {
    let driver = subject.driver();
    let nobody = id("inever");
    let paused = driver.pause(&nobody, Contents::Filesystem).await;
    assert!(
        matches!(paused, Err(DriverError::NotFound(_))),
        "{paused:?}"
    );
    let taken = driver
        .snapshot(&nobody, snapshot(8), Contents::Filesystem, Source::GoesOn)
        .await;
    assert!(matches!(taken, Err(DriverError::NotFound(_))), "{taken:?}");
    assert!(driver.back_to_pause(&nobody).await.is_err());
    assert!(driver.go_on(&nobody).await.is_err());
    let started = driver.create(again(subject, &nobody, run(1))).await;
    assert!(
        matches!(started, Err(DriverError::NotFound(_))),
        "{started:?}"
    );
    let order = CreateOrder {
        start: Start::Snapshot {
            id: snapshot(8),
            memory: true,
        },
        ..subject.order(nobody.clone(), run(1))
    };
    let started = driver.create(order).await;
    assert!(
        matches!(started, Err(DriverError::SnapshotNotFound(_))),
        "{started:?}"
    );
    assert!(found(subject).await.is_empty());
    assert_eq!(subject.remains(&nobody), [""; 0]);
}

async fn limits_change_in_place(subject: &dyn Subject) {
    let driver = subject.driver();
    let order = subject.order(id("isize"), run(1));
    let had = order.limits.resources();
    let granted = |cpu| {
        let wanted = Resources { cpu, ..had };
        let granted = Bounds::none().grant(wanted, had.cpu);
        granted.unwrap_or_else(|error| panic!("limits of a test: {error}"))
    };
    let (before, other) = (granted(had.cpu), granted(MilliCpu(had.cpu.0 / 2)));
    let nobody = driver.resize(&id("inever"), other).await;
    assert!(
        matches!(nobody, Err(DriverError::NotFound(_))),
        "{nobody:?}"
    );
    let id = make(subject, "isize", run(1)).await;
    for limits in [other, before] {
        let resized = driver.resize(&id, limits).await;
        resized.unwrap_or_else(|error| panic!("it is not resized: {error}"));
    }
    assert!(one(subject).await.alive, "the same run goes on");
    destroy(subject, &id).await;
}

async fn disk_is_counted_for_one_team_at_a_time(subject: &dyn Subject) {
    let driver = subject.driver();
    let owner = |number| Owner {
        team: TeamId::from_entropy([number; 16]),
        disk: Some(Mib(512)),
    };
    let used = async |owner: Owner| {
        let used = driver.disk_use(owner.team).await;
        let used = used.unwrap_or_else(|error| panic!("the disk is not counted: {error}"));
        used.map(|used| used.bytes)
    };
    let (before, after) = (owner(21), owner(22));
    let nobody = driver.set_owner(&id("inever"), after).await;
    assert!(
        matches!(nobody, Err(DriverError::NotFound(_))),
        "{nobody:?}"
    );
    let order = CreateOrder {
        owner: before,
        ..subject.order(id("iowned"), run(1))
    };
    let made = driver.create(order).await;
    made.unwrap_or_else(|error| panic!("it is not made: {error}"));
    // What is written is counted when it has reached the disk.
    let kept = driver.snapshot(
        &id("iowned"),
        snapshot(9),
        Contents::Filesystem,
        Source::GoesOn,
    );
    kept.await
        .unwrap_or_else(|error| panic!("no snapshot of it is taken: {error}"));
    let held = (used(before).await, used(after).await);
    assert!(
        matches!(held, (None, None) | (Some(1..), Some(0))),
        "{held:?}"
    );
    let given = driver.set_owner(&id("iowned"), after).await;
    given.unwrap_or_else(|error| panic!("it is not given: {error}"));
    let held = (used(before).await, used(after).await);
    assert!(
        matches!(held, (None, None) | (Some(_), Some(1..))),
        "{held:?}"
    );
    let removed = driver.remove_snapshot(snapshot(9)).await;
    removed.unwrap_or_else(|error| panic!("the snapshot is not removed: {error}"));
    destroy(subject, &id("iowned")).await;
}
