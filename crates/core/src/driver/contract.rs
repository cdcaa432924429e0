//! The contract of drivers, as a suite that the tests of each driver run.
//!
//! A broken promise is a panic that names it. Each capability has a part of its own, which runs if the
//! driver has that capability. The suite needs no async runtime of its own and waits only for the
//! driver, so the caller must bound its time.

use std::collections::BTreeSet;

mod checkpoint;
mod disk;
mod egress;
mod freeze;
mod resize;

use super::{Driver, DriverError, DriverEvent, Found, StartKind, StartSpec};
use crate::BoxFuture;
use crate::id::{ExecutionId, SandboxId};
use crate::state::FailReason;

/// A driver, and the facts about it that the suite needs.
pub trait Subject: Send + Sync {
    /// The driver. Always the same one.
    fn driver(&self) -> &dyn Driver;

    /// A valid spec for the runtime under test.
    fn spec(&self, id: SandboxId, execution: ExecutionId) -> StartSpec;

    /// A spec with an image that the driver does not have.
    fn spec_without_image(&self, id: SandboxId, execution: ExecutionId) -> StartSpec;

    /// Ends the first process of the sandbox, as a crash would.
    fn stop<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, ()>;

    /// The sandbox's resources outside of the driver's memory, for people. Empty when it is gone.
    fn remains(&self, id: &SandboxId) -> Vec<String>;
}

/// Runs the suite, with the part of each capability that the driver has. Returns the names of these
/// parts, so that a test notices when a driver loses a capability. The driver must have no sandboxes,
/// and has none afterwards.
///
/// # Panics
/// When a promise is broken.
pub async fn check(subject: &dyn Subject) -> Vec<&'static str> {
    assert!(
        found(subject).await.is_empty(),
        "the suite begins without sandboxes"
    );
    capabilities_name_a_default(subject);
    what_is_made_is_found_and_what_is_destroyed_is_not(subject).await;
    destroying_is_repeatable_and_needs_no_sandbox(subject).await;
    an_id_is_given_once(subject).await;
    a_failed_creation_leaves_nothing(subject).await;
    what_is_used_is_counted_and_grows(subject).await;
    an_end_is_reported_once_with_its_run(subject).await;
    a_requested_end_is_not_reported(subject).await;
    many_at_once_do_not_mix(subject).await;
    let driver = subject.driver();
    let mut parts = Vec::new();
    if let Some(checkpointer) = driver.checkpointer() {
        checkpoint::check(subject, checkpointer).await;
        parts.push("checkpointer");
    }
    if let Some(freezer) = driver.freezer() {
        freeze::check(subject, freezer).await;
        parts.push("freezer");
    }
    if let Some(resizer) = driver.resizer() {
        resize::check(subject, resizer).await;
        parts.push("resizer");
    }
    if let Some(filter) = driver.egress_filter() {
        egress::check(subject, filter).await;
        parts.push("egress_filter");
    }
    if let Some(accounts) = driver.disk_accounts() {
        disk::check(subject, accounts).await;
        parts.push("disk_accounts");
    }
    assert!(
        found(subject).await.is_empty(),
        "the suite leaves no sandboxes"
    );
    parts
}

fn id(name: &str) -> SandboxId {
    name.parse().unwrap_or_else(|_| panic!("{name} is an id"))
}

fn run(number: u8) -> ExecutionId {
    ExecutionId::from_entropy([number; 16])
}

async fn found(subject: &dyn Subject) -> Vec<Found> {
    let found = subject.driver().inventory().await;
    found.unwrap_or_else(|error| panic!("the inventory fails: {error}"))
}

async fn make(subject: &dyn Subject, name: &str, execution: ExecutionId) -> SandboxId {
    let spec = subject.spec(id(name), execution);
    let runtime = spec.runtime.clone();
    let made = subject.driver().create(spec).await;
    let report = made.unwrap_or_else(|error| panic!("{name} is not made: {error}"));
    let known = &subject.driver().capabilities().runtimes;
    let ran = known.iter().find(|info| info.name == report.runtime);
    let ran = ran.unwrap_or_else(|| panic!("{} is not a runtime of the driver", report.runtime));
    assert_eq!(
        report.isolation, ran.isolation,
        "the report names the isolation"
    );
    assert!(
        runtime.is_none_or(|asked| asked == report.runtime),
        "the requested runtime ran"
    );
    assert_eq!(report.origin, StartKind::Cold);
    assert!(
        report.phases.ready.is_zero(),
        "the caller waits for the daemon, not the driver"
    );
    assert!(report.envd_version.is_empty());
    id(name)
}

async fn destroy(subject: &dyn Subject, id: &SandboxId) {
    let destroyed = subject.driver().destroy(id).await;
    destroyed.unwrap_or_else(|error| panic!("{id} is not destroyed: {error}"));
    assert_eq!(subject.remains(id), [""; 0], "nothing remains of {id}");
}

/// The next event that is not output of a daemon.
async fn event(subject: &dyn Subject) -> DriverEvent {
    loop {
        match subject.driver().next_event().await {
            Some(DriverEvent::Output { .. }) => {}
            Some(event) => return event,
            None => panic!("the driver has ended"),
        }
    }
}

fn capabilities_name_a_default(subject: &dyn Subject) {
    let capabilities = subject.driver().capabilities();
    assert!(!capabilities.driver.is_empty() && !capabilities.disk_limit.is_empty());
    assert!(
        !capabilities.runtimes.is_empty(),
        "the first is the default"
    );
    let names: BTreeSet<_> = capabilities.runtimes.iter().map(|r| &r.name).collect();
    assert_eq!(names.len(), capabilities.runtimes.len(), "each has a name");
}

async fn what_is_made_is_found_and_what_is_destroyed_is_not(subject: &dyn Subject) {
    let one = make(subject, "ione", run(1)).await;
    let two = make(subject, "itwo", run(2)).await;
    let mut there = found(subject).await;
    there.sort_by(|a, b| a.id.cmp(&b.id));
    let expected = [(&one, run(1)), (&two, run(2))].map(|(id, execution)| Found {
        id: id.clone(),
        execution,
        alive: true,
        paused: None,
    });
    assert_eq!(there, expected);
    destroy(subject, &one).await;
    assert_eq!(found(subject).await, [expected[1].clone()]);
    destroy(subject, &two).await;
}

async fn destroying_is_repeatable_and_needs_no_sandbox(subject: &dyn Subject) {
    destroy(subject, &id("inever")).await;
    let one = make(subject, "ione", run(1)).await;
    for _ in 0..3 {
        destroy(subject, &one).await;
    }
    // The id is free again for another run.
    let again = make(subject, "ione", run(3)).await;
    assert_eq!(found(subject).await[0].execution, run(3));
    destroy(subject, &again).await;
}

async fn an_id_is_given_once(subject: &dyn Subject) {
    let one = make(subject, "ione", run(1)).await;
    let second = subject
        .driver()
        .create(subject.spec(id("ione"), run(2)))
        .await;
    assert!(second.is_err(), "an id that is taken is refused");
    let there = found(subject).await;
    assert!(
        there.len() == 1 && there[0].alive && there[0].execution == run(1),
        "the first is unchanged: {there:?}"
    );
    let used = subject.driver().usage(&one).await;
    assert!(used.is_ok(), "and keeps running: {used:?}");
    destroy(subject, &one).await;
}

async fn a_failed_creation_leaves_nothing(subject: &dyn Subject) {
    let driver = subject.driver();
    let without_image = driver
        .create(subject.spec_without_image(id("ibad"), run(1)))
        .await;
    assert!(
        matches!(without_image, Err(DriverError::ImageNotFound(_))),
        "{without_image:?}"
    );
    let mut spec = subject.spec(id("ibad"), run(1));
    spec.runtime = "nosuchruntime".parse().ok();
    let asked = spec.runtime.clone();
    let refused = driver.create(spec).await;
    assert!(
        matches!(&refused, Err(DriverError::RuntimeNotFound { asked: a, available })
            if Some(a) == asked.as_ref() && !available.is_empty()),
        "{refused:?}"
    );
    assert!(found(subject).await.is_empty());
    assert_eq!(subject.remains(&id("ibad")), [""; 0]);
    // Destroying a half-made sandbox succeeds.
    destroy(subject, &id("ibad")).await;
}

async fn what_is_used_is_counted_and_grows(subject: &dyn Subject) {
    let driver = subject.driver();
    let unknown = driver.usage(&id("inever")).await;
    assert!(
        matches!(unknown, Err(DriverError::NotFound(_))),
        "{unknown:?}"
    );
    let one = make(subject, "ione", run(1)).await;
    let first = driver.usage(&one).await;
    let first = first.unwrap_or_else(|error| panic!("usage fails: {error}"));
    let second = driver.usage(&one).await;
    let second = second.unwrap_or_else(|error| panic!("usage fails: {error}"));
    assert!(
        second.cpu_nanos >= first.cpu_nanos,
        "processor time never decreases"
    );
    destroy(subject, &one).await;
    let gone = driver.usage(&one).await;
    assert!(matches!(gone, Err(DriverError::NotFound(_))), "{gone:?}");
}

async fn an_end_is_reported_once_with_its_run(subject: &dyn Subject) {
    let one = make(subject, "ione", run(5)).await;
    subject.stop(&one).await;
    let expected = DriverEvent::Failed {
        id: one.clone(),
        execution: run(5),
        reason: FailReason::Exited,
    };
    assert_eq!(event(subject).await, expected);
    let there = found(subject).await;
    assert!(
        there.len() == 1 && !there[0].alive,
        "it stays in the inventory until it is destroyed: {there:?}"
    );
    destroy(subject, &one).await;
    // A second report would come before the end of the next sandbox.
    let next = make(subject, "inext", run(6)).await;
    subject.stop(&next).await;
    let DriverEvent::Failed { id, execution, .. } = event(subject).await else {
        panic!("an end is a failure");
    };
    assert_eq!((id, execution), (next.clone(), run(6)));
    destroy(subject, &next).await;
}

async fn a_requested_end_is_not_reported(subject: &dyn Subject) {
    let quiet = make(subject, "iquiet", run(7)).await;
    destroy(subject, &quiet).await;
    let loud = make(subject, "iloud", run(8)).await;
    subject.stop(&loud).await;
    let DriverEvent::Failed { id, .. } = event(subject).await else {
        panic!("an end is a failure");
    };
    assert_eq!(id, loud, "the destroyed sandbox is not reported");
    destroy(subject, &loud).await;
}

async fn many_at_once_do_not_mix(subject: &dyn Subject) {
    let names = ["ia", "ib", "ic", "id"];
    for (number, name) in (1..).zip(names) {
        make(subject, name, run(number)).await;
    }
    destroy(subject, &id("ib")).await;
    let there: BTreeSet<(String, ExecutionId)> = found(subject)
        .await
        .into_iter()
        .filter(|found| found.alive)
        .map(|found| (found.id.to_string(), found.execution))
        .collect();
    let expected = [("ia", run(1)), ("ic", run(3)), ("id", run(4))];
    assert_eq!(
        there,
        expected
            .map(|(name, execution)| (name.to_owned(), execution))
            .into()
    );
    for name in ["ia", "ic", "id"] {
        destroy(subject, &id(name)).await;
    }
}
