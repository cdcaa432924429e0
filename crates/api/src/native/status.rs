//! What the server is.

use axum::Extension;
use axum::extract::State;
use shoal_core::auth::Principal;
use shoal_core::driver::Isolation;
use shoal_engine::{Engine, ListFilter};
use shoal_protocol::native::{Runtime, Share, Status, Totals};

use super::answer::Answer;

/// `GET /status`.
pub(super) async fn get(
    State(engine): State<Engine>,
    Extension(principal): Extension<Principal>,
) -> Answer<Status> {
    let capabilities = engine.capabilities();
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
    let limits = engine.limits();
    let totals = engine.usage_of_all(&principal).map(|used| Totals {
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
        running: engine.list(&principal, &filter).running,
        driver: capabilities.driver.clone(),
        runtimes: runtimes.collect(),
        disk_limit: capabilities.disk_limit.clone(),
        states: engine.usage(&principal).states,
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
