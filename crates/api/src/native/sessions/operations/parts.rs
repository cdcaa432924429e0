//! The operations of secrets and memories.

use shoal_protocol::native as wire;

use super::GROUP;
use crate::openapi::operation::{CREATE, Operation};

pub(super) fn of_secrets() -> Vec<Operation> {
    vec![
        GROUP
            .op(
                "GET",
                "/sessions/{id}/secrets",
                "listSessionSecrets",
                "List the secrets of a session by name",
            )
            .about("Without their values, which no answer contains.")
            .lists::<wire::SessionSecret>(&[])
            .fails(&[404, 501, 507]),
        GROUP
            .op(
                "PUT",
                "/sessions/{id}/secrets/{secret}",
                "setSessionSecret",
                "Set the value of a secret",
            )
            .about(
                "It is stored encrypted. An active secret stays active, with the new value. Names that the machine needs \
                 (`PATH`, `HOME`, `LD_PRELOAD` and the like) are refused.",
            )
            .required_body::<wire::SetSecret>()
            .answers::<wire::SessionSecret>(200)
            .fails(&[404, 409, 429, 501, 507]),
        GROUP
            .op(
                "DELETE",
                "/sessions/{id}/secrets/{secret}",
                "deleteSessionSecret",
                "Delete a secret",
            )
            .about("Windows lose the variable before their next command.")
            .answers::<()>(200)
            .fails(&[404, 409, 501, 507]),
        GROUP
            .op(
                "POST",
                "/sessions/{id}/secrets/{secret}/activate",
                "activateSessionSecret",
                "Make a secret a variable of all windows",
            )
            .about(
                "Open windows get it before their next command. It ends with the machine: another needs another \
                 activation. Without a machine, the next one has it. Output shows `***` in place of the value.",
            )
            .answers::<wire::SessionSecret>(200)
            .fails(CREATE)
            .fails(&[501]),
        GROUP
            .op(
                "POST",
                "/sessions/{id}/secrets/{secret}/deactivate",
                "deactivateSessionSecret",
                "Take a secret from all windows",
            )
            .about("Before their next command. Programs that run keep what they have.")
            .answers::<wire::SessionSecret>(200)
            .fails(&[404, 409, 501, 507]),
    ]
}

pub(super) fn of_memories() -> Vec<Operation> {
    vec![
        GROUP
            .op(
                "GET",
                "/sessions/{id}/memories",
                "listSessionMemories",
                "List the memories of a session by name",
            )
            .lists::<wire::SessionMemoryEntry>(&[])
            .fails(&[404, 501, 507]),
        GROUP
            .op(
                "GET",
                "/sessions/{id}/memories/{memory}",
                "getSessionMemory",
                "Read a memory",
            )
            .answers::<wire::SessionMemory>(200)
            .fails(&[404, 501, 507]),
        GROUP
            .op(
                "PUT",
                "/sessions/{id}/memories/{memory}",
                "putSessionMemory",
                "Write a memory",
            )
            .about("Memories are kept outside of the machine, until they or their session are deleted.")
            .required_body::<wire::PutMemory>()
            .answers::<wire::SessionMemory>(200)
            .fails(&[404, 409, 429, 501, 507]),
        GROUP
            .op(
                "DELETE",
                "/sessions/{id}/memories/{memory}",
                "deleteSessionMemory",
                "Delete a memory",
            )
            .answers::<()>(200)
            .fails(&[404, 501, 507]),
    ]
}
