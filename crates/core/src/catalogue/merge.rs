//! Merging settings, value by value: request, template, base template, image, defaults.

mod rows;

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

pub use self::rows::Row;
use super::entry::{Entry, EntryNetwork, EntryResources, PersistentContents};
use crate::image::Image;
use crate::network::{
    AddressRange, Egress, HostMask, NetworkPolicy, RequestedEgress, RequestedNetwork,
};
use crate::resources::{Mib, MilliCpu, Resources};
use crate::snapshot::Contents;
use crate::template::{RuntimeName, Template};

/// The user that commands run as by default.
pub const USER: &str = "root";

/// The source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The create request.
    Request,
    /// The template.
    Template,
    /// The template that the template is based on.
    Base,
    /// The image of the template.
    Image,
    /// No source set it.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "request",
            Self::Template => "template",
            Self::Base => "base",
            Self::Image => "image",
            Self::Default => "default",
        })
    }
}

/// A value and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Its source.
    pub from: Source,
}

/// The values that one source sets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SettingsLayer {
    /// Processor time.
    pub cpu: Option<MilliCpu>,
    /// Memory.
    pub memory: Option<Mib>,
    /// Disk.
    pub disk: Option<Mib>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// The OCI runtime.
    pub runtime: Option<RuntimeName>,
    /// The user that commands run as.
    pub user: Option<String>,
    /// The working directory of commands.
    pub workdir: Option<String>,
    /// The contents of a pause or a snapshot.
    pub persistent: Option<Contents>,
    /// Its network.
    pub network: RequestedNetwork,
    /// Environment of every process.
    pub env: BTreeMap<String, String>,
    /// Labels.
    pub metadata: BTreeMap<String, String>,
}

impl SettingsLayer {
    /// A layer that sets all resource limits.
    #[must_use]
    pub fn with_resources(self, resources: Resources) -> Self {
        Self {
            cpu: Some(resources.cpu),
            memory: Some(resources.memory),
            disk: Some(resources.disk),
            pids: Some(resources.pids),
            ..self
        }
    }
}

impl From<&Entry> for SettingsLayer {
    fn from(entry: &Entry) -> Self {
        let resources = entry.resources.as_ref();
        Self {
            cpu: resources.and_then(EntryResources::most_cpu),
            memory: resources.and_then(EntryResources::most_memory),
            disk: None,
            pids: None,
            runtime: entry.runtime.clone(),
            user: entry.user.clone(),
            workdir: entry.workdir.clone(),
            persistent: entry
                .persistent_contents
                .as_ref()
                .map(PersistentContents::contents),
            network: entry
                .network
                .as_ref()
                .map(EntryNetwork::asked)
                .unwrap_or_default(),
            env: entry.env.clone(),
            metadata: entry.metadata.clone(),
        }
    }
}

impl From<&Template> for SettingsLayer {
    fn from(template: &Template) -> Self {
        Self {
            runtime: template.runtime.clone(),
            user: Some(template.user.clone()),
            workdir: template.workdir.clone(),
            persistent: Some(template.persistent),
            env: template.env.clone(),
            ..Self::default()
        }
        .with_resources(template.resources)
    }
}

impl From<&Image> for SettingsLayer {
    fn from(image: &Image) -> Self {
        // The image's user may be `user:group`, or empty.
        let user = image
            .user
            .as_deref()
            .and_then(|user| user.split(':').next());
        let pairs = image.env.iter().filter_map(|pair| pair.split_once('='));
        Self {
            user: user.filter(|user| !user.is_empty()).map(str::to_owned),
            workdir: image.workdir.clone(),
            env: pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            ..Self::default()
        }
    }
}

/// The merged settings of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// Processor time.
    pub cpu: Sourced<MilliCpu>,
    /// Memory.
    pub memory: Sourced<Mib>,
    /// Disk.
    pub disk: Sourced<Mib>,
    /// Processes and threads.
    pub pids: Sourced<u32>,
    /// The OCI runtime; the node's default if `None`.
    pub runtime: Sourced<Option<RuntimeName>>,
    /// The user that commands run as.
    pub user: Sourced<String>,
    /// The working directory of commands; the user's home if `None`.
    pub workdir: Sourced<Option<String>>,
    /// The contents of a pause or a snapshot.
    pub persistent: Sourced<Contents>,
    /// Outbound rules.
    pub egress: MergedEgress,
    /// Whether ports are reachable without the traffic access token.
    pub allow_public_traffic: Sourced<bool>,
    /// The `Host` header that servers in the sandbox see.
    pub mask_request_host: Sourced<Option<HostMask>>,
    /// Environment of every process.
    pub env: BTreeMap<String, Sourced<String>>,
    /// Labels.
    pub metadata: BTreeMap<String, Sourced<String>>,
}

/// The merged outbound rules, each with its source: see [`Egress`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedEgress {
    /// Whether internet access is enabled.
    pub internet: Sourced<Option<bool>>,
    /// Destinations that are reachable even if denied.
    pub allow: Sourced<Vec<AddressRange>>,
    /// Destinations that are not reachable.
    pub deny: Sourced<Vec<AddressRange>>,
    /// The name servers.
    pub dns_servers: Sourced<Vec<Ipv4Addr>>,
}

/// Merges outbound rules one by one. A layer that disables internet access also discards the allow
/// rules of the layers below: those were not made as exceptions from it.
fn merge_egress(layers: &[(Source, SettingsLayer)]) -> MergedEgress {
    let internet = |layer: &SettingsLayer| layer.network.egress.internet;
    let said = layers.iter().position(|(_, l)| internet(l).is_some());
    let above = match said.and_then(|place| layers.get(..=place)) {
        Some(above)
            if above
                .last()
                .is_some_and(|(_, l)| internet(l) == Some(false)) =>
        {
            above
        }
        _ => layers,
    };
    MergedEgress {
        internet: pick(layers, None, |layer| internet(layer).map(Some)),
        allow: pick(above, Vec::new(), |l| l.network.egress.allow.clone()),
        deny: pick(layers, Vec::new(), |l| l.network.egress.deny.clone()),
        dns_servers: pick(layers, Vec::new(), |l| l.network.egress.dns_servers.clone()),
    }
}

/// Merges layers, highest first. Values that no layer sets get a default.
#[must_use]
pub fn merge(layers: &[(Source, SettingsLayer)]) -> Merged {
    let standard = Resources::default();
    Merged {
        cpu: pick(layers, standard.cpu, |layer| layer.cpu),
        memory: pick(layers, standard.memory, |layer| layer.memory),
        disk: pick(layers, standard.disk, |layer| layer.disk),
        pids: pick(layers, standard.pids, |layer| layer.pids),
        runtime: pick(layers, None, |layer| layer.runtime.clone().map(Some)),
        user: pick(layers, USER.to_owned(), |layer| layer.user.clone()),
        workdir: pick(layers, None, |layer| layer.workdir.clone().map(Some)),
        persistent: pick(layers, Contents::default(), |layer| layer.persistent),
        egress: merge_egress(layers),
        allow_public_traffic: pick(layers, true, |layer| layer.network.allow_public_traffic),
        mask_request_host: pick(layers, None, |layer| {
            layer.network.mask_request_host.clone().map(Some)
        }),
        env: pick_each(layers, |layer| &layer.env),
        metadata: pick_each(layers, |layer| &layer.metadata),
    }
}

fn pick<T>(
    layers: &[(Source, SettingsLayer)],
    default: T,
    of: impl Fn(&SettingsLayer) -> Option<T>,
) -> Sourced<T> {
    let said = layers.iter().find_map(|(from, layer)| {
        let value = of(layer)?;
        Some(Sourced { value, from: *from })
    });
    said.unwrap_or(Sourced {
        value: default,
        from: Source::Default,
    })
}

fn pick_each(
    layers: &[(Source, SettingsLayer)],
    of: impl Fn(&SettingsLayer) -> &BTreeMap<String, String>,
) -> BTreeMap<String, Sourced<String>> {
    let mut merged = BTreeMap::new();
    // From the lowest layer up, so that higher layers override.
    for (from, layer) in layers.iter().rev() {
        for (name, value) in of(layer) {
            let value = value.clone();
            merged.insert(name.clone(), Sourced { value, from: *from });
        }
    }
    merged
}

impl Merged {
    /// The limits.
    #[must_use]
    pub fn resources(&self) -> Resources {
        Resources {
            cpu: self.cpu.value,
            memory: self.memory.value,
            disk: self.disk.value,
            pids: self.pids.value,
        }
    }

    /// The network.
    #[must_use]
    pub fn network(&self) -> NetworkPolicy {
        NetworkPolicy {
            egress: Egress {
                internet: self.egress.internet.value,
                allow: self.egress.allow.value.clone(),
                deny: self.egress.deny.value.clone(),
                dns_servers: self.egress.dns_servers.value.clone(),
            },
            allow_public_traffic: self.allow_public_traffic.value,
            mask_request_host: self.mask_request_host.value.clone(),
        }
    }

    /// The network values that a layer set, without defaults.
    #[must_use]
    pub fn said_network(&self) -> RequestedNetwork {
        fn said<T: Clone>(value: &Sourced<T>) -> Option<T> {
            (value.from != Source::Default).then(|| value.value.clone())
        }
        RequestedNetwork {
            egress: RequestedEgress {
                internet: said(&self.egress.internet).flatten(),
                allow: said(&self.egress.allow),
                deny: said(&self.egress.deny),
                dns_servers: said(&self.egress.dns_servers),
            },
            said_open: false,
            allow_public_traffic: said(&self.allow_public_traffic),
            mask_request_host: said(&self.mask_request_host).flatten(),
        }
    }

    /// The environment, without sources.
    #[must_use]
    pub fn env(&self) -> BTreeMap<String, String> {
        plain(&self.env)
    }

    /// The labels, without sources.
    #[must_use]
    pub fn metadata(&self) -> BTreeMap<String, String> {
        plain(&self.metadata)
    }
}

fn plain(map: &BTreeMap<String, Sourced<String>>) -> BTreeMap<String, String> {
    let pairs = map.iter();
    pairs
        .map(|(name, value)| (name.clone(), value.value.clone()))
        .collect()
}
