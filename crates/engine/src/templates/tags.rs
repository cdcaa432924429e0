//! Tags: which build of a template a name with a tag refers to.

use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::build::{BuildRecord, BuildStatus};
use shoal_core::id::{BuildId, SnapshotId, TeamId};
use shoal_core::store::StoreError;
use shoal_core::template::{DEFAULT_TAG, Tagged, Template, TemplateRef};

use super::{TagError, TemplateError, Templates};

impl Templates {
    /// Points tags to a finished build. The first build of a template creates it; a forgotten build
    /// changes nothing. The caller holds
    /// [`BuildRecords::changing`](crate::build_records::BuildRecords::changing), and releases the
    /// returned snapshots after it.
    pub(crate) async fn assign_tags(
        &self,
        team: TeamId,
        build: &BuildRecord,
        tags: &[String],
    ) -> Result<Vec<SnapshotId>, StoreError> {
        let there = self.parts.build_records.get(build.id).is_some();
        let Some(made) = build.made.as_ref().filter(|_| there) else {
            return Ok(Vec::new());
        };
        let now = self.parts.clock.now();
        let known = self.by_id(&build.template);
        let fresh = known.is_none();
        let mut template = match known {
            Some(template) => template.as_ref().clone(),
            None => Template {
                team: Some(team),
                names: vec![build.name.clone()],
                public: build.public,
                ..Template::over(build.template.clone(), build.id, made.image.clone(), now)
            },
        };
        if build.builtin {
            template = self.builtin.template_of(build, template);
        }
        if fresh || tags.iter().any(|tag| tag == DEFAULT_TAG) {
            template = template.as_built(build.id, build.resources, made);
        }
        for tag in tags {
            let tagged = Tagged {
                build: build.id,
                at: now,
            };
            template.tags.insert(tag.clone(), tagged);
        }
        template.updated_at = now;
        self.put(template.clone()).await?;
        self.parts.build_records.prune(&template).await
    }

    /// Points more tags to the build that `target` refers to. Returns the build.
    ///
    /// # Errors
    /// See [`TagError`].
    pub(crate) async fn add_tags(
        &self,
        principal: &Principal,
        target: &TemplateRef,
        tags: &[String],
    ) -> Result<BuildId, TagError> {
        let changing = self.parts.build_records.changing.lock().await;
        let meant = self.own_template(principal, target)?;
        let not_built = || TagError::NotBuilt(target.clone());
        let builds = self.parts.build_records.of_template(&meant.id);
        let build = builds
            .iter()
            .find(|build| build.id == meant.build && build.status == BuildStatus::Ready);
        let build = build.ok_or_else(not_built)?;
        let dropped = self.assign_tags(principal.team, build, tags).await?;
        drop(changing);
        self.parts.build_records.release(dropped).await;
        Ok(build.id)
    }

    /// Removes tags of a template. Unknown tags are ignored.
    ///
    /// # Errors
    /// See [`TagError`].
    pub(crate) async fn remove_tags(
        &self,
        principal: &Principal,
        template: &TemplateRef,
        tags: &[String],
    ) -> Result<(), TagError> {
        if tags.iter().any(|tag| tag == DEFAULT_TAG) {
            return Err(TagError::Default);
        }
        let changing = self.parts.build_records.changing.lock().await;
        let known = self.any_of_template(principal, template)?;
        let mut next = known.as_ref().clone();
        for tag in tags {
            next.tags.remove(tag);
        }
        if next.tags.is_empty() && !known.tags.is_empty() {
            return Err(TagError::Last);
        }
        let dropped = self.keep_with_tags(next).await?;
        drop(changing);
        self.parts.build_records.release(dropped).await;
        Ok(())
    }

    /// Removes the tag that `reference` names. The template keeps its other tags.
    ///
    /// # Errors
    /// [`TemplateError::NoTag`] when the template does not have the tag, and
    /// [`TemplateError::KeptTag`] when only the whole template can be removed.
    pub(crate) async fn remove_tag(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
        tag: &str,
    ) -> Result<(), TemplateError> {
        let changing = self.parts.build_records.changing.lock().await;
        let known = self.any_of_template(principal, reference)?;
        let bare = TemplateRef {
            tag: None,
            ..reference.clone()
        };
        // A template over an image has no tags, but its name means the default tag.
        let is_default = tag == DEFAULT_TAG;
        let has = known.tags.contains_key(tag) || (is_default && known.tags.is_empty());
        if !has {
            return Err(TemplateError::no_tag(tag, bare, &known));
        }
        let mut next = known.as_ref().clone();
        next.tags.remove(tag);
        if is_default || next.tags.is_empty() {
            return Err(TemplateError::KeptTag {
                tag: tag.to_owned(),
                template: bare,
            });
        }
        let dropped = self.keep_with_tags(next).await?;
        drop(changing);
        self.parts.build_records.release(dropped).await;
        Ok(())
    }

    /// Stores a template that has fewer tags. Returns the snapshots to release once the caller no
    /// longer holds [`BuildRecords::changing`](crate::build_records::BuildRecords::changing).
    async fn keep_with_tags(&self, next: Template) -> Result<Vec<SnapshotId>, StoreError> {
        self.put(next.clone()).await?;
        self.parts.build_records.prune(&next).await
    }

    /// Sets whether other teams may use a template.
    ///
    /// # Errors
    /// See [`TagError`].
    pub(crate) async fn publish(
        &self,
        principal: &Principal,
        template: &TemplateRef,
        public: bool,
    ) -> Result<(), TagError> {
        let _changing = self.parts.build_records.changing.lock().await;
        let known = match self.any_of_template(principal, template) {
            Err(missing) => {
                return self
                    .publish_builds(principal, template, public, missing)
                    .await;
            }
            Ok(known) => known,
        };
        let next = Template {
            public,
            ..known.as_ref().clone()
        };
        self.put(next).await?;
        Ok(())
    }

    /// Publishes a pending template: its builds carry the setting until one of them finishes.
    async fn publish_builds(
        &self,
        principal: &Principal,
        template: &TemplateRef,
        public: bool,
        missing: TemplateError,
    ) -> Result<(), TagError> {
        let own = |build: &Arc<BuildRecord>| build.team == principal.team && !build.builtin;
        let pending = self.pending_named(principal, template);
        let pending = pending.filter(own).ok_or(missing)?;
        for build in self.parts.build_records.of_template(&pending.template) {
            self.parts.build_records.publish(build.id, public).await?;
        }
        Ok(())
    }

    /// Points more tags to a finished build.
    ///
    /// # Errors
    /// See [`TagError`]; [`TagError::NotKept`] also for a build that no tag refers to any longer.
    pub(crate) async fn add_tags_to_build(
        &self,
        principal: &Principal,
        id: BuildId,
        tags: &[String],
    ) -> Result<BuildId, TagError> {
        let changing = self.parts.build_records.changing.lock().await;
        let build = self.parts.build_records.visible(principal, id);
        let own = build.filter(|build| build.team == principal.team && !build.builtin);
        let build = own.ok_or_else(|| TemplateError::NotFound(id.to_string()))?;
        if build.status != BuildStatus::Ready || build.made.is_none() {
            return Err(TagError::NotKept(id));
        }
        let dropped = self.assign_tags(principal.team, &build, tags).await?;
        drop(changing);
        self.parts.build_records.release(dropped).await;
        Ok(id)
    }

    /// A template of the caller's team, in the build that the tag refers to.
    fn own_template(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<Template>, TemplateError> {
        let found = self.resolve(principal, reference)?;
        let own = found.team == Some(principal.team);
        own.then_some(found)
            .ok_or_else(|| TemplateError::NotFound(reference.to_string()))
    }

    /// A template of the caller's team, regardless of the tag.
    fn any_of_template(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<Template>, TemplateError> {
        let found = self.find(principal, reference);
        let own = found.filter(|template| template.team == Some(principal.team));
        own.ok_or_else(|| TemplateError::NotFound(reference.to_string()))
    }
}
