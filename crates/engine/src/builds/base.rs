//! The base of a stage: an image that is provisioned first, a template, or an earlier stage.

use std::time::Duration;

use shoal_core::build::{Base, BuildFailure, BuildLayer, BuildState, LogLevel, Part, StartCommand};
use shoal_core::image::{Image, ImageName, Reach, RegistryAuth};
use shoal_core::ports::create::{CreateError, SandboxRequest};
use shoal_core::ports::resolve::{Meaning, Resolved};
use shoal_core::sandbox::{Lifecycle, Purpose, SandboxSpec};
use shoal_core::snapshot::Contents;
use shoal_core::template::TemplateKey;

use super::home::{ACCOUNTS, ACCOUNTS_MAX, home_of, usual_home};
use super::keys::LayerKey;
use super::run::{Run, StageBase};
use super::sandbox::{BuildLocation, BuildSandbox};
use super::scripts;
use crate::templates::TemplateError;
use shoal_core::ports::inside::InsideError;

/// The maximum life of a build's sandbox: one hour for the steps of a stage, as in E2B.
const SANDBOX_MAX_LIFE: Duration = Duration::from_secs(3600);

impl Run<'_> {
    /// Prepares the base of a stage. A `bare` one, which is only copied from, stays as it is.
    pub(super) async fn base(
        &mut self,
        base: &Base,
        bare: bool,
        sandbox: &mut Option<BuildSandbox>,
        part: Part,
    ) -> Result<StageBase, BuildFailure> {
        let at = BuildLocation { part, line: None };
        match base {
            Base::Stage(number) => {
                let result = self.done.get(*number).cloned();
                result.ok_or_else(|| at.failure(format_args!("there is no stage {number}")))
            }
            Base::Template(name) => self.template(name, bare, sandbox, at).await,
            Base::Release { image, otherwise } => match self.release(image, at).await? {
                Some(base) => Ok(base),
                None => self.template(otherwise, bare, sandbox, at).await,
            },
            Base::Image(name, auth) => {
                self.say(LogLevel::Info, part, &format!("[base] FROM {name}"));
                let image = self.image(name, auth.as_ref(), at).await?;
                let new = SandboxRequest {
                    image: Some(name.clone()),
                    ..SandboxRequest::unnamed()
                };
                let key = LayerKey::of_image(&image.digest);
                let (resolver, planner) = (&self.builds.parts.resolver, &self.builds.parts.planner);
                let resolved = resolver.resolve(self.principal, None, Some(name));
                let resolved = resolved.map_err(|e| at.failure(e))?.with_image(image);
                let planned = planner.plan(self.principal, &resolved, &new);
                let (spec, _) = planned.map_err(|e| at.failure(e))?;
                if bare {
                    // Nothing runs in it, and the image may contain only one program.
                    return Ok(self.stage_base(spec, key.bare(), BuildState::default(), None));
                }
                let state = BuildState::default();
                let workdir = Some(state.workdir.clone());
                let base = self.stage_base(spec, key, state, None);
                self.provision(base, workdir, sandbox, at).await
            }
        }
    }

    /// A base with the files, environment and start command of the sandboxes of a template.
    async fn template(
        &mut self,
        name: &TemplateKey,
        bare: bool,
        sandbox: &mut Option<BuildSandbox>,
        at: BuildLocation,
    ) -> Result<StageBase, BuildFailure> {
        let from = format!("[base] FROM TEMPLATE {name}");
        self.say(LogLevel::Info, at.part, &from);
        let planned = self.plan_named(name).await;
        let (mut spec, resolved) = planned.map_err(|e| at.failure(e))?;
        if let Some(snapshot) = &mut spec.snapshot {
            // Steps change files. Processes are started again at the end of the build.
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
        let key = self.key_of(&resolved, &spec, at).await?;
        let start = spec.start.clone();
        // Builtin templates and saved builds are provisioned already. A snapshot may be of a sandbox
        // of any image.
        let provisioned = match &resolved.meaning {
            Meaning::Template(template) => template.team.is_none() || spec.snapshot.is_some(),
            Meaning::Entry { .. } => spec.snapshot.is_some(),
            Meaning::Snapshot(_) | Meaning::Image => false,
        };
        let mut base = match (provisioned, bare) {
            (true, _) => self.stage_base(spec, key, state, start),
            (false, true) => self.stage_base(spec, key.bare(), state, start),
            (false, false) => {
                let base = self.stage_base(spec, key, state, start);
                self.provision(base, workdir, sandbox, at).await?
            }
        };
        // The start command keeps the state it had, before any step changes it.
        let state = &base.state;
        base.start = base.start.map(|start| start.inherited(state));
        Ok(base)
    }

    /// Plans a sandbox of the template with this name.
    async fn plan_named(&self, name: &TemplateKey) -> Result<(SandboxSpec, Resolved), CreateError> {
        let (parts, principal) = (&self.builds.parts, self.principal);
        let new = SandboxRequest::of(name.clone());
        let resolved = if self.build.record().builtin {
            // The plan of a builtin template refers to templates, not to entries of the catalogue that
            // happen to have the same name.
            let reference = name.reference().map_err(TemplateError::from)?;
            Resolved::of_template(parts.templates.resolve(principal, &reference)?)
        } else {
            parts.resolver.resolve_request(principal, &new).await?
        };
        let (spec, _) = parts.planner.plan(principal, &resolved, &new)?;
        Ok((spec, resolved))
    }

    /// The key of a base by name. It covers everything that the steps can find.
    async fn key_of(
        &self,
        resolved: &Resolved,
        spec: &SandboxSpec,
        at: BuildLocation,
    ) -> Result<LayerKey, BuildFailure> {
        if let Meaning::Snapshot(snapshot) = &resolved.meaning {
            return Ok(LayerKey::of_snapshot(snapshot.id));
        }
        let image = match resolved.fetched.clone() {
            Some(image) => Some(image),
            // A sandbox looks its image up by name when it starts, and the name may now refer to
            // another image.
            None if spec.snapshot.is_none() => {
                let found = self.builds.parts.images.find(&spec.image).await;
                found.map_err(|e| at.failure(e))?
            }
            None => None,
        };
        let digest = image.map(|image| image.digest);
        let key = match (resolved.base(), digest) {
            (Some(base), digest) => LayerKey::of_template(base.build, digest.as_deref()),
            (None, digest) => LayerKey::of_image(&digest.unwrap_or_default()),
        };
        Ok(match &resolved.meaning {
            Meaning::Entry { .. } => key.of_entry(spec),
            _ => key,
        })
    }

    /// The image, fetched when it is not on this node.
    async fn image(
        &self,
        name: &ImageName,
        auth: Option<&RegistryAuth>,
        at: BuildLocation,
    ) -> Result<Image, BuildFailure> {
        // Before any request to a registry: the caller chooses its name.
        let allowed = self
            .builds
            .parts
            .resolver
            .resolve(self.principal, None, Some(name));
        allowed.map_err(|e| at.failure(e))?;
        let reach = Reach::of(self.principal);
        let fetched = self
            .builds
            .parts
            .images
            .fetch(name, auth.cloned(), reach)
            .await;
        fetched.map_err(|e| at.failure(e))
    }

    pub(super) fn stage_base(
        &self,
        spec: SandboxSpec,
        key: LayerKey,
        state: BuildState,
        start: Option<StartCommand>,
    ) -> StageBase {
        let record = self.build.record();
        let lifecycle = Lifecycle {
            timeout: SANDBOX_MAX_LIFE.min(self.builds.max_timeout),
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
            // The start command runs at the end of the build.
            start: None,
            purpose: Purpose::Build(record.id),
            ..spec
        };
        StageBase {
            spec,
            key,
            state,
            start,
        }
    }

    /// Provisions an image, once for all builds of the team. Without a `workdir`, steps start in the
    /// home directory that the image says.
    async fn provision(
        &self,
        mut base: StageBase,
        workdir: Option<String>,
        sandbox: &mut Option<BuildSandbox>,
        at: BuildLocation,
    ) -> Result<StageBase, BuildFailure> {
        if let Some(layer) = self.layer(&base.key).await {
            return Ok(base.provisioned(layer, workdir));
        }
        let opened = self.open(sandbox, &base, at).await?;
        let unfit = |failure: BuildFailure| BuildFailure {
            message: format!("the image cannot be made fit for use: {}", failure.message),
            ..failure
        };
        let less = scripts::INCOMPLETE;
        let (script, args) = (scripts::PROVISION, [&*less.to_string()]);
        let code = opened.script_to_end(self.build, at, script, &args).await;
        match code.map_err(unfit)? {
            0 => {}
            code if code == less => {
                let message = "some programs that templates usually have cannot be installed: the \
                               image has no package manager, or no mirror of it is reachable; the \
                               next build tries again";
                self.say(LogLevel::Warn, at.part, message);
                // Each build tries again and warns again: an incomplete base must not be cached as a whole one.
                base.key = base.key.incomplete();
                if let Some(layer) = self.layer(&base.key).await {
                    // The cached layer replaces the result of this sandbox.
                    self.builds.end_sandboxes(self.build).await;
                    *sandbox = None;
                    return Ok(base.provisioned(layer, workdir));
                }
            }
            code => return Err(unfit(at.failure(format_args!("exit status {code}")))),
        }
        let user = &base.state.user;
        let workdir = match workdir {
            Some(workdir) => workdir,
            None => self.home_in(opened, user, at).await?,
        };
        let args: [&str; 2] = [&workdir, user];
        let created = opened.script(self.build, at, scripts::WORKDIR, &args);
        created.await.map_err(unfit)?;
        let saved = opened.save(self.build, at, Contents::Filesystem).await?;
        let layer = BuildLayer {
            workdir: Some(workdir),
            ..self.layer_of(&base.key, saved, &base)
        };
        self.keep_layer(layer.clone(), at).await?;
        Ok(base.provisioned(layer, None))
    }

    /// The home directory of a user in a sandbox.
    async fn home_in(
        &self,
        opened: &BuildSandbox,
        user: &str,
        at: BuildLocation,
    ) -> Result<String, BuildFailure> {
        match opened.read(ACCOUNTS, ACCOUNTS_MAX).await {
            Ok(accounts) => Ok(home_of(&accounts, user)),
            Err(InsideError::NotFound(_)) => Ok(usual_home(user).to_owned()),
            Err(error) => Err(at.failure(error)),
        }
    }
}

impl StageBase {
    /// The same after provisioning, with the requested directory or the one that the layer records.
    fn provisioned(mut self, layer: BuildLayer, requested: Option<String>) -> Self {
        if let Some(workdir) = requested.or(layer.workdir) {
            self.state.workdir = workdir;
        }
        self.on(layer.snapshot)
    }
}
