//! The templates that every installation has, made at its first start.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use sha2::{Digest, Sha256};
use shoal_core::clock::Clock;
use shoal_core::id::{BuildId, TemplateId};
use shoal_core::image::{Image, ImageName, Images};
use shoal_core::template::{Template, TemplateName};
use shoal_engine::{Engine, SystemClock};
use shoal_oci::ImageStore;
use shoal_oci::images::bootstrap::Recipe;

use crate::progress::Bars;

struct Stock {
    name: &'static str,
    recipe: &'static str,
    description: &'static str,
}

const STOCK: [Stock; 1] = [Stock {
    name: "base",
    recipe: include_str!("../../../templates/base.toml"),
    description: "Debian with Python, Node, git and a compiler",
}];

/// Sees that every stock template is there, of the recipe that this program has.
///
/// # Errors
/// When one cannot be made; says why.
pub(crate) async fn ensure(engine: &Engine, images: &ImageStore) -> anyhow::Result<()> {
    for stock in &STOCK {
        ensure_one(engine, images, stock)
            .await
            .with_context(|| format!("cannot make the template {}", stock.name))?;
    }
    Ok(())
}

async fn ensure_one(engine: &Engine, images: &ImageStore, stock: &Stock) -> anyhow::Result<()> {
    let recipe = Recipe::from_toml(stock.recipe)?;
    let digest = hex::encode(Sha256::digest(stock.recipe));
    let image: ImageName = format!("shoal/{}:{}", stock.name, &digest[..12]).parse()?;
    let made = match images.find(&image).await? {
        Some(made) => made,
        None => {
            tracing::info!(
                template = stock.name,
                "making a template; this takes a minute"
            );
            let bars = Arc::new(Bars::new(stock.name));
            images.bootstrap(image.clone(), &recipe, bars).await?
        }
    };
    let template = template(stock, made, &digest)?;
    let known = engine.stock_template(&template.id);
    if known
        .as_ref()
        .is_some_and(|known| known.build == template.build)
    {
        return Ok(());
    }
    engine.put_template(template).await?;
    // What the recipe of an earlier program made goes when no sandbox stands on it any more.
    if let Some(known) = known.filter(|known| known.image != image)
        && let Err(error) = images.remove(&known.image).await
    {
        tracing::info!(%error, "an earlier image stays");
    }
    Ok(())
}

fn template(stock: &Stock, image: Image, digest: &str) -> anyhow::Result<Template> {
    let name: TemplateName = stock.name.parse()?;
    let now = SystemClock.now();
    let env = image.env.iter().filter_map(|pair| pair.split_once('='));
    let env: BTreeMap<String, String> = env
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let id = TemplateId::from_entropy(sixteen(stock.name.as_bytes()));
    // The same for the same recipe, so that a start can tell whether there is news.
    let build = BuildId::from_entropy(sixteen(digest.as_bytes()));
    let over = Template::over(id, build, image.name, now);
    Ok(Template {
        names: vec![name],
        user: image.user.unwrap_or_else(|| over.user.clone()),
        workdir: image.workdir,
        env,
        public: true,
        description: stock.description.to_owned(),
        ..over
    })
}

fn sixteen(text: &[u8]) -> [u8; 16] {
    let digest = Sha256::digest(text);
    std::array::from_fn(|n| digest[n])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_can_be_read() {
        for stock in &STOCK {
            Recipe::from_toml(stock.recipe).unwrap();
            stock.name.parse::<TemplateName>().unwrap();
        }
    }
}
