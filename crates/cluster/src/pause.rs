//! The pause of a sandbox, which the operator carries out: volumes alone keep their contents, or a checkpoint saves the pod.

use jiff::Timestamp as Time;
use serde_json::{Value, json};
use shoal_core::ports::NotServed;
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::snapshot::Contents;
use shoal_core::state::InputKind;
use shoal_crds::kruise::names::{RUNTIME_CLASS, annotation, condition};
use shoal_crds::kruise::{Sandbox, SandboxTemplateSpec, pausable};

use crate::create::kept_until;
use crate::identity::{Key, sandbox_id};
use crate::lifecycle::{PAUSE, refused, text};
use crate::options::kept_paused;
use crate::sandboxes::Sandboxes;
use crate::{pod, ready};

impl Sandboxes {
    /// Pauses a sandbox and waits until its pod is gone. One that cannot be saved runs on.
    pub(crate) async fn pause_one(
        &self,
        key: &Key,
        contents: Option<Contents>,
    ) -> Result<(), SandboxError> {
        // Another replica may have resumed it a moment ago.
        let known = self.fresh(key).await?;
        if known.spec.paused && known.holds(condition::SANDBOX_PAUSED) {
            return Err(refused(&known, InputKind::Pause, Time::now()));
        }
        let asked = match contents {
            Some(contents) => asked(&known, &self.template_of(&known).await?, contents)?,
            // The sandbox itself says it.
            None => None,
        };
        self.write(key, |sandbox| {
            let now = Time::now();
            if sandbox.spec.paused {
                return Ok(None);
            }
            pausable(sandbox).map_err(|_| refused(sandbox, InputKind::Pause, now))?;
            Ok(Some(patch(sandbox, asked.as_deref(), now)))
        })
        .await?;
        match self.end_of_pause_of(key).await {
            Err(SandboxError::NotSaved(why)) => {
                self.run_on(key, &known).await?;
                Err(SandboxError::NotSaved(why))
            }
            ended => ended,
        }
    }

    async fn end_of_pause_of(&self, key: &Key) -> Result<(), SandboxError> {
        let watched = &self.watched;
        let paused = watched.wait_for(key, PAUSE, || match watched.get(key) {
            None => Some(Err(self.gone(key))),
            Some(sandbox) if sandbox.holds(condition::SANDBOX_PAUSED) => Some(Ok(())),
            // Another caller resumed it meanwhile.
            Some(sandbox) if !sandbox.spec.paused => {
                Some(Err(SandboxError::Busy(sandbox_id(&sandbox))))
            }
            Some(sandbox) => {
                let failed = sandbox.pause_failure()?;
                Some(Err(SandboxError::NotSaved(failed.to_owned())))
            }
        });
        let busy = || Err(SandboxError::Busy(self.id_of(key)));
        paused.await.unwrap_or_else(busy)
    }

    /// Takes a pause back that has failed: with the times that the sandbox had.
    async fn run_on(&self, key: &Key, before: &Sandbox) -> Result<(), SandboxError> {
        let (pause, shutdown) = (&before.spec.pause_time, &before.spec.shutdown_time);
        let written = self
            .write(key, |sandbox| {
                let failed = sandbox.spec.paused && sandbox.pause_failure().is_some();
                Ok(failed.then(|| {
                    json!({
                        "metadata": {"annotations": {annotation::PAUSE_CONTENTS: null}},
                        "spec": {"paused": false, "pauseTime": pause, "shutdownTime": shutdown},
                    })
                }))
            })
            .await?;
        let generation = written.metadata.generation.unwrap_or_default();
        if let Err(error) = ready::wait(&self.watched, key, generation, PAUSE).await {
            tracing::warn!(%error, "a sandbox whose pause failed is not ready again");
        }
        Ok(())
    }
}

/// How to get a sandbox that can be saved.
pub(crate) const SAVABLE_INSTEAD: &str =
    "create it from a SandboxSet whose pods have runtimeClassName: shoal";

/// Whether a node can save pods of a template.
pub(crate) fn is_savable(template: &SandboxTemplateSpec) -> bool {
    pod::runtime(template.template.as_ref()).as_str() == RUNTIME_CLASS
}

/// The annotation for the requested contents of a pause; none where volumes keep the files.
fn asked(
    sandbox: &Sandbox,
    template: &SandboxTemplateSpec,
    contents: Contents,
) -> Result<Option<String>, SandboxError> {
    if is_savable(template) && !sandbox.is_kept() {
        return Ok(Some(contents.to_string()));
    }
    if contents.has_memory() {
        let refused = NotServed {
            what: "a pause that keeps memory",
            instead: SAVABLE_INSTEAD,
        };
        return Err(refused.into());
    }
    Ok(None)
}

/// The write that pauses a sandbox.
fn patch(sandbox: &Sandbox, asked: Option<&str>, now: Time) -> Value {
    let keep = sandbox.annotation(annotation::RESERVE_PAUSED_SANDBOX_DURATION);
    let end = kept_until(now, kept_paused(keep));
    let mut spec = json!({"paused": true});
    if sandbox.spec.shutdown_time.is_some() {
        spec["shutdownTime"] = text(end);
    }
    if sandbox.spec.pause_time.is_some() {
        spec["pauseTime"] = text(end);
    }
    json!({"metadata": {"annotations": {annotation::PAUSE_CONTENTS: asked}}, "spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(class: &str) -> Sandbox {
        serde_json::from_value(json!({
            "metadata": {"name": "s"},
            "spec": {
                "shutdownTime": "2026-01-02T03:04:05Z",
                "template": {"spec": {"runtimeClassName": class, "containers": []}},
            },
        }))
        .unwrap()
    }

    #[test]
    fn memory_is_kept_where_pods_can_be_saved() {
        let of = |class: &str, contents| {
            let sandbox = sandbox(class);
            let template = SandboxTemplateSpec {
                template: sandbox.spec.template.clone(),
                ..SandboxTemplateSpec::default()
            };
            asked(&sandbox, &template, contents)
        };
        let memory = of("shoal", Contents::Memory).unwrap();
        assert_eq!(memory.as_deref(), Some("memory,filesystem"));
        let files = of("shoal", Contents::Filesystem).unwrap();
        assert_eq!(files.as_deref(), Some("filesystem"));
        let refused = of("gvisor", Contents::Memory).unwrap_err();
        assert!(refused.to_string().contains("keeps memory"), "{refused}");
        assert_eq!(of("gvisor", Contents::Filesystem).unwrap(), None);
    }

    #[test]
    fn a_pause_moves_the_end_and_says_what_it_keeps() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let written = patch(&sandbox("shoal"), Some("filesystem"), now);
        assert_eq!(
            written["metadata"]["annotations"]["shoal.dev/pause-contents"],
            "filesystem"
        );
        assert_eq!(written["spec"]["paused"], true);
        let end = written["spec"]["shutdownTime"].as_str().unwrap();
        assert!(end.starts_with("2125-"), "{end}");
        assert_eq!(written["spec"].get("pauseTime"), None);
        let plain = patch(&sandbox("shoal"), None, now);
        assert!(plain["metadata"]["annotations"]["shoal.dev/pause-contents"].is_null());
    }
}
