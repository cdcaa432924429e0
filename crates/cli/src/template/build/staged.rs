//! A plan with its files, ready to be sent to the server.

use std::collections::{HashMap, HashSet};

use shoal_core::template::TemplateRef;
use shoal_protocol::build::{BuildStart, Part, Place, Registry, Stage, Step};

use super::archive;
use super::context::{Context, Entries};
use super::text::Text;
use super::upload;
use crate::connection::Connection;
use crate::dockerfile::{Plan, Problem, StagedStep};
use crate::failure::Failure;

/// Stages whose files were found and hashed.
#[derive(Debug)]
pub(super) struct Staged {
    plan: Plan,
    /// Skipped files, by line.
    skipped: Vec<(u32, String)>,
    /// The files of each hash, with the first line that needs them.
    files: Vec<(String, u32, Entries)>,
}

impl Staged {
    /// Finds and hashes the files of every step.
    pub(super) fn new(mut plan: Plan, context: &Context, text: &Text) -> Result<Self, Failure> {
        let mut files = Vec::new();
        let mut skipped = Vec::new();
        let mut seen = HashSet::new();
        for staged in plan.stages.iter_mut().flat_map(|stage| &mut stage.steps) {
            let line = staged.line;
            let entries = find(staged, context, &mut skipped);
            let entries = entries.map_err(|why| {
                text.failure(Problem {
                    line,
                    message: format!("COPY: {why}"),
                    hint: None,
                })
            })?;
            if let (Some(entries), Some(hash)) = (entries, &staged.step.files_hash)
                && seen.insert(hash.clone())
            {
                files.push((hash.clone(), line, entries));
            }
        }
        Ok(Self {
            plan,
            skipped,
            files,
        })
    }

    /// Prints warnings about skipped files and probable mistakes.
    pub(super) fn warn(&self, text: &Text) {
        for warning in &self.plan.warnings {
            text.warn(warning.line, &warning.message);
        }
        for (line, message) in &self.skipped {
            text.warn(*line, message);
        }
    }

    /// The images in `FROM` whose names could be templates.
    pub(super) fn perhaps_templates(&self) -> Vec<TemplateRef> {
        let images = self
            .plan
            .stages
            .iter()
            .filter(|stage| !stage.steps.is_empty());
        let named = images.filter_map(|stage| stage.from_image.as_deref()?.parse().ok());
        let mut named: Vec<TemplateRef> = named
            .filter(|named: &TemplateRef| named.namespace.is_none())
            .collect();
        named.sort_by_key(ToString::to_string);
        named.dedup();
        named
    }

    /// Uploads the files that the server does not have.
    pub(super) async fn upload(
        &self,
        server: &Connection,
        template: &str,
        text: &Text,
    ) -> Result<(), Failure> {
        for (hash, line, entries) in &self.files {
            let sent = upload::upload(server, template, hash, entries, &text.at(*line)).await;
            sent.map_err(|failure| failure.with_details(text.excerpt(*line)))?;
        }
        Ok(())
    }

    /// The request that starts the build.
    pub(super) fn start(&self, registry: Option<Registry>) -> BuildStart {
        let place = self.plan.stages.len().saturating_sub(1);
        let account = registry.zip(self.registry_of(place));
        let mut stages: Vec<Stage> = self
            .plan
            .stages
            .iter()
            .map(|stage| {
                let image = stage.from_image.as_deref().map(registry_host);
                let account = account
                    .as_ref()
                    .filter(|(_, host)| image == Some(host.as_str()));
                Stage {
                    name: stage.name.clone(),
                    from_image: stage.from_image.clone(),
                    from_image_registry: account.map(|(registry, _)| registry.clone()),
                    from_template: stage.from_template.clone(),
                    from_stage: stage.from_stage,
                    steps: stage
                        .steps
                        .iter()
                        .map(|staged| staged.step.clone())
                        .collect(),
                }
            })
            .collect();
        let main = stages.pop().unwrap_or_default();
        BuildStart {
            from_image: main.from_image,
            from_template: main.from_template,
            from_image_registry: main.from_image_registry,
            from_stage: main.from_stage,
            stages,
            steps: main.steps,
            keep_env: self.plan.keep_env.clone(),
            start_cmd: self.plan.start_cmd.clone(),
            ..BuildStart::default()
        }
    }

    /// The registry of the image at the root of a stage's bases.
    fn registry_of(&self, place: usize) -> Option<String> {
        let stage = self.plan.stages.get(place)?;
        match (&stage.from_image, stage.from_stage) {
            (Some(image), _) => Some(registry_host(image).to_owned()),
            // The base is an earlier stage, so the recursion ends.
            (None, Some(below)) => self.registry_of(below),
            (None, None) => None,
        }
    }

    /// The line of each step that the server may report.
    pub(super) fn lines(&self) -> HashMap<Place, u32> {
        let last = self.plan.stages.len().saturating_sub(1);
        let mut lines = HashMap::new();
        for (index, stage) in self.plan.stages.iter().enumerate() {
            let place = |part| Place {
                stage: (index != last).then_some(index),
                part,
            };
            lines.insert(place(Part::Base), stage.line);
            for (step, staged) in stage.steps.iter().enumerate() {
                lines.insert(place(Part::Step(step + 1)), staged.line);
            }
        }
        lines
    }
}

/// Finds the files of a step and sets them in the step.
fn find(
    staged: &mut StagedStep,
    context: &Context,
    skipped: &mut Vec<(u32, String)>,
) -> Result<Option<Entries>, String> {
    let Some(files) = &staged.files else {
        return Ok(None);
    };
    let gathered = context.gather(files)?;
    skipped.extend(gathered.skipped.iter().map(|path| {
        let message = format!(
            "{} is neither file, directory nor link, and is not copied",
            path.display()
        );
        (staged.line, message)
    }));
    let step: &mut Step = &mut staged.step;
    // The hash covers the arguments of the Dockerfile; the step contains those of the wire.
    let hash = archive::hash(&step.args, &gathered.entries);
    step.files_hash = Some(hash.map_err(|error| error.to_string())?);
    if let Some(source) = step.args.first_mut() {
        *source = gathered.source;
    }
    Ok(Some(gathered.entries))
}

/// The registry in an image's name.
fn registry_host(image: &str) -> &str {
    let first = image.split_once('/').map(|(first, _)| first);
    let host = first.filter(|first| first.contains(['.', ':']) || *first == "localhost");
    host.unwrap_or("docker.io")
}
