//! What a stage stands on: an image that is made fit for use, a template, an earlier stage.

use std::time::Duration;

use shoal_core::BoxFuture;
use shoal_core::build::{Base, BuildFailure, BuildState, Layer, LogLevel, Part, StartCommand};
use shoal_core::image::{Image, ImageName, Reach, RegistryAuth};
use shoal_core::sandbox::{Lifecycle, Purpose, SandboxSpec};
use shoal_core::snapshot::Contents;
use shoal_core::template::TemplateKey;

use super::home::{ACCOUNTS, ACCOUNTS_MAX, home_of, usual_home};
use super::keys::Key;
use super::run::{Ground, Run};
use super::scripts;
use super::workshop::{Place, Workshop};
use crate::create::{CreateError, NewSandbox, Specified};
use crate::guest::GuestError;
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
                let state = BuildState::default();
                let workdir = Some(state.workdir.clone());
                let ground = self.ground(spec, key, state, None);
                self.provision(ground, workdir, workshop, place).await
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
        let workdir = spec.workdir.clone();
        let state = BuildState {
            user: spec.user.clone(),
            workdir: workdir
                .clone()
                .unwrap_or_else(|| usual_home(&spec.user).to_owned()),
            env: spec.start_env.clone(),
        };
        let key = self.key_of(&resolved, image, &spec, place).await?;
        let start = spec.start.clone();
        // The templates of the installation are fit for use, and what a build has saved was made so. A
        // snapshot may be of a sandbox of any image.
        let fit = match &resolved.meaning {
            Meaning::Template(template) => template.team.is_none() || spec.snapshot.is_some(),
            Meaning::Entry { .. } => spec.snapshot.is_some(),
            Meaning::Snapshot(_) | Meaning::Image => false,
        };
        let mut ground = match (fit, bare) {
            (true, _) => self.ground(spec, key, state, start),
            (false, true) => self.ground(spec, key.bare(), state, start),
            (false, false) => {
                let ground = self.ground(spec, key, state, start);
                self.provision(ground, workdir, workshop, place).await?
            }
        };
        // Before any step changes it.
        let state = &ground.state;
        ground.start = ground.start.map(|start| start.inherited(state));
        Ok(ground)
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
            let template = engine.shared.templates.resolve(principal, &reference)?;
            let resolved = Resolved::of_template(template);
            engine.specified_as(principal, resolved, new, None).await
        })
    }

    /// The key of what a name means. Whatever the steps find is in it.
    async fn key_of(
        &self,
        resolved: &Resolved,
        image: Option<Image>,
        spec: &SandboxSpec,
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
            Meaning::Entry { .. } => key.of_entry(spec),
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
        let reach = Reach::of(self.principal);
        let shared = &self.engine.shared;
        let brought = shared.images.fetch(name, auth.cloned(), reach).await;
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
            template_key: None,
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

    /// Makes an image fit for use, once for all builds of the team. Where steps start is asked of it,
    /// unless that is said.
    async fn provision(
        &self,
        mut ground: Ground,
        workdir: Option<String>,
        workshop: &mut Option<Workshop>,
        place: Place,
    ) -> Result<Ground, BuildFailure> {
        if let Some(layer) = self.layer(&ground.key).await {
            return Ok(ground.fit(layer, workdir));
        }
        let opened = self.open(workshop, &ground, place).await?;
        let unfit = |failure: BuildFailure| BuildFailure {
            message: format!("the image cannot be made fit for use: {}", failure.message),
            ..failure
        };
        let less = scripts::INCOMPLETE;
        let (script, args) = (scripts::PROVISION, [&*less.to_string()]);
        let code = opened.script_to_end(self.build, place, script, &args).await;
        match code.map_err(unfit)? {
            0 => {}
            code if code == less => {
                let message = "some programs that templates usually have cannot be installed: the \
                               image has no package manager, or no mirror of it is reachable; the \
                               next build tries again";
                self.say(LogLevel::Warn, place.part, message);
                // Each build tries again and warns again: an incomplete base must not be cached as a whole one.
                ground.key = ground.key.incomplete();
                if let Some(layer) = self.layer(&ground.key).await {
                    // What was done on that before is taken over, and not done in this sandbox.
                    self.engine.close_workshops(self.build).await;
                    *workshop = None;
                    return Ok(ground.fit(layer, workdir));
                }
            }
            code => return Err(unfit(place.failure(format_args!("exit status {code}")))),
        }
        let user = &ground.state.user;
        let workdir = match workdir {
            Some(workdir) => workdir,
            None => self.home_in(opened, user, place).await?,
        };
        let args: [&str; 2] = [&workdir, user];
        let made = opened.script(self.build, place, scripts::WORKDIR, &args);
        made.await.map_err(unfit)?;
        let saved = opened.save(self.build, place, Contents::Filesystem).await?;
        let layer = Layer {
            workdir: Some(workdir),
            ..self.layer_of(&ground.key, saved, &ground)
        };
        self.note(layer.clone(), place).await?;
        Ok(ground.fit(layer, None))
    }

    /// Where a user is at home in what is open.
    async fn home_in(
        &self,
        opened: &Workshop,
        user: &str,
        place: Place,
    ) -> Result<String, BuildFailure> {
        match opened.read(ACCOUNTS, ACCOUNTS_MAX).await {
            Ok(accounts) => Ok(home_of(&accounts, user)),
            Err(GuestError::NotFound(_)) => Ok(usual_home(user).to_owned()),
            Err(error) => Err(place.failure(error)),
        }
    }
}

impl Ground {
    /// The same, made fit for use, with the directory that was said, or that was found then.
    fn fit(mut self, layer: Layer, said: Option<String>) -> Self {
        if let Some(workdir) = said.or(layer.workdir) {
            self.state.workdir = workdir;
        }
        self.on(layer.snapshot)
    }
}
