//! Saves of a sandbox's pod, at the API server.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use shoal_crds::kruise::names::{annotation, reason};

use super::SandboxController;
use super::model::{Saving, Wanted};
use super::suspend::{self, Step};
use crate::failure::{Failure, is_missing};
use crate::restore::Origin;
use crate::saves::{self, Saves, Source};
use crate::slim::Pod;
use crate::write;

/// The next step of a sandbox's pod.
pub(super) enum Memory {
    /// As any pod. A new one starts from here.
    Plain(Option<Origin>),
    /// It stays as it is: it is saved, or ends.
    Held(Option<Saving>),
}

impl SandboxController {
    /// Brings the save of a sandbox one step further.
    pub(super) async fn memory(
        &self,
        wanted: &Wanted<'_>,
        pod: Option<&Arc<Pod>>,
    ) -> Result<Memory, Failure> {
        let kept = match self.saves.get() {
            Ok(kept) => kept,
            Err(why) if suspend::is_concerned(wanted) && concerns_now(wanted, pod) => {
                return Err(Failure::Refused(why.to_owned()));
            }
            Err(_) => return Ok(Memory::Plain(None)),
        };
        let own = kept.of(wanted.uid);
        let pod = pod.map(|pod| &**pod);
        match suspend::next(wanted, pod, &own, Timestamp::now()) {
            Step::Plain(origin) => Ok(Memory::Plain(origin)),
            Step::Wait(saving) => Ok(Memory::Held(Some(saving))),
            Step::Refuse(why) => Err(Failure::Refused(why)),
            Step::Save(contents) => self.save(kept, wanted, pod, contents).await,
            Step::Forget => self.forget(kept, wanted).await,
            Step::Remember(name) => {
                self.remember(wanted, Some(&name)).await?;
                let complete = format!("checkpoint {name} is complete");
                Ok(Memory::Held(Some(creating(complete))))
            }
            Step::End => {
                let ends = pod.filter(|pod| pod.metadata.deletion_timestamp.is_none());
                if let Some(pod) = ends {
                    write::delete(
                        &self.cluster,
                        &self.pods,
                        pod,
                        Some(saves::GRACE_SECONDS),
                        false,
                    )
                    .await?;
                }
                Ok(Memory::Held(None))
            }
        }
    }

    async fn save(
        &self,
        kept: &Saves,
        wanted: &Wanted<'_>,
        pod: Option<&Pod>,
        contents: &[&str],
    ) -> Result<Memory, Failure> {
        let Some(pod) = pod else {
            return Ok(Memory::Plain(None));
        };
        let source = Source {
            namespace: wanted.namespace,
            name: wanted.name,
            controller: wanted.controller_ref(),
            pod: &pod.metadata,
        };
        kept.begin(wanted.uid, &source, contents).await?;
        let message = "the pod is being saved".to_owned();
        Ok(Memory::Held(Some(creating(message))))
    }

    /// Deletes the checkpoints before the annotation: without the annotation, a complete one would be remembered again.
    async fn forget(&self, kept: &Saves, wanted: &Wanted<'_>) -> Result<Memory, Failure> {
        kept.forget(wanted.uid).await?;
        self.remember(wanted, None).await?;
        if wanted.is_suspended() {
            let message = "the former checkpoint is deleted first".to_owned();
            return Ok(Memory::Held(Some(creating(message))));
        }
        Ok(Memory::Plain(None))
    }

    /// Sets or removes the annotation with the checkpoint's name.
    async fn remember(&self, wanted: &Wanted<'_>, name: Option<&str>) -> Result<(), Failure> {
        if suspend::saved_by(wanted) == name {
            return Ok(());
        }
        let patch: Value =
            json!({"metadata": {"uid": wanted.uid, "annotations": {annotation::SAVED_BY: name}}});
        let patched = self.cluster.patch(wanted.namespace, wanted.name, &patch);
        match patched.await {
            Ok(patched) => {
                self.sandboxes.learn(patched);
                Ok(())
            }
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn creating(message: String) -> Saving {
    Saving {
        reason: reason::CHECKPOINT_CREATING,
        message,
        wait: None,
    }
}

/// Whether checkpoints decide what happens to the pod: it would end, or start.
fn concerns_now(wanted: &Wanted<'_>, pod: Option<&Arc<Pod>>) -> bool {
    match pod {
        Some(_) => wanted.is_suspended(),
        None => !wanted.is_suspended() && suspend::saved_by(wanted).is_some(),
    }
}
