//! The keys of cached layers: digests of everything that led to them.

use sha2::{Digest, Sha256};
use shoal_core::build::{Action, BuildState, Source};
use shoal_core::driver::RuntimeInfo;
use shoal_core::id::{BuildId, SnapshotId};
use shoal_core::resources::Resources;
use shoal_core::sandbox::SandboxSpec;
use shoal_core::template::RuntimeName;

/// Changed whenever the same step starts to have another effect.
const VERSION: &str = "shoal-layer-4";

/// The digest of a base and all steps on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LayerKey([u8; 32]);

impl LayerKey {
    /// The key of a provisioned image, by its digest.
    pub(super) fn of_image(digest: &str) -> Self {
        Self::of(&[VERSION, "image", digest])
    }

    /// The key of a template, by its build. A template without a saved build also needs the digest of
    /// its image.
    pub(super) fn of_template(build: BuildId, image: Option<&str>) -> Self {
        let build = build.to_string();
        match image {
            Some(digest) => Self::of(&[VERSION, "template", &build, digest]),
            None => Self::of(&[VERSION, "template", &build]),
        }
    }

    /// The key of a snapshot.
    pub(super) fn of_snapshot(id: SnapshotId) -> Self {
        Self::of(&[VERSION, "snapshot", &id.to_string()])
    }

    /// The key of a catalogue entry over this base. It covers everything the entry changes for the
    /// steps: user, directory, environment, runtime and network rules.
    pub(super) fn of_entry(&self, spec: &SandboxSpec) -> Self {
        let none = "\0";
        let hex = self.hex();
        let workdir = spec.workdir.as_deref().unwrap_or(none);
        let runtime = spec.runtime.as_ref().map_or(none, RuntimeName::as_str);
        let egress = serde_json::to_string(&spec.network.egress).unwrap_or_default();
        let mut parts = vec!["entry", &hex, &spec.user, workdir, runtime, &egress];
        for (name, value) in &spec.env {
            parts.extend([name.as_str(), value.as_str()]);
        }
        Self::of(&parts)
    }

    /// The same base, prepared except for programs that could not be installed.
    pub(super) fn incomplete(&self) -> Self {
        Self::of(&["incomplete", &self.hex()])
    }

    /// The same base without provisioning.
    pub(super) fn bare(&self) -> Self {
        Self::of(&["bare", &self.hex()])
    }

    /// The key after a step. `from` is the key of the stage that the step copies from.
    pub(super) fn after(&self, action: &Action, from: Option<&Self>) -> Self {
        let mut parts = vec!["step".to_owned(), self.hex()];
        let mut more = |texts: &[&str]| parts.extend(texts.iter().map(|t| (*t).to_owned()));
        let none = "\0";
        match action {
            Action::Copy {
                source,
                path,
                target,
                owner,
                mode,
            } => {
                let owner = owner.as_deref().unwrap_or(none);
                more(&["copy", path, target, owner, mode.as_deref().unwrap_or(none)]);
                match (source, from) {
                    (Source::Upload(hash), _) => more(&["upload", hash.as_str()]),
                    (Source::Stage(_), Some(from)) => more(&["stage", &from.hex()]),
                    (Source::Stage(stage), None) => more(&["stage", &stage.to_string()]),
                }
            }
            Action::Run { command, user } => {
                more(&["run", command, user.as_deref().unwrap_or(none)]);
            }
            Action::Env(pairs) => {
                more(&["env"]);
                pairs.iter().for_each(|(name, value)| more(&[name, value]));
            }
            Action::Workdir(path) => more(&["workdir", path]),
            Action::User { name, sudo } => more(&["user", name, if *sudo { "sudo" } else { "" }]),
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Self::of(&parts)
    }

    /// The key of the saved output of a build. `saver` is the runtime that saves its memory, if one can,
    /// and the digest of the daemon in that memory.
    pub(super) fn finished(
        &self,
        start: Option<&str>,
        ready: Option<&str>,
        resources: &Resources,
        state: &BuildState,
        saver: Option<(&RuntimeInfo, &str)>,
    ) -> Self {
        let Resources {
            cpu,
            memory,
            disk,
            pids,
        } = resources;
        Self::of(&[
            "finished",
            &self.hex(),
            start.unwrap_or("\0"),
            ready.unwrap_or("\0"),
            &format!("{}/{}/{}/{pids}", cpu.0, memory.0, disk.0),
            &state.user,
            &state.workdir,
            // Another build of the runtime may be unable to load this memory, and the memory contains the
            // daemon.
            saver.map_or("\0", |(runtime, _)| runtime.build.as_str()),
            saver.map_or("\0", |(_, daemon)| daemon),
        ])
    }

    pub(super) fn hex(&self) -> String {
        hex::encode(self.0)
    }

    /// Digests each part with its length, so that different lists have different digests.
    fn of(parts: &[&str]) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Self(digest.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_steps_have_different_keys() {
        let base = LayerKey::of_image("sha256:00");
        let run = |command: &str, user: Option<&str>| Action::Run {
            command: command.to_owned(),
            user: user.map(str::to_owned),
        };
        let keys = [
            base.clone(),
            base.after(&run("a", None), None),
            base.after(&run("a", Some("")), None),
            base.after(&run("", Some("a")), None),
            base.after(&Action::Workdir("a".into()), None),
            base.after(&run("a", None), None)
                .after(&run("a", None), None),
        ];
        for (i, one) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|key| key == one), Some(i));
        }
        assert_eq!(
            keys[1],
            LayerKey::of_image("sha256:00").after(&run("a", None), None)
        );
    }
}
