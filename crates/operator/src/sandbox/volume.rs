//! The volume claims of a sandbox.

use std::sync::Arc;

use serde_json::{Value, json};
use shoal_crds::names::label;
use shoal_crds::parts::VolumeClaimTemplate;

use super::model::Wanted;
use super::pod::claim_name;
use crate::owner::{self, Owner};
use crate::slim::PersistentVolumeClaim;

/// The next step for a volume claim.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    /// Nothing: it is the sandbox's. Later changes of the template do not change it.
    Keep,
    /// Create it.
    Create(Value),
    /// It has no controller. Make the sandbox its controller with this patch.
    Adopt(Value),
    /// Another object's claim has the name.
    Refuse(String),
}

/// Plans for one volume claim.
pub(super) fn plan(
    wanted: &Wanted<'_>,
    template: &VolumeClaimTemplate,
    present: Option<&Arc<PersistentVolumeClaim>>,
) -> Plan {
    let name = claim_name(&template.metadata.name, wanted.name);
    let Some(present) = present else {
        return Plan::Create(manifest(wanted, template, &name));
    };
    match owner::owner(&present.metadata, wanted.uid) {
        Owner::Own => Plan::Keep,
        Owner::Nobody
            if wanted.is_v1alpha1() || owner::may_adopt(&present.metadata, &wanted.name_hash) =>
        {
            Plan::Adopt(json!({"metadata": {
                "uid": present.metadata.uid,
                "ownerReferences": owner::with_owner(&present.metadata, wanted.controller_ref()),
            }}))
        }
        Owner::Nobody => Plan::Refuse(format!(
            "PVC {name:?} has no controller, and no label {} = \"true\" that allows its adoption",
            label::ADOPTABLE
        )),
        Owner::Other(other) => Plan::Refuse(format!(
            "PVC {name:?} is owned by {}, not by sandbox {:?}",
            owner::describe(other),
            wanted.name
        )),
    }
}

fn manifest(wanted: &Wanted<'_>, template: &VolumeClaimTemplate, name: &str) -> Value {
    let mut labels = template.metadata.labels.clone();
    labels.insert(
        label::SANDBOX_NAME_HASH.to_owned(),
        wanted.name_hash.clone(),
    );
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": wanted.namespace,
            "labels": labels,
            "annotations": template.metadata.annotations,
            "ownerReferences": [wanted.controller_ref()],
        },
        "spec": template.spec,
    })
}
