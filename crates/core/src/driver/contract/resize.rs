//! The contract of [`Resizer`]: limits change in place.

use super::checkpoint::one;
use super::{Subject, destroy, id, make, run};
use crate::driver::{DriverError, Resizer};
use crate::limits::Bounds;
use crate::resources::{MilliCpu, Resources};

/// Runs this part of the suite.
pub(super) async fn check(subject: &dyn Subject, driver: &dyn Resizer) {
    let spec = subject.spec(id("isize"), run(1));
    let had = spec.limits.resources();
    let granted = |cpu| {
        let wanted = Resources { cpu, ..had };
        let granted = Bounds::none().grant(wanted, had.cpu);
        granted.unwrap_or_else(|error| panic!("limits of a test: {error}"))
    };
    let (before, other) = (granted(had.cpu), granted(MilliCpu(had.cpu.0 / 2)));
    let unknown = driver.resize(&id("inever"), other).await;
    assert!(
        matches!(unknown, Err(DriverError::NotFound(_))),
        "{unknown:?}"
    );
    let id = make(subject, "isize", run(1)).await;
    for limits in [other, before] {
        let resized = driver.resize(&id, limits).await;
        resized.unwrap_or_else(|error| panic!("it is not resized: {error}"));
    }
    assert!(one(subject).await.alive, "the same run continues");
    destroy(subject, &id).await;
}
