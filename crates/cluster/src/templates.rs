//! Templates: the SandboxSets of a namespace, and the entries of the catalogue.

mod found;

use std::sync::Arc;

use shoal_core::BoxFuture;
use shoal_core::auth::Principal;
use shoal_core::catalogue::merge::merge;
use shoal_core::clock::Timestamp;
use shoal_core::id::{BuildId, TemplateId};
use shoal_core::image::ImageName;
use shoal_core::ports::NotServed;
use shoal_core::ports::create::CreateError;
use shoal_core::ports::resolve::{Explained, Resolved};
use shoal_core::ports::templates::{
    CreateTemplateError, Starts, TagError, TemplateError, TemplateRequest,
    Templates as TemplatesPort,
};
use shoal_core::template::{Template, TemplateKey, TemplateName, TemplateRef};
use shoal_crds::kruise::SandboxSet;

use crate::catalogue::Catalogue;
use crate::entries::EntrySet;
use crate::identity::{self, key};
use crate::pod;
use crate::saves::Saves;
use crate::watched::Watched;

pub(crate) use self::found::Found;

/// The alternative to a template's own API.
const SETS: &str = "templates are SandboxSets here, which kubectl changes, and entries of the catalogue, which POST /api/v1/config/templates replaces";

/// The templates of all namespaces.
pub(crate) struct Templates {
    pub(crate) sets: Arc<Watched<SandboxSet>>,
    catalogue: Arc<Catalogue>,
    saves: Arc<Saves>,
    choices: TemplatesConfig,
}

/// The defaults for requests without a template, and which keys may name images.
#[derive(Debug, Clone, Default)]
pub struct TemplatesConfig {
    /// The template of a request without template and image.
    pub default: Option<TemplateKey>,
    /// The image of such a request, if there is no such template.
    pub default_image: Option<ImageName>,
    /// Whether keys without admin rights may name an image.
    pub custom_images: bool,
}

/// The other name of a SandboxSet: its id as a template.
pub(crate) fn index(set: &SandboxSet) -> Vec<String> {
    let (namespace, name) = key(&set.metadata);
    vec![identity::template(&namespace, &name).to_string()]
}

impl Templates {
    /// The templates that these sets are.
    pub(crate) fn new(
        sets: Arc<Watched<SandboxSet>>,
        catalogue: Arc<Catalogue>,
        saves: Arc<Saves>,
        choices: TemplatesConfig,
    ) -> Self {
        Self {
            sets,
            catalogue,
            saves,
            choices,
        }
    }

    /// The set with this name, or this id as a template, in the namespace of the caller. The pools of the catalogue's
    /// entries are none.
    fn set(&self, principal: &Principal, text: &str) -> Option<Arc<SandboxSet>> {
        let namespace = principal.slug.as_str();
        let name = set_name(namespace, text)?;
        let named = self.sets.get(&(namespace.to_owned(), name.clone()));
        let found = named.or_else(|| self.sets.find(&name));
        found.filter(|set| {
            set.metadata.namespace.as_deref() == Some(namespace) && !set.is_of_entry()
        })
    }

    /// Why something is not done with a template. The name may be that of a snapshot.
    fn refused(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
        what: &'static str,
    ) -> TemplateError {
        match self.find(principal, reference) {
            Some(_) => unserved(what),
            None => TemplateError::NotFound(reference.to_string()),
        }
    }

    /// Whether a name is that of a set of the caller's namespace, or of an entry.
    pub(crate) fn has_name(&self, principal: &Principal, name: &TemplateName) -> bool {
        let state = self.catalogue.state();
        let entries = &state.in_force.catalogue;
        self.set(principal, name.as_str()).is_some() || entries.exact(name.as_str()).is_some()
    }

    fn template(set: &SandboxSet) -> Template {
        let (namespace, name) = key(&set.metadata);
        let created = set.metadata.creation_timestamp.as_ref();
        let created = created.map_or(0, |time| time.0.as_millisecond());
        let revision = set.status.as_ref();
        let revision = revision.map_or("", |status| status.update_revision.as_str());
        let template = set.spec.template.as_ref();
        Template {
            team: Some(identity::team(&namespace)),
            names: name.parse().into_iter().collect(),
            resources: pod::resources(template),
            runtime: Some(pod::runtime(template)),
            user: String::new(),
            ..Template::over(
                identity::template(&namespace, &name),
                identity::build(&namespace, &name, revision),
                pod::image(template),
                Timestamp::from_unix_millis(created),
            )
        }
    }
}

/// The name, or the id as a template, of the set of this namespace that a template's name means; none if no set of it
/// can have that name.
pub(crate) fn set_name(namespace: &str, text: &str) -> Option<String> {
    // Case does not matter to clients, and names in a cluster have none.
    let text = text.to_lowercase();
    let name = match text.split_once('/') {
        Some((of, name)) if of == namespace => name,
        Some(_) => return None,
        None => text.as_str(),
    };
    // A set has one version at a time, which the default tag means.
    let name = name.strip_suffix(":default").unwrap_or(name);
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
    (!name.is_empty() && name.bytes().all(allowed)).then(|| name.to_owned())
}

fn unserved(what: &'static str) -> TemplateError {
    TemplateError::NotServed(NotServed {
        what,
        instead: SETS,
    })
}

impl TemplatesPort for Templates {
    fn resolve(
        &self,
        principal: &Principal,
        template: Option<&TemplateKey>,
        image: Option<&ImageName>,
    ) -> Result<Resolved, CreateError> {
        Ok(self.named(principal, template, image)?.resolved())
    }

    fn explain<'a>(
        &'a self,
        principal: &'a Principal,
        template: Option<&'a TemplateKey>,
        image: Option<&'a ImageName>,
    ) -> BoxFuture<'a, Result<Explained, CreateError>> {
        let explained = self
            .resolve(principal, template, image)
            .map(|resolved| Explained {
                image_here: false,
                merged: merge(&resolved.layers()),
                resolved,
            });
        Box::pin(std::future::ready(explained))
    }

    fn get(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<Template>, TemplateError> {
        self.find(principal, reference)
            .ok_or_else(|| TemplateError::NotFound(reference.to_string()))
    }

    fn find(&self, principal: &Principal, reference: &TemplateRef) -> Option<Arc<Template>> {
        let found = self.found(principal, &reference.to_string()).ok()??;
        // A snapshot is no template.
        let template = found.template(self.catalogue.state().created)?;
        Some(Arc::new(template))
    }

    fn by_id(&self, id: &TemplateId) -> Option<Arc<Template>> {
        if let Some(set) = self.sets.find(id.as_str()).filter(|set| !set.is_of_entry()) {
            return Some(Arc::new(Self::template(&set)));
        }
        let state = self.catalogue.state();
        let found = state.in_force.catalogue.by_id(id.as_str())?;
        // An entry over a snapshot is another one in each namespace.
        let set = EntrySet::of_match(&found, &state.blueprint, &self.saves, "").ok()?;
        Some(Arc::new(found::of_entry(&set, state.created)))
    }

    fn list(&self, principal: &Principal) -> Vec<Arc<Template>> {
        let namespace = Some(principal.slug.as_str());
        let own = self
            .sets
            .filter(|set| set.metadata.namespace.as_deref() == namespace && !set.is_of_entry());
        let mut templates: Vec<_> = own
            .iter()
            .map(|set| Arc::new(Self::template(set)))
            .collect();
        let created = self.catalogue.state().created;
        templates.extend(
            self.entries(principal)
                .iter()
                .map(|set| Arc::new(found::of_entry(set, created))),
        );
        templates.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        templates
    }

    fn starts(&self, _: &TemplateId) -> Starts {
        // A replica sees its own creates alone, which would mislead.
        Starts::default()
    }

    fn create<'a>(
        &'a self,
        _: &'a Principal,
        _: TemplateRequest,
    ) -> BoxFuture<'a, Result<Template, CreateTemplateError>> {
        let unserved = unserved("the creation of a template").into();
        Box::pin(std::future::ready(Err(unserved)))
    }

    fn delete<'a>(
        &'a self,
        principal: &'a Principal,
        reference: &'a TemplateRef,
    ) -> BoxFuture<'a, Result<(), TemplateError>> {
        let refused = self.refused(principal, reference, "the removal of a template");
        Box::pin(std::future::ready(Err(refused)))
    }

    fn publish<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a TemplateRef,
        _: bool,
    ) -> BoxFuture<'a, Result<(), TagError>> {
        let unserved = unserved("a template for other teams").into();
        Box::pin(std::future::ready(Err(unserved)))
    }

    fn add_tags<'a>(
        &'a self,
        principal: &'a Principal,
        reference: &'a TemplateRef,
        _: &'a [String],
    ) -> BoxFuture<'a, Result<BuildId, TagError>> {
        let refused = self.refused(principal, reference, "a tag");
        Box::pin(std::future::ready(Err(refused.into())))
    }

    fn add_tags_to_build<'a>(
        &'a self,
        _: &'a Principal,
        _: BuildId,
        _: &'a [String],
    ) -> BoxFuture<'a, Result<BuildId, TagError>> {
        Box::pin(std::future::ready(Err(unserved("a tag").into())))
    }

    fn remove_tags<'a>(
        &'a self,
        principal: &'a Principal,
        reference: &'a TemplateRef,
        _: &'a [String],
    ) -> BoxFuture<'a, Result<(), TagError>> {
        let refused = self.refused(principal, reference, "a tag");
        Box::pin(std::future::ready(Err(refused.into())))
    }
}
