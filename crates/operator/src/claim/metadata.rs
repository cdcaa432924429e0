//! Labels and annotations that a claim adds to its pod.

use shoal_crds::names::annotation::SAFE_TO_EVICT;
use shoal_crds::parts::{Pairs, PodMetadata};

use super::refusal::Refusal;

/// Domains that belong to Kubernetes and to the controllers, with all their subdomains.
const RESTRICTED: [&str; 3] = ["kubernetes.io", "k8s.io", "agents.x-k8s.io"];
/// The domain of labels that claims of v1beta1 may set, with all its subdomains.
const LABEL_DOMAIN: &str = "sandbox.users.io";

/// Checks the metadata of a claim.
///
/// # Errors
/// The reason `InvalidMetadata`.
pub(super) fn check(metadata: &PodMetadata, v1alpha1: bool) -> Result<(), Refusal> {
    let invalid = |what: &str, key: &str, why: &str| {
        let message =
            format!("invalid additionalPodMetadata: failed to validate {what} {key:?}: {why}");
        Err(Refusal::new("InvalidMetadata", message))
    };
    for (key, value) in &metadata.labels {
        if let Err(why) = check_key(key).and_then(|()| check_label(key, value, v1alpha1)) {
            return invalid("label", key, &why);
        }
    }
    for key in metadata.annotations.keys() {
        let restricted = is_within(key, &RESTRICTED) && (v1alpha1 || key != SAFE_TO_EVICT);
        if let Err(why) = check_key(key) {
            return invalid("annotation", key, &why);
        }
        if restricted {
            return invalid("annotation", key, "its domain is restricted");
        }
    }
    Ok(())
}

fn check_label(key: &str, value: &str, v1alpha1: bool) -> Result<(), String> {
    if !(value.is_empty() || is_name(value)) {
        return Err(format!("{value:?} is no label value"));
    }
    if is_within(key, &RESTRICTED) {
        return Err("its domain is restricted".to_owned());
    }
    if v1alpha1 {
        return Ok(());
    }
    if key.eq_ignore_ascii_case("app") && value.eq_ignore_ascii_case("sandbox-router") {
        return Err("it would open the default network policy".to_owned());
    }
    if !is_within(key, &[LABEL_DOMAIN]) {
        return Err(format!(
            "its domain must be {LABEL_DOMAIN} or a subdomain of it"
        ));
    }
    Ok(())
}

/// Whether the domain of a key is one of `domains`, or below.
fn is_within(key: &str, domains: &[&str]) -> bool {
    let Some((domain, _)) = key.split_once('/') else {
        return false;
    };
    let domain = domain.to_lowercase();
    domains.iter().any(|known| {
        domain
            .strip_suffix(known)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// A qualified name: an optional domain, and a name.
fn check_key(key: &str) -> Result<(), String> {
    let (domain, name) = key
        .rsplit_once('/')
        .map_or((None, key), |(domain, name)| (Some(domain), name));
    let is_domain = |domain: &str| {
        domain.len() <= 253
            && domain.split('.').all(|part| {
                is_name(part) && !part.contains(['_', '.']) && part == part.to_lowercase()
            })
    };
    if is_name(name) && domain.is_none_or(is_domain) {
        Ok(())
    } else {
        Err("it is no qualified name".to_owned())
    }
}

/// The syntax of names and label values.
fn is_name(text: &str) -> bool {
    let ends = |end: Option<char>| end.is_some_and(|end| end.is_ascii_alphanumeric());
    text.len() <= 63
        && ends(text.chars().next())
        && ends(text.chars().last())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// The template's metadata with the claim's.
///
/// # Errors
/// When both have a key with different values.
pub(super) fn merge(template: &PodMetadata, claim: &PodMetadata) -> Result<PodMetadata, Refusal> {
    let merged = |what: &str, template: &Pairs, claim: &Pairs| {
        let mut merged = template.clone();
        for (key, value) in claim {
            if let Some(known) = template.get(key).filter(|known| *known != value) {
                return Err(Refusal::new(
                    "InvalidMetadata",
                    format!(
                        "metadata override conflict: {what} {key:?} is defined in template with value {known:?}, but claim requests {value:?}"
                    ),
                ));
            }
            merged.insert(key.clone(), value.clone());
        }
        Ok(merged)
    };
    Ok(PodMetadata {
        labels: merged("label", &template.labels, &claim.labels)?,
        annotations: merged("annotation", &template.annotations, &claim.annotations)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(key: &str, value: &str) -> PodMetadata {
        PodMetadata {
            labels: Pairs::from([(key.to_owned(), value.to_owned())]),
            ..PodMetadata::default()
        }
    }

    fn annotations(key: &str) -> PodMetadata {
        PodMetadata {
            annotations: Pairs::from([(key.to_owned(), "x".to_owned())]),
            ..PodMetadata::default()
        }
    }

    #[test]
    fn labels_need_a_domain_of_users() {
        for (key, value, current, alpha) in [
            ("sandbox.users.io/team", "a", true, true),
            ("x.sandbox.users.io/team", "a", true, true),
            ("notsandbox.users.io/team", "a", false, true),
            ("team", "a", false, true),
            ("app", "sandbox-router", false, true),
            ("a.kubernetes.io/x", "a", false, false),
            ("K8s.io/x", "a", false, false),
            ("agents.x-k8s.io/claim-uid", "a", false, false),
            ("sandbox.users.io/team", "not a value", false, false),
            ("sandbox.users.io/", "a", false, false),
        ] {
            assert_eq!(
                check(&labels(key, value), false).is_ok(),
                current,
                "{key}={value}"
            );
            assert_eq!(
                check(&labels(key, value), true).is_ok(),
                alpha,
                "{key}={value} in v1alpha1"
            );
        }
    }

    #[test]
    fn annotations_may_have_any_domain_but_those_of_kubernetes() {
        for (key, allowed) in [
            ("example.com/x", true),
            ("x", true),
            (SAFE_TO_EVICT, true),
            ("kubernetes.io/x", false),
            ("node.k8s.io/x", false),
            ("a b", false),
        ] {
            assert_eq!(check(&annotations(key), false).is_ok(), allowed, "{key}");
        }
    }

    #[test]
    fn a_claim_adds_to_its_template_and_overrides_nothing() {
        assert!(merge(&labels("a", "1"), &labels("a", "1")).is_ok());
        let Err(refusal) = merge(&labels("a", "1"), &labels("a", "2")) else {
            panic!()
        };
        assert!(
            refusal
                .message
                .starts_with("metadata override conflict: label \"a\"")
        );
    }
}
