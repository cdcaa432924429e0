//! The changes of a claim in a sandbox, made by the write that claims it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Map, Value, json};
use shoal_crds::kruise::names::{annotation, label, runtime};
use shoal_crds::kruise::{
    ClaimInplaceUpdate, Claiming, InitRequest, Sandbox, SandboxClaim, SandboxSet, SandboxTemplate,
};
use shoal_crds::parts::PodTemplate;

use crate::failure::Failure;

/// Labels that say to whom a sandbox belongs.
const OF_CONTROLLERS: [&str; 9] = [
    label::SANDBOX_POOL,
    label::SANDBOX_TEMPLATE,
    label::SANDBOX_CLAIMED,
    label::CLAIM_NAME,
    label::TEMPLATE_HASH,
    label::RESERVED_FAILED_SANDBOX,
    label::SANDBOX_ID,
    label::SANDBOX_NAME,
    label::POD_TEMPLATE_HASH,
];

/// The longest value of a label.
const LONGEST_NAME: usize = 63;

/// The init container with which a template brings a runtime of its own.
const OWN_RUNTIME: &str = "runtime";

/// The priority of a sandbox that a claim waits for, over those of pools.
const PRIORITY: &str = "100";

/// Why a claim can never be carried out.
pub(super) fn refusal(claim: &SandboxClaim, set: &SandboxSet, now: Timestamp) -> Option<String> {
    let spec = &claim.spec;
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    if name.len() > LONGEST_NAME {
        return Some(format!(
            "the name of a claim has at most {LONGEST_NAME} characters: it is a label"
        ));
    }
    if spec
        .shutdown_time
        .as_ref()
        .is_some_and(|time| time.0 <= now)
    {
        return Some("shutdownTime: it is over".to_owned());
    }
    let of_controllers = |key: &&String| OF_CONTROLLERS.contains(&key.as_str());
    if let Some(key) = spec.labels.keys().find(of_controllers) {
        return Some(format!("labels: {key} belongs to the controllers"));
    }
    if spec.annotations.contains_key(annotation::SANDBOX_ID) {
        let key = annotation::SANDBOX_ID;
        return Some(format!("annotations: {key} belongs to the controllers"));
    }
    // Annotations of pods configure runtimes and network plugins. A user who may create claims may lack the right to
    // create pods.
    if let Some(key) = spec.annotations.keys().find(|key| is_of_cluster(key)) {
        return Some(format!(
            "annotations: {key} belongs into the template of the SandboxSet"
        ));
    }
    let closes = spec.labels.get(label::ALLOW_INTERNET_ACCESS);
    if closes.is_some() && set.spec.template.is_none() {
        let key = label::ALLOW_INTERNET_ACCESS;
        return Some(format!(
            "labels: {key} needs a template in the SandboxSet, not a reference"
        ));
    }
    // Services and policies may select pods by the labels of their template.
    let of_pod = set.spec.template.as_ref();
    let of_pod = of_pod.map(|template| &template.metadata.labels);
    let differs = |(key, value): &(&String, &String)| {
        of_pod.is_some_and(|labels| labels.get(*key).is_some_and(|known| known != *value))
    };
    if let Some((key, _)) = spec.labels.iter().find(differs) {
        let set = &spec.template_name;
        return Some(format!(
            "labels: {key} has another value in the template of {set}"
        ));
    }
    if !spec.dynamic_volumes_mount.is_empty() {
        return Some("dynamicVolumesMount: volumes of running sandboxes are not supported; write them into the template of the SandboxSet".to_owned());
    }
    if spec.inplace_update.is_some() && set.spec.template.is_none() {
        return Some(
            "inplaceUpdate: the SandboxSet refers to a template; write the template into the set"
                .to_owned(),
        );
    }
    None
}

/// Whether an annotation is of Kubernetes, or of a part of it, or of the runtime.
fn is_of_cluster(key: &str) -> bool {
    if key.starts_with("dev.gvisor.") {
        return true;
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["kubernetes.io", "k8s.io", "cncf.io"].iter().any(|known| {
        domain
            .strip_suffix(known)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// Whether the claim changes resources of a running pod.
pub(super) fn resizes(claim: &SandboxClaim) -> bool {
    let update = claim.spec.inplace_update.as_ref();
    let resources = update.and_then(|update| update.resources.as_ref());
    resources.is_some_and(|resources| {
        resources.requests.contains_key("cpu") || resources.limits.contains_key("cpu")
    })
}

/// Whether the pods of a set have a daemon that needs settings. `injected` are all pods if the operator says so.
pub(super) fn has_runtime(
    set: &SandboxSet,
    template: Option<&SandboxTemplate>,
    injected: bool,
) -> bool {
    let referred = template.map(|template| &template.spec);
    let of_template = referred.map(|spec| &spec.runtimes);
    let mut runtimes = set
        .spec
        .runtimes
        .iter()
        .chain(of_template.into_iter().flatten());
    let pod = set.spec.template.as_ref();
    let pod = pod.or(referred.and_then(|spec| spec.template.as_ref()));
    injected
        || runtimes.any(|one| one.name == runtime::AGENT_RUNTIME)
        || pod.is_some_and(brings_runtime)
}

fn brings_runtime(pod: &PodTemplate) -> bool {
    let containers = pod.spec.get("initContainers").and_then(Value::as_array);
    let mut containers = containers.into_iter().flatten();
    containers.any(|container| container["name"] == OWN_RUNTIME)
}

/// The changes of one write of the claim. Each sandbox has a token and a lock of its own.
pub(super) fn claiming(
    claim: &SandboxClaim,
    initialized: bool,
    now: Timestamp,
) -> Result<Claiming, Failure> {
    let spec = &claim.spec;
    let init = (initialized && !spec.skip_init_runtime).then(|| {
        Ok::<_, Failure>(InitRequest {
            env_vars: spec.env_vars.clone().into_iter().collect(),
            access_token: token::<32>()?,
            former_token: String::new(),
        })
    });
    Ok(Claiming {
        id: None,
        owner: claim.metadata.uid.clone().unwrap_or_default(),
        lock: token::<16>()?,
        at: now,
        quota_key: None,
        claim_name: claim.metadata.name.clone(),
        shutdown_time: spec.shutdown_time.as_ref().map(|time| time.0),
        pause_time: None,
        labels: spec.labels.clone(),
        annotations: spec.annotations.clone(),
        annotate_pod: true,
        init: init.transpose()?,
    })
}

/// Random characters that no one guesses.
fn token<const N: usize>() -> Result<String, Failure> {
    let mut random = [0; N];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::Refused(format!("no randomness for a token: {error}")))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Claims a sandbox, and changes its pod as the claim says.
pub(super) fn apply(claim: &SandboxClaim, claiming: &Claiming, sandbox: &mut Sandbox) {
    claiming.claim(sandbox);
    let update = claim.spec.inplace_update.as_ref();
    if let (Some(update), Some(template)) = (update, &mut sandbox.spec.template) {
        change_container(template, update);
    }
}

/// A sandbox for a claim that no waiting one is left for.
pub(super) fn cold(
    claim: &SandboxClaim,
    set: &SandboxSet,
    claiming: &Claiming,
    revision: &str,
    (name, prefix): (String, String),
) -> Sandbox {
    let mut sandbox = set.member(revision);
    sandbox.metadata.name = Some(name);
    sandbox.metadata.generate_name = Some(prefix);
    apply(claim, claiming, &mut sandbox);
    let annotations = sandbox.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::SANDBOX_PRIORITY.to_owned(), PRIORITY.to_owned());
    sandbox
}

/// Changes the image and the processor time of the first container.
fn change_container(template: &mut PodTemplate, update: &ClaimInplaceUpdate) {
    let containers = template.spec.get_mut("containers");
    let first = containers.and_then(|containers| containers.get_mut(0));
    let Some(container) = first.and_then(Value::as_object_mut) else {
        return;
    };
    if !update.image.is_empty() {
        container.insert("image".to_owned(), json!(update.image));
    }
    let Some(resources) = &update.resources else {
        return;
    };
    for (kind, wanted) in [
        ("requests", resources.requests.get("cpu")),
        ("limits", resources.limits.get("cpu")),
    ] {
        if let Some(Quantity(cpu)) = wanted {
            let all = object_at(container, "resources");
            object_at(all, kind).insert("cpu".to_owned(), json!(cpu));
        }
    }
}

/// The object under a key, which is made if there is none.
fn object_at<'a>(of: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let value = of.entry(key).or_insert_with(|| json!({}));
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(object) => object,
        _ => unreachable!("it was made an object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(spec: Value) -> SandboxClaim {
        let mut spec = spec;
        spec["templateName"] = "pool".into();
        let metadata = json!({"name": "c", "namespace": "ns", "uid": "u"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn set(spec: Value) -> SandboxSet {
        let mut spec = spec;
        spec["replicas"] = 1.into();
        let metadata = json!({"name": "pool", "namespace": "ns", "uid": "p"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn inline() -> Value {
        json!({"template": {
            "metadata": {"labels": {"app": "code"}},
            "spec": {"containers": [{"name": "c", "image": "old", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]},
        }})
    }

    fn told(spec: Value, set_spec: Value) -> String {
        refusal(&claim(spec), &set(set_spec), Timestamp::UNIX_EPOCH).unwrap_or_default()
    }

    #[test]
    fn what_can_never_be_carried_out_is_told() {
        assert_eq!(
            told(json!({"labels": {"team": "a", "app": "code"}}), inline()),
            ""
        );
        for (spec, part) in [
            (
                json!({"labels": {label::SANDBOX_POOL: "other"}}),
                "sandbox-pool belongs",
            ),
            (
                json!({"annotations": {annotation::SANDBOX_ID: "x"}}),
                "sandbox-id belongs",
            ),
            (
                json!({"labels": {"app": "other"}}),
                "another value in the template of pool",
            ),
            (
                json!({"dynamicVolumesMount": [{"pvName": "v", "mountPath": "/m"}]}),
                "dynamicVolumesMount",
            ),
        ] {
            assert!(told(spec.clone(), inline()).contains(part), "{spec}");
        }
        for key in [
            "kubernetes.io/a",
            "container.apparmor.security.beta.kubernetes.io/c",
            "k8s.v1.cni.cncf.io/networks",
            "dev.gvisor.spec.mount.work.type",
        ] {
            let told = told(json!({"annotations": {key: "x"}}), inline());
            assert!(told.contains("belongs into the template"), "{key}");
        }
        assert_eq!(
            told(
                json!({"annotations": {"notkubernetes.io/a": "x", "plain": "y"}}),
                inline()
            ),
            ""
        );
        assert!(
            told(json!({"shutdownTime": "1970-01-01T00:00:00Z"}), inline())
                .contains("shutdownTime")
        );
        let update = json!({"inplaceUpdate": {"image": "new"}});
        let refers = json!({"templateRef": {"name": "shared"}});
        assert_eq!(told(update.clone(), inline()), "");
        assert!(told(update, refers).contains("refers to a template"));
    }

    #[test]
    fn a_runtime_is_known_by_name_or_by_its_init_container() {
        assert!(!has_runtime(&set(inline()), None, false));
        assert!(has_runtime(&set(inline()), None, true));
        let mut named = inline();
        named["runtimes"] = json!([{"name": "agent-runtime"}]);
        assert!(has_runtime(&set(named), None, false));
        let template: SandboxTemplate = serde_json::from_value(json!({"spec": {"template": {
            "spec": {"initContainers": [{"name": "runtime"}], "containers": []},
        }}}))
        .unwrap();
        let refers = set(json!({"templateRef": {"name": "shared"}}));
        assert!(has_runtime(&refers, Some(&template), false));
        assert!(!has_runtime(&refers, None, false));
    }

    #[test]
    fn a_cold_sandbox_is_claimed_from_its_first_write() {
        let claim = claim(json!({
            "labels": {"team": "a"},
            "annotations": {"note": "n", "agents.kruise.io/cleanup": "true"},
            "envVars": {"A": "1"},
            "shutdownTime": "2026-01-02T03:04:05Z",
            "inplaceUpdate": {"image": "new", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2", "memory": "9Gi"}}},
        }));
        let claiming = claiming(&claim, true, Timestamp::UNIX_EPOCH).unwrap();
        let name = ("pool-abcde".to_owned(), "pool-".to_owned());
        let made = json!(cold(&claim, &set(inline()), &claiming, "rev", name));
        let metadata = &made["metadata"];
        assert_eq!(metadata["labels"][label::SANDBOX_CLAIMED], "true");
        assert_eq!(metadata["labels"][label::CLAIM_NAME], "c");
        assert_eq!(metadata["labels"]["team"], "a");
        assert_eq!(metadata["annotations"][annotation::OWNER], "u");
        assert_eq!(metadata.get("ownerReferences"), None);
        assert_eq!(made["spec"]["shutdownTime"], "2026-01-02T03:04:05Z");
        let pod = &made["spec"]["template"];
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"app": "code", "team": "a"})
        );
        assert_eq!(pod["metadata"]["annotations"], json!({"note": "n"}));
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["image"], "new");
        // Only processor time changes.
        let resources = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "2", "memory": "1Gi"}});
        assert_eq!(container["resources"], resources);
        let init = metadata["annotations"][annotation::INIT_RUNTIME_REQUEST].as_str();
        let init: InitRequest = serde_json::from_str(init.unwrap()).unwrap();
        assert_eq!(init.env_vars["A"], "1");
        assert_eq!(init.access_token.len(), 64);
    }
}
