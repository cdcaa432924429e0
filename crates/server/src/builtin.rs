//! The built-in templates: `base`, built at the first start, and those that are built on demand.

mod definition;
mod mirrors;
mod optional;
mod release;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use sha2::{Digest, Sha256};
use shoal_core::clock::Clock;
use shoal_core::id::{BuildId, TemplateId};
use shoal_core::image::{Image, ImageName, Images};
use shoal_core::template::{Template, TemplateName};
use shoal_engine::{BuiltinTemplate, Engine, SystemClock};
use shoal_images::ImageStore;
use shoal_images::bootstrap::Recipe;

use self::definition::Definition;
use self::release::RELEASES;
use crate::progress::Bars;

/// A template that is made from a recipe at the first start.
struct Bootstrapped {
    name: &'static str,
    recipe: &'static str,
    description: &'static str,
}

/// The recipe of `base`.
const BASE: &str = include_str!("../../../templates/base.toml");

const BOOTSTRAPPED: [Bootstrapped; 1] = [Bootstrapped {
    name: "base",
    recipe: BASE,
    description: "Debian with Python, Node, git and a compiler",
}];

/// A template that is built on demand: its definition and files.
struct Offered {
    name: &'static str,
    definition: &'static str,
    files: &'static [(&'static str, &'static str)],
}

/// The files of a template's directory, by name.
macro_rules! files {
    ($directory:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../templates/", $directory, "/", $name)))),*]
    };
}

const OFFERED: [Offered; 3] = [CODE_INTERPRETER, SESSION, SESSION_DOCKER];

const SESSION: Offered = Offered {
    name: "session-v1",
    definition: include_str!("../../../templates/session-v1/template.toml"),
    files: files!("session-v1": "reboot.sh"),
};

const SESSION_DOCKER: Offered = Offered {
    name: "session-docker-v1",
    definition: include_str!("../../../templates/session-docker-v1/template.toml"),
    files: files!("session-docker-v1": "start-docker.sh"),
};

const CODE_INTERPRETER: Offered = Offered {
    name: "code-interpreter-v1",
    definition: include_str!("../../../templates/code-interpreter-v1/template.toml"),
    files: files!("code-interpreter-v1":
        "interpreter.json",
        "ipython_kernel_config.py",
        "kernels/bash.json",
        "kernels/bash.py",
        "kernels/deno.json",
        "kernels/python3.json",
        "matplotlibrc",
        "start.sh",
        "startup/00-debugger.py",
        "startup/10-data.py",
        "startup/20-charts.py",
        "startup/30-images.py",
        "startup/90-trim.py",
    ),
};

/// The systems of templates that are built on demand: `base` on other releases. They are made when a build needs one.
///
/// # Errors
/// When a definition is invalid, which a test excludes.
pub(crate) fn recipes() -> anyhow::Result<BTreeMap<ImageName, Recipe>> {
    let mut recipes = BTreeMap::new();
    for offered in &OFFERED {
        if let Some(release) = offered.read()?.release() {
            recipes.insert(release.image.clone(), release.recipe.clone());
        }
    }
    Ok(recipes)
}

/// Registers the templates that are built on demand.
///
/// # Errors
/// When a definition is invalid, which a test excludes.
pub(crate) fn offer(engine: &Engine) -> anyhow::Result<()> {
    for offered in &OFFERED {
        engine.register_builtin(offered.template()?);
    }
    Ok(())
}

impl Offered {
    fn read(&self) -> anyhow::Result<Definition> {
        let definition = Definition::read(self.definition, self.files)
            .with_context(|| format!("the definition of the template {}", self.name))?;
        match OFFERED.iter().find(|below| definition.is_from(below.name)) {
            Some(below) => Ok(definition.over(below.read()?)),
            None => Ok(definition),
        }
    }

    fn template(&self) -> anyhow::Result<BuiltinTemplate> {
        let definition = self.read()?;
        Ok(BuiltinTemplate {
            id: TemplateId::from_entropy(sixteen(self.name.as_bytes())),
            name: self.name.parse()?,
            description: definition.description().to_owned(),
            resources: definition.resources(),
            definition: Arc::new(definition),
        })
    }
}

/// Builds `base` if it is missing or its recipe changed.
///
/// # Errors
/// When the build fails.
pub(crate) async fn ensure(engine: &Engine, images: &ImageStore) -> anyhow::Result<()> {
    for template in &BOOTSTRAPPED {
        ensure_one(engine, images, template)
            .await
            .with_context(|| format!("cannot build the template {}", template.name))?;
    }
    sweep(images).await
}

/// Removes the systems of earlier recipes that nothing uses.
async fn sweep(images: &ImageStore) -> anyhow::Result<()> {
    let wanted = recipes()?;
    for image in images.list().await? {
        let is_old = image.name.as_str().starts_with(RELEASES) && !wanted.contains_key(&image.name);
        if is_old && let Err(error) = images.remove(&image.name).await {
            tracing::info!(%error, "an earlier image is still in use");
        }
    }
    Ok(())
}

async fn ensure_one(
    engine: &Engine,
    images: &ImageStore,
    builtin: &Bootstrapped,
) -> anyhow::Result<()> {
    let recipe = Recipe::from_toml(builtin.recipe)?;
    let digest = hex::encode(Sha256::digest(builtin.recipe));
    let image: ImageName = format!("shoal/{}:{}", builtin.name, &digest[..12]).parse()?;
    let made = match images.find(&image).await? {
        Some(made) => made,
        None => {
            tracing::info!(
                template = builtin.name,
                "building a template; this takes a minute"
            );
            let bars = Arc::new(Bars::new(builtin.name));
            images.bootstrap(image.clone(), &recipe, bars).await?
        }
    };
    let template = template(builtin, made, &digest)?;
    let known = engine.builtin_template(&template.id);
    if known
        .as_ref()
        .is_some_and(|known| known.build == template.build)
    {
        return Ok(());
    }
    engine.put_template(template).await?;
    // The image of an earlier recipe is removed when no sandbox uses it.
    if let Some(known) = known.filter(|known| known.image != image)
        && let Err(error) = images.remove(&known.image).await
    {
        tracing::info!(%error, "an earlier image is still in use");
    }
    Ok(())
}

fn template(builtin: &Bootstrapped, image: Image, digest: &str) -> anyhow::Result<Template> {
    let name: TemplateName = builtin.name.parse()?;
    let now = SystemClock.now();
    let env = image.env.iter().filter_map(|pair| pair.split_once('='));
    let env: BTreeMap<String, String> = env
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let id = TemplateId::from_entropy(sixteen(builtin.name.as_bytes()));
    // Derived from the recipe, so that a start can detect a change.
    let build = BuildId::from_entropy(sixteen(digest.as_bytes()));
    let over = Template::over(id, build, image.name, now);
    Ok(Template {
        names: vec![name],
        user: image.user.unwrap_or_else(|| over.user.clone()),
        workdir: image.workdir,
        env,
        public: true,
        description: builtin.description.to_owned(),
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
        for builtin in &BOOTSTRAPPED {
            Recipe::from_toml(builtin.recipe).unwrap();
            builtin.name.parse::<TemplateName>().unwrap();
        }
    }

    #[test]
    fn every_definition_can_be_read_and_names_each_file_beside_it() {
        for offered in &OFFERED {
            let template = offered.template().unwrap();
            let prepared = template.definition.prepare().unwrap();
            prepared.plan.validate().unwrap();
            let directory = format!(
                "{}/../../templates/{}",
                env!("CARGO_MANIFEST_DIR"),
                offered.name
            );
            let mut embedded: Vec<&str> = offered.files.iter().map(|(name, _)| *name).collect();
            embedded.push("template.toml");
            for file in walk(directory.as_ref()) {
                let name = file.strip_prefix(&directory).unwrap().to_str().unwrap();
                assert!(embedded.contains(&name), "{name} is not embedded");
            }
        }
    }

    #[test]
    fn r2_006_and_r2_007_the_machine_of_a_session_is_smaller_where_the_server_is() {
        use shoal_core::limits::{Bounds, Machine, PerSandbox};
        use shoal_core::resources::{Mib, MilliCpu};
        let wanted = SESSION.template().unwrap().resources;
        assert_eq!((wanted.cpu, wanted.memory), (MilliCpu(2000), Mib(7 << 10)));
        let granted = |cpu: u32, memory: u32| {
            let machine = Machine {
                cpu: MilliCpu(cpu * 1000),
                memory: Mib(memory << 10),
                disk: None,
            };
            let bounds = Bounds::new(&machine, &PerSandbox::default());
            let nearest = bounds.nearest(wanted);
            let granted = bounds.grant(nearest, nearest.cpu).unwrap();
            (granted.resources().cpu, granted.resources().memory)
        };
        assert_eq!(granted(8, 16), (MilliCpu(2000), Mib(7 << 10)));
        // Less the reserve of the server.
        assert_eq!(granted(1, 4), (MilliCpu(1000), Mib(4096 - 256)));
    }

    #[test]
    fn a_release_has_what_base_has_and_installs_packages() {
        let recipes = recipes().unwrap();
        let base = Recipe::from_toml(BASE).unwrap();
        assert_eq!(recipes.len(), 1);
        for (image, recipe) in recipes {
            assert!(image.as_str().starts_with(RELEASES));
            assert_ne!(recipe.suite, base.suite);
            assert!(recipe.packages.is_superset(&base.packages));
            assert!(recipe.packages.contains(&"apt".parse().unwrap()));
            assert_eq!(
                (recipe.user, recipe.files),
                (base.user.clone(), base.files.clone())
            );
        }
    }

    fn walk(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(directory).unwrap();
        let entries = entries.map(|entry| entry.unwrap().path());
        entries
            .flat_map(|path| {
                if path.is_dir() {
                    walk(&path)
                } else {
                    vec![path]
                }
            })
            .collect()
    }
}
