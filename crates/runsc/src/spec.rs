//! The specification of a container, as containerd writes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use shoal_checkpoint::{DAEMON_PLACE, DAEMON_PROGRAM, DAEMON_VOLUME, IMAGES, hints};

use crate::failure::Failure;

/// The shim's way to say "into the pod's control group". It differs from pod to pod, and runsc compares it with that of
/// the checkpoint.
const CGROUP_PARENT: &str = "dev.gvisor.spec.cgroup-parent";

/// gVisor's annotations, and those of them that say where the volumes of a pod are. Others let runsc open or write any path
/// of the node, as root.
const GVISOR: &str = "dev.gvisor.";
const MOUNTS: &str = "dev.gvisor.spec.mount.";

/// Another name for a container.
const REMAP: &str = "dev.gvisor.container-name-remap.shoal";

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

    /// The digest by which the pod names the image of a container. A pod that says another one than it has harms itself:
    /// its programs find other files than they know.
    pub(crate) fn image_digest(&self, container: Option<&str>) -> Option<String> {
        let digests = self.annotations.get(IMAGES)?;
        let mut digests: BTreeMap<String, String> = serde_json::from_str(digests).ok()?;
        digests.remove(container?)
    }

    /// Refuses annotations of gVisor that a pod must not have.
    pub(crate) fn check_annotations(&self) -> Result<(), Failure> {
        let foreign = |key: &&String| {
            key.starts_with(GVISOR) && !key.starts_with(MOUNTS) && *key != CGROUP_PARENT
        };
        match self.annotations.keys().find(foreign) {
            Some(key) => Err(Failure::Annotation(key.clone())),
            None => Ok(()),
        }
    }

    /// Says in the standard's words which control group the sandbox joins: one above its own. Whether that changed
    /// something.
    pub(crate) fn join_pod(&mut self) -> bool {
        let annotations = self.value.get_mut("annotations");
        let parent = annotations
            .and_then(Value::as_object_mut)
            .and_then(|annotations| annotations.remove(CGROUP_PARENT));
        let Some(parent) = parent else { return false };
        let linux = self.value.get_mut("linux").and_then(Value::as_object_mut);
        if let (Some(linux), Some(parent)) = (linux, parent.as_str()) {
            let own = linux.get("cgroupsPath").and_then(Value::as_str);
            let below = own.and_then(|own| own.strip_prefix(parent.trim_end_matches('/')));
            // Where the shim does not set the annotation, the pod may have: it must not lead out of the pod's limits.
            if parent.len() > 1 && below.is_some_and(|below| below.starts_with('/')) {
                linux.insert("cgroupsPath".to_owned(), parent.into());
            }
        }
        true
    }

    /// Starts the daemon before the container's own program, which takes its place. Whether that changed something.
    pub(crate) fn start_daemon(&mut self) -> bool {
        let args = self.value.pointer_mut("/process/args");
        let Some(args) = args.and_then(Value::as_array_mut) else {
            return false;
        };
        let started = args.first().and_then(Value::as_str) == Some(DAEMON_PROGRAM);
        if started {
            return false;
        }
        let words = [DAEMON_PROGRAM, "start", "--"].map(Value::from);
        args.splice(0..0, words);
        true
    }

    /// Gives an init container the name of the container whose volume it fills. gVisor calls the files behind a shared volume by
    /// the first container that mounts it, and the pod of a clone has no init containers.
    pub(crate) fn fill_for(&mut self, own: &str, container: &str) {
        let annotations = self.value.get_mut("annotations");
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.insert(REMAP.to_owned(), format!("{own}={container}").into());
        }
    }

    /// Keeps the volume of the daemon inside of the sandbox, as if the pod had one with the files in `directory`. It is for the
    /// specification of the sandbox itself.
    pub(crate) fn keep_daemon_volume(&mut self, directory: &Path) {
        let source = format!("{MOUNTS}{DAEMON_VOLUME}.source");
        self.annotate([(source, directory.display().to_string())]);
        // As the shim writes it for an `emptyDir`, whose files gVisor keeps itself.
        self.annotate(hints(DAEMON_VOLUME, true));
    }

    /// Mounts that volume into a container, as containerd does for volumes of a pod.
    pub(crate) fn mount_daemon_volume(&mut self, directory: &Path) {
        self.annotate(hints(DAEMON_VOLUME, false));
        if let Some(mounts) = self.value["mounts"].as_array_mut() {
            mounts.push(json!({
                "destination": DAEMON_PLACE, "type": "bind", "source": directory, "options": ["rbind", "rprivate", "ro"],
            }));
        }
    }

    fn annotate(&mut self, more: impl IntoIterator<Item = (String, String)>) {
        for (key, value) in more {
            self.value["annotations"][key] = value.into();
        }
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
            "linux": {"cgroupsPath": "/kubepods/pod1/c1", "x": 18446744073709551615}}"#;
        let mut spec = Spec::parse(bytes).unwrap();
        assert_eq!(spec.cri("sandbox-id"), Some("s"));
        assert!(spec.join_pod());
        assert_eq!(spec.value["linux"]["cgroupsPath"], "/kubepods/pod1");
        assert_eq!(spec.value["linux"]["x"], u64::MAX);
        assert!(spec.value["annotations"].get(CGROUP_PARENT).is_none());
        assert!(!spec.join_pod());
    }

    #[test]
    fn a_pod_may_name_its_images_by_digest() {
        let of = |text: &str, container| {
            let bytes = json!({"annotations": {IMAGES: text}});
            let spec = Spec::parse(bytes.to_string().as_bytes()).unwrap();
            spec.image_digest(container)
        };
        let text = r#"{"main": "sha256:1"}"#;
        assert_eq!(of(text, Some("main")).as_deref(), Some("sha256:1"));
        assert_eq!(of(text, Some("side")), None);
        assert_eq!(of(text, None), None, "the sandbox's own has none");
        assert_eq!(of("[", Some("main")), None);
    }

    #[test]
    fn a_pod_does_not_leave_its_control_group() {
        for (own, parent) in [
            ("/kubepods/pod1/c1", "/"),
            ("/kubepods/pod1/c1", "/kubepods/po"),
            ("/kubepods/pod1/c1", "/other"),
            ("kubepods-pod1.slice:cri-containerd:c1", "/"),
            ("/kubepods/pod1/c1", ""),
        ] {
            let bytes =
                json!({"annotations": {CGROUP_PARENT: parent}, "linux": {"cgroupsPath": own}});
            let mut spec = Spec::parse(bytes.to_string().as_bytes()).unwrap();
            assert!(spec.join_pod());
            assert_eq!(spec.value["linux"]["cgroupsPath"], own, "{parent}");
            assert!(spec.value["annotations"].get(CGROUP_PARENT).is_none());
        }
    }

    #[test]
    fn the_daemon_starts_before_the_containers_program() {
        let mut spec =
            Spec::parse(br#"{"process": {"args": ["sleep", "1"], "cwd": "/"}}"#).unwrap();
        assert!(spec.start_daemon());
        let args = json!(["/shoal-runtime/shoal-envd", "start", "--", "sleep", "1"]);
        assert_eq!(spec.value["process"]["args"], args);
        assert_eq!(spec.value["process"]["cwd"], "/");
        assert!(!spec.start_daemon());
    }

    #[test]
    fn the_volume_of_the_daemon_is_as_if_the_pod_had_it() {
        let mut sandbox = Spec::parse(br#"{"annotations": {"a": "b"}}"#).unwrap();
        sandbox.keep_daemon_volume(Path::new("/place"));
        let annotations = &sandbox.value["annotations"];
        let of =
            |key: &str| annotations[format!("dev.gvisor.spec.mount.shoal-runtime.{key}")].clone();
        assert_eq!((of("source"), of("share")), ("/place".into(), "pod".into()));

        let mut container = Spec::parse(br#"{"mounts": [{"destination": "/proc"}]}"#).unwrap();
        container.mount_daemon_volume(Path::new("/place"));
        let mount = json!({
            "destination": "/shoal-runtime", "type": "bind", "source": "/place", "options": ["rbind", "rprivate", "ro"],
        });
        assert_eq!(
            container.value["mounts"],
            json!([{"destination": "/proc"}, mount])
        );
        assert_eq!(
            container.value["annotations"]["dev.gvisor.spec.mount.shoal-runtime.type"],
            "bind"
        );
    }

    #[test]
    fn an_init_container_has_the_name_of_the_one_whose_volume_it_fills() {
        let mut spec = Spec::parse(br#"{"annotations": {"a": "b"}}"#).unwrap();
        spec.fill_for("runtime", "main");
        let annotations = &spec.value["annotations"];
        assert_eq!(
            annotations["dev.gvisor.container-name-remap.shoal"],
            "runtime=main"
        );
        // A pod cannot say so.
        let bytes = spec.value.to_string();
        assert!(
            Spec::parse(bytes.as_bytes())
                .unwrap()
                .check_annotations()
                .is_err()
        );
    }

    #[test]
    fn only_the_annotations_of_volumes_are_taken() {
        let of = |key: &str| {
            let bytes = json!({"annotations": {key: "x"}});
            Spec::parse(bytes.to_string().as_bytes())
                .unwrap()
                .check_annotations()
        };
        for good in [
            "dev.gvisor.spec.mount.v.type",
            CGROUP_PARENT,
            "io.kubernetes.cri.sandbox-id",
        ] {
            of(good).unwrap();
        }
        for bad in [
            "dev.gvisor.internal.checkpoint.path",
            "dev.gvisor.spec.rootfs.source",
            "dev.gvisor.flag.debug",
        ] {
            assert!(of(bad).unwrap_err().to_string().contains(bad));
        }
    }
}
