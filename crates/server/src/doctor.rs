//! `shoal doctor`: checks the machine and finds leftovers of crashes.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use shoal_core::BoxFuture;
use shoal_core::ports::NotServed;
use shoal_core::ports::doctor::{Doctor, Finding, Health};
use shoal_node::instances::{self, Instance, Owner};
use shoal_oci::OciConfig;
use shoal_oci::doctor;

use crate::app;
use crate::config::Config;

/// The flags of `shoal doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
    /// Remove leftovers that no server owns. Asks for confirmation.
    #[arg(long)]
    clean: bool,
    /// Do not ask for confirmation.
    #[arg(long, short, requires = "clean")]
    yes: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    checks: Vec<Finding>,
    installations: Vec<Instance>,
}

/// Checks, reports, and removes leftovers on request. Fails when the server would not start, or when
/// leftovers remain.
///
/// # Errors
/// When the machine cannot be searched, or a leftover cannot be removed.
pub(crate) fn run(config: &Config, args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut report = Report {
        checks: doctor::examine(&app::oci_config(config)?),
        installations: instances::instances(&config.data)?,
    };
    report.checks.push(port(config, &report.installations));
    report.checks.extend(api_key(&config.data));
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print_checks(&report.checks);
        print_installations(&report.installations);
    }
    let mut left = 0;
    for installation in &report.installations {
        if installation.owner != Owner::Nobody {
            continue;
        }
        if args.clean && (args.yes || confirmed(installation)?) {
            instances::clear(installation)?;
            eprintln!("removed the leftovers of {}", installation.name);
        } else {
            left += 1;
        }
    }
    if left > 0 && !args.clean && !args.json {
        println!("\n`shoal doctor --clean` removes leftovers.");
    }
    let starts = report.checks.iter().all(|c| c.health != Health::Missing);
    Ok(if starts && left == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The checks of the machine that a running server is on.
#[derive(Debug, Clone)]
pub(crate) struct MachineDoctor(Arc<OciConfig>);

impl MachineDoctor {
    /// # Errors
    /// When the program cannot find itself.
    pub(crate) fn of(config: &Config) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(app::oci_config(config)?)))
    }
}

impl Doctor for MachineDoctor {
    fn examine(&self) -> BoxFuture<'_, Result<Vec<Finding>, NotServed>> {
        let oci = self.0.clone();
        let look = move || {
            let mut findings = doctor::examine(&oci);
            findings.extend(api_key(&oci.data));
            findings.push(leftovers(&oci.data));
            findings
        };
        Box::pin(async move {
            let looked = tokio::task::spawn_blocking(look).await;
            Ok(looked.unwrap_or_else(|error| {
                let cure = "read the server's log";
                vec![Finding::bad(
                    "checks",
                    Health::Warning,
                    error.to_string(),
                    cure,
                )]
            }))
        })
    }
}

/// Leftovers of other installations on this machine.
fn leftovers(data: &Path) -> Finding {
    const WHAT: &str = "leftovers";
    match instances::instances(data) {
        Ok(found) => {
            let abandoned = found.iter().filter(|one| one.owner == Owner::Nobody);
            let things: usize = abandoned.map(|one| one.things.len()).sum();
            if things == 0 {
                return Finding::good(WHAT, "none");
            }
            let detail = format!("{things} of installations that are gone");
            Finding::bad(WHAT, Health::Warning, detail, "sudo shoal doctor --clean")
        }
        Err(error) => {
            let cure = "run `sudo shoal doctor` on the machine";
            Finding::bad(WHAT, Health::Warning, error.to_string(), cure)
        }
    }
}

fn port(config: &Config, installations: &[Instance]) -> Finding {
    const WHAT: &str = "port";
    let listen = config.listen;
    let running = |one: &&Instance| one.owner == Owner::Running;
    let ours = |one: &Instance| one.data.as_ref() == Some(&config.data);
    let mut running = installations.iter().filter(running);
    match (TcpListener::bind(listen), running.clone().any(ours)) {
        (Ok(_), _) => Finding::good(WHAT, format!("{listen} is free")),
        (Err(_), true) => Finding::good(WHAT, format!("{listen} is served by shoal")),
        (Err(error), false) => match running.find_map(|one| one.data.as_ref()) {
            Some(data) => {
                let data = data.display();
                Finding::good(
                    WHAT,
                    format!("{listen} is in use, and a shoal server runs: see --data {data}"),
                )
            }
            None => {
                let detail = format!("{listen}: {error}");
                let cure =
                    "stop the program that listens there, or choose another address with --listen";
                Finding::bad(WHAT, Health::Warning, detail, cure)
            }
        },
    }
}

/// Only its owner may read the first key.
fn api_key(data: &Path) -> Option<Finding> {
    const WHAT: &str = "API key";
    const OTHERS: u32 = 0o077;
    let path = data.join("api-key");
    let mode = fs::metadata(&path).ok()?.permissions().mode();
    Some(if mode & OTHERS == 0 {
        Finding::good(WHAT, path.display().to_string())
    } else {
        let detail = format!("{}: other users may read it", path.display());
        let cure = format!("sudo chmod 600 {}", path.display());
        Finding::bad(WHAT, Health::Warning, detail, cure)
    })
}

fn print_checks(checks: &[Finding]) {
    let width = checks.iter().map(|c| c.what.len()).max().unwrap_or(0);
    for check in checks {
        let mark = match check.health {
            Health::Good => "ok",
            Health::Warning => "warning",
            Health::Missing => "missing",
        };
        println!("{mark:8} {:width$}  {}", check.what, check.detail);
        if let Some(cure) = &check.cure {
            println!("{:8} {:width$}  fix: {cure}", "", "");
        }
    }
}

fn print_installations(installations: &[Instance]) {
    for installation in installations {
        let Instance {
            name,
            data,
            owner,
            things,
        } = installation;
        let place = match data {
            Some(data) => format!("{name} at {}", data.display()),
            None => name.clone(),
        };
        let count = things.len();
        match owner {
            Owner::Running => {
                println!("\n{place}: its server is running; it owns {count} resources")
            }
            Owner::Waiting(sandboxes) => println!(
                "\n{place}: {sandboxes} sandboxes wait for their server; they own {count} resources"
            ),
            Owner::Unknown => println!(
                "\n{place}: {count} resources of an installation with an unknown data directory; \
                 pass it with --data"
            ),
            Owner::Nobody => {
                println!("\n{place}: {count} leftovers:");
                things.iter().for_each(|thing| println!("  {thing}"));
            }
        }
    }
}

fn confirmed(installation: &Instance) -> anyhow::Result<bool> {
    anyhow::ensure!(
        io::stdin().is_terminal(),
        "cannot ask for confirmation without a terminal: pass --yes to remove the leftovers of {}",
        installation.name
    );
    let count = installation.things.len();
    print!("Remove {count} leftovers of {}? [y/N] ", installation.name);
    io::stdout().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
