//! What a stage stands on: an image that is made fit for use, a template, an earlier stage.

use std::time::Duration;

use shoal_core::build::{Base, BuildFailure, BuildState, LogLevel, Part, StartCommand};
use shoal_core::image::{Image, ImageName, RegistryAuth};
use shoal_core::sandbox::{Lifecycle, Purpose, SandboxSpec};
use shoal_core::template::TemplateRef;

use super::keys::Key;
use super::run::{Ground, Run};
use super::scripts;
use super::workshop::{Place, Workshop};
use crate::create::NewSandbox;

/// How long the sandbox of a build may live: an hour for the steps of a stage (as E2B has it).
const WORKSHOP_WITHIN: Duration = Duration::from_secs(3600);

impl Run<'_> {
    /// What a stage stands on; `bare` as it is, when it is only copied from.
    pub(super) async fn base(
        &mut self,
        base: &Base,
        bare: bool,
        workshop: &mut Option<Workshop>,
        part: Part,
    ) -> Result<Ground, BuildFailure> {
        let place = Place { part, line: None };
        match base {
            Base::Stage(number) => {
                let ground = self.done.get(*number).cloned();
                ground.ok_or_else(|| place.failure(format_args!("there is no stage {number}")))
            }
            Base::Template(reference) => self.template(reference, place).await,
            Base::Image(name, auth) => {
                self.say(LogLevel::Info, part, &format!("[base] FROM {name}"));
                let image = self.image(name, auth.as_ref(), place).await?;
                let new = NewSandbox {
                    image: Some(name.clone()),
                    ..NewSandbox::unnamed()
                };
                let key = if bare {
                    Key::of_bare_image(&image.digest)
                } else {
                    Key::of_image(&image.digest)
                };
                let engine = self.engine;
                let spec = engine.specify_over(self.principal, new, Some(image)).await;
                let spec = spec.map_err(|e| place.failure(e))?;
                let ground = self.ground(spec, key.clone(), BuildState::default(), None);
                if bare {
                    // Nothing runs in it: it may be no more than one program.
                    return Ok(ground);
                }
                self.provision(ground, &key, workshop, place).await
            }
        }
    }

    async fn template(
        &self,
        reference: &TemplateRef,
        place: Place,
    ) -> Result<Ground, BuildFailure> {
        let from = format!("[base] FROM TEMPLATE {reference}");
        self.say(LogLevel::Info, place.part, &from);
        let found = self.engine.resolve_template(self.principal, reference);
        let template = found.map_err(|e| place.failure(e))?;
        let new = NewSandbox::of(reference.clone());
        let spec = self.engine.specify(self.principal, new).await;
        let mut spec = spec.map_err(|e| place.failure(e))?;
        if let Some(snapshot) = &mut spec.snapshot {
            // Steps change files; what ran is started again at the end.
            snapshot.memory = false;
        }
        let home = || format!("/home/{}", template.user);
        let state = BuildState {
            user: template.user.clone(),
            workdir: template.workdir.clone().unwrap_or_else(home),
            env: template.build_env.clone(),
        };
        let key = Key::of_template(template.build);
        Ok(self.ground(spec, key, state, template.start.clone()))
    }

    /// The image, brought here when it is not.
    async fn image(
        &self,
        name: &ImageName,
        auth: Option<&RegistryAuth>,
        place: Place,
    ) -> Result<Image, BuildFailure> {
        // Before anything is asked of a registry: its name is the caller's.
        let allowed = self.engine.resolve(self.principal, None, Some(name));
        allowed.map_err(|e| place.failure(e))?;
        let brought = self.engine.shared.bring(name, auth.cloned()).await;
        brought.map_err(|e| place.failure(e))
    }

    fn ground(
        &self,
        spec: SandboxSpec,
        key: Key,
        state: BuildState,
        start: Option<StartCommand>,
    ) -> Ground {
        let record = self.build.record();
        let lifecycle = Lifecycle {
            timeout: WORKSHOP_WITHIN.min(self.engine.shared.config.limits.max_timeout),
            ..spec.lifecycle.clone()
        };
        let spec = SandboxSpec {
            lifecycle,
            template: record.template.clone(),
            template_name: Some(record.name.to_string()),
            resources: record.resources,
            user: "root".to_owned(),
            workdir: None,
            // It is run at the end, when all is built.
            start: None,
            purpose: Purpose::Build(record.id),
            ..spec
        };
        Ground {
            spec,
            key,
            state,
            start,
        }
    }

    /// Makes an image fit for use, once for all builds of the team.
    async fn provision(
        &self,
        ground: Ground,
        key: &Key,
        workshop: &mut Option<Workshop>,
        place: Place,
    ) -> Result<Ground, BuildFailure> {
        if let Some(layer) = self.layer(key).await {
            return Ok(ground.on(layer.snapshot));
        }
        let opened = self.open(workshop, &ground, place).await?;
        let provisioned = opened
            .script(self.build, place, scripts::PROVISION, &[])
            .await;
        provisioned.map_err(|failure| BuildFailure {
            message: format!("the image cannot be made fit for use: {}", failure.message),
            ..failure
        })?;
        let snapshot = self.keep(opened, key, &ground, place).await?;
        Ok(ground.on(snapshot))
    }
}
