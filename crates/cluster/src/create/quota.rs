//! The quota of the key that creates a sandbox.

use shoal_core::auth::Principal;
use shoal_core::ports::create::CreateError;
use shoal_core::quota::{Amount, Dimension, Quota};
use shoal_crds::kruise::Sandbox;

use super::plan::Plan;
use crate::identity::key;
use crate::quotas::{Ask, Hold, amount_of};
use crate::sandboxes::Sandboxes;

/// The reservation of a create: none for a key without a quota.
pub(super) type Reserved<'a> = Option<Hold<'a>>;

impl Sandboxes {
    /// Reserves the resources of the sandbox, and marks it with its key.
    ///
    /// # Errors
    /// When they exceed the quota, or are unknown while the quota limits them.
    pub(super) async fn reserve(
        &self,
        principal: &Principal,
        plan: &mut Plan,
    ) -> Result<Reserved<'_>, CreateError> {
        let Some(quota) = self.keys.quota(principal.key) else {
            return Ok(None);
        };
        let mut sandbox = plan.set.member("");
        plan.change(&mut sandbox);
        let amount = amount_of(&sandbox);
        let (namespace, set) = key(&plan.set.metadata);
        check_known(&quota, amount, &set)?;
        plan.claiming.quota_key = Some(principal.key.to_string());
        let ask = Ask {
            key: principal.key,
            quota,
            namespace,
            sandbox: plan.claiming.lock.clone(),
            amount,
        };
        Ok(Some(self.quotas.reserve(ask).await?))
    }
}

/// Whether a write of this sandbox is within the reservation.
pub(super) fn allows(reserved: &Reserved<'_>, sandbox: &Sandbox) -> bool {
    let covers = |hold: &Hold<'_>| hold.is_fresh() && hold.covers(sandbox);
    reserved.as_ref().is_none_or(covers)
}

/// Makes a reservation good for another write.
pub(super) async fn renew(reserved: &mut Reserved<'_>) -> Result<(), CreateError> {
    match reserved {
        Some(hold) => Ok(hold.renew().await?),
        None => Ok(()),
    }
}

/// Ends a reservation whose sandbox is written, or was not because of `error`.
pub(super) async fn release(reserved: Reserved<'_>, error: Option<&CreateError>) {
    // Without a clear answer the sandbox may still come.
    if let Some(hold) = reserved
        && !matches!(error, Some(CreateError::Store(_)))
    {
        hold.release().await;
    }
}

/// Refuses a sandbox whose use of a limited resource is unknown.
fn check_known(quota: &Quota, amount: Amount, set: &str) -> Result<(), CreateError> {
    let limited = [
        (Dimension::Cpu, "limits.cpu"),
        (Dimension::Memory, "limits.memory"),
    ];
    let unknown =
        |(dimension, _): &(Dimension, &str)| quota.bounds(*dimension) && amount.of(*dimension) == 0;
    match limited.into_iter().find(unknown) {
        Some((_, name)) => Err(CreateError::InvalidOption(format!(
            "the quota of this API key limits `{name}`, and the SandboxSet {set} does not say how much its sandboxes \
             use: set `resources.limits` in its template"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use shoal_core::quota::{QuotaLimit, Scope};

    use super::*;

    #[test]
    fn a_template_says_how_much_of_what_is_limited_it_uses() {
        let limit = QuotaLimit {
            dimension: Dimension::Memory,
            scope: Scope::All,
            limit: 1024,
        };
        let Ok(quota) = Quota::of([limit]) else {
            unreachable!("it has one limit")
        };
        let amount = |memory| Amount {
            sandboxes: 1,
            cpu: 0,
            memory,
        };
        assert!(check_known(&quota, amount(64), "code").is_ok());
        let error = check_known(&quota, amount(0), "code")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("limits.memory") && error.contains("code"),
            "{error}"
        );
        assert!(check_known(&Quota::default(), amount(0), "code").is_ok());
    }
}
