//! Parsing a client's build plan.

use shoal_core::build::{Action, Base, Plan, Source, Stage, Step, is_name};
use shoal_core::image::RegistryAuth;
use shoal_protocol::build::{self as wire, Registry};

use crate::error::ApiError;

/// The maximum number of steps of a build, over all stages.
const STEPS_MAX: usize = 1000;

/// The maximum number of stages of a build.
const STAGES_MAX: usize = 64;

/// The account name with which Google's registry accepts the key of a service account.
const GCP_ACCOUNT: &str = "_json_key";

/// The plan of a request body.
pub(super) fn plan_of(body: wire::BuildStart) -> Result<Plan, ApiError> {
    let mut reader = Reader {
        stages: Vec::new(),
        places: Vec::new(),
    };
    let steps = body
        .stages
        .iter()
        .map(|stage| stage.steps.len())
        .sum::<usize>()
        + body.steps.len();
    if steps > STEPS_MAX || body.stages.len() > STAGES_MAX {
        return Err(ApiError::invalid(format_args!(
            "a build has at most {STEPS_MAX} steps in {STAGES_MAX} stages"
        )));
    }
    for stage in body.stages {
        let base = reader.base(
            stage.from_image,
            stage.from_image_registry,
            stage.from_template,
            stage.from_stage,
        )?;
        let steps = reader.steps(stage.steps)?;
        reader.places.push(reader.stages.len());
        reader.stages.push(Stage { base, steps });
    }
    let base = reader.base(
        body.from_image,
        body.from_image_registry,
        body.from_template,
        body.from_stage,
    )?;
    let steps = reader.steps(body.steps)?;
    reader.stages.push(Stage { base, steps });
    if let Some(bad) = body.keep_env.iter().find(|name| !is_name(name)) {
        let shown: String = bad.chars().take(64).collect();
        return Err(ApiError::invalid(format_args!(
            "`keepEnv`: {shown:?} is no name of a variable"
        )));
    }
    let said = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    let plan = Plan {
        stages: reader.stages,
        keep_env: body.keep_env,
        start: said(body.start_cmd),
        ready: said(body.ready_cmd),
        force: body.force,
    };
    plan.validate().map_err(ApiError::invalid)?;
    Ok(plan)
}

struct Reader {
    stages: Vec<Stage>,
    /// The positions of the client's stages among all stages.
    places: Vec<usize>,
}

impl Reader {
    fn base(
        &self,
        image: Option<String>,
        registry: Option<Registry>,
        template: Option<String>,
        stage: Option<usize>,
    ) -> Result<Base, ApiError> {
        match (image, template, stage) {
            (Some(image), None, None) => {
                let name = image
                    .parse()
                    .map_err(|e| ApiError::invalid(format_args!("`fromImage`: {e}")))?;
                Ok(Base::Image(name, registry.map(account).transpose()?))
            }
            (None, Some(template), None) => {
                let reference = template.parse();
                let reference = reference
                    .map_err(|e| ApiError::invalid(format_args!("`fromTemplate`: {e}")))?;
                Ok(Base::Template(reference))
            }
            (None, None, Some(stage)) => Ok(Base::Stage(self.place(stage)?)),
            _ => Err(ApiError::invalid(
                "exactly one of `fromImage` and `fromTemplate` is needed",
            )),
        }
    }

    fn place(&self, stage: usize) -> Result<usize, ApiError> {
        let place = self.places.get(stage).copied();
        place.ok_or_else(|| {
            ApiError::invalid(format_args!(
                "`fromStage`: there is no stage {stage} before it"
            ))
        })
    }

    fn steps(&mut self, steps: Vec<wire::Step>) -> Result<Vec<Step>, ApiError> {
        let mut read = Vec::with_capacity(steps.len());
        for (index, step) in steps.into_iter().enumerate() {
            let (force, line) = (step.force, step.line);
            let action = self.action(step);
            let action = action.map_err(|error| {
                ApiError::invalid(format_args!("`steps[{index}]`: {}", error.message()))
            })?;
            read.push(Step {
                action,
                line,
                force,
            });
        }
        Ok(read)
    }

    fn action(&mut self, step: wire::Step) -> Result<Action, ApiError> {
        let kind = step.kind.to_ascii_uppercase();
        let arg = |index: usize| step.args.get(index).filter(|arg| !arg.is_empty()).cloned();
        let needs = |index: usize, what: &str| {
            arg(index).ok_or_else(|| ApiError::invalid(format_args!("{kind} needs {what}")))
        };
        match kind.as_str() {
            "COPY" | "ADD" => {
                let (path, target) = (needs(0, "a source")?, needs(1, "a target")?);
                let (owner, mode) = (arg(2), arg(3));
                check_copy(owner.as_deref(), mode.as_deref())?;
                let source = self.source(&step)?;
                Ok(Action::Copy {
                    source,
                    path,
                    target,
                    owner,
                    mode,
                })
            }
            "RUN" => Ok(Action::Run {
                command: needs(0, "a command")?,
                user: arg(1).map(|user| account_name(&user)).transpose()?,
            }),
            "ENV" | "ARG" => pairs(&step.args),
            "WORKDIR" => Ok(Action::Workdir(needs(0, "a path")?)),
            "USER" => Ok(Action::User {
                name: account_name(&needs(0, "a name")?)?,
                sudo: arg(1).as_deref() == Some("true"),
            }),
            _ => Err(ApiError::invalid(format_args!(
                "there is no step {:?}: use COPY, ADD, RUN, ENV, ARG, WORKDIR or USER",
                step.kind.chars().take(40).collect::<String>()
            ))),
        }
    }

    fn source(&mut self, step: &wire::Step) -> Result<Source, ApiError> {
        match (&step.files_hash, step.from_stage, &step.from_image) {
            (Some(hash), None, None) => {
                Ok(Source::Upload(hash.parse().map_err(ApiError::invalid)?))
            }
            (None, Some(stage), None) => Ok(Source::Stage(self.place(stage)?)),
            (None, None, Some(image)) => {
                // An image is a stage without steps.
                let base = Base::Image(image.parse().map_err(ApiError::invalid)?, None);
                self.stages.push(Stage {
                    base,
                    steps: Vec::new(),
                });
                Ok(Source::Stage(self.stages.len() - 1))
            }
            _ => Err(ApiError::invalid(
                "`filesHash` is needed: upload the files first",
            )),
        }
    }
}

/// Checks the owner and the mode of copied files, which become program arguments.
fn check_copy(owner: Option<&str>, mode: Option<&str>) -> Result<(), ApiError> {
    if let Some(owner) = owner {
        owner
            .split(':')
            .take(3)
            .try_for_each(|part| account_name(part).map(|_| ()))?;
    }
    let octal = |mode: &str| mode.len() <= 4 && mode.bytes().all(|b| (b'0'..=b'7').contains(&b));
    match mode {
        Some(mode) if !octal(mode) => Err(ApiError::invalid("a mode is up to four octal digits")),
        _ => Ok(()),
    }
}

/// Parses the name or number of an account.
fn account_name(text: &str) -> Result<String, ApiError> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if (1..=64).contains(&text.len()) && text.bytes().all(good) && !text.starts_with('-') {
        return Ok(text.to_owned());
    }
    let shown: String = text.chars().take(64).collect();
    Err(ApiError::invalid(format_args!(
        "{shown:?} is no name of an account"
    )))
}

/// Parses alternating names and values. A missing value is empty.
fn pairs(args: &[String]) -> Result<Action, ApiError> {
    let mut pairs = Vec::new();
    for pair in args.chunks(2) {
        let name = pair.first().cloned().unwrap_or_default();
        if !is_name(&name) {
            let shown: String = name.chars().take(64).collect();
            return Err(ApiError::invalid(format_args!(
                "{shown:?} is no name of a variable"
            )));
        }
        pairs.push((name, pair.get(1).cloned().unwrap_or_default()));
    }
    if pairs.is_empty() {
        return Err(ApiError::invalid("a variable and its value are needed"));
    }
    Ok(Action::Env(pairs))
}

/// The credentials for a registry.
fn account(registry: Registry) -> Result<RegistryAuth, ApiError> {
    match registry {
        Registry::Registry { username, password } => Ok(RegistryAuth {
            username,
            password,
            aws_region: None,
        }),
        Registry::Gcp {
            service_account_json,
        } => Ok(RegistryAuth {
            username: GCP_ACCOUNT.to_owned(),
            password: service_account_json,
            aws_region: None,
        }),
        Registry::Aws {
            aws_access_key_id,
            aws_secret_access_key,
            aws_region,
        } if [&aws_access_key_id, &aws_secret_access_key, &aws_region]
            .iter()
            .any(|part| part.is_empty()) =>
        {
            Err(ApiError::invalid(
                "`fromImageRegistry`: a key of AWS, its secret and a region are needed",
            ))
        }
        Registry::Aws {
            aws_access_key_id,
            aws_secret_access_key,
            aws_region,
        } => Ok(RegistryAuth {
            username: aws_access_key_id,
            password: aws_secret_access_key,
            aws_region: Some(aws_region),
        }),
    }
}

#[cfg(test)]
mod tests;
