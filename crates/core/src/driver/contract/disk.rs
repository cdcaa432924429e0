//! The contract of [`DiskAccounts`]: the disk of a sandbox counts for one team at a time.

use super::checkpoint::snapshot;
use super::{Subject, destroy, id, run};
use crate::driver::{AfterSnapshot, DiskAccounts, DriverError, Owner, StartSpec};
use crate::id::TeamId;
use crate::resources::Mib;
use crate::snapshot::Contents;

/// Runs this part of the suite.
pub(super) async fn check(subject: &dyn Subject, driver: &dyn DiskAccounts) {
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
    let unknown = driver.set_owner(&id("inever"), after).await;
    assert!(
        matches!(unknown, Err(DriverError::NotFound(_))),
        "{unknown:?}"
    );
    let spec = StartSpec {
        owner: before,
        ..subject.spec(id("iowned"), run(1))
    };
    let made = subject.driver().create(spec).await;
    made.unwrap_or_else(|error| panic!("it is not made: {error}"));
    // A write counts when it reaches the disk. A snapshot syncs.
    let checkpointer = subject.driver().checkpointer();
    if let Some(checkpointer) = checkpointer {
        let taken = checkpointer.snapshot(
            &id("iowned"),
            snapshot(9),
            Contents::Filesystem,
            AfterSnapshot::Resume,
        );
        let taken = taken.await;
        taken.unwrap_or_else(|error| panic!("no snapshot is taken: {error}"));
    }
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
    if let Some(checkpointer) = checkpointer {
        let removed = checkpointer.remove_snapshot(snapshot(9)).await;
        removed.unwrap_or_else(|error| panic!("the snapshot is not removed: {error}"));
    }
    destroy(subject, &id("iowned")).await;
}
