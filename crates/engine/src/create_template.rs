//! Making a template over an image that is here.

use shoal_core::auth::Principal;
use shoal_core::catalogue::merge::{Layer, USER};
use shoal_core::id::{BuildId, TemplateId};
pub use shoal_core::ports::templates::{CreateTemplateError, NewTemplate};
use shoal_core::template::{RuntimeName, Template};

use crate::engine::Engine;
use crate::entropy::{self};

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
        let bounds = self.shared.access.bounds(principal.team);
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
