//! An entry of the catalogue: Agent-Sandbox's fields, and ours.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use super::command::{self, Command, quoted};
use super::pool::Pool;
use crate::build::StartCommand;
use crate::id::TemplateId;
use crate::network::{AddressRange, HostMask, RequestedEgress, RequestedNetwork};
use crate::quantity::{CpuQuantity, MemoryQuantity};
use crate::resources::{Mib, MilliCpu};
use crate::snapshot::Contents;
use crate::template::{RuntimeName, TemplateRef};

/// The longest name of an entry, in bytes.
pub(super) const NAME_MAX: usize = 128;

/// The name of an entry: 1 to 128 of `A-Z a-z 0-9 . _ -`, starting with a letter or a digit. Names
/// are compared without case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EntryName(String);

/// A text that is not an entry's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name: 1 to {NAME_MAX} letters, digits, `.`, `_` and `-`, a letter or digit first"
)]
pub struct InvalidEntryName(String);

impl EntryName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The template id of the entry's sandboxes, derived from the name.
    #[must_use]
    pub fn template_id(&self) -> TemplateId {
        TemplateId::of_catalogue(&self.0.to_ascii_lowercase())
    }
}

impl TryFrom<String> for EntryName {
    type Error = InvalidEntryName;

    fn try_from(text: String) -> Result<Self, InvalidEntryName> {
        let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let begins = text
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric());
        if begins && text.len() <= NAME_MAX && text.bytes().all(good) {
            Ok(Self(text))
        } else {
            Err(InvalidEntryName(text.chars().take(NAME_MAX).collect()))
        }
    }
}

impl From<EntryName> for String {
    fn from(name: EntryName) -> Self {
        name.0
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The values of `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One image, selected by the entry's name. The default.
    Static,
    /// A family of images, selected by a pattern.
    Dynamic,
}

/// The object that makes the pods of an entry's sandboxes in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Substrate {
    /// A ReplicaSet of one for each sandbox, as in Agent-Sandbox. The default.
    ReplicaSet,
    /// The operator itself, as for the sandboxes of a SandboxSet.
    SandboxSet,
}

/// A sandbox's resources, as in Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EntryResources {
    /// The requested processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuQuantity>,
    /// The requested memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryQuantity>,
    /// The processor limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<CpuQuantity>,
    /// The memory limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<MemoryQuantity>,
}

impl EntryResources {
    /// The processor limit; by default the request, if that is not zero.
    #[must_use]
    pub fn most_cpu(&self) -> Option<MilliCpu> {
        let said = self.cpu_limit.as_ref().or(self.cpu.as_ref());
        said.map(CpuQuantity::value).filter(|cpu| cpu.0 > 0)
    }

    /// The memory limit; by default the request, if that is not zero.
    #[must_use]
    pub fn most_memory(&self) -> Option<Mib> {
        let said = self.memory_limit.as_ref().or(self.memory.as_ref());
        said.map(MemoryQuantity::value)
            .filter(|memory| memory.0 > 0)
    }
}

/// The network of an entry's sandboxes, with E2B's field names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EntryNetwork {
    /// Whether internet access is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_internet_access: Option<bool>,
    /// Addresses and ranges that are reachable even if denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_out: Option<Vec<AddressRange>>,
    /// Addresses and ranges that are not reachable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny_out: Option<Vec<AddressRange>>,
    /// The name servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_servers: Option<Vec<Ipv4Addr>>,
    /// Whether ports are reachable without the traffic access token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_public_traffic: Option<bool>,
    /// The `Host` header that servers in the sandbox see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask_request_host: Option<HostMask>,
}

impl EntryNetwork {
    /// The same as a partial network policy.
    #[must_use]
    pub fn asked(&self) -> RequestedNetwork {
        RequestedNetwork {
            egress: RequestedEgress {
                internet: self.allow_internet_access,
                allow: self.allow_out.clone(),
                deny: self.deny_out.clone(),
                dns_servers: self.dns_servers.clone(),
            },
            said_open: false,
            allow_public_traffic: self.allow_public_traffic,
            mask_request_host: self.mask_request_host.clone(),
        }
    }
}

/// The contents of a pause or a snapshot, as OpenKruise's list: `["memory", "filesystem"]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct PersistentContents {
    words: Vec<String>,
    contents: Contents,
}

impl PersistentContents {
    /// The contents.
    #[must_use]
    pub fn contents(&self) -> Contents {
        self.contents
    }
}

impl TryFrom<Vec<String>> for PersistentContents {
    type Error = crate::snapshot::InvalidContents;

    fn try_from(words: Vec<String>) -> Result<Self, Self::Error> {
        let contents = words.join(",").parse()?;
        Ok(Self { words, contents })
    }
}

impl From<PersistentContents> for Vec<String> {
    fn from(kept: PersistentContents) -> Self {
        kept.words
    }
}

/// One template, or a family of templates. Only `name`, `description`, and one of `image` and
/// `template` are required.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// The name that requests use.
    pub name: EntryName,
    /// The image. In a dynamic entry, `<name>` and `<version>` stand for the captures of the
    /// pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// A built template of the installation, or a public one of a team. Sandboxes then start from
    /// its saved state instead of an image (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateRef>,
    /// The pattern that names of a dynamic entry match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Whether the entry is dynamic.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// The port of its service; by default 8080.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<NonZeroU16>,
    /// A description for people.
    pub description: String,
    /// The resources of its sandboxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<EntryResources>,
    /// Its pool of sandboxes created ahead of time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
    /// Whether a create does not wait for the port of `startCmd`'s program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_startup_probe: Option<bool>,
    /// Arguments of `startCmd`'s program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Labels of its sandboxes; those of a request override them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The OCI runtime (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeName>,
    /// The default contents of a pause or a snapshot (OpenKruise's `persistentContents`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_contents: Option<PersistentContents>,
    /// Environment of every process (ours). Overrides the image's; a request's overrides it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The user that commands run as (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The working directory of commands (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// The start command, a shell line (ours, as in E2B's templates). Written as a line or as a
    /// list of words.
    #[serde(
        default,
        deserialize_with = "command::line",
        skip_serializing_if = "Option::is_none"
    )]
    pub start_cmd: Option<String>,
    /// The ready command, a shell line (ours, as in E2B's templates). Written as a line or as a
    /// list of words.
    #[serde(
        default,
        deserialize_with = "command::line",
        skip_serializing_if = "Option::is_none"
    )]
    pub ready_cmd: Option<String>,
    /// The network of its sandboxes (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<EntryNetwork>,
    /// The object that makes its pods in a cluster (ours). It has no meaning on one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substrate: Option<Substrate>,
}

impl Entry {
    /// Whether the entry is dynamic.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        self.kind == Some(Kind::Dynamic)
    }

    /// The start command of sandboxes based on an image: `startCmd` followed by `args`. The ready
    /// command is `readyCmd`, or a probe of `port` unless `noStartupProbe` is set. The image's own
    /// program is not started. Without a `startCmd`, therefore, no program could take `args` or
    /// answer at the port.
    #[must_use]
    pub fn start(&self) -> Option<StartCommand> {
        let command = self.start_cmd.as_ref().map(|command| {
            let args = self.args.iter().flatten();
            args.fold(command.clone(), |line, arg| {
                format!("{line} {}", quoted(arg))
            })
        });
        let probed = self
            .port
            .filter(|_| command.is_some() && self.no_startup_probe != Some(true));
        let probe = probed.map(|port| format!("exec 3<>/dev/tcp/127.0.0.1/{port}"));
        let ready = self.ready_cmd.clone().or(probe);
        (command.is_some() || ready.is_some())
            .then(|| StartCommand::new(command.unwrap_or_default(), ready))
    }

    /// The pool's `warmupCmd` as a program and its arguments.
    #[must_use]
    pub fn warmup_argv(&self) -> Option<Vec<String>> {
        self.pool.as_ref()?.warmup_cmd.as_ref().map(Command::argv)
    }

    /// The pool's `startupCmd` as a program and its arguments.
    #[must_use]
    pub fn startup_argv(&self) -> Option<Vec<String>> {
        self.pool.as_ref()?.startup_cmd.as_ref().map(Command::argv)
    }
}
