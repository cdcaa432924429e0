//! Which keys may choose which OCI runtime.

use shoal_core::auth::Principal;
use shoal_core::catalogue::merge::{Merged, Source};
pub use shoal_core::ports::sandboxes::RuntimeForbidden;
use shoal_core::sandbox::SandboxSpec;
use shoal_core::template::RuntimeName;

use crate::engine::Engine;
use crate::resolve::{Meaning, Resolved};

/// Which runtimes a key may choose that is no admin's. Those of admins may choose any that is found, and
/// what the operator wrote into an entry of the catalogue everybody gets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AllowedRuntimes {
    /// The default one alone.
    #[default]
    Default,
    /// Any that is found.
    Any,
    /// These, and the default one.
    Named(Vec<RuntimeName>),
}

impl Engine {
    /// Whether a sandbox of `principal` may run in what was merged for it. Says whether the operator chose
    /// that.
    pub(crate) fn may_run(
        &self,
        principal: &Principal,
        resolved: &Resolved,
        merged: &Merged,
    ) -> Result<bool, RuntimeForbidden> {
        let from_operator = merged.runtime.from != Source::Request
            && match &resolved.meaning {
                Meaning::Snapshot(snapshot) => snapshot.spec.runtime_from_operator,
                _ => resolved.is_operators(),
            };
        if !from_operator {
            self.may_choose(principal, merged.runtime.value.as_ref())?;
        }
        Ok(from_operator)
    }

    /// Whether `principal` may have another sandbox like one that is there.
    pub(crate) fn may_run_again(
        &self,
        principal: &Principal,
        spec: &SandboxSpec,
    ) -> Result<(), RuntimeForbidden> {
        if spec.runtime_from_operator {
            return Ok(());
        }
        self.may_choose(principal, spec.runtime.as_ref())
    }

    fn may_choose(
        &self,
        principal: &Principal,
        asked: Option<&RuntimeName>,
    ) -> Result<(), RuntimeForbidden> {
        let known = &self.capabilities().runtimes;
        let usual = known.first().map(|info| &info.name);
        // What is not here is refused by the driver, by name.
        let here = |name: &&RuntimeName| known.iter().any(|info| info.name == **name);
        let Some(asked) = asked.filter(here) else {
            return Ok(());
        };
        let named: &[RuntimeName] = match &self.shared.config.runtimes {
            AllowedRuntimes::Any => return Ok(()),
            AllowedRuntimes::Default => &[],
            AllowedRuntimes::Named(named) => named,
        };
        if principal.admin || Some(asked) == usual || named.contains(asked) {
            return Ok(());
        }
        let allowed: Vec<&str> = usual
            .into_iter()
            .chain(named.iter().filter(here))
            .map(RuntimeName::as_str)
            .collect();
        Err(RuntimeForbidden {
            asked: asked.clone(),
            allowed: allowed.join(" or "),
        })
    }
}
