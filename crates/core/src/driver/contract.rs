//! What every driver promises, as a suite: each driver's tests run it on the driver.
//!
//! A promise that is broken is a panic that says which. The suite needs no runtime of its own and
//! waits for nothing but what the driver gives, so a test that calls it has to bound its time.

use std::collections::BTreeSet;
use std::time::Duration;

mod rest;

use super::{CreateOrder, Driver, DriverError, DriverEvent, Found, Origin};
use crate::BoxFuture;
use crate::id::{ExecutionId, SandboxId};
use crate::network::Egress;
use crate::state::FailReason;

/// A driver and what the suite has to know of it.
pub trait Subject: Send + Sync {
    /// The driver: the same each time.
    fn driver(&self) -> &dyn Driver;

    /// An order that the driver can carry out, of its default runtime.
    fn order(&self, id: SandboxId, execution: ExecutionId) -> CreateOrder;

    /// An order of an image that the driver does not have.
    fn order_without_image(&self, id: SandboxId, execution: ExecutionId) -> CreateOrder;

    /// Lets the sandbox stop by itself, as a program that ends does.
    fn stop<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, ()>;

    /// What there is of the sandbox outside the driver's own memory, for people; nothing when it
    /// is gone.
    fn remains(&self, id: &SandboxId) -> Vec<String>;
}

/// Runs the whole suite. The driver must have no sandboxes, and has none afterwards.
///
/// # Panics
/// When a promise is broken.
pub async fn check(subject: &dyn Subject) {
    assert!(
        found(subject).await.is_empty(),
        "the suite begins with none"
    );
    capabilities_name_a_default(subject);
    what_is_made_is_found_and_what_is_destroyed_is_not(subject).await;
    destroying_is_repeatable_and_needs_no_sandbox(subject).await;
    an_id_is_given_once(subject).await;
    a_failed_creation_leaves_nothing(subject).await;
    rules_change_while_it_runs_and_only_then(subject).await;
    what_is_used_is_counted_and_grows(subject).await;
    one_that_is_held_still_uses_no_time(subject).await;
    one_without_work_is_quiet_sooner_or_later(subject).await;
    an_end_is_told_once_with_its_run(subject).await;
    an_ordered_end_is_no_news(subject).await;
    many_at_once_do_not_mix(subject).await;
    rest::check(subject).await;
    assert!(found(subject).await.is_empty(), "the suite leaves none");
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
    let order = subject.order(id(name), execution);
    let runtime = order.runtime.clone();
    let made = subject.driver().create(order).await;
    let report = made.unwrap_or_else(|error| panic!("{name} is not made: {error}"));
    let known = &subject.driver().capabilities().runtimes;
    let ran = known.iter().find(|info| info.name == report.runtime);
    let ran = ran.unwrap_or_else(|| panic!("{} is no runtime of the driver", report.runtime));
    assert_eq!(report.isolation, ran.isolation, "it says what isolates");
    assert!(
        runtime.is_none_or(|asked| asked == report.runtime),
        "what was asked for ran"
    );
    assert_eq!(report.origin, Origin::Cold);
    assert!(
        report.phases.ready.is_zero(),
        "whether the daemon answers is not the driver's to say"
    );
    assert!(report.envd_version.is_empty());
    id(name)
}

async fn destroy(subject: &dyn Subject, id: &SandboxId) {
    let destroyed = subject.driver().destroy(id).await;
    destroyed.unwrap_or_else(|error| panic!("{id} is not destroyed: {error}"));
    assert_eq!(subject.remains(id), [""; 0], "nothing remains of {id}");
}

/// The next event that is not what a daemon has written.
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
    // The id is free again, and another run of it is another sandbox.
    let again = make(subject, "ione", run(3)).await;
    assert_eq!(found(subject).await[0].execution, run(3));
    destroy(subject, &again).await;
}

async fn an_id_is_given_once(subject: &dyn Subject) {
    let one = make(subject, "ione", run(1)).await;
    let second = subject
        .driver()
        .create(subject.order(id("ione"), run(2)))
        .await;
    assert!(second.is_err(), "an id that is taken is refused");
    let there = found(subject).await;
    assert!(
        there.len() == 1 && there[0].alive && there[0].execution == run(1),
        "the first is not touched: {there:?}"
    );
    let rules = subject.driver().set_egress(&one, Egress::default()).await;
    assert!(rules.is_ok(), "and can be used: {rules:?}");
    destroy(subject, &one).await;
}

async fn a_failed_creation_leaves_nothing(subject: &dyn Subject) {
    let driver = subject.driver();
    let without_image = driver
        .create(subject.order_without_image(id("ibad"), run(1)))
        .await;
    assert!(
        matches!(without_image, Err(DriverError::ImageNotFound(_))),
        "{without_image:?}"
    );
    let mut order = subject.order(id("ibad"), run(1));
    order.runtime = "nosuchruntime".parse().ok();
    let asked = order.runtime.clone();
    let refused = driver.create(order).await;
    assert!(
        matches!(&refused, Err(DriverError::RuntimeNotFound { asked: a, available })
            if Some(a) == asked.as_ref() && !available.is_empty()),
        "{refused:?}"
    );
    assert!(found(subject).await.is_empty());
    assert_eq!(subject.remains(&id("ibad")), [""; 0]);
    // Half of it may have been made; clearing that is a success all the same.
    destroy(subject, &id("ibad")).await;
}

async fn rules_change_while_it_runs_and_only_then(subject: &dyn Subject) {
    let driver = subject.driver();
    let closed = Egress {
        internet: Some(false),
        ..Egress::default()
    };
    let unknown = driver.set_egress(&id("inever"), closed.clone()).await;
    assert!(
        matches!(unknown, Err(DriverError::NotFound(_))),
        "{unknown:?}"
    );
    let one = make(subject, "ione", run(1)).await;
    let range = "198.51.100.0/24".parse().into_iter().collect();
    let listed = Egress {
        allow: range,
        ..closed.clone()
    };
    for rules in [closed, listed, Egress::default()] {
        let set = driver.set_egress(&one, rules).await;
        assert!(set.is_ok(), "{set:?}");
    }
    destroy(subject, &one).await;
    let gone = driver.set_egress(&one, Egress::default()).await;
    assert!(matches!(gone, Err(DriverError::NotFound(_))), "{gone:?}");
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
    assert!(second.cpu_nanos >= first.cpu_nanos, "time does not go back");
    destroy(subject, &one).await;
    let gone = driver.usage(&one).await;
    assert!(matches!(gone, Err(DriverError::NotFound(_))), "{gone:?}");
}

async fn one_that_is_held_still_uses_no_time(subject: &dyn Subject) {
    /// How often is looked for time that it uses.
    const LOOKS: usize = 20;
    let driver = subject.driver();
    let nobody = driver.hold(&id("inever"), true).await;
    assert!(
        matches!(nobody, Err(DriverError::NotFound(_))),
        "{nobody:?}"
    );
    let one = make(subject, "ione", run(1)).await;
    let hold = async |still| {
        let held = driver.hold(&one, still).await;
        held.unwrap_or_else(|error| panic!("it is not held or released: {error}"));
    };
    let used = async || {
        let usage = driver.usage(&one).await;
        usage.map(|usage| usage.cpu_nanos).unwrap_or_default()
    };
    for still in [true, true, false, false, true] {
        hold(still).await;
    }
    let before = used().await;
    for _ in 0..LOOKS {
        assert_eq!(used().await, before, "it is still");
    }
    let rules = driver.set_egress(&one, Egress::default()).await;
    assert!(rules.is_ok(), "rules are changed meanwhile: {rules:?}");
    let limits = subject.order(one.clone(), run(1)).limits;
    let resized = driver.resize(&one, limits).await;
    assert!(resized.is_ok(), "limits are changed meanwhile: {resized:?}");
    assert!(found(subject).await[0].alive, "it is there");
    destroy(subject, &one).await;
    // One that goes on ends as any other.
    let again = make(subject, "ione", run(2)).await;
    for still in [true, false] {
        let held = driver.hold(&again, still).await;
        assert!(held.is_ok(), "{held:?}");
    }
    subject.stop(&again).await;
    assert!(matches!(event(subject).await, DriverEvent::Failed { .. }));
    destroy(subject, &again).await;
}

async fn one_without_work_is_quiet_sooner_or_later(subject: &dyn Subject) {
    let driver = subject.driver();
    let one = make(subject, "iquiet", run(1)).await;
    let within = Duration::from_secs(60);
    let quiet = driver.until_quiet(&one, within).await;
    assert!(matches!(quiet, Ok(true)), "nothing goes on: {quiet:?}");
    destroy(subject, &one).await;
    let gone = driver.until_quiet(&one, within).await;
    assert!(
        matches!(gone, Err(DriverError::NotFound(_))),
        "one that is gone is not quiet: {gone:?}"
    );
}

async fn an_end_is_told_once_with_its_run(subject: &dyn Subject) {
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
        "it is there until it is destroyed: {there:?}"
    );
    destroy(subject, &one).await;
    // Were it told twice, the second time would come before the end of the next.
    let next = make(subject, "inext", run(6)).await;
    subject.stop(&next).await;
    let DriverEvent::Failed { id, execution, .. } = event(subject).await else {
        panic!("an end is a failure");
    };
    assert_eq!((id, execution), (next.clone(), run(6)));
    destroy(subject, &next).await;
}

async fn an_ordered_end_is_no_news(subject: &dyn Subject) {
    let quiet = make(subject, "iquiet", run(7)).await;
    destroy(subject, &quiet).await;
    let loud = make(subject, "iloud", run(8)).await;
    subject.stop(&loud).await;
    let DriverEvent::Failed { id, .. } = event(subject).await else {
        panic!("an end is a failure");
    };
    assert_eq!(id, loud, "the one that was destroyed is not told");
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
