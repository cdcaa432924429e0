//! The difference between the containers of a pod and the template that it was made from: changes in place, and
//! injected containers.

use serde_json::{Map, Value, json};
use shoal_checkpoint::template_image;
use shoal_crds::kruise::quantity::nano_of;
use shoal_crds::parts::PodTemplate;

use crate::kruise::Pod;
use crate::kruise::slim::Container;

/// The strategic merge patch from the template to the pod, if they differ. Labels and annotations are no part of it:
/// network plugins write theirs for one pod only.
pub(super) fn between(template: &PodTemplate, pod: &Pod) -> Option<Value> {
    let spec: Map<String, Value> = [
        ("containers", &pod.spec.containers),
        ("initContainers", &pod.spec.init_containers),
    ]
    .into_iter()
    .map(|(key, containers)| (key, changes(template.spec.get(key), pod, containers)))
    .filter(|(_, changes)| !changes.is_empty())
    .map(|(key, changes)| (key.to_owned(), Value::Array(changes)))
    .collect();
    (!spec.is_empty()).then(|| json!({"spec": spec}))
}

/// The containers that differ from the template's, by name.
fn changes(template: Option<&Value>, pod: &Pod, containers: &[Container]) -> Vec<Value> {
    let known = template.and_then(Value::as_array);
    let changed = containers.iter().filter_map(|container| {
        let mut known = known.into_iter().flatten();
        let of_template = known.find(|one| one["name"] == container.name);
        let mut change = Map::new();
        let image = template_image(pod.metadata.annotations.as_ref(), &container.image);
        if of_template.is_none_or(|known| known["image"] != image) {
            change.insert("image".to_owned(), json!(image));
        }
        let amounts = amounts(&container.resources);
        if of_template.is_none_or(|known| differ(&known["resources"], &amounts)) {
            change.insert("resources".to_owned(), amounts);
        }
        let name = ("name".to_owned(), json!(container.name));
        (!change.is_empty()).then(|| Value::Object([name].into_iter().chain(change).collect()))
    });
    changed.collect()
}

/// The resources that can change in place.
fn amounts(of: &Value) -> Value {
    let kept = ["requests", "limits"].into_iter();
    let kept = kept.filter_map(|kind| Some((kind.to_owned(), of.get(kind)?.clone())));
    Value::Object(kept.collect())
}

/// Whether amounts differ. The API server writes them in a form of its own, and requests where a template has limits
/// only.
fn differ(template: &Value, pod: &Value) -> bool {
    let read = |of: &Value, kind: &str| -> Vec<(String, Option<i128>)> {
        let amounts = of.get(kind).and_then(Value::as_object);
        let amounts = amounts.into_iter().flatten();
        amounts
            .map(|(name, amount)| (name.clone(), nano_of(amount)))
            .collect()
    };
    let limits = read(template, "limits");
    let mut requests = read(template, "requests");
    let missing = limits
        .iter()
        .filter(|(name, _)| !requests.iter().any(|(known, _)| known == name));
    requests.extend(missing.cloned().collect::<Vec<_>>());
    requests.sort();
    let mut of_pod = read(pod, "requests");
    of_pod.sort();
    read(pod, "limits") != limits || of_pod != requests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> PodTemplate {
        serde_json::from_value(json!({
            "spec": {"containers": [
                {"name": "main", "image": "i:1", "resources": {"limits": {"cpu": "1000m", "memory": "1Gi"}}},
                {"name": "side", "image": "s:1"},
            ]},
        }))
        .unwrap()
    }

    fn pod(change: &dyn Fn(&mut Value)) -> Pod {
        let amounts = json!({"cpu": "1", "memory": "1Gi"});
        let mut pod = json!({
            "metadata": {"name": "s", "annotations": {"cni.example.org/ip": "10.0.0.1"}},
            "spec": {"containers": [
                {"name": "main", "image": "i:1", "resources": {"limits": amounts, "requests": amounts}},
                {"name": "side", "image": "s:1", "resources": {}},
            ]},
        });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_pod_as_its_template_has_no_difference() {
        assert_eq!(between(&template(), &pod(&|_| {})), None);
    }

    #[test]
    fn changed_and_injected_containers_are_the_difference() {
        let larger = json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}});
        let changed = pod(&|pod| {
            pod["spec"]["containers"][0]["resources"] = larger.clone();
            pod["spec"]["containers"][1]["image"] = "s:2".into();
            pod["spec"]["initContainers"] = json!([{"name": "runtime", "image": "r:1"}]);
        });
        let expected = json!({"spec": {
            "containers": [{"name": "main", "resources": larger}, {"name": "side", "image": "s:2"}],
            "initContainers": [{"name": "runtime", "image": "r:1", "resources": {}}],
        }});
        assert_eq!(between(&template(), &changed), Some(expected));
    }
}
