//! The contract of [`Checkpointer`]: pauses and snapshots.

use std::time::Duration;

use super::{Subject, destroy, event, found, id, make, run};
use crate::driver::{
    AfterSnapshot, Checkpointer, DriverError, DriverEvent, Found, PausedNetwork, Start, StartKind,
    StartSpec,
};
use crate::id::{ExecutionId, SandboxId, SnapshotId};
use crate::snapshot::{Contents, Saved};

/// Runs this part of the suite.
pub(super) async fn check(subject: &dyn Subject, driver: &dyn Checkpointer) {
    for contents in kinds(subject) {
        a_paused_sandbox_can_resume(subject, driver, contents).await;
        a_resume_can_be_rolled_back(subject, driver, contents).await;
        a_snapshot_outlives_its_source_and_starts_many(subject, driver, contents).await;
        a_frozen_source_thaws_or_ends(subject, driver, contents).await;
    }
    a_kept_network_has_the_same_address(subject, driver).await;
    unknown_ids_are_errors(subject, driver).await;
    idle_programs_are_reported_as_idle(subject, driver).await;
    assert!(snapshots(driver).await.is_empty(), "no snapshot is left");
}

/// The contents that the runtime under test can save.
fn kinds(subject: &dyn Subject) -> Vec<Contents> {
    let spec = subject.spec(id("ikind"), run(1));
    let runtimes = &subject.driver().capabilities().runtimes;
    let chosen = runtimes
        .iter()
        .find(|info| spec.runtime.as_ref().is_none_or(|name| *name == info.name));
    let memory = chosen.is_some_and(|info| info.memory_snapshot);
    if memory {
        vec![Contents::Filesystem, Contents::Memory]
    } else {
        vec![Contents::Filesystem]
    }
}

pub(super) fn snapshot(number: u8) -> SnapshotId {
    SnapshotId::from_entropy([number; 16])
}

async fn snapshots(driver: &dyn Checkpointer) -> Vec<SnapshotId> {
    let snapshots = driver.snapshots().await;
    snapshots.unwrap_or_else(|error| panic!("the search fails: {error}"))
}

async fn pause(driver: &dyn Checkpointer, id: &SandboxId, contents: Contents) -> Saved {
    let saved = driver.pause(id, contents).await;
    let saved = saved.unwrap_or_else(|error| panic!("{id} is not paused: {error}"));
    assert_eq!(saved.contents, contents, "the result names the contents");
    saved
}

fn again(subject: &dyn Subject, id: &SandboxId, execution: ExecutionId) -> StartSpec {
    StartSpec {
        start: Start::Paused {
            memory: true,
            network: PausedNetwork::Removed,
        },
        ..subject.spec(id.clone(), execution)
    }
}

async fn start(subject: &dyn Subject, spec: StartSpec, contents: Contents) -> SandboxId {
    let id = spec.id.clone();
    let started = subject.driver().create(spec).await;
    let report = started.unwrap_or_else(|error| panic!("{id} does not start: {error}"));
    let expected = match contents {
        Contents::Memory => StartKind::Restored,
        Contents::Filesystem => StartKind::Cold,
    };
    assert_eq!(report.origin, expected, "the report names the origin");
    id
}

pub(super) async fn one(subject: &dyn Subject) -> Found {
    let mut found = found(subject).await;
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

async fn a_paused_sandbox_can_resume(
    subject: &dyn Subject,
    driver: &dyn Checkpointer,
    contents: Contents,
) {
    let id = make(subject, "ipaused", run(1)).await;
    let saved = pause(driver, &id, contents).await;
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
        matches!(
            subject.driver().usage(&id).await,
            Err(DriverError::NotFound(_))
        ),
        "a paused sandbox uses nothing"
    );
    assert_eq!(
        pause(driver, &id, contents).await,
        saved,
        "a second pause changes nothing"
    );
    for _ in 0..2 {
        let ready = driver.prepare_resume(&id, PausedNetwork::Removed).await;
        ready.unwrap_or_else(|error| panic!("the resume is not prepared: {error}"));
    }
    start(subject, again(subject, &id, run(2)), contents).await;
    let there = one(subject).await;
    assert!(there.alive && there.execution == run(2) && there.paused.is_some());
    for _ in 0..2 {
        let discarded = driver.delete_checkpoint(&id).await;
        discarded.unwrap_or_else(|error| panic!("the checkpoint is not deleted: {error}"));
    }
    assert!(one(subject).await.paused.is_none());
    // The end of the resumed run is reported. That of the saved run was not.
    subject.stop(&id).await;
    let DriverEvent::Failed { execution, .. } = event(subject).await else {
        panic!("an end is a failure");
    };
    assert_eq!(execution, run(2));
    destroy(subject, &id).await;
}

async fn a_kept_network_has_the_same_address(subject: &dyn Subject, driver: &dyn Checkpointer) {
    if !kinds(subject).contains(&Contents::Memory) {
        return;
    }
    let spec = StartSpec {
        keep_connections: true,
        ..subject.spec(id("ikept"), run(1))
    };
    let create = async |spec| {
        let started = subject.driver().create(spec).await;
        started.unwrap_or_else(|error| panic!("it does not start: {error}"))
    };
    let first = create(spec).await;
    let id = id("ikept");
    // Prepared before the next run, or by it.
    for number in [2, 3] {
        pause(driver, &id, Contents::Memory).await;
        if number == 2 {
            let ready = driver.prepare_resume(&id, PausedNetwork::Kept).await;
            ready.unwrap_or_else(|error| panic!("the resume is not prepared: {error}"));
        }
        let next = create(StartSpec {
            start: Start::Paused {
                memory: true,
                network: PausedNetwork::Kept,
            },
            keep_connections: true,
            ..subject.spec(id.clone(), run(number))
        });
        let next = next.await;
        assert_eq!(next.address, first.address);
        assert_eq!(next.keeps_connections, first.keeps_connections);
        let discarded = driver.delete_checkpoint(&id).await;
        discarded.unwrap_or_else(|error| panic!("the checkpoint is not deleted: {error}"));
    }
    // A network that was kept goes with a rollback, and with the sandbox.
    for number in [4, 5] {
        pause(driver, &id, Contents::Memory).await;
        let ready = driver.prepare_resume(&id, PausedNetwork::Kept).await;
        ready.unwrap_or_else(|error| panic!("the resume is not prepared: {error}"));
        if number == 4 {
            let back = driver.rollback_resume(&id).await;
            back.unwrap_or_else(|error| panic!("it is not rolled back: {error}"));
            create(StartSpec {
                start: Start::Paused {
                    memory: true,
                    network: PausedNetwork::Kept,
                },
                ..subject.spec(id.clone(), run(number))
            })
            .await;
            let discarded = driver.delete_checkpoint(&id).await;
            discarded.unwrap_or_else(|error| panic!("the checkpoint is not deleted: {error}"));
        }
    }
    destroy(subject, &id).await;
}

async fn a_resume_can_be_rolled_back(
    subject: &dyn Subject,
    driver: &dyn Checkpointer,
    contents: Contents,
) {
    let id = make(subject, "iback", run(1)).await;
    pause(driver, &id, contents).await;
    for number in [2, 3] {
        start(subject, again(subject, &id, run(number)), contents).await;
        for _ in 0..2 {
            let back = driver.rollback_resume(&id).await;
            back.unwrap_or_else(|error| panic!("the resume is not rolled back: {error}"));
        }
        let there = one(subject).await;
        assert!(!there.alive && there.paused.is_some(), "{there:?}");
    }
    destroy(subject, &id).await;
}

async fn a_snapshot_outlives_its_source_and_starts_many(
    subject: &dyn Subject,
    driver: &dyn Checkpointer,
    contents: Contents,
) {
    let source = make(subject, "isource", run(1)).await;
    let taken = driver.snapshot(&source, snapshot(9), contents, AfterSnapshot::Resume);
    let taken = taken.await;
    let saved = taken.unwrap_or_else(|error| panic!("no snapshot is taken: {error}"));
    assert_eq!(saved.contents, contents);
    assert_eq!(snapshots(driver).await, [snapshot(9)]);
    assert!(one(subject).await.alive, "the source keeps running");
    let used = subject.driver().usage(&source).await;
    assert!(used.is_ok(), "{used:?}");
    destroy(subject, &source).await;
    for name in ["iclonea", "icloneb"] {
        let spec = StartSpec {
            start: Start::Snapshot {
                id: snapshot(9),
                memory: true,
            },
            ..subject.spec(id(name), run(2))
        };
        start(subject, spec, contents).await;
    }
    for _ in 0..2 {
        let removed = driver.remove_snapshot(snapshot(9)).await;
        removed.unwrap_or_else(|error| panic!("it is not removed: {error}"));
    }
    assert!(snapshots(driver).await.is_empty());
    let alive = found(subject).await.iter().all(|found| found.alive);
    assert!(alive, "the clones keep running");
    for name in ["iclonea", "icloneb"] {
        destroy(subject, &id(name)).await;
    }
}

async fn a_frozen_source_thaws_or_ends(
    subject: &dyn Subject,
    driver: &dyn Checkpointer,
    contents: Contents,
) {
    let source = make(subject, "ifrozen", run(1)).await;
    for number in [7, 8] {
        let taken = driver.snapshot(
            &source,
            snapshot(number),
            contents,
            AfterSnapshot::KeepFrozen,
        );
        let saved = taken.await;
        saved.unwrap_or_else(|error| panic!("no snapshot is taken: {error}"));
        assert!(one(subject).await.alive, "it is frozen and exists");
        if number == 7 {
            let thawed = driver.thaw_source(&source).await;
            thawed.unwrap_or_else(|error| panic!("it does not thaw: {error}"));
        }
    }
    destroy(subject, &source).await;
    for number in [7, 8] {
        let removed = driver.remove_snapshot(snapshot(number)).await;
        removed.unwrap_or_else(|error| panic!("it is not removed: {error}"));
    }
}

async fn unknown_ids_are_errors(subject: &dyn Subject, driver: &dyn Checkpointer) {
    let unknown = id("inever");
    let paused = driver.pause(&unknown, Contents::Filesystem).await;
    assert!(
        matches!(paused, Err(DriverError::NotFound(_))),
        "{paused:?}"
    );
    let taken = driver
        .snapshot(
            &unknown,
            snapshot(8),
            Contents::Filesystem,
            AfterSnapshot::Resume,
        )
        .await;
    assert!(matches!(taken, Err(DriverError::NotFound(_))), "{taken:?}");
    assert!(driver.rollback_resume(&unknown).await.is_err());
    assert!(driver.thaw_source(&unknown).await.is_err());
    let started = subject
        .driver()
        .create(again(subject, &unknown, run(1)))
        .await;
    assert!(
        matches!(started, Err(DriverError::NotFound(_))),
        "{started:?}"
    );
    let spec = StartSpec {
        start: Start::Snapshot {
            id: snapshot(8),
            memory: true,
        },
        ..subject.spec(unknown.clone(), run(1))
    };
    let started = subject.driver().create(spec).await;
    assert!(
        matches!(started, Err(DriverError::SnapshotNotFound(_))),
        "{started:?}"
    );
    assert!(found(subject).await.is_empty());
    assert_eq!(subject.remains(&unknown), [""; 0]);
}

async fn idle_programs_are_reported_as_idle(subject: &dyn Subject, driver: &dyn Checkpointer) {
    let one = make(subject, "iquiet", run(1)).await;
    let timeout = Duration::from_secs(60);
    let idle = driver.wait_idle(&one, timeout).await;
    assert!(
        matches!(idle, Ok(true)),
        "its programs do nothing: {idle:?}"
    );
    destroy(subject, &one).await;
    let gone = driver.wait_idle(&one, timeout).await;
    assert!(
        matches!(gone, Err(DriverError::NotFound(_))),
        "a sandbox that is gone is not idle: {gone:?}"
    );
}
