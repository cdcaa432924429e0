//! Which entry a name means, and which image that is.

use std::sync::Arc;

use super::Catalogue;
use super::entry::Entry;
use super::pattern::Captured;
use crate::image::ImageName;
use crate::template::TemplateRef;

/// Where what a pattern found stands in an image.
const NAME: &str = "<name>";

/// As above.
const VERSION: &str = "<version>";

/// An entry that a name means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The entry.
    pub entry: Arc<Entry>,
    /// What its sandboxes begin with.
    pub origin: Origin,
    /// What the pattern of a dynamic entry found.
    pub captured: Option<Captured>,
}

/// What sandboxes of an entry begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// An image.
    Image(ImageName),
    /// What was saved of a template.
    Template(TemplateRef),
}

/// Why a name means nothing, though an entry's pattern does mean it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "template '{asked}' is of the dynamic template '{entry}', and {text:?} cannot stand in the name \
     of an image: use letters, digits, `.`, `_` and `-`"
)]
pub struct ResolveError {
    /// What was asked for.
    pub asked: String,
    /// Whose pattern it was.
    pub entry: String,
    /// What was found.
    pub text: String,
}

impl Entry {
    /// What its sandboxes begin with, if it is not dynamic and was checked.
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
    /// The entry that is called `asked` and is of one image.
    #[must_use]
    pub fn exact(&self, asked: &str) -> Option<Match> {
        let entry = self.entry(asked).filter(|entry| !entry.is_dynamic())?;
        Some(Match {
            entry: Arc::clone(entry),
            origin: entry.origin()?,
            captured: None,
        })
    }

    /// The entry of one image whose sandboxes are known under this template's id.
    #[must_use]
    pub fn by_id(&self, id: &str) -> Option<Match> {
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.name.template_id().as_str() == id)?;
        self.exact(&entry.name.to_string())
    }

    /// The first entry whose pattern means `asked`.
    ///
    /// What it finds becomes one part of an image's name, never more: a name with a slash would
    /// be another repository, or another registry.
    ///
    /// # Errors
    /// When what it finds cannot be such a part.
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

/// Whether `text` can be a component or a tag, and nothing more.
fn is_part(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    text.bytes().all(good) && !text.contains("..")
}

/// Puts what was found into an image, each of it once: what is found is not looked at again.
pub(super) fn fill(image: &str, name: &str, version: &str) -> String {
    let parts: Vec<String> = image
        .split(NAME)
        .map(|part| part.split(VERSION).collect::<Vec<_>>().join(version))
        .collect();
    parts.join(name)
}
