//! The base of a built-in template that this machine makes from a distribution's packages.

use shoal_core::build::{BuildFailure, BuildState, LogLevel};
use shoal_core::catalogue::CUSTOM;
use shoal_core::catalogue::merge::Source;
use shoal_core::detail::Chain;
use shoal_core::image::{Image, ImageError, ImageName, Reach};
use shoal_core::ports::create::SandboxRequest;
use shoal_core::ports::resolve::Resolved;

use super::keys::LayerKey;
use super::run::{Run, StageBase};
use super::sandbox::BuildLocation;
use crate::images::FetchError;

impl Run<'_> {
    /// The image of a release, made when it is missing; none when no mirror of this machine has it.
    pub(super) async fn release(
        &self,
        name: &ImageName,
        at: BuildLocation,
    ) -> Result<Option<StageBase>, BuildFailure> {
        self.say(LogLevel::Info, at.part, &format!("[base] FROM {name}"));
        // The name is one of this program's, so it is not judged as one that a caller chose.
        let images = &self.builds.parts.images;
        match images.fetch(name, None, Reach::Anywhere).await {
            Ok(image) => self.of_release(image, at).map(Some),
            Err(FetchError::Image(error)) if is_elsewhere(&error) => {
                self.say(LogLevel::Warn, at.part, &not_available(name));
                let build = self.build.record().id;
                tracing::warn!(build.id = %build, error = %reason(&error), "{}", not_available(name));
                Ok(None)
            }
            Err(error) => Err(at.failure(error)),
        }
    }

    fn of_release(&self, image: Image, at: BuildLocation) -> Result<StageBase, BuildFailure> {
        let key = LayerKey::of_image(&image.digest);
        let new = SandboxRequest::unnamed();
        let resolved = Resolved::of_image(CUSTOM, image.name.clone(), Source::Default);
        let planner = &self.builds.parts.planner;
        let planned = planner.plan(self.principal, &resolved.with_image(image), &new);
        let (spec, _) = planned.map_err(|e| at.failure(e))?;
        let state = BuildState {
            user: spec.user.clone(),
            workdir: spec.workdir.clone().unwrap_or_default(),
            env: spec.start_env.clone(),
        };
        Ok(self.stage_base(spec, key, state, None))
    }
}

/// Whether an image cannot be made because no mirror has its packages. A full disk is no such reason.
fn is_elsewhere(error: &ImageError) -> bool {
    matches!(
        error,
        ImageError::Tool { .. } | ImageError::NotFound(_) | ImageError::Unreachable { .. }
    )
}

/// The message in the build's log, which tenants may read.
fn not_available(name: &ImageName) -> String {
    format!(
        "{name} is not available from the package mirrors of this machine; another system is used"
    )
}

/// Why, for the operator.
fn reason(error: &ImageError) -> String {
    match error {
        ImageError::Tool { tool, detail } => format!("{tool} failed: {detail}"),
        other => Chain(other).to_string(),
    }
}
