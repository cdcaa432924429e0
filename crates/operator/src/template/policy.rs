//! The network policy of a template.

use std::sync::Arc;

use serde_json::{Value, json};
use shoal_crds::convert::written_in_v1alpha1;
use shoal_crds::hash;
use shoal_crds::names::label;
use shoal_crds::parts::NetworkPolicyManagement;
use shoal_crds::v1beta1::SandboxTemplate;

use crate::blueprint::controller_ref;
use crate::owner::{self, Owner};
use crate::slim::NetworkPolicy;

/// The namespace of the router, from which sandboxes can be reached by default.
const ROUTER_NAMESPACE: &str = "agent-sandbox-system";

/// The next step for the policy.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    Keep,
    Create(Value),
    Patch(Value),
    /// Delete the policy with this UID.
    Delete(String),
    /// Another object's policy has the name.
    Refuse(String),
}

/// The name of a template's policy.
pub(super) fn name(template: &str) -> String {
    format!("{template}-network-policy")
}

pub(super) fn plan(template: &SandboxTemplate, present: Option<&Arc<NetworkPolicy>>) -> Plan {
    let uid = template.metadata.uid.as_deref().unwrap_or_default();
    let managed = template.spec.network_policy_management.unwrap_or_default()
        == NetworkPolicyManagement::Managed;
    let Some(present) = present else {
        return if managed {
            Plan::Create(manifest(template))
        } else {
            Plan::Keep
        };
    };
    let owned = owner::owner(&present.metadata, uid);
    if !managed {
        return match (owned, &present.metadata.uid) {
            (Owner::Own, Some(uid)) => Plan::Delete(uid.clone()),
            _ => Plan::Keep,
        };
    }
    if owned != Owner::Own {
        return Plan::Refuse(format!(
            "network policy {:?} is not controlled by template {:?}",
            present.metadata.name.as_deref().unwrap_or_default(),
            template.metadata.name.as_deref().unwrap_or_default(),
        ));
    }
    let wanted = spec(template);
    if normalised(&present.spec) == normalised(&wanted) {
        return Plan::Keep;
    }
    Plan::Patch(json!({"metadata": {"uid": present.metadata.uid}, "spec": wanted}))
}

fn manifest(template: &SandboxTemplate) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": name(template.metadata.name.as_deref().unwrap_or_default()),
            "namespace": template.metadata.namespace,
            "ownerReferences": [controller_ref(template)],
        },
        "spec": spec(template),
    })
}

fn spec(template: &SandboxTemplate) -> Value {
    let hash = hash::of_name(template.metadata.name.as_deref().unwrap_or_default());
    let (ingress, egress) = match &template.spec.network_policy {
        Some(rules) => (rules.ingress.clone().into(), rules.egress.clone().into()),
        None => default_rules(written_in_v1alpha1(&template.metadata)),
    };
    json!({
        "podSelector": {"matchLabels": {label::TEMPLATE_REF_HASH: hash}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": ingress,
        "egress": egress,
    })
}

/// From the router, and to the internet: no private network, no metadata service, no cluster.
fn default_rules(v1alpha1: bool) -> (Value, Value) {
    let mut router = json!({"podSelector": {"matchLabels": {"app": "sandbox-router"}}});
    let mut private_v6 = vec!["fc00::/7"];
    if !v1alpha1 {
        router["namespaceSelector"] =
            json!({"matchLabels": {"kubernetes.io/metadata.name": ROUTER_NAMESPACE}});
        private_v6.push("fe80::/10");
    }
    let private_v4 = [
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "169.254.0.0/16",
    ];
    (
        json!([{"from": [router]}]),
        json!([{"to": [
            {"ipBlock": {"cidr": "0.0.0.0/0", "except": private_v4}},
            {"ipBlock": {"cidr": "::/0", "except": private_v6}},
        ]}]),
    )
}

/// The specification as the API server stores it: with the default protocol of ports, and without empty
/// lists.
fn normalised(spec: &Value) -> Value {
    match spec {
        Value::Object(fields) => {
            let mut fields: serde_json::Map<String, Value> = fields
                .iter()
                .map(|(field, value)| {
                    let value = match (field.as_str(), value) {
                        ("ports", Value::Array(ports)) => ports.iter().map(with_protocol).collect(),
                        (_, value) => normalised(value),
                    };
                    (field.clone(), value)
                })
                .collect();
            fields.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
            fields.into()
        }
        Value::Array(values) => values.iter().map(normalised).collect(),
        other => other.clone(),
    }
}

fn with_protocol(port: &Value) -> Value {
    let mut port = port.clone();
    if let Some(fields) = port.as_object_mut() {
        fields.entry("protocol").or_insert_with(|| "TCP".into());
    }
    port
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(spec: &Value) -> SandboxTemplate {
        let mut template = json!({
            "metadata": {"name": "t", "namespace": "ns", "uid": "own"},
            "spec": {"podTemplate": {"spec": {"containers": []}}},
        });
        for (field, value) in spec.as_object().unwrap() {
            template["spec"][field] = value.clone();
        }
        serde_json::from_value(template).unwrap()
    }

    fn policy(spec: &Value, owner: &str) -> Arc<NetworkPolicy> {
        let owners = json!([{"apiVersion": "x/v1", "kind": "SandboxTemplate", "name": "t", "uid": owner, "controller": true}]);
        let policy = json!({"metadata": {"name": "t-network-policy", "uid": "p", "ownerReferences": owners}, "spec": spec});
        Arc::new(serde_json::from_value(policy).unwrap())
    }

    #[test]
    fn the_default_policy_admits_the_router_and_reaches_the_internet_only() {
        let Plan::Create(policy) = plan(&template(&json!({})), None) else {
            panic!()
        };
        assert_eq!(
            policy["spec"]["podSelector"]["matchLabels"][label::TEMPLATE_REF_HASH],
            hash::of_name("t")
        );
        assert_eq!(
            policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]["app"],
            "sandbox-router"
        );
        let except = &policy["spec"]["egress"][0]["to"][0]["ipBlock"]["except"];
        assert!(
            except
                .as_array()
                .unwrap()
                .contains(&json!("169.254.0.0/16"))
        );
    }

    #[test]
    fn a_policy_that_is_as_it_should_be_is_not_written() {
        let rules = json!({"networkPolicy": {"ingress": [{"ports": [{"port": 80}]}]}});
        let mut stored = spec(&template(&rules));
        stored["ingress"][0]["ports"][0]["protocol"] = "TCP".into();
        stored.as_object_mut().unwrap().remove("egress");
        assert_eq!(
            plan(&template(&rules), Some(&policy(&stored, "own"))),
            Plan::Keep
        );
        assert!(matches!(
            plan(&template(&json!({})), Some(&policy(&stored, "own"))),
            Plan::Patch(_)
        ));
    }

    #[test]
    fn policies_of_others_are_neither_changed_nor_deleted() {
        let foreign = policy(&json!({}), "other");
        assert!(matches!(
            plan(&template(&json!({})), Some(&foreign)),
            Plan::Refuse(_)
        ));
        let unmanaged = template(&json!({"networkPolicyManagement": "Unmanaged"}));
        assert_eq!(plan(&unmanaged, Some(&foreign)), Plan::Keep);
        assert_eq!(
            plan(&unmanaged, Some(&policy(&json!({}), "own"))),
            Plan::Delete("p".to_owned())
        );
        assert_eq!(plan(&unmanaged, None), Plan::Keep);
    }
}
