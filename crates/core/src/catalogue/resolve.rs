//! Resolving a name to an entry and its image.

use std::sync::Arc;

use super::Catalogue;
use super::entry::Entry;
use super::pattern::Captured;
use crate::image::ImageName;
use crate::template::TemplateRef;

/// The placeholder of the captured name in an image.
const NAME: &str = "<name>";

/// The placeholder of the captured version in an image.
const VERSION: &str = "<version>";

/// The entry that a name resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The entry.
    pub entry: Arc<Entry>,
    /// The base of its sandboxes.
    pub origin: Origin,
    /// The captures of a dynamic entry's pattern.
    pub captured: Option<Captured>,
}

/// The base of an entry's sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// An image.
    Image(ImageName),
    /// A saved template.
    Template(TemplateRef),
}

/// Why a name does not resolve although an entry's pattern matches it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "template '{asked}' is of the dynamic template '{entry}', and {text:?} cannot stand in the name \
     of an image: use letters, digits, `.`, `_` and `-`"
)]
pub struct ResolveError {
    /// The requested name.
    pub asked: String,
    /// The entry with the pattern.
    pub entry: String,
    /// The captured text.
    pub text: String,
}

impl Entry {
    /// The base of its sandboxes, if the entry is not dynamic and was validated.
    #[must_use]
    pub fn origin(&self) -> Option<Origin> {
        match (&self.image, &self.template) {
            (Some(image), _) => Some(Origin::Image(image.parse().ok()?)),
            (None, Some(template)) => Some(Origin::Template(template.clone())),
            (None, None) => None,
        }
    }
}

impl Catalogue {
    /// The entry named `asked`, if it is not dynamic.
    #[must_use]
    pub fn exact(&self, asked: &str) -> Option<Match> {
        let entry = self.entry(asked).filter(|entry| !entry.is_dynamic())?;
        Some(Match {
            entry: Arc::clone(entry),
            origin: entry.origin()?,
            captured: None,
        })
    }

    /// The static entry whose sandboxes have this template id.
    #[must_use]
    pub fn by_id(&self, id: &str) -> Option<Match> {
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.name.template_id().as_str() == id)?;
        self.exact(&entry.name.to_string())
    }

    /// The first entry whose pattern matches `asked`.
    ///
    /// Each capture becomes exactly one component of an image's name. A capture with a slash would
    /// select another repository or another registry.
    ///
    /// # Errors When a capture cannot be such a component.
    pub fn dynamic(&self, asked: &str) -> Result<Option<Match>, ResolveError> {
        let found = self
            .patterns
            .iter()
            .find_map(|(place, pattern)| Some((*place, pattern.capture(asked)?)));
        let Some((entry, captured)) =
            found.and_then(|(place, captured)| Some((self.entries.get(place)?, captured)))
        else {
            return Ok(None);
        };
        let refused = |text: &str| ResolveError {
            asked: asked.to_owned(),
            entry: entry.name.to_string(),
            text: text.to_owned(),
        };
        if let Some(text) = [&captured.name, &captured.version]
            .into_iter()
            .find(|text| !is_part(text))
        {
            return Err(refused(text));
        }
        let image = entry.image.as_deref().unwrap_or_default();
        let image = fill(image, &captured.name, &captured.version);
        Ok(Some(Match {
            entry: Arc::clone(entry),
            origin: Origin::Image(image.parse().map_err(|_| refused(&image))?),
            captured: Some(captured),
        }))
    }

    /// The entry with the name `asked`, else the first dynamic entry that matches it.
    ///
    /// # Errors
    /// See [`Catalogue::dynamic`].
    pub fn resolve(&self, asked: &str) -> Result<Option<Match>, ResolveError> {
        match self.exact(asked) {
            Some(found) => Ok(Some(found)),
            None => self.dynamic(asked),
        }
    }
}

/// Whether `text` is a single valid component or tag.
fn is_part(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    text.bytes().all(good) && !text.contains("..")
}

/// Inserts the captures into an image in one pass: captured text is not expanded again.
pub(super) fn fill(image: &str, name: &str, version: &str) -> String {
    let parts: Vec<String> = image
        .split(NAME)
        .map(|part| part.split(VERSION).collect::<Vec<_>>().join(version))
        .collect();
    parts.join(name)
}
