//! Teams, with what they may have and what they use.

use shoal_core::auth::Principal;

use crate::access::{TeamError, TeamView};
use crate::engine::Engine;

impl Engine {
    /// The teams that `by` may see: its own, or all for an admin.
    ///
    /// # Errors
    /// When the store or the disk cannot be read.
    pub async fn teams(&self, by: &Principal) -> Result<Vec<TeamView>, TeamError> {
        let shared = &self.shared;
        let mut teams = shared.access.all_teams().await?;
        teams.retain(|(_, team)| by.admin || *team == by.team);
        let mut views = Vec::new();
        for (slug, team) in teams {
            let (_, sandboxes) = shared.entries.count(team);
            let load = shared.entries.load_of(team);
            let disk = shared.driver.disk_use(team).await?;
            views.push(TeamView {
                slug,
                limits: shared.access.limits_of(team),
                sandboxes,
                cpu: load.cpu,
                memory: load.memory,
                disk_bytes: disk.map(|disk| disk.bytes),
                snapshots: shared.snapshots.of_team(team),
            });
        }
        Ok(views)
    }
}
