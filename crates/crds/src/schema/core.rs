//! The schemas of Kubernetes' own types, made fit for custom resources.
//!
//! `k8s-openapi` has the fields. It lacks what the API server's own types declare besides: the keys of
//! lists, and defaults. Both are added here, by the name of the field.

use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, PodSpec};
use k8s_openapi::api::networking::v1::{NetworkPolicyEgressRule, NetworkPolicyIngressRule};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Lists whose entries have keys. All other lists are atomic.
const KEYED_LISTS: &[(&str, &[&str])] = &[
    ("claims", &["name"]),
    ("containers", &["name"]),
    ("env", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("hostAliases", &["ip"]),
    ("imagePullSecrets", &["name"]),
    ("initContainers", &["name"]),
    ("ports", &["containerPort", "protocol"]),
    ("resourceClaims", &["name"]),
    ("schedulingGates", &["name"]),
    (
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
    ),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
];

/// References to an object of the namespace, whose name is empty by default.
const LOCAL_REFERENCES: &[&str] = &[
    "configMap",
    "configMapKeyRef",
    "configMapRef",
    "imagePullSecrets",
    "nodePublishSecretRef",
    "secret",
    "secretKeyRef",
    "secretRef",
];

/// Objects that are replaced as a whole.
const ATOMIC_OBJECTS: &[&str] = &[
    "configMapKeyRef",
    "dataSource",
    "fieldRef",
    "imagePullSecrets",
    "labelSelector",
    "namespaceSelector",
    "nodePublishSecretRef",
    "nodeSelectorTerms",
    "podSelector",
    "preference",
    "resourceFieldRef",
    "secretKeyRef",
    "secretRef",
];

/// Fields that hold quantities, or maps of them.
const QUANTITIES: &[&str] = &["divisor", "limits", "overhead", "requests", "sizeLimit"];

/// The syntax of quantities.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Defaults of a field, by the object that has it.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("azureDisk", "cachingMode", "ReadWrite"),
    ("azureDisk", "fsType", "ext4"),
    ("azureDisk", "kind", "Shared"),
    ("grpc", "service", ""),
    ("iscsi", "iscsiInterface", "default"),
    ("rbd", "keyring", "/etc/ceph/keyring"),
    ("rbd", "pool", "rbd"),
    ("rbd", "user", "admin"),
    ("scaleIO", "fsType", "xfs"),
    ("scaleIO", "storageMode", "ThinProvisioned"),
];

pub(super) fn pod_spec() -> Value {
    schema_of::<PodSpec>()
}

pub(super) fn volume_claim_spec() -> Value {
    schema_of::<PersistentVolumeClaimSpec>()
}

pub(super) fn ingress_rule() -> Value {
    schema_of::<NetworkPolicyIngressRule>()
}

pub(super) fn egress_rule() -> Value {
    schema_of::<NetworkPolicyEgressRule>()
}

/// A quantity.
pub(super) fn quantity() -> Value {
    json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": true,
        "pattern": QUANTITY,
    })
}

fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    adapt(&mut schema, "");
    schema
}

/// Adapts the schema of the field `name`, or of the entries of the list `name`.
fn adapt(schema: &mut Value, name: &str) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    for key in ["description", "title", "nullable"] {
        schema.remove(key);
    }
    if schema.contains_key("x-kubernetes-int-or-string") {
        schema.insert(
            "anyOf".to_owned(),
            json!([{"type": "integer"}, {"type": "string"}]),
        );
        if QUANTITIES.contains(&name) {
            schema.insert("pattern".to_owned(), QUANTITY.into());
        }
    }
    if let Some(items) = schema.get_mut("items") {
        adapt(items, name);
        let keys = items
            .get("properties")
            .map_or(Vec::new(), |properties| list_keys(name, properties));
        if keys.is_empty() {
            schema.insert("x-kubernetes-list-type".to_owned(), "atomic".into());
        } else {
            schema.insert("x-kubernetes-list-type".to_owned(), "map".into());
            schema.insert("x-kubernetes-list-map-keys".to_owned(), keys.into());
        }
    }
    if let Some(values) = schema.get_mut("additionalProperties") {
        adapt(values, name);
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for (field, of) in properties.iter_mut() {
            if field == "metadata" {
                *of = embedded_metadata();
            } else {
                adapt(of, field);
            }
        }
        add_defaults(name, properties);
        if ATOMIC_OBJECTS.contains(&name) {
            schema.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
    }
}

/// The keys of a list, unless another type has a list of the same name.
fn list_keys(name: &str, properties: &Value) -> Vec<&'static str> {
    let keys = KEYED_LISTS
        .iter()
        .find(|(list, _)| *list == name)
        .map_or(&[][..], |(_, keys)| keys);
    if keys.iter().all(|key| properties.get(key).is_some()) {
        keys.to_vec()
    } else {
        Vec::new()
    }
}

fn add_defaults(name: &str, properties: &mut Map<String, Value>) {
    let mut set = |field: &str, default: Value| {
        if let Some(of) = properties.get_mut(field).and_then(Value::as_object_mut) {
            of.insert("default".to_owned(), default);
        }
    };
    if LOCAL_REFERENCES.contains(&name) {
        set("name", "".into());
    }
    if name == "azureDisk" {
        set("readOnly", false.into());
    }
    for (_, field, default) in DEFAULTS.iter().filter(|(object, ..)| *object == name) {
        set(field, (*default).into());
    }
    if properties.contains_key("containerPort")
        && let Some(of) = properties
            .get_mut("protocol")
            .and_then(Value::as_object_mut)
    {
        of.insert("default".to_owned(), "TCP".into());
    }
}

/// The metadata of the claim of an ephemeral volume.
fn embedded_metadata() -> Value {
    let pairs = json!({"type": "object", "additionalProperties": {"type": "string"}});
    json!({"type": "object", "properties": {"annotations": pairs, "labels": pairs, "name": {"type": "string"}}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_ports_have_keys_and_a_default_protocol() {
        let pod = pod_spec();
        let ports = &pod["properties"]["containers"]["items"]["properties"]["ports"];
        assert_eq!(
            ports["x-kubernetes-list-map-keys"],
            json!(["containerPort", "protocol"])
        );
        assert_eq!(ports["items"]["properties"]["protocol"]["default"], "TCP");
        assert_eq!(
            pod["properties"]["tolerations"]["x-kubernetes-list-type"],
            "atomic"
        );
    }

    #[test]
    fn ports_of_network_policies_are_atomic() {
        let ports = &ingress_rule()["properties"]["ports"];
        assert_eq!(ports["x-kubernetes-list-type"], "atomic");
    }

    #[test]
    fn quantities_are_numbers_or_strings() {
        let limits = &pod_spec()["properties"]["containers"]["items"]["properties"]["resources"]["properties"]
            ["limits"];
        assert_eq!(
            limits["additionalProperties"]["x-kubernetes-int-or-string"],
            true
        );
        assert_eq!(limits["additionalProperties"]["pattern"], QUANTITY);
    }

    #[test]
    fn schemas_have_no_references_and_no_descriptions() {
        for schema in [
            pod_spec(),
            volume_claim_spec(),
            ingress_rule(),
            egress_rule(),
        ] {
            let text = schema.to_string();
            assert!(
                !text.contains("$ref"),
                "a custom resource cannot have references"
            );
            assert!(
                !text.contains("\"description\":\""),
                "descriptions double the size"
            );
        }
    }
}
