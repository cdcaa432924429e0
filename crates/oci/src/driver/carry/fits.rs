//! Whether a snapshot of another machine can run here.

use shoal_core::driver::{DriverError, RuntimeInfo};
use shoal_node::machine::Machine;
use shoal_node::saved::SavedManifest;

/// Checks that one of `runtimes` can run the snapshot on `machine`.
///
/// # Errors
/// The reason why not, and what to do.
pub(super) fn fits(
    runtimes: &[&RuntimeInfo],
    machine: &Machine,
    manifest: &SavedManifest,
) -> Result<(), DriverError> {
    let saved = &manifest.saved;
    let runtime = runtimes
        .iter()
        .find(|runtime| runtime.name == saved.runtime)
        .ok_or_else(|| {
            let names: Vec<&str> = runtimes.iter().map(|known| known.name.as_str()).collect();
            DriverError::RuntimeNotFound {
                asked: saved.runtime.clone(),
                available: names.join(", "),
            }
        })?;
    if !saved.contents.has_memory() {
        return Ok(());
    }
    if runtime.build != manifest.runtime_build {
        return Err(DriverError::Unusable(format!(
            "its memory was saved by another build of {}: install that build, or take a snapshot \
             of the files alone",
            saved.runtime
        )));
    }
    match machine.refuses(&manifest.machine) {
        Some(reason) => Err(DriverError::Unusable(reason)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use shoal_core::driver::Isolation;
    use shoal_core::id::ExecutionId;
    use shoal_core::resources::{MilliCpu, Resources};
    use shoal_core::snapshot::{Contents, Saved};

    use super::*;
    use shoal_node::disk::{Disk, DiskConfig};
    use shoal_node::saved::{Digests, Parts, SavedDirectory};

    fn runtime(name: &str, build: &str) -> RuntimeInfo {
        RuntimeInfo {
            name: name.parse().unwrap(),
            version: "1".to_owned(),
            build: build.to_owned(),
            isolation: Isolation::UserspaceKernel,
            memory_snapshot: true,
            nested_containers: false,
            keeps_connections: true,
            idle_cpu: MilliCpu(0),
        }
    }

    /// A manifest as the first build of `runsc` would save it on this machine.
    fn manifest(contents: Contents) -> SavedManifest {
        let data = tempfile::tempdir().unwrap();
        let disk = Disk::open(data.path(), &DiskConfig::Plain).unwrap();
        let place = SavedDirectory::of_paused(&disk, &"ia".parse().unwrap());
        let new = place.prepare(&disk).unwrap();
        fs::create_dir(new.memory()).unwrap();
        let saved = Saved {
            contents,
            runtime: "runsc".parse().unwrap(),
            freeze: Duration::from_millis(1),
            memory_bytes: 0,
            file_bytes: 0,
            copied: "not".to_owned(),
        };
        let parts = Parts {
            source: "ia".parse().unwrap(),
            execution: ExecutionId::from_entropy([1; 16]),
            saved,
            runtime_build: "first".to_owned(),
            image: "base:1".parse().unwrap(),
            layers: Vec::new(),
            envd: "e".parse().unwrap(),
            resources: Resources::default(),
        };
        new.publish(parts, &disk, &place, Digests::Now).unwrap()
    }

    #[test]
    fn memory_goes_on_with_the_build_that_saved_it_on_a_machine_that_can_as_much() {
        let (first, second) = (runtime("runsc", "first"), runtime("runsc", "second"));
        let here = Machine::this();
        let with_memory = manifest(Contents::Memory);
        fits(&[&first], &here, &with_memory).unwrap();

        let refused = fits(&[&second], &here, &with_memory).unwrap_err();
        let expected = "another build of runsc: install that build";
        assert!(refused.to_string().contains(expected), "{refused}");
        assert!(matches!(refused, DriverError::Unusable(_)));

        let mut able = with_memory.clone();
        able.machine.features.insert("perfect".to_owned());
        let refused = fits(&[&first], &here, &able).unwrap_err();
        assert!(refused.to_string().contains("lacks: perfect"), "{refused}");
        let mut other = with_memory.clone();
        other.machine.architecture = "other".to_owned();
        let refused = fits(&[&first], &here, &other).unwrap_err();
        assert!(refused.to_string().contains("saved on other"), "{refused}");

        let none = fits(&[&runtime("runc", "first")], &here, &with_memory).unwrap_err();
        assert!(
            matches!(&none, DriverError::RuntimeNotFound { available, .. } if available == "runc"),
            "{none}"
        );
    }

    #[test]
    fn files_alone_go_on_with_any_build_and_on_any_machine() {
        let mut files = manifest(Contents::Filesystem);
        files.machine.architecture = "other".to_owned();
        fits(&[&runtime("runsc", "second")], &Machine::this(), &files).unwrap();
    }
}
