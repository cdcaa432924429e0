//! Templates: which exist, which one a reference means, and how their owners change them.

mod builtin;
mod create;
mod delete;
mod images;
mod names;
mod pending;
mod snapshot_names;
mod tags;

use std::sync::Arc;

use parking_lot::RwLock;
use shoal_core::auth::Principal;
use shoal_core::clock::Clock;
use shoal_core::driver::Capabilities;
use shoal_core::id::TemplateId;
pub use shoal_core::ports::templates::{
    CreateTemplateError, TagError, TemplateError, TemplateRequest, Users,
};
use shoal_core::store::{StoreError, TemplateStore};
use shoal_core::template::{DEFAULT_TAG, Template, TemplateRef};

pub use self::builtin::{BuiltinDefinition, BuiltinTemplate, PreparedBuiltin};
pub(crate) use self::names::NameOwner;

use self::builtin::BuiltinTemplates;
use crate::access::Access;
use crate::build_records::BuildRecords;
use crate::images::NodeImages;
use crate::sandboxes::Sandboxes;
use crate::snapshots::Snapshots;

/// The dependencies of [`Templates`].
pub(crate) struct TemplateParts {
    pub(crate) store: Arc<dyn TemplateStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) machine: Capabilities,
    pub(crate) access: Arc<Access>,
    pub(crate) build_records: Arc<BuildRecords>,
    pub(crate) images: Arc<NodeImages>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) sandboxes: Arc<Sandboxes>,
}

/// The templates of all teams. They are few, and every create reads them.
pub(crate) struct Templates {
    parts: TemplateParts,
    all: RwLock<Vec<Arc<Template>>>,
    builtin: BuiltinTemplates,
}

impl Templates {
    /// Reads all templates.
    pub(crate) async fn load(parts: TemplateParts) -> Result<Self, StoreError> {
        let all = parts.store.templates().await?;
        let all = all.into_iter().map(Arc::new).collect();
        Ok(Self {
            parts,
            all: RwLock::new(all),
            builtin: BuiltinTemplates::default(),
        })
    }

    /// The templates that the installation can build on demand.
    pub(crate) fn builtin(&self) -> &BuiltinTemplates {
        &self.builtin
    }

    /// The template that `reference` names to `principal`, regardless of its tag: the template with
    /// that id, or by name one of the caller's team, else a builtin one, else one that an operator
    /// promoted for all teams. The name of another team's template is valid only in that team's
    /// namespace, so that a mistyped or deleted name never resolves to a stranger's template.
    pub(crate) fn find(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Option<Arc<Template>> {
        let namespace = match &reference.namespace {
            Some(slug) => Some(self.parts.access.of_namespace(principal, slug)?),
            None => None,
        };
        let own = Some(principal.team);
        let answers_to_its_name = |template: &Template| {
            template.promoted || template.team.is_none() || template.team == own
        };
        let meant = |template: &&Arc<Template>| {
            let by_id = template.id.as_str() == reference.name.as_str();
            let by_name = template.names.contains(&reference.name);
            let found = match namespace {
                Some(_) => template.team == namespace && (by_id || by_name),
                None => by_id || (by_name && answers_to_its_name(template)),
            };
            found && template.is_visible_to(principal.team)
        };
        let rank = |template: &&Arc<Template>| match template.team {
            team if team == own => 0,
            None => 1,
            Some(_) => 2,
        };
        let all = self.all.read();
        let found = all.iter().filter(meant).min_by_key(rank);
        found.cloned()
    }

    /// The template that `reference` names to `principal`, in the build that its tag refers to.
    ///
    /// # Errors
    /// [`TemplateError::NotFound`] and [`TemplateError::NoTag`].
    pub(crate) fn resolve(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<Template>, TemplateError> {
        let found = self.find(principal, reference);
        let found = found.ok_or_else(|| TemplateError::NotFound(reference.to_string()))?;
        let tag = reference.tag.as_deref().unwrap_or(DEFAULT_TAG);
        if found.tags.is_empty() && tag == DEFAULT_TAG {
            return Ok(found);
        }
        let no_tag = || {
            let bare = TemplateRef {
                tag: None,
                ..reference.clone()
            };
            TemplateError::no_tag(tag, bare, &found)
        };
        let build = found.tags.get(tag).ok_or_else(no_tag)?.build;
        if build == found.build {
            return Ok(found);
        }
        let (record, made) = self.parts.build_records.made(build).ok_or_else(no_tag)?;
        Ok(Arc::new(found.as_built(build, record.resources, &made)))
    }

    /// The template with this id.
    pub(crate) fn by_id(&self, id: &TemplateId) -> Option<Arc<Template>> {
        let all = self.all.read();
        all.iter().find(|template| template.id == *id).cloned()
    }

    /// Whether a template with this id exists.
    pub(crate) fn has(&self, id: &TemplateId) -> bool {
        self.by_id(id).is_some()
    }

    /// The builtin template with this id, if it is built.
    pub(crate) fn builtin_by_id(&self, id: &TemplateId) -> Option<Arc<Template>> {
        let found = self.by_id(id)?;
        found.team.is_none().then_some(found)
    }

    /// Every template that `principal` may use, the newest first.
    pub(crate) fn list(&self, principal: &Principal) -> Vec<Arc<Template>> {
        let mut visible: Vec<_> = {
            let all = self.all.read();
            let visible = all.iter().filter(|t| t.is_visible_to(principal.team));
            visible.cloned().collect()
        };
        visible.sort_by(|a, b| {
            b.created_at
                .cmp(&a.created_at)
                .then_with(|| a.id.cmp(&b.id))
        });
        visible
    }

    /// Stores a new or changed template.
    pub(crate) async fn put(&self, template: Template) -> Result<(), StoreError> {
        self.parts.store.put_template(template.clone()).await?;
        let mut all = self.all.write();
        all.retain(|known| known.id != template.id);
        all.push(Arc::new(template));
        Ok(())
    }
}
