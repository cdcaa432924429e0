//! Volumes that live inside of the sandbox, and are part of its checkpoints.

use std::collections::{BTreeMap, BTreeSet};

/// The prefix of gVisor's annotations about volumes.
const PREFIX: &str = "dev.gvisor.spec.mount.";

/// The annotations by which gVisor keeps an `emptyDir` inside of the sandbox, shared by all containers. Without them
/// it is a directory of the node, and no part of a checkpoint.
#[must_use]
pub fn hints(volume: &str, in_memory: bool) -> [(String, String); 3] {
    let kind = if in_memory { "tmpfs" } else { "bind" };
    [("type", kind), ("share", "pod"), ("options", "rw")]
        .map(|(key, value)| (format!("{PREFIX}{volume}.{key}"), value.to_owned()))
}

/// The volumes that a sandbox keeps inside, by the annotations that it was made with.
#[must_use]
pub fn kept_volumes(annotations: &BTreeMap<String, String>) -> BTreeSet<String> {
    let shared = annotations.iter().filter_map(|(key, value)| {
        let volume = key.strip_prefix(PREFIX)?.strip_suffix(".share")?;
        (value == "pod").then(|| volume.to_owned())
    });
    shared.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_with_hints_is_kept() {
        let annotations: BTreeMap<String, String> = hints("work", false)
            .into_iter()
            .chain(hints("ram", true))
            .chain([(format!("{PREFIX}own.share"), "container".to_owned())])
            .collect();
        assert_eq!(annotations["dev.gvisor.spec.mount.ram.type"], "tmpfs");
        let kept = kept_volumes(&annotations);
        assert_eq!(kept, ["ram", "work"].map(str::to_owned).into());
    }
}
