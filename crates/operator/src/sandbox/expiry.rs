//! The shutdown time of a sandbox.

use std::time::Duration;

use jiff::Timestamp;
use shoal_crds::v1beta1::SandboxSpec;

/// The shortest wait for the shutdown time, so that a clock that is a little behind causes no loop.
const SHORTEST_WAIT: Duration = Duration::from_secs(2);

/// How far the shutdown time is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// There is none.
    Never,
    /// It is in the future: look again after this wait.
    After(Duration),
    /// It has come.
    Expired,
}

/// Compares the shutdown time with the clock.
pub(super) fn of(spec: &SandboxSpec, now: Timestamp) -> Expiry {
    let Some(shutdown) = &spec.shutdown_time else {
        return Expiry::Never;
    };
    match Duration::try_from(shutdown.0.duration_since(now)) {
        Ok(left) if !left.is_zero() => Expiry::After(left.max(SHORTEST_WAIT)),
        _ => Expiry::Expired,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn at(shutdown: Option<i64>) -> Expiry {
        let time = |second| Timestamp::from_second(second).unwrap();
        let spec = SandboxSpec {
            shutdown_time: shutdown.map(|at| Time(time(at))),
            ..SandboxSpec::default()
        };
        of(&spec, time(1000))
    }

    #[test]
    fn a_sandbox_expires_at_its_shutdown_time() {
        assert_eq!(at(None), Expiry::Never);
        assert_eq!(at(Some(1060)), Expiry::After(Duration::from_secs(60)));
        assert_eq!(at(Some(1001)), Expiry::After(SHORTEST_WAIT));
        assert_eq!(at(Some(1000)), Expiry::Expired);
        assert_eq!(at(Some(1)), Expiry::Expired);
    }
}
