//! The contract of [`Freezer`]: a frozen sandbox uses no processor time.

use super::{Subject, destroy, event, found, id, make, run};
use crate::driver::{DriverError, DriverEvent, Freezer};
use crate::id::SandboxId;
use crate::network::Egress;

/// How often the processor time of a frozen sandbox is read.
const READS: usize = 20;

/// How often a freeze is tried that takes too long, as on a busy machine.
const TRIES: usize = 40;

/// Freezes a sandbox. A driver bounds how long it tries, and leaves it running if that is not enough.
async fn freeze(driver: &dyn Freezer, id: &SandboxId) -> Result<(), DriverError> {
    for _ in 1..TRIES {
        match driver.freeze(id).await {
            Err(DriverError::TooSlow { .. }) => {}
            done => return done,
        }
    }
    driver.freeze(id).await
}

/// Runs this part of the suite.
pub(super) async fn check(subject: &dyn Subject, driver: &dyn Freezer) {
    let unknown = (
        driver.freeze(&id("inever")).await,
        driver.thaw(&id("inever")).await,
    );
    assert!(
        matches!(
            unknown,
            (Err(DriverError::NotFound(_)), Err(DriverError::NotFound(_)))
        ),
        "{unknown:?}"
    );
    let one = make(subject, "ione", run(1)).await;
    for frozen in [true, true, false, false, true] {
        let done = match frozen {
            true => freeze(driver, &one).await,
            false => driver.thaw(&one).await,
        };
        done.unwrap_or_else(|error| panic!("it neither freezes nor thaws: {error}"));
    }
    let used = async || {
        let usage = subject.driver().usage(&one).await;
        usage.map(|usage| usage.cpu_nanos).unwrap_or_default()
    };
    let before = used().await;
    for _ in 0..READS {
        assert_eq!(used().await, before, "it is frozen");
    }
    if let Some(filter) = subject.driver().egress_filter() {
        let rules = filter.set_egress(&one, Egress::default()).await;
        assert!(rules.is_ok(), "rules can change meanwhile: {rules:?}");
    }
    if let Some(resizer) = subject.driver().resizer() {
        let limits = subject.spec(one.clone(), run(1)).limits;
        let resized = resizer.resize(&one, limits).await;
        assert!(resized.is_ok(), "limits can change meanwhile: {resized:?}");
    }
    assert!(found(subject).await[0].alive, "it exists");
    destroy(subject, &one).await;
    a_thawed_sandbox_ends_as_any_other(subject, driver).await;
}

async fn a_thawed_sandbox_ends_as_any_other(subject: &dyn Subject, driver: &dyn Freezer) {
    let one = make(subject, "ione", run(2)).await;
    let frozen = freeze(driver, &one).await;
    assert!(frozen.is_ok(), "{frozen:?}");
    let thawed = driver.thaw(&one).await;
    assert!(thawed.is_ok(), "{thawed:?}");
    subject.stop(&one).await;
    assert!(matches!(event(subject).await, DriverEvent::Failed { .. }));
    destroy(subject, &one).await;
}
