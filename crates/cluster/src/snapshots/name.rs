//! Names and tags of snapshots: given, moved and removed.

use std::sync::Arc;

use jiff::Timestamp as Time;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use shoal_core::auth::Principal;
use shoal_core::id::SnapshotId;
use shoal_core::ports::NotServed;
use shoal_core::ports::snapshots::{SnapshotError, SnapshotNameError};
use shoal_core::store::StoreError;
use shoal_core::template::{DEFAULT_TAG, TemplateName, TemplateRef};
use shoal_crds::kruise::Checkpoint;
use shoal_crds::kruise::names::annotation;

use crate::failure;
use crate::identity::key;
use crate::sandboxes::Sandboxes;
use crate::versions::{self, Tags};

const TAG_OF_ID: NotServed = NotServed {
    what: "a tag for a snapshot without a name",
    instead: "give it a name when it is taken",
};

/// How often a change is tried again that another writer has overtaken.
const ATTEMPTS: u32 = 5;

impl Sandboxes {
    /// Checks that a snapshot may have a name.
    ///
    /// # Errors
    /// See [`SnapshotNameError`].
    pub(super) fn check_name(
        &self,
        principal: &Principal,
        name: &TemplateRef,
    ) -> Result<(), SnapshotNameError> {
        let of_team = name.namespace.as_deref();
        if of_team.is_some_and(|of| of != principal.slug.as_str()) {
            return Err(SnapshotNameError::Namespace(name.clone()));
        }
        if self.templates.has_name(principal, &name.name) {
            return Err(SnapshotNameError::Taken(name.clone()));
        }
        Ok(())
    }

    /// The tag of a new version, given now.
    pub(super) fn first_tags(&self, namespace: &str, name: &TemplateRef) -> Tags {
        let tag = name.tag.as_deref().unwrap_or(DEFAULT_TAG);
        let versions = self.saves.versions(namespace, &name.name);
        let at = versions::next_time(&versions, Time::now());
        Tags::from([(tag.to_owned(), at)])
    }

    /// Removes the tags that other versions have now, and the versions without any: when the others go, nothing comes back.
    pub(super) async fn settle(&self, namespace: &str, name: &TemplateName) {
        let versions = self.saves.versions(namespace, name);
        for version in &versions {
            let current = versions::current(version, &versions);
            let settled = if current.is_empty() {
                let forgotten = self.forget_unchanged(version).await;
                forgotten.map_err(|error| failure::store(&error))
            } else if current.len() < versions::given(version).len() {
                let keep = |tags: &mut Tags| tags.retain(|tag, _| current.contains_key(tag));
                self.change_tags(version, keep).await.map(drop)
            } else {
                Ok(())
            };
            if let Err(error) = settled {
                tracing::warn!(%error, "a replaced snapshot stays until the next one of its name");
            }
        }
    }

    /// Gives tags to the version that `reference` means.
    ///
    /// # Errors
    /// See [`SnapshotError`].
    pub(super) async fn add_tags(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
        tags: &[String],
    ) -> Result<SnapshotId, SnapshotError> {
        let namespace = principal.slug.as_str();
        self.look_up_save(namespace, reference).await?;
        let found = self.saves.find_meant(namespace, reference);
        let found = found.ok_or_else(|| SnapshotError::NotFound(reference.clone()))?;
        let name = versions::name_of(found.checkpoint()).ok_or(TAG_OF_ID)?;
        let versions = self.saves.versions(namespace, &name);
        let others = versions
            .iter()
            .filter(|other| other.metadata.uid != found.checkpoint().metadata.uid);
        for other in others {
            let mut left = versions::current(other, &versions);
            let lost = tags.iter().filter(|tag| left.remove(*tag).is_some());
            if let (Some(tag), true) = (lost.last(), left.is_empty()) {
                return Err(SnapshotError::OnlyTag(tag.clone()));
            }
        }
        let at = versions::next_time(&versions, Time::now());
        self.change_tags(found.checkpoint(), |known| {
            for tag in tags {
                known.insert(tag.clone(), at);
            }
        })
        .await?;
        self.settle(namespace, &name).await;
        Ok(found.record().id)
    }

    /// Removes the snapshot with an id, the tag of a name, or all versions of a name.
    ///
    /// # Errors
    /// See [`SnapshotError`].
    pub(super) async fn delete_snapshot(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<(), SnapshotError> {
        let missing = || SnapshotError::NotFound(reference.clone());
        let namespace = principal.slug.as_str();
        let of_team = reference.namespace.as_deref();
        if of_team.is_some_and(|of| of != namespace) {
            return Err(missing());
        }
        self.look_up_save(namespace, reference).await?;
        let found = self.saves.find_meant(namespace, reference);
        let of_name = self.saves.versions(namespace, &reference.name);
        let all = match (&found, &reference.tag) {
            (_, None) if !of_name.is_empty() => of_name,
            (Some(_), Some(tag)) if !of_name.is_empty() => {
                return self.remove_tag(of_name, tag).await;
            }
            (Some(found), _) => vec![Arc::new(found.checkpoint().clone())],
            (None, _) => return Err(missing()),
        };
        for version in all {
            let deleted = self.forget_save(&version).await;
            deleted.map_err(|error| failure::store(&error))?;
        }
        Ok(())
    }

    /// Takes a tag from all versions that were given it: the one that lost it last would have it again otherwise.
    async fn remove_tag(
        &self,
        mut versions: Vec<Arc<Checkpoint>>,
        tag: &str,
    ) -> Result<(), SnapshotError> {
        let given = |version: &Arc<Checkpoint>| versions::given(version).get(tag).copied();
        versions.retain(|version| given(version).is_some());
        versions.sort_by_key(given);
        for version in versions {
            let without = |tags: &mut Tags| tags.retain(|known, _| known != tag);
            let rest = self.change_tags(&version, without).await?;
            if let Some(rest) = rest.filter(|rest| versions::given(rest).is_empty()) {
                let deleted = self.forget_unchanged(&rest).await;
                deleted.map_err(|error| failure::store(&error))?;
            }
        }
        Ok(())
    }

    /// Changes the tags of a version, and returns it. None if it is gone.
    async fn change_tags(
        &self,
        version: &Checkpoint,
        change: impl Fn(&mut Tags),
    ) -> Result<Option<Arc<Checkpoint>>, StoreError> {
        let (namespace, name) = key(&version.metadata);
        let api = self.checkpoints_of(&namespace);
        let mut known = version.clone();
        let mut attempts = 0;
        loop {
            let mut tags = versions::given(&known);
            change(&mut tags);
            let meta = &known.metadata;
            let patch = json!({"metadata": {
                "uid": meta.uid, "resourceVersion": meta.resource_version,
                "annotations": {annotation::SNAPSHOT_TAGS: versions::text(&tags)},
            }});
            let params = PatchParams::default();
            let patched = api.patch(&name, &params, &Patch::Merge(&patch)).await;
            match patched {
                Ok(patched) => return Ok(Some(self.saves.checkpoints.put(patched))),
                Err(error) if failure::is_gone(&error) => return Ok(None),
                Err(error) if failure::is_conflict(&error) && attempts < ATTEMPTS => {
                    attempts += 1;
                }
                Err(error) => return Err(failure::store(&error)),
            }
            let newest = api.get_opt(&name).await;
            match newest.map_err(|error| failure::store(&error))? {
                Some(newest) if newest.metadata.uid == version.metadata.uid => known = newest,
                _ => return Ok(None),
            }
        }
    }
}
