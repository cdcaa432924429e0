//! Teams, with their limits and their use.

use shoal_core::auth::Principal;

use super::Sandboxes;
use crate::access::{TeamError, TeamView};

impl Sandboxes {
    /// The teams that `by` may see: its own, or all for an admin.
    ///
    /// # Errors
    /// When the store or the disk cannot be read.
    pub(crate) async fn teams(&self, by: &Principal) -> Result<Vec<TeamView>, TeamError> {
        let mut teams = self.parts.access.all_teams().await?;
        teams.retain(|(_, team)| by.admin || *team == by.team);
        let mut views = Vec::new();
        for (slug, team) in teams {
            let (_, sandboxes) = self.registry.count(team);
            let load = self.registry.load_of(team);
            let disk = self.parts.drivers.disk_use(team).await?;
            views.push(TeamView {
                slug,
                limits: self.parts.access.limits_of(team),
                sandboxes,
                cpu: load.cpu,
                memory: load.memory,
                disk_bytes: disk.map(|disk| disk.bytes),
                snapshots: self.parts.snapshots.of_team(team),
            });
        }
        Ok(views)
    }
}
