//! The plan of a build: its stages and steps.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::image::{ImageName, RegistryAuth};
use crate::template::TemplateKey;

/// The digest of the files of a `COPY` step, as the client computed it: 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FilesHash(String);

/// A text that is not a digest of files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid files hash {0:?}: 64 of 0-9 and a-f")]
pub struct InvalidFilesHash(String);

impl FilesHash {
    /// The digest as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FilesHash {
    type Err = InvalidFilesHash;

    fn from_str(text: &str) -> Result<Self, InvalidFilesHash> {
        let good = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == 64 && text.bytes().all(good) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidFilesHash(text.chars().take(80).collect()))
        }
    }
}

impl TryFrom<String> for FilesHash {
    type Error = InvalidFilesHash;

    fn try_from(text: String) -> Result<Self, InvalidFilesHash> {
        text.parse()
    }
}

impl From<FilesHash> for String {
    fn from(hash: FilesHash) -> Self {
        hash.0
    }
}

impl fmt::Display for FilesHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The base of a build stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// An image, with registry credentials if it needs them.
    Image(ImageName, Option<RegistryAuth>),
    /// Anything that a create can start from by the same name: a template that the team may use, an
    /// entry of the catalogue, or a snapshot.
    Template(TemplateKey),
    /// An earlier stage of the same build.
    Stage(usize),
    /// A system that this machine makes from packages, with the programs that every template has; where no mirror has
    /// it, a template of the installation. In plans of built-in templates only.
    Release {
        /// The name of the image.
        image: ImageName,
        /// The template in its place.
        otherwise: TemplateKey,
    },
}

/// Where the files of a `COPY` step come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The client's upload.
    Upload(FilesHash),
    /// The file system of an earlier stage.
    Stage(usize),
}

/// The action of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Copies files into the stage.
    Copy {
        /// Where the files come from.
        source: Source,
        /// The path of the files in the source.
        path: String,
        /// The target path, relative to the working directory.
        target: String,
        /// The owner, `user` or `user:group`; by default the current user.
        owner: Option<String>,
        /// The mode, in octal digits.
        mode: Option<String>,
    },
    /// Runs a command line in a login shell.
    Run {
        /// The command line.
        command: String,
        /// The user that runs it; by default the current user.
        user: Option<String>,
    },
    /// Sets variables for the following steps and the start command.
    Env(Vec<(String, String)>),
    /// Changes the working directory of the following steps.
    Workdir(String),
    /// Changes the user of the following steps.
    User {
        /// The account; created if it does not exist.
        name: String,
        /// Whether the account may use `sudo` without a password.
        sudo: bool,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy {
                source: Source::Stage(stage),
                path,
                target,
                ..
            } => write!(f, "COPY --from={stage} {path} {target}"),
            Self::Copy { path, target, .. } => write!(f, "COPY {path} {target}"),
            Self::Run { command, .. } => write!(f, "RUN {command}"),
            Self::Env(pairs) => {
                f.write_str("ENV")?;
                pairs
                    .iter()
                    .try_for_each(|(name, value)| write!(f, " {name}={value}"))
            }
            Self::Workdir(path) => write!(f, "WORKDIR {path}"),
            Self::User { name, .. } => write!(f, "USER {name}"),
        }
    }
}

/// One step of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The action.
    pub action: Action,
    /// The step's line in the Dockerfile, if the client sent it.
    pub line: Option<u32>,
    /// Whether this step and all later ones ignore the build cache.
    pub force: bool,
}

/// One stage of a build, which produces a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// The base of the stage.
    pub base: Base,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// The plan of a whole build. The last stage becomes the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The stages. Each refers only to earlier ones.
    pub stages: Vec<Stage>,
    /// The variables of `Env` actions that every process in a sandbox gets. The others reach only
    /// the steps and the start command.
    pub keep_env: Vec<String>,
    /// The start command of the template.
    pub start: Option<String>,
    /// The ready command: the template is ready when it exits successfully.
    pub ready: Option<String>,
    /// Whether the whole build ignores the build cache.
    pub force: bool,
}

/// Why a plan is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPlan {
    /// The plan has no stage.
    #[error("a build needs `fromImage` or `fromTemplate`")]
    Empty,
    /// A stage refers to one that is not before it.
    #[error("stage {stage} needs stage {needs}, which is not before it")]
    Order {
        /// The stage.
        stage: usize,
        /// The stage that it refers to.
        needs: usize,
    },
}

impl Plan {
    /// Whether a stage has steps, or a later stage is based on it. Other stages are only copied
    /// from.
    #[must_use]
    pub fn is_worked_in(&self, stage: usize) -> bool {
        let last = stage + 1 == self.stages.len();
        let steps = |stage: &Stage| !stage.steps.is_empty();
        let goes_on = |(number, later): (usize, &Stage)| {
            later.base == Base::Stage(stage) && self.is_worked_in(number)
        };
        last || self.stages.get(stage).is_some_and(steps)
            || self.stages.iter().enumerate().skip(stage + 1).any(goes_on)
    }

    /// Checks that each stage refers only to earlier ones.
    ///
    /// # Errors
    /// See [`InvalidPlan`].
    pub fn validate(&self) -> Result<(), InvalidPlan> {
        if self.stages.is_empty() {
            return Err(InvalidPlan::Empty);
        }
        for (stage, Stage { base, steps }) in self.stages.iter().enumerate() {
            let of_base = match base {
                Base::Stage(needs) => Some(*needs),
                _ => None,
            };
            let of_steps = steps.iter().filter_map(|step| match &step.action {
                Action::Copy {
                    source: Source::Stage(needs),
                    ..
                } => Some(*needs),
                _ => None,
            });
            if let Some(needs) = of_base.into_iter().chain(of_steps).find(|n| *n >= stage) {
                return Err(InvalidPlan::Order { stage, needs });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_refers_only_to_earlier_stages() {
        let stage = |base| Stage {
            base,
            steps: Vec::new(),
        };
        let plan = |stages| Plan {
            stages,
            keep_env: Vec::new(),
            start: None,
            ready: None,
            force: false,
        };
        let image = Base::Image("debian:12".parse().unwrap(), None);
        assert_eq!(plan(Vec::new()).validate(), Err(InvalidPlan::Empty));
        assert!(
            plan(vec![stage(image.clone()), stage(Base::Stage(0))])
                .validate()
                .is_ok()
        );
        for needs in [1, 2] {
            let wrong = plan(vec![stage(image.clone()), stage(Base::Stage(needs))]);
            assert_eq!(
                wrong.validate(),
                Err(InvalidPlan::Order { stage: 1, needs })
            );
        }
    }

    #[test]
    fn a_stage_that_is_only_copied_from_is_not_worked_in() {
        let image = || Base::Image("debian:12".parse().unwrap(), None);
        let stage = |base, steps: &[Action]| Stage {
            base,
            steps: steps
                .iter()
                .map(|action| Step {
                    action: action.clone(),
                    line: None,
                    force: false,
                })
                .collect(),
        };
        let run = Action::Workdir("/".to_owned());
        let plan = Plan {
            stages: vec![
                stage(image(), &[]),
                stage(image(), std::slice::from_ref(&run)),
                stage(image(), &[]),
                stage(Base::Stage(2), &[run]),
                stage(Base::Stage(0), &[]),
                stage(image(), &[]),
            ],
            keep_env: Vec::new(),
            start: None,
            ready: None,
            force: false,
        };
        let worked: Vec<bool> = (0..6).map(|stage| plan.is_worked_in(stage)).collect();
        assert_eq!(worked, [false, true, true, true, false, true]);
    }

    #[test]
    fn a_hash_of_files_cannot_be_a_path() {
        assert!("0a".repeat(32).parse::<FilesHash>().is_ok());
        for bad in [
            "",
            "..",
            &"0A".repeat(32),
            &"0a".repeat(33),
            &"/0".repeat(32),
        ] {
            assert!(bad.parse::<FilesHash>().is_err(), "{bad}");
        }
    }
}
