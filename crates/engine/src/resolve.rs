//! The meaning of a request's template and image.
//!
//! A name is looked up in this order: a template of the caller's team, an entry of the catalogue, a
//! template of the installation, a snapshot, and the pattern of a dynamic entry. Another team's public
//! template is named by `team/name` or by its id. A request that names only an image uses the template
//! `custom`. A request that names nothing uses the configured default (Agent-Sandbox, Templates).

use std::sync::{Arc, Weak};

use shoal_core::BoxFuture;
use shoal_core::auth::Principal;
use shoal_core::catalogue::merge::{Source, merge};
use shoal_core::catalogue::{CUSTOM, Entry, Match, Origin};
use shoal_core::clock::Clock;
use shoal_core::image::{ImageName, Reach};
use shoal_core::ports::create::{CreateError, SandboxRequest};
pub use shoal_core::ports::resolve::{Explained, Meaning, Resolved};
use shoal_core::ports::templates::TemplateError;
use shoal_core::template::{DEFAULT_TAG, Template, TemplateKey, TemplateRef};

use crate::access::INSTALLATION;
use crate::catalogue::Catalogues;
use crate::config::{CustomImages, Defaults, EngineConfig};
use crate::images::{FetchError, NodeImages};
use crate::snapshots::Snapshots;

/// The stored templates. Those of the installation are built when a request first names them.
pub(crate) trait TemplateSource: Send + Sync {
    /// The template that `reference` names to `principal`, in the build that its tag refers to.
    ///
    /// # Errors
    /// See [`TemplateError`].
    fn template(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<Template>, TemplateError>;

    /// Builds the template called `name`, or waits for its running build.
    ///
    /// # Errors
    /// [`TemplateError::NotFound`] when the installation has no such template,
    /// [`CreateError::BeingBuilt`] while the build takes longer than a client waits.
    fn build_missing<'a>(
        self: Arc<Self>,
        principal: &'a Principal,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), CreateError>>;
}

/// The dependencies of [`Resolver`].
pub(crate) struct ResolverParts {
    pub(crate) catalogues: Arc<Catalogues>,
    pub(crate) images: Arc<NodeImages>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Weak: a build in turn resolves the template that it starts from.
    pub(crate) templates: Weak<dyn TemplateSource>,
}

/// Finds the template, snapshot, catalogue entry or image that a request names.
pub(crate) struct Resolver {
    defaults: Defaults,
    custom_images: CustomImages,
    parts: ResolverParts,
}

impl Resolver {
    pub(crate) fn new(config: &EngineConfig, parts: ResolverParts) -> Self {
        Self {
            defaults: config.defaults.clone(),
            custom_images: config.custom_images,
            parts,
        }
    }

    /// Resolves what a request names. Builds a missing template of the installation first, and fetches
    /// the image where its configuration matters.
    ///
    /// # Errors
    /// See [`CreateError`].
    #[tracing::instrument(level = "debug", name = "resolve", skip_all)]
    pub(crate) async fn resolve_request(
        &self,
        principal: &Principal,
        new: &SandboxRequest,
    ) -> Result<Resolved, CreateError> {
        let (template, image) = (new.template.as_ref(), new.image.as_ref());
        let resolved = match self.resolve(principal, template, image) {
            Err(CreateError::Template(missing)) => {
                self.build_missing(principal, missing).await?;
                self.resolve(principal, template, image)?
            }
            resolved => resolved?,
        };
        self.fetch_image(resolved).await
    }

    /// Builds the template whose absence `missing` reports, or returns `missing`.
    async fn build_missing(
        &self,
        principal: &Principal,
        missing: TemplateError,
    ) -> Result<(), CreateError> {
        let name = match &missing {
            TemplateError::NotFound(name) => name.clone(),
            TemplateError::NoBase { base, .. } => base.to_string(),
            _ => return Err(missing.into()),
        };
        let Some(templates) = self.parts.templates.upgrade() else {
            return Err(missing.into());
        };
        match templates.build_missing(principal, &name).await {
            Err(CreateError::Template(TemplateError::NotFound(_))) => Err(missing.into()),
            built => built,
        }
    }

    /// Resolves a template and an image by name, without fetching or building anything.
    ///
    /// # Errors
    /// [`CreateError::Template`] when the template does not exist, [`CreateError::ImageForbidden`] when
    /// the caller may not name an image.
    pub(crate) fn resolve(
        &self,
        principal: &Principal,
        template: Option<&TemplateKey>,
        image: Option<&ImageName>,
    ) -> Result<Resolved, CreateError> {
        let defaults = &self.defaults;
        let Some(image) = image else {
            let Some(key) = template.or(defaults.template.as_ref()) else {
                let image = defaults.image.clone().ok_or(CreateError::NoTemplate)?;
                return Ok(Resolved::of_image(CUSTOM, image, Source::Default));
            };
            return match (self.meaning_of(principal, key), &defaults.image) {
                (Ok(resolved), _) => Ok(resolved),
                // A default template with a default image need not exist.
                (Err(_), Some(image)) if template.is_none() => Ok(Resolved::of_image(
                    key.as_str(),
                    image.clone(),
                    Source::Default,
                )),
                (Err(error), _) => Err(error.into()),
            };
        };
        if self.custom_images == CustomImages::Admins && !principal.admin {
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
        let reference = key.reference();
        let stored = reference.as_ref().ok().map(|reference| {
            let found = self.template(principal, reference);
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
        let catalogue = &self.parts.catalogues.current().catalogue;
        let text = key.as_str();
        let untagged = match text.rsplit_once(':') {
            Some((name, DEFAULT_TAG)) => name,
            _ => text,
        };
        let named = catalogue.exact(untagged);
        if let Some(found) = named.or_else(|| catalogue.by_id(untagged)) {
            return self.entry(found);
        }
        let unknown = match (stored, &reference) {
            (Some(Ok(resolved)), _) => return Ok(resolved),
            (Some(Err(error)), Ok(reference)) => {
                let now = self.parts.clock.now();
                if let Some(found) = self.parts.snapshots.resolve(principal, reference, now) {
                    return Ok(Resolved::of_snapshot(found));
                }
                error
            }
            // A name with dots is a valid name that nothing has.
            _ if !text.contains(['/', ':']) => TemplateError::NotFound(text.to_owned()),
            (_, Err(error)) => TemplateError::Invalid(error.clone()),
            (None, Ok(_)) => TemplateError::NotFound(text.to_owned()),
        };
        match catalogue.dynamic(untagged)? {
            Some(found) => Ok(Resolved {
                key: Some(untagged.to_owned()),
                ..self.entry(found)?
            }),
            None => Err(unknown),
        }
    }

    /// The template that `reference` names, in the build that its tag refers to.
    fn template(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<Template>, TemplateError> {
        let missing = || TemplateError::NotFound(reference.to_string());
        let templates = self.parts.templates.upgrade().ok_or_else(missing)?;
        templates.template(principal, reference)
    }

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

    /// The base template of an entry. A bare name never refers to a team's template, even a public one:
    /// that team would control the sandboxes of every other team.
    ///
    /// # Errors
    /// [`TemplateError::NoBase`] when there is no such template.
    pub(crate) fn base_of(
        &self,
        entry: &Entry,
        base: &TemplateRef,
    ) -> Result<Arc<Template>, TemplateError> {
        let missing = || TemplateError::NoBase {
            entry: entry.name.to_string(),
            base: base.clone(),
        };
        let found = match self.template(&INSTALLATION, base) {
            Err(TemplateError::NotFound(_)) => return Err(missing()),
            found => found?,
        };
        let trusted = found.team.is_none()
            || base.namespace.is_some()
            || found.id.as_str() == base.name.as_str();
        if trusted { Ok(found) } else { Err(missing()) }
    }

    /// Adds the image's configuration where the template does not include it. Fetches an image that is
    /// not on the node.
    ///
    /// # Errors
    /// [`CreateError::Image`] when the image cannot be fetched.
    pub(crate) async fn fetch_image(&self, resolved: Resolved) -> Result<Resolved, CreateError> {
        if !resolved.needs_image() {
            return Ok(resolved);
        }
        let images = &self.parts.images;
        match images.fetch_open(&resolved.image, resolved.reach).await {
            Ok(image) => Ok(resolved.with_image(image)),
            Err(FetchError::Image(error)) => Err(CreateError::image(&resolved, error)),
            Err(FetchError::Store(error)) => Err(error.into()),
        }
    }

    /// The values that a request with this template and this image would get, each with the layer that
    /// sets it.
    ///
    /// # Errors
    /// As [`Resolver::resolve`], and when images cannot be read.
    pub(crate) async fn explain(
        &self,
        principal: &Principal,
        template: Option<&TemplateKey>,
        image: Option<&ImageName>,
    ) -> Result<Explained, CreateError> {
        let resolved = self.resolve(principal, template, image)?;
        let found = self.parts.images.find(&resolved.image).await;
        let found = found.map_err(|error| CreateError::image(&resolved, error))?;
        let image_here = found.is_some();
        let resolved = match found {
            Some(image) => resolved.with_image(image),
            None => resolved,
        };
        Ok(Explained {
            image_here,
            merged: merge(&resolved.layers()),
            resolved,
        })
    }
}
