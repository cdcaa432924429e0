//! Resolves a name: a SandboxSet of the team, else a snapshot, else an entry of the catalogue, else an image.

use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::catalogue::merge::Source;
use shoal_core::catalogue::{CUSTOM, Match};
use shoal_core::clock::Timestamp;
use shoal_core::image::ImageName;
use shoal_core::ports::create::CreateError;
use shoal_core::ports::resolve::Resolved;
use shoal_core::ports::templates::TemplateError;
use shoal_core::template::{Template, TemplateKey};
use shoal_crds::kruise::SandboxSet;

use super::Templates;
use crate::blueprint::InvalidBlueprint;
use crate::entries::{EntrySet, NoSet};
use crate::saves::SavedSandbox;
use crate::{identity, pod};

/// The target of a name.
#[derive(Debug)]
pub(crate) enum Found {
    /// A SandboxSet of the caller's namespace.
    Set(Arc<SandboxSet>),
    /// A snapshot or a pause in that namespace.
    Snapshot(SavedSandbox),
    /// An entry, rendered for that namespace.
    Entry(Box<EntrySet>, Match),
    /// An image without an entry.
    Image(Box<EntrySet>, ImageName),
}

impl Found {
    /// The set whose member a sandbox is.
    pub(crate) fn set(&self) -> &Arc<SandboxSet> {
        match self {
            Self::Set(set) => set,
            Self::Snapshot(saved) => saved.set(),
            Self::Entry(entry, _) | Self::Image(entry, _) => &entry.set,
        }
    }

    /// The entry, if there is one: an image has an entry of its own.
    pub(crate) fn entry(&self) -> Option<&EntrySet> {
        match self {
            Self::Set(_) | Self::Snapshot(_) => None,
            Self::Entry(entry, _) | Self::Image(entry, _) => Some(entry),
        }
    }

    /// The snapshot, if it is one.
    pub(crate) fn snapshot(&self) -> Option<&SavedSandbox> {
        match self {
            Self::Snapshot(saved) => Some(saved),
            Self::Set(_) | Self::Entry(..) | Self::Image(..) => None,
        }
    }

    /// The snapshot that sandboxes start from: it, or that of the entry.
    pub(crate) fn saved(&self) -> Option<&SavedSandbox> {
        let of_entry = || self.entry()?.saved.as_ref();
        self.snapshot().or_else(of_entry)
    }

    /// The template that the caller sees, if it is one.
    pub(super) fn template(&self, created: Timestamp) -> Option<Template> {
        match self {
            Self::Set(set) => Some(Templates::template(set)),
            Self::Snapshot(_) => None,
            Self::Entry(entry, _) | Self::Image(entry, _) => Some(of_entry(entry, created)),
        }
    }

    /// The meaning, for the API layer.
    pub(super) fn resolved(self) -> Resolved {
        match self {
            Self::Set(set) => Resolved::of_template(Arc::new(Templates::template(&set))),
            Self::Snapshot(saved) => Resolved::of_snapshot(Arc::new(saved.record())),
            Self::Entry(entry, found) => {
                let image = pod::image(entry.set.spec.template.as_ref());
                let base = entry
                    .saved
                    .as_ref()
                    .map(|saved| Arc::new(of_base(&entry, saved)));
                Resolved::of_entry(found, image, base)
            }
            Self::Image(_, image) => Resolved::of_image(CUSTOM, image, Source::Request),
        }
    }
}

/// An entry as a template. It belongs to no team.
pub(super) fn of_entry(entry: &EntrySet, created: Timestamp) -> Template {
    let name = &entry.entry.name;
    let mut template = entry.set.spec.template.clone();
    if let Some(template) = &mut template {
        pod::set_resources(template, &entry.resources);
    }
    let template = template.as_ref();
    Template {
        names: name.as_str().parse().into_iter().collect(),
        resources: pod::resources(template),
        runtime: Some(pod::runtime(template)),
        user: String::new(),
        env: entry.entry.env.clone(),
        description: entry.entry.description.clone(),
        public: true,
        ..Template::over(
            name.template_id(),
            identity::build("", name.as_str(), &entry.revision),
            pod::image(template),
            created,
        )
    }
}

/// The snapshot below an entry, as a template.
fn of_base(entry: &EntrySet, saved: &SavedSandbox) -> Template {
    let record = saved.record();
    let template = saved.set().spec.template.as_ref();
    Template {
        team: Some(record.team),
        names: record.name.into_iter().collect(),
        resources: pod::resources(template),
        runtime: Some(pod::runtime(template)),
        user: String::new(),
        ..Template::over(
            record.template,
            identity::build("", entry.entry.name.as_str(), &entry.revision),
            pod::image(template),
            record.created_at,
        )
    }
}

/// An entry that cannot be rendered came into force nowhere; an image may not be one.
fn unfit(error: &InvalidBlueprint) -> CreateError {
    CreateError::InvalidOption(error.to_string())
}

impl Templates {
    /// The target of a name for the caller; `None` if it has none.
    ///
    /// # Errors
    /// When a dynamic entry makes no valid image of the name.
    pub(super) fn found(
        &self,
        principal: &Principal,
        text: &str,
    ) -> Result<Option<Found>, CreateError> {
        if let Some(set) = self.set(principal, text) {
            return Ok(Some(Found::Set(set)));
        }
        if let Some(saved) = self.saves.find(principal.slug.as_str(), text) {
            return Ok(Some(Found::Snapshot(saved)));
        }
        let state = self.catalogue.state();
        let entries = &state.in_force.catalogue;
        let name = text.strip_suffix(":default").unwrap_or(text);
        let found = match entries.exact(name).or_else(|| entries.by_id(name)) {
            Some(found) => Some(found),
            None => entries.dynamic(name).map_err(TemplateError::from)?,
        };
        let Some(found) = found else {
            return Ok(None);
        };
        let namespace = principal.slug.as_str();
        match EntrySet::of_match(&found, &state.blueprint, &self.saves, namespace) {
            Ok(set) => Ok(Some(Found::Entry(Box::new(set), found))),
            Err(NoSet::Unfit(error)) => Err(unfit(&error)),
            Err(NoSet::NoSnapshot(base)) => {
                let entry = found.entry.name.to_string();
                Err(TemplateError::NoBase { entry, base }.into())
            }
        }
    }

    /// The targets of a request's template and image.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub(crate) fn named(
        &self,
        principal: &Principal,
        template: Option<&TemplateKey>,
        image: Option<&ImageName>,
    ) -> Result<Found, CreateError> {
        match (template, image) {
            (Some(template), _) => {
                let found = self.found(principal, template.as_str())?;
                found.ok_or_else(|| TemplateError::NotFound(template.to_string()).into())
            }
            (None, Some(image)) => {
                if !principal.admin && !self.choices.custom_images {
                    return Err(CreateError::ImageForbidden);
                }
                self.of_image(principal, image)
            }
            (None, None) => {
                if let Some(template) = &self.choices.default
                    && let Some(found) = self.found(principal, template.as_str())?
                {
                    return Ok(found);
                }
                let image = self.choices.default_image.as_ref();
                self.of_image(principal, image.ok_or(CreateError::NoTemplate)?)
            }
        }
    }

    fn of_image(&self, principal: &Principal, image: &ImageName) -> Result<Found, CreateError> {
        let state = self.catalogue.state();
        let set = EntrySet::of_image(image, &state.blueprint, principal.slug.as_str());
        let set = set.map_err(|error| unfit(&error))?;
        Ok(Found::Image(Box::new(set), image.clone()))
    }

    /// All static entries that the caller has.
    pub(super) fn entries(&self, principal: &Principal) -> Vec<EntrySet> {
        let state = self.catalogue.state();
        let all = &state.in_force.catalogue;
        let namespace = principal.slug.as_str();
        let found = all.entries().iter().filter_map(|entry| {
            let found = all.exact(entry.name.as_str())?;
            EntrySet::of_match(&found, &state.blueprint, &self.saves, namespace).ok()
        });
        found.collect()
    }
}
