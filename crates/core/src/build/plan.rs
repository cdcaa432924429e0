//! What a build does.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::image::{ImageName, RegistryAuth};
use crate::template::TemplateKey;

/// The digest of what a `COPY` step takes along, as its client counted it: 64 hexadecimal digits.
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

/// What a stage of a build stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// An image, which may need an account at its registry.
    Image(ImageName, Option<RegistryAuth>),
    /// Whatever a create of the same name begins with: a template that its team may use, an entry of the
    /// catalogue, a snapshot.
    Template(TemplateKey),
    /// An earlier stage of the same build.
    Stage(usize),
}

/// Where the files of a `COPY` step come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// What the client has sent.
    Upload(FilesHash),
    /// The file system of an earlier stage.
    Stage(usize),
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Puts files there.
    Copy {
        /// Where they come from.
        source: Source,
        /// Which of them.
        path: String,
        /// Where they go, relative to the working directory.
        target: String,
        /// Whose they are then: `user` or `user:group`; the present user's when nothing is said.
        owner: Option<String>,
        /// Their mode, in octal digits.
        mode: Option<String>,
    },
    /// Runs a line in a login shell.
    Run {
        /// The line.
        command: String,
        /// As whom, when not as the present user.
        user: Option<String>,
    },
    /// Sets variables for the steps after it, and for the start command.
    Env(Vec<(String, String)>),
    /// Changes where the steps after it start.
    Workdir(String),
    /// Changes who the steps after it run as.
    User {
        /// The account, made when there is none.
        name: String,
        /// Whether it may become root without a password.
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
    /// What it does.
    pub action: Action,
    /// The line of the Dockerfile that it stands in, when the client has said one.
    pub line: Option<u32>,
    /// Whether it is done though it was done before, and so are all after it.
    pub force: bool,
}

/// One file system to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// What it stands on.
    pub base: Base,
    /// What is done to that, in order.
    pub steps: Vec<Step>,
}

/// All that a build does. The last stage becomes the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The stages, each standing on earlier ones alone.
    pub stages: Vec<Stage>,
    /// The variables of `Env` actions that every process of a sandbox gets, not only the steps and
    /// the start command.
    pub keep_env: Vec<String>,
    /// What runs in the template from its start on.
    pub start: Option<String>,
    /// What says that it is ready, by ending with success.
    pub ready: Option<String>,
    /// Whether nothing that was done before is taken over.
    pub force: bool,
}

/// Why a plan cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPlan {
    /// There is nothing in it.
    #[error("a build needs `fromImage` or `fromTemplate`")]
    Empty,
    /// A stage names one that is not before it.
    #[error("stage {stage} needs stage {needs}, which is not before it")]
    Order {
        /// Which.
        stage: usize,
        /// What it names.
        needs: usize,
    },
}

impl Plan {
    /// Whether anything is done in a stage, or goes on from it: others are only copied from.
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

    /// Whether each stage needs only what is before it.
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
    fn a_stage_stands_on_earlier_ones_alone() {
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
