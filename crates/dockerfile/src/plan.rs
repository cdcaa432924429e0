//! From instructions to stages: which stages exist, which are needed, and their bases.

use shoal_protocol::build::Step;

use super::copy::CopyFiles;
use super::scope::Scope;
use super::stage::{Base, Builder};
use super::{Dockerfile, Instruction, Problem, arguments, words};
use arguments::{Allowed, What};

/// Build arguments that are valid without an `ARG`.
const PREDEFINED: [&str; 8] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "FTP_PROXY",
    "ftp_proxy",
    "NO_PROXY",
    "no_proxy",
];

/// Options that are not in the Dockerfile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Values of `ARG`.
    pub build_args: Vec<(String, String)>,
    /// The name or number (from 0) of the stage to build; by default the last.
    pub target: Option<String>,
    /// The processor architecture in the notation of images: `amd64`, `arm64`.
    pub arch: String,
    /// The templates that `FROM` names: a template takes precedence over an image of the same name.
    pub templates: Vec<TemplateBase>,
}

/// A template that a stage can be based on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateBase {
    /// Its name, with its tag if it has one, as `FROM` writes it.
    pub name: String,
    /// The user of its sandboxes.
    pub user: String,
    /// The directory where its sandboxes run commands; their home directory when absent.
    pub workdir: Option<String>,
}

/// The plan of a Dockerfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The required stages, each after those that it needs; the last one is built.
    pub stages: Vec<Stage>,
    /// The start command of sandboxes, from `ENTRYPOINT` and `CMD`.
    pub start_cmd: Option<String>,
    /// The variables of `ENV`, for every process of a sandbox.
    pub keep_env: Vec<String>,
    /// Ignored instructions, and probable mistakes.
    pub warnings: Vec<Problem>,
}

/// A stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Its name.
    pub name: Option<String>,
    /// The line of its `FROM`.
    pub line: u32,
    /// Its base: an image,
    pub from_image: Option<String>,
    /// a template,
    pub from_template: Option<String>,
    /// or a stage, by its index in [`Plan::stages`].
    pub from_stage: Option<usize>,
    /// Its steps.
    pub steps: Vec<StagedStep>,
}

/// A step with its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedStep {
    /// The line of its instruction.
    pub line: u32,
    /// The step; with `files`, its source and `files_hash` are still missing.
    pub step: Step,
    /// The files to copy from the client.
    pub files: Option<CopyFiles>,
}

/// Turns a Dockerfile into a build plan.
///
/// # Errors The first instruction that is not possible, with its line.
pub fn plan(file: &Dockerfile, options: &Options) -> Result<Plan, Problem> {
    let mut planner = Planner {
        file,
        options,
        global: global_scope(options),
        done: Vec::new(),
        warnings: Vec::new(),
    };
    let mut declared: Vec<String> = Vec::new();
    for instruction in &file.instructions {
        if instruction.keyword == "ARG" {
            let pairs = words::split(&instruction.rest, file.escape).into_iter();
            declared.extend(pairs.filter_map(|pair| Some(pair.split('=').next()?.to_owned())));
        }
        planner.take(instruction)?;
    }
    for (name, _) in &options.build_args {
        if !declared.contains(name) && !PREDEFINED.contains(&name.as_str()) {
            let message = format!("no ARG takes the build argument {name}");
            planner.warnings.push(Problem::new(0, message));
        }
    }
    planner.finish()
}

/// The variables that `FROM` sees, which are also the defaults of an `ARG` without a value.
fn global_scope(options: &Options) -> Scope {
    let mut scope = Scope::default();
    for side in ["TARGET", "BUILD"] {
        for (name, value) in [
            ("PLATFORM", format!("linux/{}", options.arch)),
            ("OS", "linux".to_owned()),
            ("ARCH", options.arch.clone()),
            ("VARIANT", String::new()),
        ] {
            scope.set_arg(format!("{side}{name}"), Some(Some(value)));
        }
    }
    for (name, value) in &options.build_args {
        if PREDEFINED.contains(&name.as_str()) {
            scope.set_arg(name.clone(), Some(Some(value.clone())));
        }
    }
    scope
}

struct Planner<'a> {
    file: &'a Dockerfile,
    options: &'a Options,
    global: Scope,
    done: Vec<Builder>,
    warnings: Vec<Problem>,
}

impl Planner<'_> {
    fn take(&mut self, instruction: &Instruction) -> Result<(), Problem> {
        if instruction.keyword == "FROM" {
            let stage = self.from(instruction)?;
            self.done.push(stage);
            return Ok(());
        }
        let (escape, build_args) = (self.file.escape, &self.options.build_args);
        let Some((stage, earlier)) = self.done.split_last_mut() else {
            if instruction.keyword != "ARG" {
                let problem = instruction.problem("it stands before the first FROM");
                return Err(problem.with_hint("Only ARG may."));
            }
            return global_arg(&mut self.global, instruction, escape, build_args);
        };
        let around = super::stage::Around {
            escape,
            build_args,
            global: &self.global,
            earlier,
            warnings: &mut self.warnings,
        };
        stage.take(instruction, around)
    }

    fn from(&self, instruction: &Instruction) -> Result<Builder, Problem> {
        let allowed = [Allowed {
            name: "platform",
            what: What::Take,
        }];
        for (_, platform) in instruction.flags(&allowed)? {
            let platform = self.global_word(instruction, platform)?;
            self.check_platform(instruction, &platform)?;
        }
        let all = words::split(&instruction.rest, self.file.escape);
        let (image, name) = match all.as_slice() {
            [image] => (image, None),
            [image, word, name] if word.eq_ignore_ascii_case("as") => {
                (image, Some(name.to_ascii_lowercase()))
            }
            _ => return Err(instruction.problem("say FROM IMAGE, or FROM IMAGE AS NAME")),
        };
        if let Some(name) = &name {
            self.check_name(instruction, name)?;
        }
        let image = self.global_word(instruction, image)?;
        if image.is_empty() {
            return Err(instruction.problem("the name of the image comes out empty"));
        }
        let proxies = self.options.build_args.iter();
        let proxies = proxies.filter(|(name, _)| PREDEFINED.contains(&name.as_str()));
        let earlier = self.done.iter().position(|stage| stage.is_called(&image));
        match earlier {
            Some(place) => Ok(Builder::over_stage(
                instruction.line,
                name,
                place,
                &self.done[place],
            )),
            None if image.eq_ignore_ascii_case("scratch") => {
                let problem = instruction.problem("a stage of nothing cannot be built");
                Err(problem
                    .with_hint("Steps run inside the stage: stand on an image with a shell."))
            }
            None => {
                let mut templates = self.options.templates.iter();
                let base = match templates.find(|template| template.name == image) {
                    Some(template) => Base::Template(template.clone()),
                    None => Base::Image(image),
                };
                Ok(Builder::over(instruction.line, name, base, proxies))
            }
        }
    }

    fn global_word(&self, instruction: &Instruction, word: &str) -> Result<String, Problem> {
        let text = words::expand(word, self.file.escape, &self.global);
        let text = text.map_err(|why| instruction.problem(why))?;
        text.known().map_err(|name| {
            let problem = instruction.problem(format!("nothing says what ${name} is"));
            problem.with_hint(format!("Write `ARG {name}=…` above the first FROM."))
        })
    }

    fn check_name(&self, instruction: &Instruction, name: &str) -> Result<(), Problem> {
        let good = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c));
        if !good || name == "scratch" {
            let problem = instruction.problem(format!("{name} cannot be a stage's name"));
            return Err(
                problem.with_hint("It begins with a letter; a-z, 0-9, `-`, `_` and `.` follow.")
            );
        }
        if self.done.iter().any(|stage| stage.is_called(name)) {
            return Err(instruction.problem(format!("there is a stage {name} above")));
        }
        Ok(())
    }

    fn check_platform(&self, instruction: &Instruction, platform: &str) -> Result<(), Problem> {
        let mut parts = platform.split('/');
        let (first, second) = (parts.next().unwrap_or_default(), parts.next());
        let (os, arch) = match second {
            Some(arch) => (first, arch),
            None if first == "linux" => return Ok(()),
            None => ("linux", first),
        };
        let arch = match arch {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            arch => arch,
        };
        if os == "linux" && arch == self.options.arch {
            return Ok(());
        }
        let message = format!(
            "--platform={platform}: sandboxes run on linux/{} here, and nothing is emulated",
            self.options.arch
        );
        Err(instruction.problem(message))
    }

    fn finish(mut self) -> Result<Plan, Problem> {
        let target = match &self.options.target {
            None => self.done.len().saturating_sub(1),
            Some(asked) => self.target(asked)?,
        };
        // The stages that the target needs, from the last to the first: a stage only needs earlier
        // ones.
        let mut needed = vec![false; self.done.len()];
        for place in (0..=target).rev() {
            needed[place] |= place == target;
            if needed[place] {
                self.done[place]
                    .needs()
                    .for_each(|other| needed[other] = true);
            }
        }
        self.done[target].end();
        let start_cmd = self.done[target].start_cmd();
        let keep_env = self.done[target].scope.env_names();
        let mut new_place = vec![0; self.done.len()];
        let mut stages: Vec<Stage> = Vec::new();
        for (place, builder) in self.done.into_iter().enumerate() {
            if !needed[place] {
                continue;
            }
            let mut stage = builder.into_stage();
            stage.from_stage = stage.from_stage.map(|other| new_place[other]);
            for staged in &mut stage.steps {
                staged.step.from_stage = match staged.step.from_image.take() {
                    Some(image) => Some(image_stage(&mut stages, image, staged.line)),
                    None => staged.step.from_stage.map(|other| new_place[other]),
                };
            }
            new_place[place] = stages.len();
            stages.push(stage);
        }
        Ok(Plan {
            stages,
            start_cmd,
            keep_env,
            warnings: self.warnings,
        })
    }

    fn target(&self, asked: &str) -> Result<usize, Problem> {
        let named = self.done.iter().position(|stage| stage.is_called(asked));
        let numbered = || asked.parse().ok().filter(|place| *place < self.done.len());
        named.or_else(numbered).ok_or_else(|| {
            let names = self.done.iter().filter_map(Builder::name);
            let names: Vec<&str> = names.collect();
            let problem = Problem::new(0, format!("it has no stage {asked}"));
            match names.is_empty() {
                true => problem.with_hint("None of its stages has a name."),
                false => problem.with_hint(format!("It has {}.", names.join(", "))),
            }
        })
    }
}

/// The index of the stage for an image from which files are copied. It is a separate stage, so that
/// a failed pull is reported with a line, like all other failures.
fn image_stage(stages: &mut Vec<Stage>, image: String, line: u32) -> usize {
    let bare = |stage: &Stage| stage.steps.is_empty() && stage.from_image.as_ref() == Some(&image);
    stages.iter().position(bare).unwrap_or_else(|| {
        stages.push(Stage {
            name: None,
            line,
            from_image: Some(image),
            from_template: None,
            from_stage: None,
            steps: Vec::new(),
        });
        stages.len() - 1
    })
}

fn global_arg(
    scope: &mut Scope,
    instruction: &Instruction,
    escape: char,
    build_args: &[(String, String)],
) -> Result<(), Problem> {
    instruction.flags(&[])?;
    for pair in words::split(&instruction.rest, escape) {
        let (name, default) = match pair.split_once('=') {
            Some((name, default)) => (name, Some(default)),
            None => (pair.as_str(), None),
        };
        let said = build_args.iter().rev().find(|(other, _)| other == name);
        let value = match (said, default) {
            (Some((_, said)), _) => Some(Some(said.clone())),
            (None, Some(default)) => {
                let text = words::expand(default, escape, scope);
                let text = text.map_err(|why| instruction.problem(why))?;
                // Only variables declared above are set here; others are empty, as in Docker.
                Some(Some(text.known().unwrap_or_default()))
            }
            (None, None) => scope.arg(name).cloned(),
        };
        scope.set_arg(name.to_owned(), value);
    }
    Ok(())
}
