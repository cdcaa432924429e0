//! OpenKruise's metadata keys that are not labels, but options of a new sandbox. Those for its
//! processors are in [`super::cpu`].

use std::collections::{BTreeMap, BTreeSet};

use shoal_core::sandbox::{RESERVED_PREFIX, SandboxRecord};

use crate::error::ApiError;

/// The sandbox has no deadline.
const NEVER_TIMEOUT: &str = "e2b.agents.kruise.io/never-timeout";
/// Responses about the sandbox include its address.
const RETURN_IP: &str = "e2b.agents.kruise.io/return-sandbox-ip";
/// The key with the address.
const SANDBOX_IP: &str = "e2b.agents.kruise.io/sandbox-ip";
/// The key prefix of Kubernetes labels.
const LABEL: &str = "label:";

/// Prefixes that labels must not have.
const RESERVED: [&str; 3] = [
    "agents.kruise.io/",
    "e2b.agents.kruise.io/",
    RESERVED_PREFIX,
];

/// The longest name and value of a label, and the longest prefix of its name (Kubernetes' rule).
const NAME_MAX: usize = 63;
const PREFIX_MAX: usize = 253;

/// The metadata of a create, and its options.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Extended {
    /// The user's own metadata, with labels under their plain names.
    pub(super) metadata: BTreeMap<String, String>,
    /// The names of the labels.
    pub(super) labels: BTreeSet<String>,
    /// Whether the sandbox has no deadline.
    pub(super) endless: bool,
}

/// Parses the metadata keys with a special meaning.
pub(super) fn read(metadata: BTreeMap<String, String>) -> Result<Extended, ApiError> {
    let mut own = BTreeMap::new();
    let mut labels = BTreeMap::new();
    let mut endless = false;
    for (key, value) in metadata {
        match key.as_str() {
            NEVER_TIMEOUT => endless = flag(&key, &value)?,
            // Kept for later responses.
            RETURN_IP => {
                if flag(&key, &value)? {
                    own.insert(key, value);
                }
            }
            SANDBOX_IP => return Err(bad(&key, "is reserved")),
            _ => match key.strip_prefix(LABEL) {
                Some(name) => {
                    check_label(name, &value).map_err(|rule| bad(&key, rule))?;
                    labels.insert(name.to_owned(), value);
                }
                None => drop(own.insert(key, value)),
            },
        }
    }
    let names = labels.keys().cloned().collect();
    for (name, value) in labels {
        if own.get(&name).is_some_and(|other| *other != value) {
            let key = format!("{LABEL}{name}");
            return Err(bad(&key, "the same key has another value without `label:`"));
        }
        own.insert(name, value);
    }
    Ok(Extended {
        metadata: own,
        labels: names,
        endless,
    })
}

/// The metadata in responses.
pub(super) fn shown(record: &SandboxRecord) -> BTreeMap<String, String> {
    let mut metadata = record.spec.metadata.clone();
    let asked = metadata.remove(RETURN_IP).is_some();
    let report = record.report.as_ref();
    let address = report.filter(|_| asked && record.state.is_running());
    if let Some(report) = address {
        let ip = report.address.to_string();
        metadata.insert(SANDBOX_IP.to_owned(), ip);
    }
    metadata
}

/// Whether the response to a create must include the metadata, because it has more than the
/// request.
pub(super) fn is_repeated(record: &SandboxRecord) -> bool {
    record.spec.metadata.contains_key(RETURN_IP)
}

fn flag(key: &str, value: &str) -> Result<bool, ApiError> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(bad(key, "must be true or false")),
    }
}

/// Checks a label by Kubernetes' rules.
fn check_label(name: &str, value: &str) -> Result<(), &'static str> {
    if RESERVED.iter().any(|prefix| name.starts_with(prefix)) {
        return Err("is reserved");
    }
    let (prefix, plain) = match name.split_once('/') {
        Some((prefix, plain)) => (Some(prefix), plain),
        None => (None, name),
    };
    if plain.is_empty() || !is_part(plain) {
        return Err("must name a label as Kubernetes does: [prefix/]name");
    }
    if prefix.is_some_and(|prefix| !is_domain(prefix)) {
        return Err("must have a domain before the slash");
    }
    if !is_part(value) {
        return Err("must have a label's value: up to 63 of A-Z, a-z, 0-9, '-', '_' and '.'");
    }
    Ok(())
}

/// Whether a text is a valid label name or value; a value may be empty.
fn is_part(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= NAME_MAX
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_domain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |part: &str| {
        let bytes = part.as_bytes();
        bytes.first().copied().is_some_and(plain)
            && bytes.last().copied().is_some_and(plain)
            && bytes.iter().all(|byte| plain(*byte) || *byte == b'-')
    };
    text.len() <= PREFIX_MAX && text.split('.').all(part)
}

fn bad(key: &str, rule: &str) -> ApiError {
    let key: String = key.chars().take(PREFIX_MAX).collect();
    ApiError::invalid(format_args!(
        "Bad extension param: metadata key {key}: {rule}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Extended, ApiError> {
        let pairs = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        read(pairs.collect())
    }

    #[test]
    fn keys_that_say_something_are_taken_out_and_labels_lose_their_prefix() {
        let read = of(&[
            ("plain", "any: thing"),
            ("label:team", "red"),
            ("label:example.com/tier", ""),
            (NEVER_TIMEOUT, "true"),
            (RETURN_IP, "false"),
        ]);
        let read = read.unwrap();
        assert!(read.endless);
        let metadata: Vec<_> = read
            .metadata
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            metadata,
            [
                ("example.com/tier", ""),
                ("plain", "any: thing"),
                ("team", "red")
            ]
        );
        assert!(!of(&[(NEVER_TIMEOUT, "false")]).unwrap().endless);
        assert!(of(&[("a", "1"), ("label:a", "1")]).is_ok());
    }

    #[test]
    fn what_is_no_label_names_its_key() {
        let long = "x".repeat(64);
        for (key, value) in [
            ("label:", "a"),
            ("label:/a", "a"),
            ("label:a/", "a"),
            ("label:a/b/c", "a"),
            ("label:-a", "a"),
            ("label:a b", "a"),
            ("label:Example.com/a", "a"),
            ("label:a..b/c", "a"),
            ("label:a", "a b"),
            ("label:a", "é"),
            ("label:a", "-"),
            ("label:a", &long),
            (&format!("label:{long}"), "a"),
            ("label:agents.kruise.io/sandbox-pool", "a"),
            ("label:e2b.agents.kruise.io/never-timeout", "true"),
            ("label:shoal/name", "a"),
            (NEVER_TIMEOUT, "yes"),
            (RETURN_IP, ""),
            (SANDBOX_IP, "10.0.0.1"),
        ] {
            let refused = of(&[(key, value)]).unwrap_err();
            assert_eq!(refused.status(), 400);
            assert!(refused.message().contains(key), "{}", refused.message());
        }
        assert!(of(&[("a", "1"), ("label:a", "2")]).is_err());
    }
}
