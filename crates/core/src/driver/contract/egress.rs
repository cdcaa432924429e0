//! The contract of [`EgressFilter`]: rules change while a sandbox runs, and only then.

use super::{Subject, destroy, id, make, run};
use crate::driver::{DriverError, EgressFilter};
use crate::network::Egress;

/// Runs this part of the suite.
pub(super) async fn check(subject: &dyn Subject, driver: &dyn EgressFilter) {
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
