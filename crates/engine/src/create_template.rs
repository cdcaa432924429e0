//! Making a template over an image that is here.

use std::collections::BTreeMap;

use shoal_core::auth::Principal;
use shoal_core::catalogue::merge::{Layer, USER};
use shoal_core::id::{BuildId, TemplateId};
use shoal_core::image::{ImageError, ImageName};
use shoal_core::limits::NotGranted;
use shoal_core::resources::{MilliCpu, Resources};
use shoal_core::snapshot::Contents;
use shoal_core::template::{RuntimeName, Template, TemplateName};

use crate::engine::Engine;
use crate::entropy::{self, NoEntropy};
use crate::templates::TemplateError;

/// A template that is asked for.
#[derive(Debug, Clone)]
pub struct NewTemplate {
    /// What it shall be called.
    pub name: TemplateName,
    /// The image.
    pub image: ImageName,
    /// Limits.
    pub resources: Resources,
    /// The OCI runtime; the driver's default when none is named.
    pub runtime: Option<RuntimeName>,
    /// Who commands run as; who the image says when absent.
    pub user: Option<String>,
    /// Where commands start; where the image says when absent.
    pub workdir: Option<String>,
    /// Environment over the image's.
    pub env: BTreeMap<String, String>,
    /// What a pause or a snapshot of its sandboxes keeps when nobody says.
    pub persistent: Contents,
    /// The most processor time that its sandboxes can be given while they run.
    pub max_cpu: Option<MilliCpu>,
    /// Whether other teams may use it.
    pub public: bool,
    /// One line for people.
    pub description: String,
}

/// Why a template was not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateTemplateError {
    /// The caller has a template, a build or a snapshot of that name already, or the installation has
    /// a template.
    #[error("there is a template '{0}' already: remove it first, or take another name")]
    NameTaken(TemplateName),
    /// Its image is not on this node.
    #[error("image {0} is not here: pull or import it first")]
    ImageMissing(ImageName),
    /// A limit makes no sense, or is more than a sandbox may have here.
    #[error(transparent)]
    Resources(#[from] NotGranted),
    /// The node does not have the runtime.
    #[error("there is no OCI runtime {asked} here; there are: {known}")]
    RuntimeMissing {
        /// What was asked for.
        asked: RuntimeName,
        /// What there is.
        known: String,
    },
    /// The images cannot be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The store did not take it.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

impl Engine {
    /// Makes a template of the caller's tenant.
    ///
    /// # Errors
    /// See [`CreateTemplateError`].
    pub async fn create_template(
        &self,
        principal: &Principal,
        new: NewTemplate,
    ) -> Result<Template, CreateTemplateError> {
        let ceiling = new.max_cpu.unwrap_or(new.resources.cpu);
        let bounds = self.shared.bounds(principal.team);
        bounds.grant(new.resources, ceiling)?;
        self.check_runtime(new.runtime.as_ref())?;
        let changing = self.shared.builds.changing.lock().await;
        if self.named(principal, &new.name).is_some() {
            return Err(CreateTemplateError::NameTaken(new.name));
        }
        let found = self.shared.images.find(&new.image).await?;
        let image = found.ok_or(CreateTemplateError::ImageMissing(new.image))?;
        let of_image = Layer::from(&image);
        let mut env = of_image.env;
        env.extend(new.env);
        let now = self.shared.clock.now();
        let (id, build) = (
            TemplateId::from_entropy(entropy::bytes()?),
            BuildId::from_entropy(entropy::bytes()?),
        );
        let template = Template {
            team: Some(principal.team),
            names: vec![new.name],
            resources: new.resources,
            runtime: new.runtime,
            persistent: new.persistent,
            max_cpu: new.max_cpu,
            user: new
                .user
                .or(of_image.user)
                .unwrap_or_else(|| USER.to_owned()),
            workdir: new.workdir.or(of_image.workdir),
            env,
            public: new.public,
            promoted: new.public && principal.admin,
            description: new.description,
            ..Template::over(id, build, image.name, now)
        };
        self.put_template(template.clone()).await?;
        drop(changing);
        Ok(template)
    }

    fn check_runtime(&self, asked: Option<&RuntimeName>) -> Result<(), CreateTemplateError> {
        let known = &self.capabilities().runtimes;
        match asked {
            Some(asked) if known.iter().all(|runtime| runtime.name != *asked) => {
                let names: Vec<String> = known.iter().map(|r| r.name.to_string()).collect();
                Err(CreateTemplateError::RuntimeMissing {
                    asked: asked.clone(),
                    known: names.join(", "),
                })
            }
            _ => Ok(()),
        }
    }
}
