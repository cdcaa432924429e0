//! The OCI runtimes that a key may choose.

use shoal_core::auth::Principal;
pub use shoal_core::ports::sandboxes::RuntimeForbidden;
use shoal_core::sandbox::SandboxSpec;
use shoal_core::template::RuntimeName;

use super::Access;
use crate::config::AllowedRuntimes;

impl Access {
    /// Whether `principal` may have another sandbox like an existing one.
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

    /// Whether `principal` may choose this runtime.
    pub(crate) fn may_choose(
        &self,
        principal: &Principal,
        asked: Option<&RuntimeName>,
    ) -> Result<(), RuntimeForbidden> {
        let known = &self.machine.runtimes;
        let usual = known.first().map(|info| &info.name);
        // The driver refuses unknown runtimes by name.
        let here = |name: &&RuntimeName| known.iter().any(|info| info.name == **name);
        let Some(asked) = asked.filter(here) else {
            return Ok(());
        };
        let named: &[RuntimeName] = match &self.runtimes {
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
