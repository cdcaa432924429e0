//! What a stage stands on: an image that is made fit for use, a template, an earlier stage.

use std::time::Duration;

use shoal_core::BoxFuture;
use shoal_core::build::{Base, BuildFailure, BuildState, LogLevel, Part, StartCommand};
use shoal_core::image::{Image, ImageName, RegistryAuth};
use shoal_core::sandbox::{Lifecycle, Purpose, SandboxSpec};
use shoal_core::template::TemplateKey;

use super::keys::Key;
use super::run::{Ground, Run};
use super::scripts;
use super::workshop::{Place, Workshop};
use crate::create::{CreateError, NewSandbox, Specified};
use crate::resolve::{Meaning, Resolved};
use crate::templates::TemplateError;

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
            Base::Template(name) => self.template(name, bare, workshop, place).await,
            Base::Image(name, auth) => {
                self.say(LogLevel::Info, part, &format!("[base] FROM {name}"));
                let image = self.image(name, auth.as_ref(), place).await?;
                let new = NewSandbox {
                    image: Some(name.clone()),
                    ..NewSandbox::unnamed()
                };
                let key = Key::of_image(&image.digest);
                let engine = self.engine;
                let spec = engine.specify_over(self.principal, new, Some(image)).await;
                let spec = spec.map_err(|e| place.failure(e))?;
                if bare {
                    // Nothing runs in it: it may be no more than one program.
                    return Ok(self.ground(spec, key.bare(), BuildState::default(), None));
                }
                let ground = self.ground(spec, key.clone(), BuildState::default(), None);
                self.provision(ground, &key, workshop, place).await
            }
        }
    }

    /// What a create of this name begins with: the files, and whatever else the steps carry on, are of
    /// the same meaning.
    async fn template(
        &mut self,
        name: &TemplateKey,
        bare: bool,
        workshop: &mut Option<Workshop>,
        place: Place,
    ) -> Result<Ground, BuildFailure> {
        let from = format!("[base] FROM TEMPLATE {name}");
        self.say(LogLevel::Info, place.part, &from);
        let specified = self.meaning(name).await;
        let Specified {
            mut spec,
            resolved,
            image,
            ..
        } = specified.map_err(|e| place.failure(e))?;
        if let Some(snapshot) = &mut spec.snapshot {
            // Steps change files; what ran is started again at the end.
            snapshot.memory = false;
        }
        let state = BuildState {
            user: spec.user.clone(),
            workdir: spec.workdir.clone().unwrap_or_else(|| home_of(&spec.user)),
            env: spec.start_env.clone(),
        };
        let key = self.key_of(&resolved, image, &spec, &state, place).await?;
        let start = spec.start.clone();
        // The templates of the installation are fit for use, and what was saved was made so.
        let stock = matches!(&resolved.meaning, Meaning::Template(t) if t.team.is_none());
        let fit = stock || spec.snapshot.is_some();
        match (fit, bare) {
            (true, _) => Ok(self.ground(spec, key, state, start)),
            (false, true) => Ok(self.ground(spec, key.bare(), state, start)),
            (false, false) => {
                let ground = self.ground(spec, key.clone(), state, start);
                self.provision(ground, &key, workshop, place).await
            }
        }
    }

    /// What a name means to whoever builds. In a box: it may begin another build, whose type would be a
    /// part of itself.
    fn meaning<'a>(
        &'a self,
        name: &'a TemplateKey,
    ) -> BoxFuture<'a, Result<Specified, CreateError>> {
        let (engine, principal) = (self.engine, self.principal);
        let new = NewSandbox::of(name.clone());
        if !self.build.record().stock {
            return Box::pin(engine.specified_with_stock(principal, new));
        }
        Box::pin(async move {
            // The plan was written for a template of the installation, whatever the catalogue calls so.
            let reference = name.reference().map_err(TemplateError::from)?;
            let template = engine.resolve_template(principal, &reference)?;
            let resolved = Resolved::of_template(template);
            engine.specified_as(resolved, new, None).await
        })
    }

    /// The key of what a name means. Whatever the steps find is in it.
    async fn key_of(
        &self,
        resolved: &Resolved,
        image: Option<Image>,
        spec: &SandboxSpec,
        state: &BuildState,
        place: Place,
    ) -> Result<Key, BuildFailure> {
        if let Meaning::Snapshot(snapshot) = &resolved.meaning {
            return Ok(Key::of_snapshot(snapshot.id));
        }
        let image = match image {
            Some(image) => Some(image),
            // It is found by its name again when a sandbox starts: under the name may be another now.
            None if spec.snapshot.is_none() => {
                let images = &self.engine.shared.images;
                let found = images.find(&spec.image).await;
                found.map_err(|e| place.failure(e))?
            }
            None => None,
        };
        let digest = image.map(|image| image.digest);
        let key = match (resolved.base(), digest) {
            (Some(base), digest) => Key::of_template(base.build, digest.as_deref()),
            (None, digest) => Key::of_image(&digest.unwrap_or_default()),
        };
        Ok(match &resolved.meaning {
            Meaning::Entry { .. } => key.of_entry(state, &spec.env),
            _ => key,
        })
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
        let (user, workdir) = (&ground.state.user, &ground.state.workdir);
        let provisioned = opened
            .script(self.build, place, scripts::PROVISION, &[user, workdir])
            .await;
        provisioned.map_err(|failure| BuildFailure {
            message: format!("the image cannot be made fit for use: {}", failure.message),
            ..failure
        })?;
        let snapshot = self.keep(opened, key, &ground, place).await?;
        Ok(ground.on(snapshot))
    }
}

/// Where an account's files are as a rule, when nobody says where commands start.
fn home_of(user: &str) -> String {
    match user {
        "root" => "/root".to_owned(),
        user => format!("/home/{user}"),
    }
}
