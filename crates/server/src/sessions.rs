//! Wiring of sessions: their service, over the ports of a backend.

use std::sync::Arc;

use anyhow::Context;
use shoal_contents::ObjectContents;
use shoal_core::ports::Ports;
use shoal_core::session::preview::PreviewDomain;
use shoal_engine::SqliteStore;
use shoal_sessions::{Contents, MachineSupport, SessionParts, SessionService};
use shoal_ssh::SshMachines;
use shoal_tasks::Tasks;

use crate::config::Config;
use crate::sealing_key;

/// The ports with sessions, which use the other ports.
///
/// # Errors
/// When the sealing key or the stored sessions cannot be read, or no runtime is installed.
pub(crate) async fn with_sessions(
    config: &Config,
    ports: Ports,
    store: Arc<SqliteStore>,
    contents: ObjectContents,
    tasks: &mut Tasks,
) -> anyhow::Result<Ports> {
    let contents = Contents::new(Arc::new(contents), store.clone());
    let sessions = SessionService::open(SessionParts {
        sandboxes: ports.sandboxes.clone(),
        access: ports.access.clone(),
        events: ports.sandbox_events.clone(),
        external: Arc::new(SshMachines::new(config.templates.ssh_networks.clone())),
        store: store.clone(),
        rows: store.clone(),
        contents: contents.clone(),
        secrets: store.clone(),
        sealing_key: sealing_key::ensure(&config.data)?,
        memories: store,
        builds: ports.builds.clone(),
        templates: config.templates.sessions.clone(),
        support: machine_support(config, &ports)?,
        clock: ports.clock.clone(),
        previews: PreviewDomain::of(config.domain.as_deref()),
    })
    .await?;
    tasks.spawn("sessions", sessions.clone().end_unused());
    tasks.spawn("contents of session files", contents.sweep());
    let sessions = Arc::new(sessions);
    Ok(Ports {
        sessions: sessions.clone(),
        session_files: sessions.clone(),
        session_secrets: sessions.clone(),
        session_memories: sessions.clone(),
        previews: sessions,
        ..ports
    })
}

/// The machine types that the default runtime supports and the configuration allows.
fn machine_support(config: &Config, ports: &Ports) -> anyhow::Result<MachineSupport> {
    let runtimes = &ports.installation.capabilities().runtimes;
    let default = runtimes.first().context("no runtime is installed")?;
    Ok(MachineSupport {
        runtime: default.name.clone(),
        nested_containers: default.nested_containers,
        privileged: config.templates.privileged,
    })
}
