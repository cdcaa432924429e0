//! Tags: which build of a template a name with a tag means.

use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::build::{BuildRecord, BuildStatus};
use shoal_core::id::{BuildId, SnapshotId, TeamId};
pub use shoal_core::ports::templates::TagError;
use shoal_core::store::StoreError;
use shoal_core::template::{DEFAULT_TAG, Tagged, Template, TemplateRef};

use crate::engine::Engine;
use crate::templates::TemplateError;

impl Engine {
    /// Lets tags mean what a build has made. A template that was not there yet is made; of a build that
    /// was forgotten nothing is. By whoever has [`BuildRecords::changing`](crate::build_records::BuildRecords::changing);
    /// returns the snapshots to be released when he has not.
    pub(crate) async fn assign_tags(
        &self,
        team: TeamId,
        build: &BuildRecord,
        tags: &[String],
    ) -> Result<Vec<SnapshotId>, StoreError> {
        let there = self.shared.builds.get(build.id).is_some();
        let Some(made) = build.made.as_ref().filter(|_| there) else {
            return Ok(Vec::new());
        };
        let now = self.shared.clock.now();
        let known = self.shared.templates.by_id(&build.template);
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
        if build.stock {
            template = self.stock_template_of(build, template);
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
        self.keep_template(template.clone()).await?;
        self.shared.builds.prune(&template).await
    }

    /// Lets more tags mean what `target` means. Returns the build.
    ///
    /// # Errors
    /// See [`TagError`].
    pub async fn add_tags(
        &self,
        principal: &Principal,
        target: &TemplateRef,
        tags: &[String],
    ) -> Result<BuildId, TagError> {
        let changing = self.shared.builds.changing.lock().await;
        let meant = self.own_template(principal, target)?;
        let not_built = || TagError::NotBuilt(target.clone());
        let builds = self.shared.builds.of_template(&meant.id);
        let build = builds
            .iter()
            .find(|build| build.id == meant.build && build.status == BuildStatus::Ready);
        let build = build.ok_or_else(not_built)?;
        let dropped = self.assign_tags(principal.team, build, tags).await?;
        drop(changing);
        self.shared.builds.release(dropped).await;
        Ok(build.id)
    }

    /// Forgets tags of a template; those that there are not are passed over.
    ///
    /// # Errors
    /// See [`TagError`].
    pub async fn remove_tags(
        &self,
        principal: &Principal,
        template: &TemplateRef,
        tags: &[String],
    ) -> Result<(), TagError> {
        if tags.iter().any(|tag| tag == DEFAULT_TAG) {
            return Err(TagError::Default);
        }
        let changing = self.shared.builds.changing.lock().await;
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
        self.shared.builds.release(dropped).await;
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
        let changing = self.shared.builds.changing.lock().await;
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
        self.shared.builds.release(dropped).await;
        Ok(())
    }

    /// Stores a template that has fewer tags. Returns the snapshots to release once the caller no
    /// longer holds [`BuildRecords::changing`](crate::build_records::BuildRecords::changing).
    async fn keep_with_tags(&self, next: Template) -> Result<Vec<SnapshotId>, StoreError> {
        self.keep_template(next.clone()).await?;
        self.shared.builds.prune(&next).await
    }

    /// Lets other teams use a template, or not any more.
    ///
    /// # Errors
    /// See [`TagError`].
    pub async fn publish_template(
        &self,
        principal: &Principal,
        template: &TemplateRef,
        public: bool,
    ) -> Result<(), TagError> {
        let _changing = self.shared.builds.changing.lock().await;
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
        self.keep_template(next).await?;
        Ok(())
    }

    /// The same of a template that no build has finished yet: what is said of its builds is said of it.
    async fn publish_builds(
        &self,
        principal: &Principal,
        template: &TemplateRef,
        public: bool,
        missing: TemplateError,
    ) -> Result<(), TagError> {
        let own = |build: &Arc<BuildRecord>| build.team == principal.team && !build.stock;
        let coming = self.template_to_come(principal, template);
        let coming = coming.filter(own).ok_or(missing)?;
        for build in self.shared.builds.of_template(&coming.template) {
            self.shared.builds.publish(build.id, public).await?;
        }
        Ok(())
    }

    /// Lets more tags mean what a build has made.
    ///
    /// # Errors
    /// See [`TagError`]; [`TagError::NotKept`] also of a build that no tag means any more.
    pub async fn add_tags_to_build(
        &self,
        principal: &Principal,
        id: BuildId,
        tags: &[String],
    ) -> Result<BuildId, TagError> {
        let changing = self.shared.builds.changing.lock().await;
        let build = self.build(principal, id);
        let own = build.filter(|build| build.team == principal.team && !build.stock);
        let build = own.ok_or_else(|| TemplateError::NotFound(id.to_string()))?;
        if build.status != BuildStatus::Ready || build.made.is_none() {
            return Err(TagError::NotKept(id));
        }
        let dropped = self.assign_tags(principal.team, &build, tags).await?;
        drop(changing);
        self.shared.builds.release(dropped).await;
        Ok(id)
    }

    /// A template of the caller's own, as its tag has it.
    fn own_template(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<Template>, TemplateError> {
        let found = self.resolve_template(principal, reference)?;
        let own = found.team == Some(principal.team);
        own.then_some(found)
            .ok_or_else(|| TemplateError::NotFound(reference.to_string()))
    }

    /// A template of the caller's own, whichever tags it has.
    fn any_of_template(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<Template>, TemplateError> {
        let found = self.find_template(principal, reference);
        let own = found.filter(|template| template.team == Some(principal.team));
        own.ok_or_else(|| TemplateError::NotFound(reference.to_string()))
    }
}
