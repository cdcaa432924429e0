//! A new member of a pool.

use serde_json::json;
use shoal_crds::hash;
use shoal_crds::names::{annotation, label};
use shoal_crds::parts::Pairs;
use shoal_crds::v1beta1::{OperatingMode, Sandbox, SandboxWarmPool};

use crate::blueprint::{Blueprint, controller_ref};
use crate::failure::Failure;

/// The longest prefix of a generated name, as the API server cuts it.
const LONGEST_PREFIX: usize = 58;
/// The characters of a generated suffix, as the API server uses them.
const SUFFIX: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The sandbox to create. Its name is chosen here, so that it can name its pod from the beginning.
pub(super) fn sandbox(
    pool: &SandboxWarmPool,
    blueprint: &Blueprint,
    evictable: bool,
) -> Result<Sandbox, Failure> {
    let pool_name = pool.metadata.name.as_deref().unwrap_or_default();
    let (name, prefix) = generated_name(pool_name)?;
    let template_name = pool.spec.sandbox_template_ref.name.as_str();
    let template_hash = hash::of_name(template_name);
    let pool_hash = hash::of_name(pool_name);
    let blueprint_hash = blueprint.hash();
    let pod_hash = hash::of_name(&serde_json::to_string(&blueprint.pod_template)?);
    let mut pod_template = blueprint.pod_template.clone();
    for (key, value) in [
        (label::WARM_POOL, &pool_hash),
        (label::TEMPLATE_REF_HASH, &template_hash),
        (label::POD_TEMPLATE_HASH, &pod_hash),
        (label::TEMPLATE_HASH, &blueprint_hash),
    ] {
        pod_template
            .metadata
            .labels
            .insert(key.to_owned(), value.clone());
    }
    if evictable {
        allow_eviction(&mut pod_template.metadata.annotations);
    }
    let metadata = json!({
        "name": name,
        "generateName": prefix,
        "namespace": pool.metadata.namespace,
        "labels": {
            label::WARM_POOL: pool_hash,
            label::TEMPLATE_REF_HASH: template_hash,
            label::POD_TEMPLATE_HASH: pod_hash,
            label::TEMPLATE_HASH: blueprint_hash,
            label::LAUNCH_TYPE: "warm",
            label::CREATED_BY: "controller",
        },
        "annotations": {
            annotation::TEMPLATE_REF: template_name,
            annotation::POD_NAME: name,
        },
        "ownerReferences": [controller_ref(pool)],
    });
    let mut sandbox = Sandbox {
        metadata: serde_json::from_value(metadata)?,
        ..Sandbox::default()
    };
    sandbox.spec.pod_template = pod_template;
    sandbox
        .spec
        .volume_claim_templates
        .clone_from(&blueprint.volume_claim_templates);
    sandbox.spec.service = blueprint.service;
    sandbox.spec.operating_mode = Some(OperatingMode::Running);
    Ok(sandbox)
}

/// A member that waits holds nothing that an eviction would lose. The template may say otherwise.
fn allow_eviction(annotations: &mut Pairs) {
    annotations
        .entry(annotation::SAFE_TO_EVICT.to_owned())
        .or_insert_with(|| "true".to_owned());
}

/// A new name for an object of an owner, and its prefix.
pub(crate) fn generated_name(owner: &str) -> Result<(String, String), Failure> {
    let mut prefix = format!("{owner}-");
    prefix.truncate(LONGEST_PREFIX);
    Ok((format!("{prefix}{}", suffix()?), prefix))
}

fn suffix() -> Result<String, Failure> {
    let mut random = [0; 5];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::Refused(format!("no randomness for a name: {error}")))?;
    Ok(random
        .iter()
        .map(|byte| char::from(SUFFIX[usize::from(*byte) % SUFFIX.len()]))
        .collect())
}
