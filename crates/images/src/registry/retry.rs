//! Retries with backoff.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use super::RegistryConfig;
use crate::fault::Fault;

/// Runs `work` until it succeeds, fails permanently, or all attempts are used.
pub(crate) async fn retry<T, F>(
    config: &RegistryConfig,
    mut work: impl FnMut() -> F,
) -> Result<T, Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    let mut delay = config.first_delay;
    let mut left = config.attempts;
    loop {
        left = left.saturating_sub(1);
        match work().await {
            Err(fault) if fault.is_transient() && left > 0 => {
                tracing::debug!(%fault, ?delay, "tried again");
                tokio::time::sleep(jittered(delay)).await;
                delay = delay.saturating_mul(2);
            }
            other => return other,
        }
    }
}

/// Adds up to half of the delay, so that clients that failed together do not retry together.
fn jittered(delay: Duration) -> Duration {
    // A new `RandomState` has new keys, which is random enough here.
    let chance = RandomState::new().hash_one(()) % 1000;
    delay + delay.mul_f64(f64::from(u32::try_from(chance).unwrap_or(0)) / 2000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn unreachable() -> Fault {
        Fault::Unreachable {
            registry: "r".into(),
            detail: "reset".into(),
        }
    }

    async fn tries(outcomes: &[Result<(), Fault>]) -> (Result<(), Fault>, usize) {
        let config = RegistryConfig::default();
        let tried = Cell::new(0);
        let outcome = retry(&config, || {
            let at = tried.replace(tried.get() + 1);
            async move { outcomes[at.min(outcomes.len() - 1)].clone() }
        })
        .await;
        (outcome, tried.get())
    }

    #[tokio::test(start_paused = true)]
    async fn transient_failures_are_retried_a_limited_number_of_times() {
        let (outcome, tried) = tries(&[Err(unreachable()), Err(unreachable()), Ok(())]).await;
        assert!(outcome.is_ok());
        assert_eq!(tried, 3);
        let (outcome, tried) = tries(&[Err(unreachable())]).await;
        assert!(matches!(outcome, Err(Fault::Unreachable { .. })));
        assert_eq!(tried, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn permanent_failures_are_not_retried() {
        let (outcome, tried) = tries(&[Err(Fault::NotFound), Ok(())]).await;
        assert!(matches!(outcome, Err(Fault::NotFound)));
        assert_eq!(tried, 1);
    }
}
