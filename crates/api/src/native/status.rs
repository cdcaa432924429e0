//! The server's version and capabilities.

use axum::Extension;
use axum::extract::State;
use shoal_core::auth::Principal;
use shoal_core::driver::Isolation;
use shoal_core::ports::list::ListFilter;
use shoal_protocol::native::{Runtime, Share, Status, Totals};

use super::answer::Answer;
use crate::backend::Backend;

/// `GET /status`.
pub(super) async fn get(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
) -> Answer<Status> {
    let capabilities = backend.installation.capabilities();
    let runtimes = capabilities.runtimes.iter().map(|runtime| Runtime {
        name: runtime.name.to_string(),
        version: runtime.version.clone(),
        isolation: isolation(runtime.isolation).to_owned(),
        memory_snapshot: runtime.memory_snapshot,
    });
    let filter = ListFilter {
        running: true,
        limit: 1,
        ..ListFilter::default()
    };
    let limits = backend.installation.limits();
    let totals = backend.telemetry.usage_of_all(&principal).await;
    let totals = totals.map(|used| Totals {
        sandboxes: Share {
            used: used.counted as u64,
            limit: limits.sandboxes as u64,
        },
        cpu_milli: Share {
            used: used.cpu.0.into(),
            limit: capabilities.cpu.0.into(),
        },
        memory_mb: used.memory_mib,
        teams: used.teams,
        states: used.states,
    });
    Answer::ok(Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        team: principal.slug.to_string(),
        admin: principal.admin,
        running: backend.sandboxes.list(&principal, &filter).await.running,
        driver: capabilities.driver.clone(),
        runtimes: runtimes.collect(),
        disk_limit: capabilities.disk_limit.clone(),
        states: backend.telemetry.usage(&principal).await.states,
        totals,
    })
}

fn isolation(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Namespaces => "namespaces",
        Isolation::UserspaceKernel => "userspace_kernel",
        Isolation::VirtualMachine => "virtual_machine",
        Isolation::None => "none",
    }
}
