//! The catalogue, images, templates and builds, as callers of the engine see them.

use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::build::{BuildLogEntry, BuildRecord, LogLevel, Plan};
use shoal_core::detail::Chain;
use shoal_core::id::{BuildId, TemplateId};
use shoal_core::image::{Image, ImageError, ImageName, Images, ProgressSink, RegistryAuth};
use shoal_core::store::StoreError;
use shoal_core::template::{Template, TemplateKey, TemplateName, TemplateRef};
use tokio::sync::watch;

use super::Engine;
use crate::builds::{BuildError, BuildRequest, BuiltinError};
use crate::catalogue::{CatalogueError, CatalogueInForce, RefusedEdit};
use crate::create::CreateError;
use crate::resolve::{Explained, Resolved};
use crate::templates::{
    BuiltinTemplate, CreateTemplateError, TagError, TemplateError, TemplateRequest,
};

impl Engine {
    /// Resolves a template and an image by name.
    ///
    /// # Errors
    /// See [`CreateError`]: the template does not exist, or the caller may not name an image.
    pub fn resolve(
        &self,
        principal: &Principal,
        template: Option<&TemplateKey>,
        image: Option<&ImageName>,
    ) -> Result<Resolved, CreateError> {
        self.shared.resolver.resolve(principal, template, image)
    }

    /// The values that a request with this template and this image would get, each with the layer that
    /// sets it.
    ///
    /// # Errors
    /// As [`Engine::resolve`], and when images cannot be read.
    pub async fn explain(
        &self,
        principal: &Principal,
        template: Option<&TemplateKey>,
        image: Option<&ImageName>,
    ) -> Result<Explained, CreateError> {
        let resolver = &self.shared.resolver;
        resolver.explain(principal, template, image).await
    }

    /// The catalogue in force.
    #[must_use]
    pub fn catalogue(&self) -> Arc<CatalogueInForce> {
        self.shared.catalogues.current()
    }

    /// The catalogue in force, from now on.
    #[must_use]
    pub fn watch_catalogue(&self) -> watch::Receiver<Arc<CatalogueInForce>> {
        self.shared.catalogues.watch()
    }

    /// The last refused edit, until one is accepted.
    #[must_use]
    pub fn refused_edit(&self) -> Option<RefusedEdit> {
        self.shared.catalogues.refused_edit()
    }

    /// Records a refused edit, for operators to see.
    pub fn note_refused_edit(&self, source: &str, message: &str) {
        self.shared.catalogues.note_refused_edit(source, message);
    }

    /// Replaces the catalogue as a whole if the one in force has the version `expected`; `None`
    /// replaces any version. Equal entries change nothing, not even the version.
    ///
    /// # Errors
    /// See [`CatalogueError`].
    pub async fn replace_catalogue(
        &self,
        json: &str,
        expected: Option<u64>,
    ) -> Result<Arc<CatalogueInForce>, CatalogueError> {
        self.shared.catalogues.replace(json, expected).await
    }

    /// The images on this node.
    #[must_use]
    pub fn images(&self) -> &Arc<dyn Images> {
        self.shared.images.port()
    }

    /// Opens an image to every team: an operator has brought it here.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn open_image(&self, name: &ImageName) -> Result<(), StoreError> {
        self.shared.images.open(name).await
    }

    /// Pulls an image for every team: an admin has named it.
    pub(crate) async fn pull_for_all(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        progress: Arc<dyn ProgressSink>,
    ) -> Result<Image, ImageError> {
        let image = self.images().pull(name, auth, progress).await?;
        // A failure leaves the image private: its registry is asked again for each team.
        if let Err(error) = self.open_image(&image.name).await {
            tracing::warn!(error = %Chain(&error), "an image stays private");
        }
        Ok(image)
    }

    /// Creates a template of the caller's team over an image on this node.
    ///
    /// # Errors
    /// See [`CreateTemplateError`].
    pub async fn create_template(
        &self,
        principal: &Principal,
        new: TemplateRequest,
    ) -> Result<Template, CreateTemplateError> {
        self.shared.templates.create(principal, new).await
    }

    /// The template that `reference` names, in the build that its tag refers to.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub fn resolve_template(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<Template>, TemplateError> {
        self.shared.templates.resolve(principal, reference)
    }

    /// The template that `reference` names, regardless of its tag.
    #[must_use]
    pub fn find_template(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Option<Arc<Template>> {
        self.shared.templates.find(principal, reference)
    }

    /// The builtin template with this id, if it is built.
    #[must_use]
    pub fn builtin_template(&self, id: &TemplateId) -> Option<Arc<Template>> {
        self.shared.templates.builtin_by_id(id)
    }

    /// Stores a new or changed template.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn put_template(&self, template: Template) -> Result<(), TemplateError> {
        Ok(self.shared.templates.put(template).await?)
    }

    /// Deletes a template of the caller's team. An admin may delete a builtin one too. A reference
    /// with a tag deletes only that tag.
    ///
    /// # Errors
    /// [`TemplateError::InUse`] while sandboxes use the template, and [`TemplateError::KeptTag`] for
    /// a tag that a template cannot be without.
    pub async fn delete_template(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<(), TemplateError> {
        self.shared.templates.delete(principal, reference).await
    }

    /// Points more tags to the build that `target` refers to. Returns the build.
    ///
    /// # Errors
    /// See [`TagError`].
    pub async fn add_tags(
        &self,
        principal: &Principal,
        target: &TemplateRef,
        tags: &[String],
    ) -> Result<BuildId, TagError> {
        self.shared
            .templates
            .add_tags(principal, target, tags)
            .await
    }

    /// Removes tags of a template. Unknown tags are ignored.
    ///
    /// # Errors
    /// See [`TagError`].
    pub async fn remove_tags(
        &self,
        principal: &Principal,
        template: &TemplateRef,
        tags: &[String],
    ) -> Result<(), TagError> {
        self.shared
            .templates
            .remove_tags(principal, template, tags)
            .await
    }

    /// Registers a template that is built when it is first requested. Call it before
    /// [`Engine::recover`], which finishes builds of the previous server.
    pub fn register_builtin(&self, template: BuiltinTemplate) {
        self.shared.templates.builtin().register(template);
    }

    /// Builds a builtin template, or returns the build that is running. The build continues on a task
    /// of its own. Only admins may `force` it, or retry it right after a failure.
    ///
    /// # Errors
    /// See [`BuiltinError`].
    pub async fn build_builtin(
        &self,
        principal: &Principal,
        name: &TemplateName,
        force: bool,
    ) -> Result<Arc<BuildRecord>, BuiltinError> {
        self.shared
            .builds
            .build_builtin(principal, name, force)
            .await
    }

    /// Announces a build of a new template, or of the existing one with this name.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub async fn announce_build(
        &self,
        principal: &Principal,
        new: BuildRequest,
    ) -> Result<Arc<BuildRecord>, BuildError> {
        self.shared.builds.announce(principal, new).await
    }

    /// Begins an announced build, which continues on a task of its own.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub async fn begin_build(
        &self,
        principal: &Principal,
        id: BuildId,
        plan: Plan,
    ) -> Result<(), BuildError> {
        self.shared.builds.begin(principal, id, plan).await
    }

    /// Cancels a build that is not finished.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub async fn cancel_build(&self, principal: &Principal, id: BuildId) -> Result<(), BuildError> {
        self.shared.builds.cancel(principal, id).await
    }

    /// The builds of a template, the newest first.
    #[must_use]
    pub fn builds_of(&self, template: &TemplateId) -> Vec<Arc<BuildRecord>> {
        self.shared.build_records.of_template(template)
    }

    /// A build of the team of `principal`, or of the installation.
    #[must_use]
    pub fn build(&self, principal: &Principal, id: BuildId) -> Option<Arc<BuildRecord>> {
        self.shared.build_records.visible(principal, id)
    }

    /// The log of a build: its lines of this level and above.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn build_log(
        &self,
        id: BuildId,
        level: LogLevel,
    ) -> Result<Vec<BuildLogEntry>, StoreError> {
        self.shared.build_records.log(id, level).await
    }
}
