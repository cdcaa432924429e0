//! A plan with its files, ready to be sent to the server.

use std::collections::{HashMap, HashSet};

use shoal_core::template::TemplateRef;
use shoal_dockerfile::{Plan, Problem, StagedStep};
use shoal_protocol::build::{BuildStart, Part, Place, Registry, Step};

use super::archive;
use super::context::{Context, Entries};
use super::text::Text;
use super::upload;
use crate::connection::Connection;
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
        self.plan.perhaps_templates()
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
        let mut start = self.plan.start();
        let place = self.plan.stages.len().saturating_sub(1);
        let Some((registry, host)) = registry.zip(self.registry_of(place)) else {
            return start;
        };
        let account = |image: &Option<String>| {
            let image = image.as_deref().map(registry_host);
            (image == Some(host.as_str())).then(|| registry.clone())
        };
        start.from_image_registry = account(&start.from_image);
        for stage in &mut start.stages {
            stage.from_image_registry = account(&stage.from_image);
        }
        start
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
