//! Teams and their limits.

use axum::Extension;
use axum::extract::{Path, State};
use shoal_core::auth::{Principal, TeamSlug};
use shoal_core::limits::TeamLimits;
use shoal_core::ports::access::TeamView;
use shoal_core::resources::{Mib, MilliCpu};
use shoal_protocol::native::{NewTeamLimits, OpenShare, Team};

use super::admin::Admin;
use super::answer::Answer;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::error::ApiError;

/// `GET /teams`: the caller's team, or all for an admin.
pub(super) async fn list(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
) -> Result<Answer<Vec<Team>>, ApiError> {
    let teams = backend.teams.list(&principal).await?;
    Ok(Answer::ok(teams.into_iter().map(view).collect()))
}

/// `PUT /teams/{name}/limits`: sets a team's limits and returns them. Creates the team if it is
/// new.
pub(super) async fn limit(
    State(backend): State<Backend>,
    Admin(principal): Admin,
    Path(name): Path<String>,
    body: JsonBody<NewTeamLimits>,
) -> Result<Answer<NewTeamLimits>, ApiError> {
    let slug: TeamSlug = name.parse().map_err(ApiError::invalid)?;
    let said = body.value;
    let limits = TeamLimits {
        sandboxes: said.sandboxes,
        cpu: said.cpu_milli.map(MilliCpu),
        memory: said.memory_mb.map(Mib),
        disk: said.disk_mb.map(Mib),
        snapshots: said.snapshots,
    };
    backend.teams.set_limits(&principal, &slug, limits).await?;
    Ok(Answer::ok(said))
}

fn view(team: TeamView) -> Team {
    let share = |used: usize, limit: Option<u32>| OpenShare {
        used: used as u64,
        limit: limit.map(u64::from),
    };
    let limits = team.limits;
    Team {
        name: team.slug.to_string(),
        sandboxes: share(team.sandboxes, limits.sandboxes),
        cpu_milli: OpenShare {
            used: team.cpu.0.into(),
            limit: limits.cpu.map(|cpu| cpu.0.into()),
        },
        memory_mb: OpenShare {
            used: team.memory.0.into(),
            limit: limits.memory.map(|memory| memory.0.into()),
        },
        disk_mb: team.disk_bytes.map(|bytes| OpenShare {
            used: bytes >> 20,
            limit: limits.disk.map(|disk| disk.0.into()),
        }),
        snapshots: share(team.snapshots, limits.snapshots),
    }
}
