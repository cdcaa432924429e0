//! An entry of the catalogue: the fields of the seed's tables, and ours.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use super::command::{self, Command, quoted};
use super::pool::Pool;
use crate::build::StartCommand;
use crate::id::TemplateId;
use crate::network::{AddressRange, AskedEgress, AskedNetwork, HostMask};
use crate::quantity::{CpuQuantity, MemoryQuantity};
use crate::resources::{Mib, MilliCpu};
use crate::snapshot::Contents;
use crate::template::{RuntimeName, TemplateRef};

/// The longest name of an entry, in bytes.
pub(super) const NAME_MAX: usize = 128;

/// What an entry is called: 1 to 128 of `A-Z a-z 0-9 . _ -`, the first a letter or a digit. Case
/// tells no two apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EntryName(String);

/// A text that is no entry's name.
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

    /// The id under which sandboxes of the entry are known, the same for the same name.
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

/// What `type` may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One image, meant by its name; so is an entry that says nothing.
    Static,
    /// A family of images, meant by a pattern.
    Dynamic,
}

/// What a sandbox is to have of the machine, as Kubernetes says it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EntryResources {
    /// Processors that it usually needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuQuantity>,
    /// Memory that it usually needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryQuantity>,
    /// Processors that it may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<CpuQuantity>,
    /// Memory that it may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<MemoryQuantity>,
}

impl EntryResources {
    /// The most processor time: the limit, else what is requested, if that is something.
    #[must_use]
    pub fn most_cpu(&self) -> Option<MilliCpu> {
        let said = self.cpu_limit.as_ref().or(self.cpu.as_ref());
        said.map(CpuQuantity::value).filter(|cpu| cpu.0 > 0)
    }

    /// The most memory: the limit, else what is requested, if that is something.
    #[must_use]
    pub fn most_memory(&self) -> Option<Mib> {
        let said = self.memory_limit.as_ref().or(self.memory.as_ref());
        said.map(MemoryQuantity::value)
            .filter(|memory| memory.0 > 0)
    }
}

/// The network of an entry's sandboxes, in E2B's words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EntryNetwork {
    /// Whether the internet is open at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_internet_access: Option<bool>,
    /// Addresses and ranges that are reached whatever is denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_out: Option<Vec<AddressRange>>,
    /// Addresses and ranges that are not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny_out: Option<Vec<AddressRange>>,
    /// The name servers to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_servers: Option<Vec<Ipv4Addr>>,
    /// Whether ports answer without the traffic access token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_public_traffic: Option<bool>,
    /// What servers in the sandbox see as `Host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask_request_host: Option<HostMask>,
}

impl EntryNetwork {
    /// The same as a policy of which parts may not be said.
    #[must_use]
    pub fn asked(&self) -> AskedNetwork {
        AskedNetwork {
            egress: AskedEgress {
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

/// What a pause or a snapshot keeps, as OpenKruise's list: `["memory", "filesystem"]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Kept {
    words: Vec<String>,
    contents: Contents,
}

impl Kept {
    /// What is kept.
    #[must_use]
    pub fn contents(&self) -> Contents {
        self.contents
    }
}

impl TryFrom<Vec<String>> for Kept {
    type Error = crate::snapshot::InvalidContents;

    fn try_from(words: Vec<String>) -> Result<Self, Self::Error> {
        let contents = words.join(",").parse()?;
        Ok(Self { words, contents })
    }
}

impl From<Kept> for Vec<String> {
    fn from(kept: Kept) -> Self {
        kept.words
    }
}

/// One template, or one family of them. Only `name`, `image` and `description` must be said, and
/// `template` may be said instead of `image`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// What requests call it.
    pub name: EntryName,
    /// Its image; `<name>` and `<version>` stand for what the pattern of a dynamic entry finds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// A template that was built, by the installation or by a team that has opened it: its sandboxes
    /// begin with what was saved of that, instead of with an image (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateRef>,
    /// Which names a dynamic entry means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Whether it is dynamic.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// The port of its service; 8080 when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<NonZeroU16>,
    /// For people.
    pub description: String,
    /// What its sandboxes are to have of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<EntryResources>,
    /// How many of them are made ahead of time, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
    /// Whether nobody waits for the port of what `startCmd` starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_startup_probe: Option<bool>,
    /// Arguments of what `startCmd` starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Labels of its sandboxes, below those of a request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The OCI runtime (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeName>,
    /// What a pause or a snapshot keeps by default (OpenKruise's `persistentContents`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_contents: Option<Kept>,
    /// Environment of every process, over the image's and below a request's (ours).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Who commands run as (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where commands start (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// What a sandbox starts, for a shell (ours, as E2B's templates). Written as a line or as a
    /// list of words.
    #[serde(
        default,
        deserialize_with = "command::line",
        skip_serializing_if = "Option::is_none"
    )]
    pub start_cmd: Option<String>,
    /// What succeeds when that is ready, for a shell (ours, as E2B's templates). Written as a line
    /// or as a list of words.
    #[serde(
        default,
        deserialize_with = "command::line",
        skip_serializing_if = "Option::is_none"
    )]
    pub ready_cmd: Option<String>,
    /// The network of its sandboxes (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<EntryNetwork>,
}

impl Entry {
    /// Whether it means a family of images.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        self.kind == Some(Kind::Dynamic)
    }

    /// What its sandboxes start, when it stands on an image: `startCmd` with `args` behind it, and what
    /// succeeds once that is ready: `readyCmd`, else a probe of its `port` (unless
    /// `noStartupProbe`). The program of an image itself is not started here, so that without a
    /// `startCmd` there is nothing that `args` could go to, or that could answer at the port.
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

    /// What `warmupCmd` of its pool says, as a program and its arguments.
    #[must_use]
    pub fn warmup_argv(&self) -> Option<Vec<String>> {
        self.pool.as_ref()?.warmup_cmd.as_ref().map(Command::argv)
    }

    /// What `startupCmd` of its pool says, as a program and its arguments.
    #[must_use]
    pub fn startup_argv(&self) -> Option<Vec<String>> {
        self.pool.as_ref()?.startup_cmd.as_ref().map(Command::argv)
    }
}
