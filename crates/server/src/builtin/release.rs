//! The system of a template that has another release below it than `base`.

use sha2::{Digest, Sha256};
use shoal_core::image::ImageName;
use shoal_images::bootstrap::Recipe;

use super::BASE;

/// How the names of such systems begin.
pub(super) const RELEASES: &str = "shoal/base-";

/// `base` on another release.
#[derive(Debug)]
pub(super) struct Release {
    /// The name of the image, which changes with the recipe.
    pub(super) image: ImageName,
    pub(super) recipe: Recipe,
}

impl Release {
    /// The system of the release called `suite`.
    ///
    /// # Errors
    /// When no release can have this name.
    pub(super) fn of(suite: &str) -> anyhow::Result<Self> {
        let mut recipe = Recipe {
            suite: suite.parse()?,
            ..Recipe::from_toml(BASE)?
        };
        // The smallest system of Ubuntu lacks it, other than Debian's.
        recipe.packages.insert("apt".parse()?);
        let digest = hex::encode(Sha256::digest(format!("{recipe:?}")));
        Ok(Self {
            image: format!("{RELEASES}{suite}:{}", &digest[..12]).parse()?,
            recipe,
        })
    }
}
