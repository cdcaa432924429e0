use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};

use super::names::{REPLICA_SET, annotation, condition, reason};
use super::parts::{
    Lifecycle, PauseStrategy, RuntimeRef, TemplateRef, UpgradePolicy, UpgradePolicyKind,
};
use crate::parts::{Pairs, PodTemplate, VolumeClaimTemplate, is_default};
use crate::resource::resource;

resource!(
    /// One pod that can be paused, resumed, updated in place and claimed.
    Sandbox, SandboxSpec, SandboxStatus, "agents.kruise.io", "v1alpha1", "sandboxes"
);

/// The desired state of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSpec {
    /// Whether it has no pod.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
    /// How it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_strategy: Option<PauseStrategy>,
    /// The contents of checkpoints: `ip`, `memory`, `filesystem`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub persistent_contents: Vec<String>,
    /// When it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_time: Option<Time>,
    /// When it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_time: Option<Time>,
    /// The runtimes that it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<RuntimeRef>,
    /// Commands around an upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// How a change of the template reaches the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_policy: Option<UpgradePolicy>,
    /// The template, in place of an inline one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_ref: Option<TemplateRef>,
    /// The pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplate>,
    /// Volume claims of the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_claim_templates: Vec<VolumeClaimTemplate>,
}

/// The phases of a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SandboxPhase {
    /// Its pod does not run yet.
    #[default]
    Pending,
    /// Its pod runs.
    Running,
    /// It is paused, or about to be.
    Paused,
    /// Its pod is being created again.
    Resuming,
    /// Its pod is being replaced.
    Upgrading,
    /// Its pod ended well.
    Succeeded,
    /// Its pod failed, or is gone.
    Failed,
    /// It returns to its pool.
    Recycling,
    /// Other controllers write it to a sandbox that is being deleted.
    Terminating,
}

impl SandboxPhase {
    /// The name, as JSON has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Paused => "Paused",
            Self::Resuming => "Resuming",
            Self::Upgrading => "Upgrading",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Recycling => "Recycling",
            Self::Terminating => "Terminating",
        }
    }
}

/// The observed state of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxStatus {
    /// The generation that this state is about.
    #[serde(default, skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// The phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<SandboxPhase>,
    /// Why it has this phase.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The pod.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pod_info: PodInfo,
    /// The node of the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// The address of the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sandbox_ip: String,
    /// The revision of the template.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub update_revision: String,
    /// How often it returned to its pool.
    #[serde(default, skip_serializing_if = "is_default")]
    pub recycled_count: i32,
}

/// The pod of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodInfo {
    /// Annotations.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub annotations: Pairs,
    /// Labels.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub labels: Pairs,
    /// Its node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// Its address.
    #[serde(default, rename = "podIP", skip_serializing_if = "String::is_empty")]
    pub pod_ip: String,
    /// Its UID.
    #[serde(default, rename = "podUID", skip_serializing_if = "String::is_empty")]
    pub pod_uid: String,
}

impl SandboxSpec {
    /// Whether a pod of a new template starts with the files of the former one.
    #[must_use]
    pub fn keeps_files_in_upgrades(&self) -> bool {
        let policy = self.upgrade_policy.as_ref();
        policy.and_then(|policy| policy.kind) == Some(UpgradePolicyKind::CheckpointRestore)
    }
}

impl Sandbox {
    /// Whether a change of its running pod is under way.
    #[must_use]
    pub fn is_updating(&self) -> bool {
        let update = self.condition(condition::INPLACE_UPDATE);
        update.is_some_and(|update| update.reason == reason::INPLACE_UPDATING)
    }

    /// The address of its pod.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        let address: IpAddr = self.status.as_ref()?.sandbox_ip.parse().ok()?;
        let address = address.to_canonical();
        // A status is not trusted to name an address of the server's own machine, or of the cloud below it.
        let own = address.is_loopback() || address.is_unspecified() || address.is_multicast();
        (!own && !is_link_local(address) && !is_metadata(address)).then_some(address)
    }

    /// Whether its pod belongs to a ReplicaSet of one, which makes another when it is lost.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.annotation(annotation::KEPT_BY) == Some(REPLICA_SET)
    }

    /// The name of its pod.
    #[must_use]
    pub fn pod_name(&self) -> &str {
        let status = self.status.as_ref();
        let named = status.and_then(|status| status.pod_info.annotations.get(annotation::POD_NAME));
        let own = self.metadata.name.as_ref();
        named.or(own).map_or("", String::as_str)
    }

    /// The command that runs in it once it is claimed.
    #[must_use]
    pub fn startup_command(&self) -> Option<Vec<String>> {
        let words: Vec<String> =
            serde_json::from_str(self.annotation(annotation::STARTUP_COMMAND)?).ok()?;
        (!words.is_empty()).then_some(words)
    }

    /// How its startup command ended in the container that has the daemon's settings: `None` before its end,
    /// and without such a command.
    #[must_use]
    pub fn started(&self) -> Option<Result<(), &str>> {
        let container = self.condition(condition::RUNTIME_INITIALIZED)?;
        let started = self.condition(condition::STARTED)?;
        let (of, failure) = started
            .message
            .split_once('\n')
            .unwrap_or((&started.message, ""));
        if container.status != "True" || container.message != of {
            return None;
        }
        Some(match started.status.as_str() {
            "True" => Ok(()),
            _ => Err(failure),
        })
    }

    /// A label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        let labels = self.metadata.labels.as_ref()?;
        labels.get(key).map(String::as_str)
    }

    /// The checkpoint that its own annotation, or that of its pod template, names for its first pod.
    #[must_use]
    pub fn restored_from<'a>(&'a self, template: Option<&'a PodTemplate>) -> Option<&'a str> {
        let of_template = template.and_then(|template| {
            let named = template.metadata.annotations.get(annotation::RESTORE_FROM);
            named.map(String::as_str).filter(|name| !name.is_empty())
        });
        self.annotation(annotation::RESTORE_FROM).or(of_template)
    }

    /// An annotation that is not empty.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        Some(annotations.get(key)?.as_str()).filter(|value| !value.is_empty())
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Services of clouds for their machines that are not link-local: of Alibaba, Azure, Oracle and Amazon.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

fn is_metadata(address: IpAddr) -> bool {
    METADATA.contains(&address) || address == IpAddr::V4(Ipv4Addr::BROADCAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_cannot_name_an_address_of_the_reader() {
        for (address, usable) in [
            ("10.0.0.7", true),
            ("fd00::7", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("0.0.0.0", false),
            ("169.254.169.254", false),
            ("fe80::1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("100.100.100.200", false),
            ("168.63.129.16", false),
            ("192.0.0.192", false),
            ("fd00:ec2::254", false),
            ("", false),
        ] {
            let mut sandbox = Sandbox::default();
            address.clone_into(&mut sandbox.status.get_or_insert_default().sandbox_ip);
            assert_eq!(sandbox.address().is_some(), usable, "{address}");
        }
    }
}
