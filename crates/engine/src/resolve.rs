//! What a request means by its template and its image.
//!
//! A name is, in this order: a template of the caller's own, an entry of the catalogue, a template
//! of the installation, a snapshot, and what the pattern of a dynamic entry means. A template that
//! another team has opened is meant by `team/name` or by its id. A request without a name means its image, as the template `custom`, or what
//! is configured as the default (Agent-Sandbox, Templates).

use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::catalogue::merge::{Layer, Merged, Source, merge};
use shoal_core::catalogue::{CUSTOM, Entry, Match, Origin};
use shoal_core::id::TemplateId;
use shoal_core::image::{Image, ImageName, Reach};
use shoal_core::snapshot::SnapshotRecord;
use shoal_core::template::{DEFAULT_TAG, Template, TemplateKey, TemplateRef};

use crate::config::CustomImages;
use crate::create::CreateError;
use crate::engine::{Engine, Shared};
use crate::private_images::BringError;
use crate::stock::INSTALLATION;
use crate::templates::TemplateError;

/// What a name is.
#[derive(Debug, Clone)]
pub enum Meaning {
    /// A template that was made: over an image, or by a build.
    Template(Arc<Template>),
    /// A snapshot.
    Snapshot(Arc<SnapshotRecord>),
    /// An entry of the catalogue.
    Entry {
        /// The entry.
        found: Match,
        /// The template that it stands on, if that is no image.
        base: Option<Arc<Template>>,
    },
    /// An image alone.
    Image,
}

/// What a request means.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// What its name is.
    pub meaning: Meaning,
    /// What the template is called: for an entry the entry's name, whatever its pattern found.
    pub name: Option<String>,
    /// The id under which its sandboxes are known.
    pub id: TemplateId,
    /// What was asked for, where the id alone would not lead here: it is one entry's, and the entry
    /// means many images.
    pub key: Option<String>,
    /// The image of its sandboxes.
    pub image: ImageName,
    /// Who said the image.
    pub image_from: Source,
    /// From where it may be fetched.
    pub reach: Reach,
}

impl Resolved {
    /// The entry of the catalogue, if it is one.
    #[must_use]
    pub fn entry(&self) -> Option<&Arc<Entry>> {
        match &self.meaning {
            Meaning::Entry { found, .. } => Some(&found.entry),
            Meaning::Template(_) | Meaning::Snapshot(_) | Meaning::Image => None,
        }
    }

    /// Whether it is the operator's word: an entry of the catalogue, or a template of the installation.
    pub(crate) fn is_operators(&self) -> bool {
        match &self.meaning {
            Meaning::Entry { .. } => true,
            Meaning::Template(template) => template.team.is_none(),
            Meaning::Snapshot(_) | Meaning::Image => false,
        }
    }

    /// The template that was made which its sandboxes begin with: itself, or what its entry stands on.
    /// None when the request names an image instead.
    #[must_use]
    pub fn base(&self) -> Option<&Arc<Template>> {
        let base = match &self.meaning {
            Meaning::Template(template) => Some(template),
            Meaning::Entry { base, .. } => base.as_ref(),
            Meaning::Snapshot(_) | Meaning::Image => None,
        };
        base.filter(|_| self.image_from != Source::Request)
    }

    pub(crate) fn of_template(template: Arc<Template>) -> Self {
        Self {
            name: template.names.first().map(ToString::to_string),
            id: template.id.clone(),
            key: None,
            image: template.image.clone(),
            image_from: Source::Template,
            reach: Reach::Anywhere,
            meaning: Meaning::Template(template),
        }
    }

    fn of_snapshot(snapshot: Arc<SnapshotRecord>) -> Self {
        Self {
            name: snapshot.name.as_ref().map(ToString::to_string),
            id: snapshot.template.clone(),
            key: None,
            image: snapshot.spec.image.clone(),
            image_from: Source::Template,
            reach: Reach::Anywhere,
            meaning: Meaning::Snapshot(snapshot),
        }
    }

    fn of_entry(found: Match, image: ImageName, base: Option<Arc<Template>>) -> Self {
        Self {
            name: Some(found.entry.name.to_string()),
            id: found.entry.name.template_id(),
            key: None,
            image,
            image_from: match base {
                Some(_) => Source::Base,
                None => Source::Template,
            },
            reach: Reach::Anywhere,
            meaning: Meaning::Entry { found, base },
        }
    }

    fn of_image(name: &str, image: ImageName, from: Source) -> Self {
        Self {
            name: Some(name.to_owned()),
            id: TemplateId::of_catalogue(name),
            key: None,
            image,
            image_from: from,
            reach: Reach::Anywhere,
            meaning: Meaning::Image,
        }
    }

    /// What the template says, what it stands on, and what its image does.
    pub(crate) fn layers(&self, image: Option<&Image>) -> Vec<(Source, Layer)> {
        let template = match &self.meaning {
            Meaning::Template(template) => Layer::from(template.as_ref()),
            Meaning::Snapshot(snapshot) => {
                let spec = &snapshot.spec;
                Layer {
                    runtime: spec.runtime.clone(),
                    user: Some(spec.user.clone()),
                    workdir: spec.workdir.clone(),
                    persistent: Some(spec.persistent),
                    env: spec.env.clone(),
                    network: spec.template_network.clone(),
                    ..Layer::default()
                }
                .with_resources(spec.resources)
            }
            Meaning::Entry { found, .. } => Layer::from(found.entry.as_ref()),
            Meaning::Image => Layer::default(),
        };
        let mut layers = vec![(Source::Template, template)];
        if let (Meaning::Entry { .. }, Some(base)) = (&self.meaning, self.base()) {
            layers.push((Source::Base, Layer::from(base.as_ref())));
        }
        // A template that was made has taken over what its image said.
        if let Some(image) = image.filter(|_| self.needs_image()) {
            layers.push((Source::Image, Layer::from(image)));
        }
        layers
    }

    /// Whether its image says what the template does not, and is brought here when it is not.
    pub(crate) fn needs_image(&self) -> bool {
        matches!(
            self.meaning,
            Meaning::Entry { base: None, .. } | Meaning::Image
        ) || self.image_from == Source::Request
    }
}

/// What a request would get, and why.
#[derive(Debug, Clone)]
pub struct Explained {
    /// What it means.
    pub resolved: Resolved,
    /// Whether the image is on this node; what it says is not among the values when it is not.
    pub image_here: bool,
    /// Every value, and who said it.
    pub merged: Merged,
}

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
            let found = shared.template_meant(principal, reference);
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
        let found = self.template_meant(&INSTALLATION, base);
        let found = match found {
            Err(TemplateError::NotFound(_)) => return Err(missing()),
            found => found?,
        };
        let meant = found.team.is_none()
            || base.namespace.is_some()
            || found.id.as_str() == base.name.as_str();
        if meant { Ok(found) } else { Err(missing()) }
    }

    /// The image of what was resolved, brought here when it is not.
    pub(crate) async fn image_of(
        self: &Arc<Self>,
        resolved: &Resolved,
    ) -> Result<Image, CreateError> {
        let (shared, name, reach) = (Arc::clone(self), resolved.image.clone(), resolved.reach);
        // On a task of its own: when the caller stops waiting the next one finds it here.
        let pulled = tokio::spawn(async move {
            if let Some(image) = shared.open_image_here(&name).await? {
                return Ok(image);
            }
            // Closed never.
            let _turn = shared.pulls.acquire().await;
            shared.bring(&name, None, reach).await
        });
        match pulled.await {
            Ok(Ok(image)) => Ok(image),
            Ok(Err(BringError::Image(error))) => Err(CreateError::image(resolved, error)),
            Ok(Err(BringError::Store(error))) => Err(error.into()),
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
}
