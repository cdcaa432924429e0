//! What a request means by its template and its image.
//!
//! A name is, in this order: a template of the caller's own, an entry of the catalogue, a template
//! of the installation, a snapshot, and what the pattern of a dynamic entry means. A template that
//! another team has opened is meant by `team/name` or by its id. A request without a name means its image, as the template `custom`, or what
//! is configured as the default (Agent-Sandbox, Templates).

use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::catalogue::merge::{Source, merge};
use shoal_core::catalogue::{CUSTOM, Entry, Match, Origin};
use shoal_core::image::{Image, ImageName, Reach};
pub use shoal_core::ports::resolve::{Explained, Meaning, Resolved};
use shoal_core::template::{DEFAULT_TAG, Template, TemplateKey, TemplateRef};

use crate::access::INSTALLATION;
use crate::config::CustomImages;
use crate::create::CreateError;
use crate::engine::{Engine, Shared};
use crate::images::FetchError;
use crate::templates::TemplateError;

impl Engine {
    /// What a request of `principal` with this template and this image means.
    ///
    /// # Errors
    /// See [`CreateError`]: its template cannot be found, or it may not name an image.
    pub fn resolve(
        &self,
        principal: &Principal,
        template: Option<&TemplateKey>,
        image: Option<&ImageName>,
    ) -> Result<Resolved, CreateError> {
        let defaults = &self.shared.config.defaults;
        let Some(image) = image else {
            let Some(key) = template.or(defaults.template.as_ref()) else {
                let image = defaults.image.clone().ok_or(CreateError::NoTemplate)?;
                return Ok(Resolved::of_image(CUSTOM, image, Source::Default));
            };
            return match (self.meaning_of(principal, key), &defaults.image) {
                (Ok(resolved), _) => Ok(resolved),
                // The default template need not be listed when its image is said beside it.
                (Err(_), Some(image)) if template.is_none() => Ok(Resolved::of_image(
                    key.as_str(),
                    image.clone(),
                    Source::Default,
                )),
                (Err(error), _) => Err(error.into()),
            };
        };
        if self.shared.config.custom_images == CustomImages::Admins && !principal.admin {
            return Err(CreateError::ImageForbidden);
        }
        let Some(key) = template else {
            return Ok(Resolved {
                reach: Reach::of(principal),
                ..Resolved::of_image(CUSTOM, image.clone(), Source::Request)
            });
        };
        let resolved = self.meaning_of(principal, key)?;
        if matches!(resolved.meaning, Meaning::Snapshot(_)) {
            return Err(CreateError::ImageOfSnapshot);
        }
        Ok(Resolved {
            image: image.clone(),
            image_from: Source::Request,
            reach: Reach::of(principal),
            ..resolved
        })
    }

    fn meaning_of(
        &self,
        principal: &Principal,
        key: &TemplateKey,
    ) -> Result<Resolved, TemplateError> {
        let shared = &self.shared;
        let reference = key.reference();
        let stored = reference.as_ref().ok().map(|reference| {
            let found = shared.templates.resolve(principal, reference);
            found.map(Resolved::of_template)
        });
        let own = |resolved: &Resolved| match &resolved.meaning {
            Meaning::Template(template) => template.team == Some(principal.team),
            Meaning::Snapshot(_) | Meaning::Entry { .. } | Meaning::Image => false,
        };
        if let Some(Ok(resolved)) = &stored
            && own(resolved)
        {
            return Ok(resolved.clone());
        }
        let catalogue = &shared.catalogues.current().catalogue;
        let text = key.as_str();
        let untagged = match text.rsplit_once(':') {
            Some((name, DEFAULT_TAG)) => name,
            _ => text,
        };
        let named = catalogue.exact(untagged);
        if let Some(found) = named.or_else(|| catalogue.by_id(untagged)) {
            return shared.entry(found);
        }
        let unknown = match (stored, &reference) {
            (Some(Ok(resolved)), _) => return Ok(resolved),
            (Some(Err(error)), Ok(reference)) => {
                let now = shared.clock.now();
                if let Some(found) = shared.snapshots.resolve(principal, reference, now) {
                    return Ok(Resolved::of_snapshot(found));
                }
                error
            }
            // What has points only is a name like any other, which nothing has.
            _ if !text.contains(['/', ':']) => TemplateError::NotFound(text.to_owned()),
            (_, Err(error)) => TemplateError::Invalid(error.clone()),
            (None, Ok(_)) => TemplateError::NotFound(text.to_owned()),
        };
        match catalogue.dynamic(untagged)? {
            Some(found) => Ok(Resolved {
                key: Some(untagged.to_owned()),
                ..shared.entry(found)?
            }),
            None => Err(unknown),
        }
    }

    /// What a request with this template and this image would get, and who said each value.
    ///
    /// # Errors
    /// As [`Engine::resolve`], and when images cannot be read.
    pub async fn explain(
        &self,
        principal: &Principal,
        template: Option<&TemplateKey>,
        image: Option<&ImageName>,
    ) -> Result<Explained, CreateError> {
        let resolved = self.resolve(principal, template, image)?;
        let found = self.shared.images.find(&resolved.image).await;
        let found = found.map_err(|error| CreateError::image(&resolved, error))?;
        let merged = merge(&resolved.layers(found.as_ref()));
        Ok(Explained {
            image_here: found.is_some(),
            resolved,
            merged,
        })
    }
}

impl Shared {
    fn entry(&self, found: Match) -> Result<Resolved, TemplateError> {
        let (image, base) = match &found.origin {
            Origin::Image(image) => (image.clone(), None),
            Origin::Template(base) => {
                let base = self.base_of(&found.entry, base)?;
                (base.image.clone(), Some(base))
            }
        };
        Ok(Resolved::of_entry(found, image, base))
    }

    /// The template that an entry stands on. A name alone never means what a tenant has opened under
    /// it: everybody's sandboxes would be his.
    pub(crate) fn base_of(
        &self,
        entry: &Entry,
        base: &TemplateRef,
    ) -> Result<Arc<Template>, TemplateError> {
        let missing = || TemplateError::NoBase {
            entry: entry.name.to_string(),
            base: base.clone(),
        };
        let found = self.templates.resolve(&INSTALLATION, base);
        let found = match found {
            Err(TemplateError::NotFound(_)) => return Err(missing()),
            found => found?,
        };
        let meant = found.team.is_none()
            || base.namespace.is_some()
            || found.id.as_str() == base.name.as_str();
        if meant { Ok(found) } else { Err(missing()) }
    }

    /// The image of what was resolved, fetched when it is not on the node.
    pub(crate) async fn image_of(&self, resolved: &Resolved) -> Result<Image, CreateError> {
        let fetched = self.images.fetch_open(&resolved.image, resolved.reach);
        match fetched.await {
            Ok(image) => Ok(image),
            Err(FetchError::Image(error)) => Err(CreateError::image(resolved, error)),
            Err(FetchError::Store(error)) => Err(error.into()),
        }
    }
}
