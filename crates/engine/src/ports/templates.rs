//! Templates, their tags, and the catalogue.

use std::sync::Arc;

use shoal_core::BoxFuture;
use shoal_core::auth::Principal;
use shoal_core::id::{BuildId, TemplateId};
use shoal_core::image::ImageName;
use shoal_core::ports::catalogue::{
    CatalogueError, CatalogueInForce, RefusedEdit, TemplateCatalogue,
};
use shoal_core::ports::create::CreateError;
use shoal_core::ports::resolve::{Explained, Resolved};
use shoal_core::ports::templates::{
    CreateTemplateError, Starts, TagError, TemplateError, TemplateRequest, Templates,
};
use shoal_core::template::{Template, TemplateKey, TemplateRef};

use crate::engine::Engine;

impl Templates for Engine {
    fn resolve(
        &self,
        principal: &Principal,
        template: Option<&TemplateKey>,
        image: Option<&ImageName>,
    ) -> Result<Resolved, CreateError> {
        Engine::resolve(self, principal, template, image)
    }

    fn explain<'a>(
        &'a self,
        principal: &'a Principal,
        template: Option<&'a TemplateKey>,
        image: Option<&'a ImageName>,
    ) -> BoxFuture<'a, Result<Explained, CreateError>> {
        Box::pin(Engine::explain(self, principal, template, image))
    }

    fn get(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<Template>, TemplateError> {
        self.shared.templates.resolve(principal, reference)
    }

    fn find(&self, principal: &Principal, reference: &TemplateRef) -> Option<Arc<Template>> {
        self.shared.templates.find(principal, reference)
    }

    fn by_id(&self, id: &TemplateId) -> Option<Arc<Template>> {
        self.shared.templates.by_id(id)
    }

    fn list(&self, principal: &Principal) -> Vec<Arc<Template>> {
        self.shared.templates.list(principal)
    }

    fn starts(&self, id: &TemplateId) -> Starts {
        Engine::template_starts(self, id)
    }

    fn create<'a>(
        &'a self,
        principal: &'a Principal,
        new: TemplateRequest,
    ) -> BoxFuture<'a, Result<Template, CreateTemplateError>> {
        Box::pin(self.shared.templates.create(principal, new))
    }

    fn delete<'a>(
        &'a self,
        principal: &'a Principal,
        reference: &'a TemplateRef,
    ) -> BoxFuture<'a, Result<(), TemplateError>> {
        Box::pin(self.shared.templates.delete(principal, reference))
    }

    fn publish<'a>(
        &'a self,
        principal: &'a Principal,
        reference: &'a TemplateRef,
        public: bool,
    ) -> BoxFuture<'a, Result<(), TagError>> {
        Box::pin(self.shared.templates.publish(principal, reference, public))
    }

    fn add_tags<'a>(
        &'a self,
        principal: &'a Principal,
        target: &'a TemplateRef,
        tags: &'a [String],
    ) -> BoxFuture<'a, Result<BuildId, TagError>> {
        Box::pin(self.shared.templates.add_tags(principal, target, tags))
    }

    fn add_tags_to_build<'a>(
        &'a self,
        principal: &'a Principal,
        build: BuildId,
        tags: &'a [String],
    ) -> BoxFuture<'a, Result<BuildId, TagError>> {
        Box::pin(
            self.shared
                .templates
                .add_tags_to_build(principal, build, tags),
        )
    }

    fn remove_tags<'a>(
        &'a self,
        principal: &'a Principal,
        template: &'a TemplateRef,
        tags: &'a [String],
    ) -> BoxFuture<'a, Result<(), TagError>> {
        Box::pin(self.shared.templates.remove_tags(principal, template, tags))
    }
}

impl TemplateCatalogue for Engine {
    fn in_force(&self) -> Arc<CatalogueInForce> {
        Engine::catalogue(self)
    }

    fn refused_edit(&self) -> Option<RefusedEdit> {
        Engine::refused_edit(self)
    }

    fn replace<'a>(
        &'a self,
        json: &'a str,
        expected: Option<u64>,
    ) -> BoxFuture<'a, Result<Arc<CatalogueInForce>, CatalogueError>> {
        Box::pin(Engine::replace_catalogue(self, json, expected))
    }
}
