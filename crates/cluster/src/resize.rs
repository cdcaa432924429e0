//! Other processors for a sandbox.

use std::sync::Arc;

use jiff::Timestamp as Time;
use shoal_core::ports::NotServed;
use shoal_core::ports::sandboxes::{Resize, SandboxError};
use shoal_core::sandbox::SandboxRecord;
use shoal_crds::kruise::Sandbox;
use shoal_crds::kruise::names::label;

use crate::identity::{Key, sandbox_id};
use crate::quotas::{Ask, Hold, amount_of, name_of};
use crate::sandboxes::Sandboxes;
use crate::{pod, record};

impl Sandboxes {
    /// Changes the processors of a sandbox. The operator changes its pod.
    pub(crate) async fn resize_one(
        &self,
        key: &Key,
        resize: Resize,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        if resize.memory.is_some() {
            return Err(NotServed {
                what: "another amount of memory for a running sandbox",
                instead: "change its processors, or create it from a SandboxSet with more",
            }
            .into());
        }
        let reserved = self.reserve_resize(key, &resize).await?;
        let written = self
            .write(key, |sandbox| {
                let Some(resized) = resized(sandbox, &resize) else {
                    return Ok(None);
                };
                let allows = |hold: &Hold<'_>| hold.is_fresh() && hold.covers(&resized);
                if !reserved.as_ref().is_none_or(allows) {
                    return Err(SandboxError::Busy(sandbox_id(sandbox)));
                }
                let template = &resized.spec.template;
                Ok(Some(serde_json::json!({"spec": {"template": template}})))
            })
            .await;
        // Without a clear answer the sandbox may still grow.
        if let Some(hold) = reserved
            && !matches!(written, Err(SandboxError::Store(_)))
        {
            hold.release().await;
        }
        Ok(Arc::new(record::of(&*written?, Time::now())))
    }

    /// Reserves the future use of a sandbox, if it counts against a quota.
    async fn reserve_resize(
        &self,
        key: &Key,
        resize: &Resize,
    ) -> Result<Option<Hold<'_>>, SandboxError> {
        let sandbox = self.fresh(key).await?;
        let labels = sandbox.metadata.labels.as_ref();
        let holder = labels.and_then(|labels| labels.get(label::QUOTA_KEY)?.parse().ok());
        let quota = holder.and_then(|id| Some((id, self.keys.quota(id)?)));
        let (Some((id, quota)), Some(resized)) = (quota, resized(&sandbox, resize)) else {
            return Ok(None);
        };
        let ask = Ask {
            key: id,
            quota,
            namespace: key.0.clone(),
            sandbox: name_of(&sandbox),
            amount: amount_of(&resized),
        };
        Ok(Some(self.quotas.reserve(ask).await?))
    }
}

/// The sandbox with other processors; none when nothing changes.
fn resized(sandbox: &Sandbox, resize: &Resize) -> Option<Sandbox> {
    let mut resized = sandbox.clone();
    let template = resized.spec.template.as_mut()?;
    pod::set_cpu(template, [Some(resize.cpu?); 2]);
    Some(resized)
}
