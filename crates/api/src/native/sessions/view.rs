//! Sessions on the wire.

use shoal_core::driver::Isolation;
use shoal_core::ports::sessions::{SessionView, WindowView};
use shoal_core::session::machine::{MachineParameters, MachineType, Nesting};
use shoal_protocol::native as wire;

use super::origin::Origin;

/// A session as the answer shows it to a caller from there.
pub(super) fn session(view: SessionView, origin: &Origin) -> wire::Session {
    let record = view.record;
    wire::Session {
        id: record.id.to_string(),
        metadata: record.metadata,
        machine: machine(&record.machine),
        persist: record.life.persist,
        preview_url: origin.url(&view.public_hostname),
        public_hostname: view.public_hostname,
        wake_on_request: record.wakes.allowed,
        created_at: record.created_at.to_string(),
        last_execution: record.life.last_execution.to_string(),
        system: record.system,
        isolation: record
            .isolation
            .map(|isolation| isolated_by(isolation).to_owned()),
        sandbox_id: record
            .sandbox
            .filter(|_| record.external.is_none())
            .map(|id| id.to_string()),
        ssh_host_key: record
            .external
            .and_then(|external| external.host_key)
            .map(|key| key.fingerprint),
        ends_at: view.ends_at.map(|at| at.to_string()),
        windows: view.windows.into_iter().map(window).collect(),
    }
}

/// The isolation of a machine, by the names that people know.
fn isolated_by(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::UserspaceKernel => "gvisor",
        Isolation::VirtualMachine => "microvm",
        Isolation::Namespaces => "namespaces",
        Isolation::None => "none",
    }
}

fn window(view: WindowView) -> wire::SessionWindow {
    wire::SessionWindow {
        name: view.name.to_string(),
        running: view.running,
        active_at: view.active.to_string(),
    }
}

/// The parameters of a machine, of which the key is no part.
pub(super) fn parameters(asked: &wire::SessionMachine) -> MachineParameters {
    MachineParameters {
        cpu_count: asked.cpu_count,
        memory_gb: asked.memory_gb,
        gpu_type: asked.gpu_type.clone(),
        gpu_count: asked.gpu_count,
        privileged: asked.privileged,
        docker_image: asked.docker_image.clone(),
        ssh_connection: asked.ssh_connection.clone(),
        ssh_private_key: asked.ssh_private_key.is_some(),
    }
}

fn machine(machine: &MachineType) -> wire::SessionMachine {
    match machine {
        MachineType::Sandbox {
            cpu_count,
            memory_gb,
            gpus,
            nesting,
        } => wire::SessionMachine {
            cpu_count: *cpu_count,
            memory_gb: *memory_gb,
            gpu_type: gpus.map(|gpus| gpus.kind.to_string()),
            gpu_count: gpus.map(|gpus| gpus.count),
            privileged: *nesting != Nesting::None,
            docker_image: match nesting {
                Nesting::Container(image) => Some(image.clone()),
                Nesting::None | Nesting::Privileged => None,
            },
            ..wire::SessionMachine::default()
        },
        MachineType::External(address) => wire::SessionMachine {
            ssh_connection: Some(address.to_string()),
            ..wire::SessionMachine::default()
        },
    }
}
