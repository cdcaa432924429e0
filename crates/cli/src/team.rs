//! `shoal team`.

use clap::{Args, Subcommand};
use http::Method;
use shoal_protocol::native::{NewTeamLimits, OpenShare, Team};

use crate::calls::encode;
use crate::connection::{Connection, ConnectionArgs};
use crate::failure::{EXIT_CODES, Failure};
use crate::output::{self, Table};

/// The commands of `shoal team`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct TeamArgs {
    #[command(subcommand)]
    command: TeamCommand,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
enum TeamCommand {
    /// List teams with their use and limits.
    #[command(visible_alias = "list")]
    Ls,
    /// Set the limits of a team. Limits that are not given get the installation's defaults.
    Limit(LimitArgs),
}

#[derive(Debug, Args)]
struct LimitArgs {
    /// The team, created if it does not exist.
    #[arg(value_name = "TEAM")]
    name: String,
    #[command(flatten)]
    limits: LimitsArgs,
}

/// The limits of a team.
#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    /// Sandboxes, without paused ones.
    #[arg(long, value_name = "COUNT")]
    max_sandboxes: Option<u32>,
    /// Processors of all its sandboxes, like 8 or 0.5.
    #[arg(long, value_name = "CPUS", value_parser = processors)]
    max_cpu: Option<u32>,
    /// Memory of all its sandboxes, in MiB.
    #[arg(long, value_name = "MIB")]
    max_memory: Option<u32>,
    /// Disk of all its sandboxes, snapshots and builds, in MiB.
    #[arg(long, value_name = "MIB")]
    max_disk: Option<u32>,
    /// Snapshots.
    #[arg(long, value_name = "COUNT")]
    max_snapshots: Option<u32>,
}

impl LimitsArgs {
    /// Applies the limits, if any are given.
    pub(crate) async fn set(&self, server: &Connection, team: &str) -> Result<(), Failure> {
        let limits = NewTeamLimits {
            sandboxes: self.max_sandboxes,
            cpu_milli: self.max_cpu,
            memory_mb: self.max_memory,
            disk_mb: self.max_disk,
            snapshots: self.max_snapshots,
        };
        if limits == NewTeamLimits::default() {
            return Ok(());
        }
        put(server, team, &limits).await
    }
}

async fn put(server: &Connection, team: &str, limits: &NewTeamLimits) -> Result<(), Failure> {
    let path = format!("/teams/{}/limits", encode(team));
    let _: NewTeamLimits = server.native(Method::PUT, &path, Some(limits)).await?;
    Ok(())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked"
)]
fn processors(text: &str) -> Result<u32, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.001..=1e6).contains(&number) {
        return Err("between 0.001 and 1000000".to_owned());
    }
    Ok((number * 1000.0).round() as u32)
}

pub(crate) async fn run(args: TeamArgs) -> Result<u8, Failure> {
    let json = args.connection.json();
    let server = args.connection.resolve()?;
    match args.command {
        TeamCommand::Ls => list(&server, json).await?,
        TeamCommand::Limit(args) => {
            let limits = &args.limits;
            limits.set(&server, &args.name).await?;
            output::line(&args.name)?;
        }
    }
    Ok(0)
}

async fn list(server: &Connection, json: bool) -> Result<(), Failure> {
    let teams: Vec<Team> = server.native_get("/teams").await?;
    if json {
        return output::json(&teams);
    }
    let mut table = Table::new(&["TEAM", "SANDBOXES", "CPU", "MEMORY", "DISK", "SNAPSHOTS"]);
    for team in teams {
        let count = |share: &OpenShare| of(share, |n| n.to_string());
        let cpu = of(&team.cpu_milli, |milli| {
            format!("{}.{}", milli / 1000, milli % 1000 / 100)
        });
        let mib = |share: &OpenShare| of(share, |mib| format!("{mib}MiB"));
        let disk = team.disk_mb.as_ref().map_or("-".to_owned(), mib);
        table.row([
            team.name.clone(),
            count(&team.sandboxes),
            cpu,
            mib(&team.memory_mb),
            disk,
            count(&team.snapshots),
        ]);
    }
    table.print()
}

/// The use, and the limit if there is one.
fn of(share: &OpenShare, show: impl Fn(u64) -> String) -> String {
    match share.limit {
        Some(limit) => format!("{} of {}", show(share.used), show(limit)),
        None => show(share.used),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_told_with_its_limit_if_it_has_one() {
        let share = |limit| OpenShare { used: 3, limit };
        assert_eq!(of(&share(Some(5)), |n| n.to_string()), "3 of 5");
        assert_eq!(of(&share(None), |n| n.to_string()), "3");
    }

    #[test]
    fn processors_are_numbers_above_nothing() {
        assert_eq!(processors("1.5"), Ok(1500));
        for bad in ["", "x", "0", "-1", "NaN"] {
            assert!(processors(bad).is_err(), "{bad}");
        }
    }
}
