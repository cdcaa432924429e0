//! The headless service of a sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use shoal_crds::names::label;

use super::model::Wanted;
use crate::owner::{self, Owner};
use crate::slim::Service;

/// The next step for the service.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    /// Nothing to do: the sandbox has no service, and should have none.
    Absent,
    /// Create it.
    Create(Value),
    /// It exists. Patch it if it differs.
    Keep(Arc<Service>, Option<Value>),
    /// Delete it.
    Delete(Arc<Service>),
    /// A service of that name is in the way.
    Refuse(String),
}

/// Whether the sandbox wants a service: always, never, or the one that it has.
#[derive(Clone, Copy, PartialEq)]
enum Want {
    Always,
    Never,
    Existing,
}

fn want(wanted: &Wanted<'_>) -> Want {
    match wanted.sandbox.spec.service {
        Some(true) => Want::Always,
        Some(false) => Want::Never,
        // v1alpha1 had no such field at first: every sandbox had a service.
        None if wanted.is_v1alpha1() => Want::Always,
        None => Want::Existing,
    }
}

/// Whether readiness depends on the service.
pub(super) fn is_required(wanted: &Wanted<'_>, present: bool) -> bool {
    match want(wanted) {
        Want::Always => true,
        Want::Never => false,
        Want::Existing => present,
    }
}

/// Plans for the service with the sandbox's name.
pub(super) fn plan(wanted: &Wanted<'_>, service: Option<&Arc<Service>>) -> Plan {
    let want = want(wanted);
    let Some(service) = service else {
        return if want == Want::Always {
            Plan::Create(manifest(wanted))
        } else {
            Plan::Absent
        };
    };
    match (owner::owner(&service.metadata, wanted.uid), want) {
        (Owner::Own, Want::Never) => Plan::Delete(service.clone()),
        (Owner::Own, want) => Plan::Keep(
            service.clone(),
            repair(wanted, service, want == Want::Always, false),
        ),
        (_, Want::Never) | (Owner::Nobody, Want::Existing) => Plan::Absent,
        (Owner::Nobody, Want::Always) => adopt(wanted, service),
        (Owner::Other(other), _) => Plan::Refuse(format!(
            "service {:?} is owned by {}, not by sandbox {:?}",
            wanted.name,
            owner::describe(other),
            wanted.name
        )),
    }
}

fn adopt(wanted: &Wanted<'_>, service: &Arc<Service>) -> Plan {
    let cluster_ip = service.spec.cluster_ip.as_str();
    if !matches!(cluster_ip, "" | "None") {
        return Plan::Refuse(format!(
            "cannot adopt service {:?}: ClusterIP is {cluster_ip:?} (expected \"None\", field is immutable)",
            wanted.name
        ));
    }
    if !wanted.is_v1alpha1() && !owner::may_adopt(&service.metadata, &wanted.name_hash) {
        return Plan::Refuse(format!(
            "service {:?} has no controller, and no label {} = \"true\" that allows its adoption",
            wanted.name,
            label::ADOPTABLE
        ));
    }
    Plan::Keep(service.clone(), repair(wanted, service, true, true))
}

/// The service to create.
fn manifest(wanted: &Wanted<'_>) -> Value {
    let selector = json!({label::SANDBOX_NAME_HASH: wanted.name_hash});
    let mut spec = json!({"clusterIP": "None", "selector": selector});
    let ports = ports(wanted);
    if !ports.is_empty() {
        spec["ports"] = ports.into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "labels": selector,
            "ownerReferences": [wanted.controller_ref()],
        },
        "spec": spec,
    })
}

/// The patch of an existing service, if it differs.
fn repair(wanted: &Wanted<'_>, service: &Service, with_ports: bool, adopt: bool) -> Option<Value> {
    let mut patch = Map::new();
    let mut metadata = Map::new();
    let hash = Some(wanted.name_hash.as_str());
    let labels = service.metadata.labels.as_ref();
    if labels
        .and_then(|labels| labels.get(label::SANDBOX_NAME_HASH))
        .map(String::as_str)
        != hash
    {
        metadata.insert("labels".to_owned(), json!({label::SANDBOX_NAME_HASH: hash}));
    }
    if adopt {
        let owners = owner::with_owner(&service.metadata, wanted.controller_ref());
        metadata.insert("ownerReferences".to_owned(), owners.into());
    }
    let mut spec = Map::new();
    let selector = BTreeMap::from([(
        label::SANDBOX_NAME_HASH.to_owned(),
        wanted.name_hash.clone(),
    )]);
    if service.spec.selector != selector {
        let mut change: Map<String, Value> = service
            .spec
            .selector
            .keys()
            .map(|key| (key.clone(), Value::Null))
            .collect();
        change.insert(
            label::SANDBOX_NAME_HASH.to_owned(),
            wanted.name_hash.clone().into(),
        );
        spec.insert("selector".to_owned(), change.into());
    }
    if with_ports && let Some(ports) = port_change(&service.spec.ports, ports(wanted)) {
        spec.insert("ports".to_owned(), ports);
    }
    if !metadata.is_empty() {
        patch.insert("metadata".to_owned(), metadata.into());
    }
    if !spec.is_empty() {
        patch.insert("spec".to_owned(), spec.into());
    }
    if patch.is_empty() {
        return None;
    }
    patch.entry("metadata").or_insert_with(|| json!({}))["uid"] = json!(service.metadata.uid);
    Some(patch.into())
}

/// The list of ports, if it differs in a field that the sandbox decides. Other fields are kept.
fn port_change(present: &[Value], wanted: Vec<Value>) -> Option<Value> {
    const DECIDED: [&str; 4] = ["name", "protocol", "port", "targetPort"];
    let decided = |port: &Value| DECIDED.map(|field| port.get(field).cloned());
    if present.iter().map(decided).eq(wanted.iter().map(decided)) {
        return None;
    }
    let merged: Vec<Value> = wanted
        .into_iter()
        .map(|port| {
            let same = |known: &&Value| {
                known.get("port") == port.get("port")
                    && known.get("protocol") == port.get("protocol")
            };
            let Some(known) = present.iter().find(same) else {
                return port;
            };
            let mut merged = known.clone();
            for field in DECIDED {
                merged[field] = port[field].clone();
            }
            merged
        })
        .collect();
    Some(merged.into())
}

/// The ports of the containers, and of init containers that keep running. v1alpha1 publishes none.
fn ports(wanted: &Wanted<'_>) -> Vec<Value> {
    if wanted.is_v1alpha1() && wanted.sandbox.spec.service.is_none() {
        return Vec::new();
    }
    let spec = &wanted.sandbox.spec.pod_template.spec;
    let list = |field: &str| {
        spec.get(field)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let sidecars = list("initContainers").filter(|container| {
        container.get("restartPolicy").and_then(Value::as_str) == Some("Always")
    });
    let mut found: BTreeMap<(u64, String), Option<String>> = BTreeMap::new();
    for container in list("containers").chain(sidecars) {
        for port in container
            .get("ports")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let Some(number) = port.get("containerPort").and_then(Value::as_u64) else {
                continue;
            };
            let text = |field: &str| {
                port.get(field)
                    .and_then(Value::as_str)
                    .filter(|text| !text.is_empty())
            };
            let protocol = text("protocol").unwrap_or("TCP").to_owned();
            let name = found.entry((number, protocol)).or_default();
            if name.is_none() {
                *name = text("name").map(str::to_owned);
            }
        }
    }
    let mut names = BTreeSet::new();
    found
        .into_iter()
        .map(|((number, protocol), name)| {
            let base = name.unwrap_or_else(|| format!("p-{number}-{}", protocol.to_lowercase()));
            let name = unique(base, &mut names);
            json!({"name": name, "port": number, "protocol": protocol, "targetPort": number})
        })
        .collect()
}

fn unique(base: String, names: &mut BTreeSet<String>) -> String {
    let mut name = base.clone();
    let mut count = 2;
    while !names.insert(name.clone()) {
        name = format!("{base}-{count}");
        count += 1;
    }
    name
}
