//! Teams: namespaces with an API key. Kubernetes' own quotas limit them.

use std::sync::Arc;

use jiff::Timestamp as Time;
use shoal_core::BoxFuture;
use shoal_core::auth::{Principal, TeamSlug};
use shoal_core::id::TeamId;
use shoal_core::limits::TeamLimits;
use shoal_core::ports::NotServed;
use shoal_core::ports::access::{TeamError, TeamView, Teams};
use shoal_core::resources::{Mib, MilliCpu};
use shoal_crds::kruise::Sandbox;

use crate::keys::Keys;
use crate::record;
use crate::watched::Watched;

/// The teams.
pub(crate) struct TeamsPort {
    pub(crate) keys: Arc<Keys>,
    pub(crate) sandboxes: Arc<Watched<Sandbox>>,
}

impl TeamsPort {
    fn view(&self, slug: TeamSlug) -> TeamView {
        let own = self.sandboxes.filter(|sandbox| {
            sandbox.metadata.namespace.as_deref() == Some(slug.as_str())
                && record::is_claimed(sandbox)
                && !sandbox.spec.paused
        });
        let records = own.iter().map(|sandbox| record::of(sandbox, Time::now()));
        let (mut cpu, mut memory) = (MilliCpu(0), Mib(0));
        for record in records {
            cpu.0 = cpu.0.saturating_add(record.cpu_kept().0);
            memory.0 = memory.0.saturating_add(record.memory_kept().0);
        }
        TeamView {
            slug,
            limits: TeamLimits::default(),
            sandboxes: own.len(),
            cpu,
            memory,
            disk_bytes: None,
            snapshots: 0,
        }
    }
}

impl Teams for TeamsPort {
    fn list<'a>(&'a self, by: &'a Principal) -> BoxFuture<'a, Result<Vec<TeamView>, TeamError>> {
        Box::pin(async move {
            let mut slugs: Vec<_> = self
                .keys
                .visible(by)
                .into_iter()
                .map(|key| key.slug)
                .collect();
            slugs.sort();
            slugs.dedup();
            Ok(slugs.into_iter().map(|slug| self.view(slug)).collect())
        })
    }

    fn limits(&self, _: &Principal) -> TeamLimits {
        TeamLimits::default()
    }

    fn set_limits<'a>(
        &'a self,
        by: &'a Principal,
        _: &'a TeamSlug,
        _: TeamLimits,
    ) -> BoxFuture<'a, Result<(), TeamError>> {
        let refused = if by.admin {
            TeamError::NotServed(NotServed {
                what: "a limit of a team",
                instead: "create a ResourceQuota in its namespace",
            })
        } else {
            TeamError::Forbidden
        };
        Box::pin(std::future::ready(Err(refused)))
    }

    fn slug(&self, team: TeamId) -> Option<TeamSlug> {
        self.keys.slug(team)
    }
}
