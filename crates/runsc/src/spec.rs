//! The specification of a container, as containerd writes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::failure::Failure;

/// The shim's way to say "into the pod's control group". It differs from pod to pod, and runsc compares it with that of
/// the checkpoint.
const CGROUP_PARENT: &str = "dev.gvisor.spec.cgroup-parent";

/// A specification.
pub(crate) struct Spec {
    value: Value,
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Spec {
    pub(crate) fn read(bundle: &Path) -> Result<Self, Failure> {
        let path = bundle.join("config.json");
        let bytes = fs::read(&path).map_err(|error| Failure::io(path.display(), error))?;
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Result<Self, Failure> {
        let value: Value = serde_json::from_slice(bytes)?;
        let annotations = match value.get("annotations") {
            Some(annotations) => serde_json::from_value(annotations.clone())?,
            None => BTreeMap::new(),
        };
        Ok(Self { value, annotations })
    }

    /// An annotation of containerd's own.
    pub(crate) fn cri(&self, key: &'static str) -> Option<&str> {
        let key = format!("io.kubernetes.cri.{key}");
        self.annotations.get(&key).map(String::as_str)
    }

    /// Says in the standard's words which control group the sandbox joins. Whether that changed something.
    pub(crate) fn join_pod(&mut self) -> bool {
        let annotations = self.value.get_mut("annotations");
        let parent = annotations
            .and_then(Value::as_object_mut)
            .and_then(|annotations| annotations.remove(CGROUP_PARENT));
        let Some(parent) = parent else { return false };
        if let Some(linux) = self.value.get_mut("linux").and_then(Value::as_object_mut) {
            linux.insert("cgroupsPath".to_owned(), parent);
        }
        true
    }

    pub(crate) fn write(&self, bundle: &Path) -> Result<(), Failure> {
        let path = bundle.join("config.json");
        let unfinished = bundle.join("config.json.shoal");
        fs::write(&unfinished, serde_json::to_vec(&self.value)?)
            .and_then(|()| fs::rename(&unfinished, &path))
            .map_err(|error| Failure::io(path.display(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandbox_joins_the_control_group_of_its_pod() {
        let bytes = br#"{"annotations": {"dev.gvisor.spec.cgroup-parent": "/kubepods/pod1", "io.kubernetes.cri.sandbox-id": "s"},
            "linux": {"cgroupsPath": "/k8s.io/1", "x": 18446744073709551615}}"#;
        let mut spec = Spec::parse(bytes).unwrap();
        assert_eq!(spec.cri("sandbox-id"), Some("s"));
        assert!(spec.join_pod());
        assert_eq!(spec.value["linux"]["cgroupsPath"], "/kubepods/pod1");
        assert_eq!(spec.value["linux"]["x"], u64::MAX);
        assert!(spec.value["annotations"].get(CGROUP_PARENT).is_none());
        assert!(!spec.join_pod());
    }
}
