//! Creates a template over an image on this node.

use shoal_core::auth::Principal;
use shoal_core::catalogue::merge::{SettingsLayer, USER};
use shoal_core::id::{BuildId, TemplateId};
use shoal_core::template::{RuntimeName, Template};

use super::{CreateTemplateError, TemplateError, TemplateRequest, Templates};
use crate::random;

impl Templates {
    /// Creates a template of the caller's team.
    ///
    /// # Errors
    /// See [`CreateTemplateError`].
    pub(crate) async fn create(
        &self,
        principal: &Principal,
        new: TemplateRequest,
    ) -> Result<Template, CreateTemplateError> {
        let ceiling = new.max_cpu.unwrap_or(new.resources.cpu);
        let bounds = self.parts.access.bounds(principal.team);
        bounds.grant(new.resources, ceiling)?;
        self.check_runtime(new.runtime.as_ref())?;
        let changing = self.parts.build_records.changing.lock().await;
        if self.name_owner(principal, &new.name).is_some() {
            return Err(CreateTemplateError::NameTaken(new.name));
        }
        let found = self.parts.images.find(&new.image).await?;
        let image = found.ok_or(CreateTemplateError::ImageMissing(new.image))?;
        let of_image = SettingsLayer::from(&image);
        let mut env = of_image.env;
        env.extend(new.env);
        let now = self.parts.clock.now();
        let (id, build) = (
            TemplateId::from_entropy(random::bytes()?),
            BuildId::from_entropy(random::bytes()?),
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
        let kept = self.put(template.clone()).await;
        kept.map_err(TemplateError::from)?;
        drop(changing);
        Ok(template)
    }

    fn check_runtime(&self, asked: Option<&RuntimeName>) -> Result<(), CreateTemplateError> {
        let known = &self.parts.machine.runtimes;
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
