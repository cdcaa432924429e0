//! The meaning of a request's template and image.

use std::sync::Arc;

use crate::catalogue::merge::{Merged, SettingsLayer, Source};
use crate::catalogue::{Entry, Match};
use crate::id::TemplateId;
use crate::image::{Image, ImageName, Reach};
use crate::snapshot::SnapshotRecord;
use crate::template::Template;

/// The target of a name.
#[derive(Debug, Clone)]
pub enum Meaning {
    /// A template: made over an image, or by a build.
    Template(Arc<Template>),
    /// A snapshot.
    Snapshot(Arc<SnapshotRecord>),
    /// An entry of the catalogue.
    Entry {
        /// The entry.
        found: Match,
        /// The template that is its base; none when its base is an image.
        base: Option<Arc<Template>>,
    },
    /// An image alone.
    Image,
}

/// The meaning of a request.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The target of its name.
    pub meaning: Meaning,
    /// The name of the template: for a catalogue entry the entry's name, regardless of the text that its pattern matched.
    pub name: Option<String>,
    /// The template id of its sandboxes.
    pub id: TemplateId,
    /// The text of the request, when the id alone does not lead back here: many images share the id of
    /// one dynamic entry.
    pub key: Option<String>,
    /// The image of its sandboxes.
    pub image: ImageName,
    /// Which layer named the image.
    pub image_from: Source,
    /// From where the image may be fetched.
    pub reach: Reach,
    /// The image on the node, once it was looked up.
    pub fetched: Option<Image>,
}

impl Resolved {
    /// A template.
    #[must_use]
    pub fn of_template(template: Arc<Template>) -> Self {
        Self {
            name: template.names.first().map(ToString::to_string),
            id: template.id.clone(),
            key: None,
            image: template.image.clone(),
            image_from: Source::Template,
            reach: Reach::Anywhere,
            fetched: None,
            meaning: Meaning::Template(template),
        }
    }

    /// A snapshot.
    #[must_use]
    pub fn of_snapshot(snapshot: Arc<SnapshotRecord>) -> Self {
        Self {
            name: snapshot.name.as_ref().map(ToString::to_string),
            id: snapshot.template.clone(),
            key: None,
            image: snapshot.spec.image.clone(),
            image_from: Source::Template,
            reach: Reach::Anywhere,
            fetched: None,
            meaning: Meaning::Snapshot(snapshot),
        }
    }

    /// An entry of the catalogue, with its image and its base.
    #[must_use]
    pub fn of_entry(found: Match, image: ImageName, base: Option<Arc<Template>>) -> Self {
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
            fetched: None,
            meaning: Meaning::Entry { found, base },
        }
    }

    /// An image under this name.
    #[must_use]
    pub fn of_image(name: &str, image: ImageName, from: Source) -> Self {
        Self {
            name: Some(name.to_owned()),
            id: TemplateId::of_catalogue(name),
            key: None,
            image,
            image_from: from,
            reach: Reach::Anywhere,
            fetched: None,
            meaning: Meaning::Image,
        }
    }

    /// The entry of the catalogue, if it is one.
    #[must_use]
    pub fn entry(&self) -> Option<&Arc<Entry>> {
        match &self.meaning {
            Meaning::Entry { found, .. } => Some(&found.entry),
            Meaning::Template(_) | Meaning::Snapshot(_) | Meaning::Image => None,
        }
    }

    /// Whether the operator defined it: a catalogue entry, or a template of the installation.
    #[must_use]
    pub fn is_operators(&self) -> bool {
        match &self.meaning {
            Meaning::Entry { .. } => true,
            Meaning::Template(template) => template.team.is_none(),
            Meaning::Snapshot(_) | Meaning::Image => false,
        }
    }

    /// The template that its sandboxes start from: itself, or the base of its entry. None when the
    /// request names an image instead.
    #[must_use]
    pub fn base(&self) -> Option<&Arc<Template>> {
        let base = match &self.meaning {
            Meaning::Template(template) => Some(template),
            Meaning::Entry { base, .. } => base.as_ref(),
            Meaning::Snapshot(_) | Meaning::Image => None,
        };
        base.filter(|_| self.image_from != Source::Request)
    }

    /// The same, with its image on the node.
    #[must_use]
    pub fn with_image(self, image: Image) -> Self {
        Self {
            fetched: Some(image),
            ..self
        }
    }

    /// The layers below the request: the template, its base and its image, once it was looked up.
    #[must_use]
    pub fn layers(&self) -> Vec<(Source, SettingsLayer)> {
        let template = match &self.meaning {
            Meaning::Template(template) => SettingsLayer::from(template.as_ref()),
            Meaning::Snapshot(snapshot) => {
                let spec = &snapshot.spec;
                SettingsLayer {
                    runtime: spec.runtime.clone(),
                    user: Some(spec.user.clone()),
                    workdir: spec.workdir.clone(),
                    persistent: Some(spec.persistent),
                    env: spec.env.clone(),
                    network: spec.template_network.clone(),
                    ..SettingsLayer::default()
                }
                .with_resources(spec.resources)
            }
            Meaning::Entry { found, .. } => SettingsLayer::from(found.entry.as_ref()),
            Meaning::Image => SettingsLayer::default(),
        };
        let mut layers = vec![(Source::Template, template)];
        if let (Meaning::Entry { .. }, Some(base)) = (&self.meaning, self.base()) {
            layers.push((Source::Base, SettingsLayer::from(base.as_ref())));
        }
        // The values of a template that was made include those of its image.
        if let Some(image) = self.fetched.as_ref().filter(|_| self.needs_image()) {
            layers.push((Source::Image, SettingsLayer::from(image)));
        }
        layers
    }

    /// Whether the image sets values that the template does not, and has to be fetched when it is
    /// missing.
    #[must_use]
    pub fn needs_image(&self) -> bool {
        matches!(
            self.meaning,
            Meaning::Entry { base: None, .. } | Meaning::Image
        ) || self.image_from == Source::Request
    }
}

/// The settings that a request would get, with the origin of each.
#[derive(Debug, Clone)]
pub struct Explained {
    /// The meaning of the request.
    pub resolved: Resolved,
    /// Whether the image has been fetched; the values that a missing one sets are not merged.
    pub image_here: bool,
    /// Every value, and the layer that set it.
    pub merged: Merged,
}
