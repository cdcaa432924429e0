//! Validates requests, and turns them into labels and annotations.

use std::collections::BTreeMap;

use shoal_core::ports::NotServed;
use shoal_core::ports::create::{CreateError, SandboxRequest};
use shoal_core::ports::sandboxes::SandboxError;
use shoal_crds::kruise::SandboxSet;
use shoal_crds::kruise::names::{annotation, is_key, is_label_value, label};
use shoal_crds::parts::Pairs;

use super::size;
use crate::blueprint::is_steering;
use crate::identity::{self, key};
use crate::options::Options;
use crate::routes::WAKE_ON_TRAFFIC;
use crate::templates::Found;

/// The variables by which programs know that they are in a sandbox, and in which one.
pub(super) fn identity_variables(found: &Found, id: Option<&str>) -> BTreeMap<String, String> {
    let template = match found.entry() {
        Some(entry) => entry.entry.name.template_id(),
        None => {
            let (namespace, name) = key(&found.set().metadata);
            identity::template(&namespace, &name)
        }
    };
    let variables = [
        ("E2B_SANDBOX", "true".to_owned()),
        ("E2B_SANDBOX_ID", id.unwrap_or_default().to_owned()),
        ("E2B_TEMPLATE_ID", template.to_string()),
    ];
    variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Refuses what changes the pod of a SandboxSet without a template of its own.
pub(super) fn need_template(set: &SandboxSet, new: &SandboxRequest) -> Result<(), CreateError> {
    let asked = [
        (
            "other processors for a SandboxSet with a template reference",
            new.resize.is_some(),
        ),
        (
            "a size in a request for a SandboxSet with a template reference",
            size::is_asked(new),
        ),
        (
            "a sandbox without internet access of a SandboxSet with a template reference",
            new.network.egress.internet == Some(false),
        ),
    ];
    match asked.into_iter().find(|(_, asked)| *asked) {
        Some((what, _)) if set.spec.template.is_none() => {
            let instead = "write the template into the set";
            let absent = NotServed { what, instead };
            Err(CreateError::Sandbox(SandboxError::NotServed(absent)))
        }
        _ => Ok(()),
    }
}

/// The labels and annotations of the sandbox.
pub(super) fn marks(
    set: &SandboxSet,
    new: &SandboxRequest,
    metadata: BTreeMap<String, String>,
    options: &Options,
) -> Result<(Pairs, Pairs), CreateError> {
    let is_label = |key: &String| new.labels.contains(key);
    let (mut labels, mut annotations): (Pairs, Pairs) =
        metadata.into_iter().partition(|(key, _)| is_label(key));
    keep_pod_labels(set, &labels)?;
    check_labels(&labels)?;
    check_annotations(&annotations)?;
    keep_other_metadata(&mut annotations);
    if new.auto_resume {
        annotations.insert(WAKE_ON_TRAFFIC.to_owned(), "true".to_owned());
    }
    let internet = new.network.egress.internet;
    if let Some(internet) = internet.filter(|internet| !internet || !says_internet(set)) {
        let value = internet.to_string();
        labels.insert(label::ALLOW_INTERNET_ACCESS.to_owned(), value);
    }
    if let Some(keep) = &options.keep_paused {
        let key = annotation::RESERVE_PAUSED_SANDBOX_DURATION;
        annotations.insert(key.to_owned(), keep.clone());
    }
    if options.return_ip {
        annotations.insert(annotation::RETURN_SANDBOX_IP.to_owned(), "true".to_owned());
    }
    Ok((labels, annotations))
}

/// Whether the template closes the internet to its pods.
pub(super) fn is_closed(set: &SandboxSet) -> bool {
    let template = set.spec.template.as_ref();
    let label =
        template.and_then(|template| template.metadata.labels.get(label::ALLOW_INTERNET_ACCESS));
    label.is_some_and(|label| label == "false")
}

/// Whether the template says if its pods reach the internet. Requests may close it then, but not open it.
fn says_internet(set: &SandboxSet) -> bool {
    let template = set.spec.template.as_ref();
    template.is_some_and(|template| {
        template
            .metadata
            .labels
            .contains_key(label::ALLOW_INTERNET_ACCESS)
    })
}

/// Refuses what Kubernetes takes for no label.
fn check_labels(labels: &Pairs) -> Result<(), CreateError> {
    if let Some(key) = labels.keys().find(|key| is_steering(key)) {
        return Err(CreateError::InvalidOption(format!(
            "metadata `label:{key}`: this label is reserved"
        )));
    }
    let valid = |(key, value): &(&String, &String)| is_key(key) && is_label_value(value);
    match labels.iter().find(|pair| !valid(pair)) {
        Some((key, _)) => Err(CreateError::InvalidOption(format!(
            "metadata `label:{key}`: keys are names like `tier` or `example.org/tier`, and values have up to 63 letters, \
             digits, `-`, `_` and `.`"
        ))),
        None => Ok(()),
    }
}

/// Refuses annotations that decide what happens to the sandbox.
fn check_annotations(annotations: &Pairs) -> Result<(), CreateError> {
    match annotations.keys().find(|key| is_steering(key)) {
        Some(key) => Err(CreateError::InvalidOption(format!(
            "metadata `{key}`: this key is reserved"
        ))),
        None => Ok(()),
    }
}

/// Moves metadata whose keys Kubernetes refuses into one annotation.
fn keep_other_metadata(annotations: &mut Pairs) {
    let keys = annotations.keys().filter(|key| !is_key(key));
    let keys: Vec<String> = keys.cloned().collect();
    let others = keys
        .into_iter()
        .filter_map(|key| annotations.remove_entry(&key));
    let others: Pairs = others.collect();
    if !others.is_empty() {
        // A map of texts has no value that JSON cannot hold.
        let text = serde_json::to_string(&others).unwrap_or_default();
        annotations.insert(annotation::OTHER_METADATA.to_owned(), text);
    }
}

/// Refuses labels that the pod has from its template: policies and services may select pods by them.
fn keep_pod_labels(set: &SandboxSet, labels: &Pairs) -> Result<(), CreateError> {
    let of_pod = set.spec.template.as_ref();
    let of_pod = of_pod.map(|template| &template.metadata.labels);
    let taken = labels
        .keys()
        .find(|key| of_pod.is_some_and(|of_pod| of_pod.contains_key(*key)));
    match taken {
        Some(key) => Err(CreateError::InvalidOption(format!(
            "metadata `label:{key}`: the template sets this label"
        ))),
        None => Ok(()),
    }
}

/// Refuses fields that only one machine serves.
pub(super) fn refuse_unserved(new: &SandboxRequest) -> Result<(), CreateError> {
    let instead = "make an entry of the template catalogue or a SandboxSet with it, and name that";
    let asked = [
        (
            "another image for a template",
            new.image.is_some() && new.template.is_some(),
        ),
        ("a runtime in a request", new.runtime.is_some()),
        ("a working directory in a request", new.workdir.is_some()),
        ("a default port in a request", new.port.is_some()),
        ("a disk in a request", new.resources.disk.is_some()),
    ];
    let network = &new.network;
    let rules = &network.egress;
    let rules = rules.allow.is_some() || rules.deny.is_some() || rules.dns_servers.is_some();
    let of_network = [
        ("a network rule in a request", rules),
        (
            "another host name for requests",
            network.mask_request_host.is_some(),
        ),
    ];
    if let Some((what, _)) = of_network.into_iter().find(|(_, asked)| *asked) {
        let instead = "create a NetworkPolicy that selects its pods";
        let absent = NotServed { what, instead };
        return Err(CreateError::Sandbox(SandboxError::NotServed(absent)));
    }
    match asked.into_iter().find(|(_, asked)| *asked) {
        Some((what, _)) => Err(CreateError::Sandbox(SandboxError::NotServed(NotServed {
            what,
            instead,
        }))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request() -> SandboxRequest {
        let Ok(template) = "code".parse::<shoal_core::template::TemplateRef>() else {
            unreachable!("it is a name")
        };
        SandboxRequest::of(template)
    }

    #[test]
    fn isolation_that_is_not_carried_out_is_refused() {
        assert!(refuse_unserved(&request()).is_ok());
        let mut ruled = request();
        ruled.network.egress.deny = Some(vec!["8.8.8.8".parse().unwrap()]);
        let mut masked = request();
        masked.network.mask_request_host = Some("localhost:${PORT}".parse().unwrap());
        let mut large = request();
        large.resources.disk = Some(shoal_core::resources::Mib(4096));
        for (unserved, what) in [
            (ruled, "network rule"),
            (masked, "host name"),
            (large, "disk"),
        ] {
            let error = refuse_unserved(&unserved).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn labels_that_steer_are_refused() {
        for key in [
            "sbx-user",
            "agents.kruise.io/kept-by",
            "agents.kruise.io/owner",
        ] {
            let labels = Pairs::from([(key.to_owned(), "x".to_owned())]);
            let error = check_labels(&labels).unwrap_err().to_string();
            assert!(error.contains("reserved") && error.contains(key), "{error}");
        }
    }

    #[test]
    fn labels_of_the_template_cannot_be_replaced() {
        let set: SandboxSet = serde_json::from_value(json!({
            "metadata": {"name": "code"},
            "spec": {"template": {"metadata": {"labels": {"app": "code"}}, "spec": {}}},
        }))
        .unwrap();
        let labels = |key: &str| Pairs::from([(key.to_owned(), "x".to_owned())]);
        assert!(keep_pod_labels(&set, &labels("tier")).is_ok());
        let error = keep_pod_labels(&set, &labels("app"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("label:app"), "{error}");
    }
}
