//! Kubernetes objects with only the fields that the controllers read. A cache of them is a fraction of
//! the size of one of whole pods.

use serde::{Deserialize, Deserializer, Serialize};

/// Defines a core/v1 kind with the given fields.
macro_rules! core_kind {
    ($(#[$doc:meta])* $kind:ident, $plural:literal, { $($(#[$field_doc:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub(crate) struct $kind {
            #[serde(default)]
            pub(crate) metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $($(#[$field_doc])* #[serde(default)] pub(crate) $field: $ty,)*
        }

        impl k8s_openapi::Resource for $kind {
            const API_VERSION: &'static str = "v1";
            const GROUP: &'static str = "";
            const KIND: &'static str = stringify!($kind);
            const VERSION: &'static str = "v1";
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = k8s_openapi::NamespaceResourceScope;
        }

        impl k8s_openapi::Metadata for $kind {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use core_kind;

core_kind!(
    /// A pod.
    Pod, "pods", {
        spec: PodSpec,
        status: PodStatus,
    }
);

core_kind!(
    /// A volume claim: its metadata is enough.
    PersistentVolumeClaim, "persistentvolumeclaims", {}
);

core_kind!(
    /// A service.
    Service, "services", {
        spec: ServiceSpec,
    }
);

/// A network policy. Its rules are compared as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NetworkPolicy {
    #[serde(default)]
    pub(crate) metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    #[serde(default)]
    pub(crate) spec: serde_json::Value,
}

impl k8s_openapi::Resource for NetworkPolicy {
    const API_VERSION: &'static str = "networking.k8s.io/v1";
    const GROUP: &'static str = "networking.k8s.io";
    const KIND: &'static str = "NetworkPolicy";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "networkpolicies";
    type Scope = k8s_openapi::NamespaceResourceScope;
}

impl k8s_openapi::Metadata for NetworkPolicy {
    type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn metadata(&self) -> &Self::Ty {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut Self::Ty {
        &mut self.metadata
    }
}

/// The node of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodSpec {
    #[serde(default)]
    pub(crate) node_name: String,
}

/// The state of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodStatus {
    #[serde(default)]
    pub(crate) phase: String,
    /// Those that a controller reads.
    #[serde(default, deserialize_with = "read_conditions")]
    pub(crate) conditions: Vec<PodCondition>,
    #[serde(default, rename = "podIPs")]
    pub(crate) pod_ips: Vec<PodIp>,
}

/// Drops conditions that no controller reads: a kubelet writes six.
fn read_conditions<'de, D: Deserializer<'de>>(of: D) -> Result<Vec<PodCondition>, D::Error> {
    let mut conditions = Vec::<PodCondition>::deserialize(of)?;
    conditions.retain(|one| matches!(one.kind.as_str(), "Ready" | "PodScheduled"));
    conditions.shrink_to_fit();
    Ok(conditions)
}

/// A condition of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodCondition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) observed_generation: Option<i64>,
}

/// An address of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodIp {
    pub(crate) ip: String,
}

/// The selector and the ports of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceSpec {
    #[serde(default, rename = "clusterIP")]
    pub(crate) cluster_ip: String,
    #[serde(default)]
    pub(crate) selector: std::collections::BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) ports: Vec<serde_json::Value>,
}

impl Pod {
    /// The status of a condition.
    pub(crate) fn condition(&self, kind: &str) -> Option<&PodCondition> {
        self.status
            .conditions
            .iter()
            .find(|condition| condition.kind == kind)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.condition("Ready")
            .is_some_and(|ready| ready.status == "True")
    }

    /// The addresses.
    pub(crate) fn ips(&self) -> Vec<String> {
        self.status.pod_ips.iter().map(|ip| ip.ip.clone()).collect()
    }
}
