//! Templates: what there is, and which one a reference means.

use std::sync::Arc;

use parking_lot::RwLock;
use shoal_core::auth::Principal;
use shoal_core::id::TemplateId;
use shoal_core::image::ImageName;
pub use shoal_core::ports::templates::{TemplateError, Users};
use shoal_core::store::StoreError;
use shoal_core::template::{DEFAULT_TAG, Template, TemplateRef};

use crate::access::Access;
use crate::build_records::BuildRecords;
use crate::engine::{Engine, Shared};

/// All templates; few, and read at each create.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    all: RwLock<Vec<Arc<Template>>>,
}

impl Templates {
    pub(crate) fn load(templates: Vec<Template>) -> Self {
        let all = templates.into_iter().map(Arc::new).collect();
        Self {
            all: RwLock::new(all),
        }
    }

    /// The template that `reference` names to `principal`, whichever its tag: one of the caller's own
    /// tenant, else one of the installation, else one that an operator has made for everybody, or the
    /// template with that id. The name of another tenant's template counts in that tenant's namespace
    /// alone, so that a name that is mistyped or deleted never leads to a stranger's template.
    pub(crate) fn find(
        &self,
        principal: &Principal,
        access: &Access,
        reference: &TemplateRef,
    ) -> Option<Arc<Template>> {
        let namespace = match &reference.namespace {
            Some(slug) => Some(access.of_namespace(principal, slug)?),
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

    /// What `reference` means to `principal`, in the build that its tag means.
    pub(crate) fn resolve(
        &self,
        principal: &Principal,
        access: &Access,
        reference: &TemplateRef,
        builds: &BuildRecords,
    ) -> Result<Arc<Template>, TemplateError> {
        let found = self.find(principal, access, reference);
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
        let (record, made) = builds.made(build).ok_or_else(no_tag)?;
        Ok(Arc::new(found.as_built(build, record.resources, &made)))
    }

    pub(crate) fn by_id(&self, id: &TemplateId) -> Option<Arc<Template>> {
        let all = self.all.read();
        all.iter().find(|template| template.id == *id).cloned()
    }

    pub(crate) fn has(&self, id: &TemplateId) -> bool {
        self.by_id(id).is_some()
    }
}

impl Shared {
    /// What `reference` means to `principal`, in the build that its tag means.
    pub(crate) fn template_meant(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<Template>, TemplateError> {
        self.templates
            .resolve(principal, &self.access, reference, &self.builds)
    }
}

impl Engine {
    /// The template that `reference` means.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub fn resolve_template(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<Template>, TemplateError> {
        self.shared.template_meant(principal, reference)
    }

    /// The template that `reference` names, whichever its tag.
    #[must_use]
    pub fn find_template(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Option<Arc<Template>> {
        let shared = &self.shared;
        shared.templates.find(principal, &shared.access, reference)
    }

    /// The template with this id.
    #[must_use]
    pub fn template_by_id(&self, id: &TemplateId) -> Option<Arc<Template>> {
        self.shared.templates.by_id(id)
    }

    /// Every template that `principal` may use, the newest first.
    #[must_use]
    pub fn templates(&self, principal: &Principal) -> Vec<Arc<Template>> {
        let all = self.shared.templates.all.read();
        let mut visible: Vec<_> = all
            .iter()
            .filter(|t| t.is_visible_to(principal.team))
            .cloned()
            .collect();
        visible.sort_by(|a, b| {
            b.created_at
                .cmp(&a.created_at)
                .then_with(|| a.id.cmp(&b.id))
        });
        visible
    }

    /// The stock template with this id, if there is one.
    #[must_use]
    pub fn stock_template(&self, id: &TemplateId) -> Option<Arc<Template>> {
        let all = self.shared.templates.all.read();
        all.iter()
            .find(|template| template.id == *id && template.team.is_none())
            .cloned()
    }

    /// The name of a template that stands on an image, if there is one.
    pub(crate) fn template_over(&self, image: &ImageName) -> Option<String> {
        let all = self.shared.templates.all.read();
        let over = all.iter().find(|template| template.image == *image)?;
        let name = over.names.first().map(ToString::to_string);
        Some(name.unwrap_or_else(|| over.id.to_string()))
    }

    /// Keeps a template, new or changed.
    ///
    /// # Errors
    /// When the store does not take it.
    pub async fn put_template(&self, template: Template) -> Result<(), TemplateError> {
        Ok(self.keep_template(template).await?)
    }

    pub(crate) async fn keep_template(&self, template: Template) -> Result<(), StoreError> {
        self.shared.store.put_template(template.clone()).await?;
        let mut all = self.shared.templates.all.write();
        all.retain(|known| known.id != template.id);
        all.push(Arc::new(template));
        Ok(())
    }

    /// Removes a template of the tenant's own; an admin may remove a stock one too. A reference
    /// with a tag removes that tag alone.
    ///
    /// # Errors
    /// [`TemplateError::InUse`] while sandboxes stand on it, and [`TemplateError::KeptTag`] for a
    /// tag that a template cannot be without.
    pub async fn delete_template(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<(), TemplateError> {
        if let Some(tag) = &reference.tag {
            return self.remove_tag(principal, reference, tag).await;
        }
        let changing = self.shared.builds.changing.lock().await;
        let found = self.find_template(principal, reference);
        let Some(template) = found else {
            let missing = || TemplateError::NotFound(reference.to_string());
            // One that no build has finished is its builds.
            let to_come = self.template_to_come(principal, reference);
            let to_come = to_come.filter(|build| build.team == principal.team);
            let id = to_come.ok_or_else(missing)?.template.clone();
            self.shared.builds.forget_all(&id).await?;
            return Ok(());
        };
        match template.team {
            Some(team) if team != principal.team => {
                return Err(TemplateError::NotFound(reference.to_string()));
            }
            None if !principal.admin => return Err(TemplateError::Stock(template.id.clone())),
            _ => {}
        }
        let records = self.shared.sandboxes.records();
        let (own, others): (Vec<_>, Vec<_>) = records
            .iter()
            .filter(|record| record.spec.template == template.id)
            .partition(|record| record.team == principal.team);
        if own.len() + others.len() > 0 {
            let users = Users {
                own: own.iter().map(|record| record.id.clone()).collect(),
                others: others.len(),
            };
            return Err(TemplateError::InUse(template.id.clone(), users));
        }
        self.shared.store.delete_template(&template.id).await?;
        self.shared
            .templates
            .all
            .write()
            .retain(|known| known.id != template.id);
        let dropped = self.shared.builds.forget_all(&template.id).await?;
        drop(changing);
        self.shared.builds.release(dropped).await;
        Ok(())
    }
}
