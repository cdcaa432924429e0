//! The controller of `SandboxTemplate`: one network policy for all sandboxes of a template.

mod policy;

use std::sync::Arc;

use kube::runtime::controller::Action;
use shoal_crds::v1beta1::SandboxTemplate;

use self::policy::Plan;
use crate::cache::Cache;
use crate::cluster::Cluster;
use crate::failure::{Failure, is_conflict, is_missing};
use crate::slim::NetworkPolicy;

/// Reconciles templates.
pub(crate) struct TemplateController {
    pub(crate) cluster: Cluster,
    pub(crate) templates: Arc<Cache<SandboxTemplate>>,
    pub(crate) policies: Arc<Cache<NetworkPolicy>>,
}

impl TemplateController {
    /// Creates, corrects or deletes the network policy of a template.
    pub(crate) async fn reconcile(
        self: Arc<Self>,
        template: Arc<SandboxTemplate>,
    ) -> Result<Action, Failure> {
        let (namespace, name) = crate::cache::key(&*template);
        let template = self
            .templates
            .get(&(namespace.clone(), name.clone()))
            .unwrap_or(template);
        if template.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        let key = (namespace, policy::name(&name));
        let mut present = self.policies.get(&key);
        loop {
            match policy::plan(&template, present.as_ref()) {
                Plan::Keep => return Ok(Action::await_change()),
                Plan::Refuse(error) => return Err(Failure::Refused(error)),
                Plan::Patch(patch) => {
                    self.policies
                        .learn(self.cluster.patch(&key.0, &key.1, &patch).await?);
                    return Ok(Action::await_change());
                }
                Plan::Delete(uid) => {
                    match self
                        .cluster
                        .delete::<NetworkPolicy>(&key.0, &key.1, Some(&uid), false)
                        .await
                    {
                        Err(error) if !is_missing(&error) => return Err(error.into()),
                        _ => return Ok(Action::await_change()),
                    }
                }
                Plan::Create(manifest) => match self.cluster.create(&key.0, &manifest).await {
                    Ok(created) => {
                        self.policies.learn(created);
                        return Ok(Action::await_change());
                    }
                    Err(error) if is_conflict(&error) && present.is_none() => {
                        present = self.cluster.get(&key.0, &key.1).await?.map(Arc::new);
                        if present.is_none() {
                            return Err(error.into());
                        }
                    }
                    Err(error) => return Err(error.into()),
                },
            }
        }
    }
}
