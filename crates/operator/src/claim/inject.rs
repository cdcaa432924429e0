//! Variables and volume claims that a claim adds to its sandbox.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use shoal_crds::parts::{EnvVar, InjectionPolicy, VolumeClaimTemplate};

use super::refusal::Refusal;

/// Adds variables to containers.
///
/// # Errors
/// When the template's policy does not allow it, or names a container that does not exist.
pub(super) fn env(
    pod: &mut Map<String, Value>,
    variables: &[EnvVar],
    policy: InjectionPolicy,
    v1alpha1: bool,
) -> Result<(), Refusal> {
    if variables.is_empty() {
        return Ok(());
    }
    let rejected = |why: &str| {
        let message = format!("environment variable injection rejected: {why}");
        Refusal::new("EnvVarsInjectionRejected", message)
    };
    if policy == InjectionPolicy::Disallowed {
        let why = "environment variable injection is not allowed by the template policy";
        return Err(if v1alpha1 {
            Refusal::error(why)
        } else {
            rejected(why)
        });
    }
    for variable in variables {
        let container = container(pod, variable.container_name.as_deref()).ok_or_else(|| {
            let name = variable.container_name.as_deref().unwrap_or_default();
            Refusal::error(format!(
                "target container {name:?} not found in template for environment variable {:?}",
                variable.name
            ))
        })?;
        let has_sources = container
            .get("envFrom")
            .and_then(Value::as_array)
            .is_some_and(|from| !from.is_empty());
        if has_sources && policy == InjectionPolicy::Allowed && !v1alpha1 {
            return Err(rejected(
                "the target container has envFrom, whose variables would be overridden",
            ));
        }
        let entry = json!({"name": variable.name, "value": variable.value});
        let list = container.entry("env").or_insert_with(|| json!([]));
        let Some(list) = list.as_array_mut() else {
            return Err(Refusal::error("env of a container is no list"));
        };
        match list
            .iter_mut()
            .find(|known| known.get("name") == entry.get("name"))
        {
            None => list.push(entry),
            Some(known) if policy == InjectionPolicy::Overrides => *known = entry,
            Some(_) => {
                return Err(Refusal::error(format!(
                    "environment variable override is not allowed by the template policy for variable {:?}",
                    variable.name
                )));
            }
        }
    }
    Ok(())
}

/// The container with a name, also an init container; without a name the first regular one.
fn container<'a>(
    pod: &'a mut Map<String, Value>,
    name: Option<&str>,
) -> Option<&'a mut Map<String, Value>> {
    let name = name.filter(|name| !name.is_empty());
    let lists = if name.is_some() {
        &["containers", "initContainers"][..]
    } else {
        &["containers"][..]
    };
    let list = *lists
        .iter()
        .find(|list| position(pod, list, name).is_some())?;
    let at = position(pod, list, name)?;
    pod.get_mut(list)?.get_mut(at)?.as_object_mut()
}

fn position(pod: &Map<String, Value>, list: &str, name: Option<&str>) -> Option<usize> {
    pod.get(list)?.as_array()?.iter().position(|container| {
        name.is_none_or(|name| container.get("name").and_then(Value::as_str) == Some(name))
    })
}

/// The template's volume claims with the claim's.
///
/// # Errors
/// The reason `VolumeClaimTemplatesError`.
pub(super) fn volume_claims(
    template: Option<Vec<VolumeClaimTemplate>>,
    claim: &[VolumeClaimTemplate],
    policy: InjectionPolicy,
) -> Result<Option<Vec<VolumeClaimTemplate>>, Refusal> {
    if claim.is_empty() {
        return Ok(template);
    }
    let refused = |why: &str| Err(Refusal::new("VolumeClaimTemplatesError", why));
    if policy == InjectionPolicy::Disallowed {
        return refused("volume claim templates are disallowed by the template");
    }
    let mut merged = template.unwrap_or_default();
    for list in [merged.as_slice(), claim] {
        let mut names = BTreeSet::new();
        for template in list {
            if template.metadata.name.is_empty() || !names.insert(&template.metadata.name) {
                return refused("names of volume claim templates must be unique and not empty");
            }
        }
    }
    for added in claim {
        match merged
            .iter_mut()
            .find(|known| known.metadata.name == added.metadata.name)
        {
            None => merged.push(added.clone()),
            Some(known) if policy == InjectionPolicy::Overrides => *known = added.clone(),
            Some(_) => return refused("cannot override template volume"),
        }
    }
    Ok(Some(merged))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Map<String, Value> {
        let pod = json!({
            "containers": [{"name": "main", "env": [{"name": "A", "valueFrom": {}}]}, {"name": "side", "envFrom": [{}]}],
            "initContainers": [{"name": "init"}],
        });
        pod.as_object().unwrap().clone()
    }

    fn variable(name: &str, container: Option<&str>) -> EnvVar {
        EnvVar {
            name: name.to_owned(),
            value: "v".to_owned(),
            container_name: container.map(str::to_owned),
        }
    }

    fn inject(
        name: &str,
        container: Option<&str>,
        policy: InjectionPolicy,
    ) -> Result<Map<String, Value>, Refusal> {
        let mut pod = pod();
        env(&mut pod, &[variable(name, container)], policy, false).map(|()| pod)
    }

    #[test]
    fn variables_are_added_by_policy() {
        use InjectionPolicy::{Allowed, Disallowed, Overrides};
        let added = inject("B", None, Allowed).unwrap();
        assert_eq!(
            added["containers"][0]["env"][1],
            json!({"name": "B", "value": "v"})
        );
        assert_eq!(
            inject("B", Some("init"), Allowed).unwrap()["initContainers"][0]["env"][0]["name"],
            "B"
        );
        let replaced = inject("A", None, Overrides).unwrap();
        assert_eq!(
            replaced["containers"][0]["env"],
            json!([{"name": "A", "value": "v"}])
        );
        assert_eq!(
            inject("B", None, Disallowed).unwrap_err().reason,
            "EnvVarsInjectionRejected"
        );
        assert_eq!(
            inject("B", Some("side"), Allowed).unwrap_err().reason,
            "EnvVarsInjectionRejected"
        );
        assert!(inject("B", Some("side"), Overrides).is_ok());
        let error = inject("A", None, Allowed).unwrap_err();
        assert!(
            error
                .message
                .contains("override is not allowed by the template policy for variable \"A\"")
        );
        let error = inject("B", Some("none"), Allowed).unwrap_err();
        assert!(error.message.contains(
            "target container \"none\" not found in template for environment variable \"B\""
        ));
    }

    #[test]
    fn volume_claims_are_merged_by_policy() {
        use InjectionPolicy::{Allowed, Disallowed, Overrides};
        let named = |name: &str, size: i32| -> VolumeClaimTemplate {
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"size": size}}))
                .unwrap()
        };
        let merge = |claim: Vec<VolumeClaimTemplate>, policy| {
            volume_claims(Some(vec![named("a", 1)]), &claim, policy)
        };
        assert_eq!(merge(vec![], Disallowed).unwrap().unwrap().len(), 1);
        assert_eq!(
            merge(vec![named("b", 2)], Allowed).unwrap().unwrap().len(),
            2
        );
        assert_eq!(
            merge(vec![named("a", 2)], Overrides).unwrap().unwrap(),
            [named("a", 2)]
        );
        for (claim, policy, message) in [
            (
                vec![named("b", 2)],
                Disallowed,
                "volume claim templates are disallowed by the template",
            ),
            (
                vec![named("a", 2)],
                Allowed,
                "cannot override template volume",
            ),
            (
                vec![named("", 2)],
                Allowed,
                "names of volume claim templates must be unique and not empty",
            ),
            (
                vec![named("b", 2), named("b", 2)],
                Overrides,
                "names of volume claim templates must be unique and not empty",
            ),
        ] {
            let refusal = merge(claim, policy).unwrap_err();
            assert_eq!(
                (refusal.reason, refusal.message.as_str()),
                ("VolumeClaimTemplatesError", message)
            );
        }
    }
}
