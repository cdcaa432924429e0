//! The machine of a session, and which parameters go together.

use std::fmt;
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use crate::id::SandboxId;

/// The most processors of a machine.
pub const CPU_COUNT_MAX: u32 = 16;
/// The most memory of a machine, in GiB.
pub const MEMORY_GB_MAX: u32 = 64;
/// The most GPUs of a machine.
pub const GPU_COUNT_MAX: u32 = 8;

/// The parameters of a request, before they are checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineParameters {
    /// Processors.
    pub cpu_count: Option<u32>,
    /// Memory in GiB.
    pub memory_gb: Option<u32>,
    /// The model of its GPUs.
    pub gpu_type: Option<String>,
    /// The number of its GPUs.
    pub gpu_count: Option<u32>,
    /// Whether containers run inside.
    pub privileged: bool,
    /// The image of the container in which commands run.
    pub docker_image: Option<String>,
    /// An external machine: `username@host:port`.
    pub ssh_connection: Option<String>,
    /// Whether the private key of the external machine is known. The key itself is a secret, and not part of the type.
    pub ssh_private_key: bool,
}

/// A model of GPUs.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum_macros::EnumString,
    strum_macros::Display,
    strum_macros::VariantNames,
)]
pub enum GpuType {
    /// NVIDIA A10G.
    A10G,
    /// NVIDIA A100.
    A100,
    /// NVIDIA T4.
    T4,
    /// NVIDIA L4.
    L4,
    /// NVIDIA H100.
    H100,
}

/// GPUs of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpus {
    /// The model.
    pub kind: GpuType,
    /// How many.
    pub count: u32,
}

/// Where the commands of a sandbox run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Nesting {
    /// In the sandbox, in which containers are not available.
    None,
    /// In the sandbox, in which containers are available.
    Privileged,
    /// In a container of this image inside.
    Container(String),
}

/// The machine of a session: a valid combination of parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MachineType {
    /// A sandbox of its own.
    Sandbox {
        /// Processors, over those of the template.
        cpu_count: Option<u32>,
        /// Memory in GiB, over that of the template.
        memory_gb: Option<u32>,
        /// Its GPUs.
        gpus: Option<Gpus>,
        /// Where its commands run.
        nesting: Nesting,
    },
    /// An external machine.
    External(SshAddress),
}

/// Where an external machine is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshAddress {
    /// The account.
    pub username: String,
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: NonZeroU16,
}

impl fmt::Display for SshAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            username,
            host,
            port,
        } = self;
        write!(f, "{username}@{host}:{port}")
    }
}

/// The public key of a machine, by which it is known again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostKey {
    /// The key, as OpenSSH writes it.
    pub key: String,
    /// Its fingerprint, for people.
    pub fingerprint: String,
}

/// The stored facts about the external machine of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalRecord {
    /// Its identity where files are compared.
    pub files: SandboxId,
    /// The private key, sealed.
    pub sealed_key: Vec<u8>,
    /// The host key of the first connection.
    pub host_key: Option<HostKey>,
}

/// Why a session cannot have a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// Two parameters exclude each other.
    #[error("`{0}` cannot be combined with `{1}`: leave one of them out")]
    Together(&'static str, &'static str),
    /// A parameter needs another.
    #[error("`{0}` needs `{1}`: give both, or neither")]
    Without(&'static str, &'static str),
    /// A number is outside of its range.
    #[error("`{parameter}` is {value}: give 1 to {most}")]
    Range {
        /// The parameter.
        parameter: &'static str,
        /// Its value.
        value: u32,
        /// The largest value.
        most: u32,
    },
    /// No such model exists.
    #[error("`gpu_type` {0:?} is unknown: give A10G, A100, T4, L4 or H100")]
    UnknownGpu(String),
    /// The image has no name.
    #[error("`docker_image` {0:?} is no image: give one as `python:3.11`")]
    Image(String),
    /// The text does not name an account of a machine.
    #[error("`ssh_connection` {0:?} is no address: give `username@host:port`")]
    Address(String),
}

impl MachineType {
    /// Where its commands run.
    #[must_use]
    pub fn nesting(&self) -> &Nesting {
        match self {
            Self::Sandbox { nesting, .. } => nesting,
            Self::External(_) => &Nesting::None,
        }
    }

    /// The machine of a session that asks for nothing.
    #[must_use]
    pub fn ordinary() -> Self {
        Self::Sandbox {
            cpu_count: None,
            memory_gb: None,
            gpus: None,
            nesting: Nesting::None,
        }
    }
}

impl TryFrom<MachineParameters> for MachineType {
    type Error = MachineError;

    fn try_from(asked: MachineParameters) -> Result<Self, MachineError> {
        check_together(&asked)?;
        if let Some(address) = &asked.ssh_connection {
            return address.parse().map(Self::External);
        }
        let nesting = match asked.docker_image {
            Some(image) if is_image(&image) => Nesting::Container(image),
            Some(image) => return Err(MachineError::Image(image)),
            None if asked.privileged => Nesting::Privileged,
            None => Nesting::None,
        };
        Ok(Self::Sandbox {
            cpu_count: within("cpu_count", asked.cpu_count, CPU_COUNT_MAX)?,
            memory_gb: within("memory_gb", asked.memory_gb, MEMORY_GB_MAX)?,
            gpus: gpus(asked.gpu_type, asked.gpu_count)?,
            nesting,
        })
    }
}

/// Refuses parameters that do not go together, before any of them is looked at.
fn check_together(asked: &MachineParameters) -> Result<(), MachineError> {
    let given = [
        ("cpu_count", asked.cpu_count.is_some()),
        ("memory_gb", asked.memory_gb.is_some()),
        ("gpu_type", asked.gpu_type.is_some()),
        ("gpu_count", asked.gpu_count.is_some()),
        ("privileged", asked.privileged),
        ("docker_image", asked.docker_image.is_some()),
    ];
    let ssh = [
        ("ssh_connection", asked.ssh_connection.is_some()),
        ("ssh_private_key", asked.ssh_private_key),
    ];
    if let Some((name, _)) = ssh.iter().find(|(_, there)| *there) {
        if let Some((other, _)) = given.iter().find(|(_, there)| *there) {
            return Err(MachineError::Together(other, name));
        }
        if let Some((missing, _)) = ssh.iter().find(|(_, there)| !there) {
            return Err(MachineError::Without(name, missing));
        }
    }
    if asked.docker_image.is_some() && !asked.privileged {
        return Err(MachineError::Without("docker_image", "privileged"));
    }
    let gpu = given[2..4].iter().find(|(_, there)| *there);
    if let (true, Some((gpu, _))) = (asked.privileged, gpu) {
        return Err(MachineError::Together("privileged", gpu));
    }
    Ok(())
}

fn within(
    parameter: &'static str,
    value: Option<u32>,
    most: u32,
) -> Result<Option<u32>, MachineError> {
    match value {
        Some(value) if !(1..=most).contains(&value) => Err(MachineError::Range {
            parameter,
            value,
            most,
        }),
        value => Ok(value),
    }
}

fn gpus(kind: Option<String>, count: Option<u32>) -> Result<Option<Gpus>, MachineError> {
    let count = within("gpu_count", count, GPU_COUNT_MAX)?;
    let Some(kind) = kind else {
        return match count {
            Some(_) => Err(MachineError::Without("gpu_count", "gpu_type")),
            None => Ok(None),
        };
    };
    let Ok(known) = kind.parse() else {
        return Err(MachineError::UnknownGpu(kind));
    };
    Ok(Some(Gpus {
        kind: known,
        count: count.unwrap_or(1),
    }))
}

fn is_image(text: &str) -> bool {
    text.parse::<crate::image::ImageName>().is_ok()
}

impl std::str::FromStr for SshAddress {
    type Err = MachineError;

    fn from_str(text: &str) -> Result<Self, MachineError> {
        let parsed = || {
            let (username, place) = text.split_once('@')?;
            let (host, port) = place.rsplit_once(':')?;
            // An address of IPv6 is in brackets.
            let bare = host
                .strip_prefix('[')
                .and_then(|host| host.strip_suffix(']'));
            let good = match bare {
                Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
                None => is_name(host, b"-."),
            };
            (good && is_name(username, b"-._")).then_some(())?;
            Some(Self {
                username: username.to_owned(),
                host: bare.unwrap_or(host).to_owned(),
                port: port
                    .bytes()
                    .all(|b| b.is_ascii_digit())
                    .then(|| port.parse().ok())??,
            })
        };
        parsed().ok_or_else(|| MachineError::Address(text.chars().take(128).collect()))
    }
}

/// Letters, digits and these. It does not begin with a dash, which programs take as an option.
fn is_name(text: &str, others: &[u8]) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || others.contains(&b);
    !text.is_empty() && text.len() <= 253 && !text.starts_with('-') && text.bytes().all(good)
}

#[cfg(test)]
mod tests;
