//! From a plan to the request that starts a build.

use shoal_core::template::TemplateRef;
use shoal_protocol::build::{BuildStart, Stage};

use super::Plan;

impl Plan {
    /// The request that starts the build, without accounts of registries. Steps with files of the client have the names in the
    /// Dockerfile until their files are found.
    #[must_use]
    pub fn start(&self) -> BuildStart {
        let stage = |stage: &super::Stage| Stage {
            name: stage.name.clone(),
            from_image: stage.from_image.clone(),
            from_image_registry: None,
            from_template: stage.from_template.clone(),
            from_stage: stage.from_stage,
            steps: stage.steps.iter().map(|one| one.step.clone()).collect(),
        };
        let mut stages: Vec<Stage> = self.stages.iter().map(stage).collect();
        let main = stages.pop().unwrap_or_default();
        BuildStart {
            from_image: main.from_image,
            from_template: main.from_template,
            from_stage: main.from_stage,
            stages,
            steps: main.steps,
            keep_env: self.keep_env.clone(),
            start_cmd: self.start_cmd.clone(),
            ..BuildStart::default()
        }
    }

    /// The images in `FROM` whose names could be templates.
    #[must_use]
    pub fn perhaps_templates(&self) -> Vec<TemplateRef> {
        let images = self.stages.iter().filter(|stage| !stage.steps.is_empty());
        let named = images.filter_map(|stage| stage.from_image.as_deref()?.parse().ok());
        let mut named: Vec<TemplateRef> = named
            .filter(|named: &TemplateRef| named.namespace.is_none())
            .collect();
        named.sort_by_key(ToString::to_string);
        named.dedup();
        named
    }
}
