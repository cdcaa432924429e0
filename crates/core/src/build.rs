//! Builds: how a template comes to be, from an image or another template and some steps.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::{BuildId, TeamId, TemplateId};
use crate::image::{ImageName, RegistryAuth};
use crate::resources::Resources;
use crate::sandbox::SnapshotOrigin;
use crate::template::{RuntimeName, TemplateName, TemplateRef};

/// Who the steps of a build run as until one says otherwise.
pub const BUILD_USER: &str = "user";

/// Where the steps of a build start until one says otherwise.
pub const BUILD_WORKDIR: &str = "/home/user";

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
    /// A template that its team may use.
    Template(TemplateRef),
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

/// What steps carry on from one to the next, beside the files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildState {
    /// Who commands run as.
    pub user: String,
    /// Where they start.
    pub workdir: String,
    /// The variables that steps have set.
    pub env: BTreeMap<String, String>,
}

impl Default for BuildState {
    fn default() -> Self {
        Self {
            user: BUILD_USER.to_owned(),
            workdir: BUILD_WORKDIR.to_owned(),
            env: BTreeMap::new(),
        }
    }
}

impl BuildState {
    /// The state after a step, where `image` are the variables that there are already.
    #[must_use]
    pub fn after(&self, action: &Action, image: &BTreeMap<String, String>) -> Self {
        let mut next = self.clone();
        match action {
            Action::Env(pairs) => {
                for (name, value) in pairs {
                    // As they were before the step, whatever else it sets.
                    let known = |name: &str| self.env.get(name).or_else(|| image.get(name));
                    let value = expand(value, &|name| known(name).cloned());
                    next.env.insert(name.clone(), value);
                }
            }
            Action::Workdir(path) => next.workdir = self.path(path),
            Action::User { name, .. } => next.user.clone_from(name),
            Action::Copy { .. } | Action::Run { .. } => {}
        }
        next
    }

    /// `path`, seen from the working directory. A trailing `/` stays, as it says "into".
    #[must_use]
    pub fn path(&self, path: &str) -> String {
        let mut parts: Vec<&str> = Vec::new();
        let from = if path.starts_with('/') {
            ""
        } else {
            self.workdir.as_str()
        };
        for part in from.split('/').chain(path.split('/')) {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                part => parts.push(part),
            }
        }
        let into = matches!(path.rsplit('/').next(), Some("" | "." | ".."));
        let end = if into && !parts.is_empty() { "/" } else { "" };
        format!("/{}{end}", parts.join("/"))
    }
}

/// Puts values in the place of `$NAME`, `${NAME}`, `${NAME:-word}`, `${NAME-word}`, `${NAME:+word}`
/// and `${NAME+word}`; nothing where there is none. `\$`, `\\` and `\}` are the character itself.
fn expand(text: &str, value_of: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['$', '\\']) {
        out.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        if rest[at..].starts_with('\\') {
            let escaped = behind
                .chars()
                .next()
                .filter(|c| matches!(c, '$' | '\\' | '}'));
            out.push(escaped.unwrap_or('\\'));
            rest = &behind[escaped.map_or(0, char::len_utf8)..];
            continue;
        }
        rest = match braced(behind) {
            Some((inner, behind)) => {
                out.push_str(&substitute(inner, value_of));
                behind
            }
            None => {
                let length = name_length(behind);
                match length {
                    0 => out.push('$'),
                    _ => out.push_str(&value_of(&behind[..length]).unwrap_or_default()),
                }
                &behind[length..]
            }
        };
    }
    out.push_str(rest);
    out
}

/// What stands in the braces that a text begins with, when a variable does, and what is behind them.
fn braced(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('{')?;
    let (mut depth, mut escaped) = (0, false);
    for (at, c) in inner.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => depth += 1,
            '}' if depth == 0 => {
                let inside = &inner[..at];
                return (name_length(inside) > 0).then_some((inside, &inner[at + 1..]));
            }
            '}' => depth -= 1,
            _ => {}
        }
        // Braces in braces are for words of words, of which nobody writes many.
        if depth > DEPTH_MAX {
            return None;
        }
    }
    None
}

/// How deep words may stand in words.
const DEPTH_MAX: usize = 8;

/// The value of what stands in braces.
fn substitute(inner: &str, value_of: &dyn Fn(&str) -> Option<String>) -> String {
    let (name, how) = inner.split_at(name_length(inner));
    let value = value_of(name);
    let (value, how) = match how.strip_prefix(':') {
        Some(how) => (value.filter(|value| !value.is_empty()), how),
        None => (value, how),
    };
    match (how.strip_prefix('-'), how.strip_prefix('+')) {
        (Some(word), _) => value.unwrap_or_else(|| expand(word, value_of)),
        (_, Some(word)) => value.map(|_| expand(word, value_of)).unwrap_or_default(),
        _ => value.unwrap_or_default(),
    }
}

/// How much of the beginning is a variable's name.
fn name_length(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.find(|c| !good(c)).unwrap_or(text.len())
}

/// Whether a text can name a variable.
#[must_use]
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && name_length(text) == text.len()
}

/// Where a build is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildStatus {
    /// It was announced, and nobody has said yet what it does.
    Waiting,
    /// It is under way, or waits for its turn.
    Building,
    /// Sandboxes start from it.
    Ready,
    /// It has failed, or was cancelled.
    Error,
}

impl BuildStatus {
    /// The word for it on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Building => "building",
            Self::Ready => "ready",
            Self::Error => "error",
        }
    }

    /// Whether nothing more will happen.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Ready | Self::Error)
    }
}

/// Which part of a build something belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Getting what it stands on.
    Base,
    /// A step of the last stage, counted from 1.
    Step(usize),
    /// A step of an earlier stage, counted from 1; 0 is getting what it stands on.
    Earlier {
        /// The stage, counted from 0.
        stage: usize,
        /// The step.
        step: usize,
    },
    /// Starting and saving what was built.
    Finalize,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base => f.write_str("base"),
            Self::Step(number) => write!(f, "{number}"),
            Self::Earlier { stage, step: 0 } => write!(f, "stages/{stage}/base"),
            Self::Earlier { stage, step } => write!(f, "stages/{stage}/{step}"),
            Self::Finalize => f.write_str("finalize"),
        }
    }
}

/// Why a build has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildFailure {
    /// What to tell.
    pub message: String,
    /// Where it was.
    pub part: Option<Part>,
    /// The line of the Dockerfile that it was about, when the client has said one.
    #[serde(default)]
    pub line: Option<u32>,
}

/// What a finished build starts its sandboxes with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// The image under it.
    pub image: ImageName,
    /// The OCI runtime that its memory is of.
    pub runtime: Option<RuntimeName>,
    /// Who commands run as.
    pub user: String,
    /// Where commands start.
    pub workdir: Option<String>,
    /// Environment of every process: the image's.
    pub env: BTreeMap<String, String>,
    /// What steps have set: for the start command, and for builds that stand on this one.
    pub build_env: BTreeMap<String, String>,
    /// What was saved of it.
    pub snapshot: SnapshotOrigin,
    /// What runs in it from its start on.
    pub start: Option<StartCommand>,
}

/// What runs in a template from its start on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartCommand {
    /// A line for a login shell.
    pub command: String,
    /// What says that it is ready, by ending with success.
    pub ready: Option<String>,
}

/// A build as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildRecord {
    /// Its id.
    pub id: BuildId,
    /// The template that it makes or renews.
    pub template: TemplateId,
    /// Whose it is.
    pub team: TeamId,
    /// What the template is called.
    pub name: TemplateName,
    /// The tags that it is to get.
    pub tags: Vec<String>,
    /// What its sandboxes may use.
    pub resources: Resources,
    /// Where it is.
    pub status: BuildStatus,
    /// Why it has failed.
    #[serde(default)]
    pub failure: Option<BuildFailure>,
    /// What it has made.
    #[serde(default)]
    pub made: Option<Made>,
    /// When it was announced.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it ended.
    #[serde(default)]
    pub finished_at: Option<Timestamp>,
}

/// How much a line of a build's log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// To whoever looks for a fault.
    Debug,
    /// To whoever waits.
    Info,
    /// To whoever may want to change something.
    Warn,
    /// To everybody: it is why the build failed.
    Error,
}

/// A line of a build's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// When.
    pub at: Timestamp,
    /// How much it matters.
    pub level: LogLevel,
    /// What was said.
    pub message: String,
    /// In which part.
    pub part: Option<Part>,
}

/// Files as a step has left them, for the next build that does the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// What was done to come here, digested: 64 hexadecimal digits.
    pub key: String,
    /// Whose it is: no team stands on another's.
    pub team: TeamId,
    /// Where the files are.
    pub snapshot: SnapshotOrigin,
    /// The image under them.
    pub image: ImageName,
    /// When a build last stood on it.
    pub used_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Action {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Action::Env(pairs.iter().map(own).collect())
    }

    #[test]
    fn variables_stand_for_what_was_set_before() {
        let image = BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]);
        let state = BuildState::default()
            .after(&env(&[("A", "1"), ("B", "-$A")]), &image)
            .after(&env(&[("A", "1"), ("B", "${A}2$A$B")]), &image)
            .after(
                &env(&[("PATH", "/opt:$PATH"), ("C", "$NONE-\\$A-$-${x")]),
                &image,
            );
        assert_eq!(state.env["B"], "121-");
        assert_eq!(state.env["PATH"], "/opt:/bin");
        assert_eq!(state.env["C"], "-$A-$-${x");
        let words = env(&[("D", "${A:-x}${NO:-y$A}${NO-z}${A:+b}${NO+c}${EMPTY:-${B}}")]);
        assert_eq!(state.after(&words, &image).env["D"], "1y1zb121-");
    }

    #[test]
    fn paths_are_seen_from_the_working_directory() {
        let state = BuildState::default().after(&Action::Workdir("app".into()), &BTreeMap::new());
        assert_eq!(state.workdir, "/home/user/app");
        for (path, seen) in [
            ("x", "/home/user/app/x"),
            ("/x/", "/x/"),
            (".", "/home/user/app/"),
            ("../..", "/home/"),
            ("/../../x", "/x"),
            ("/", "/"),
        ] {
            assert_eq!(state.path(path), seen, "{path}");
        }
    }

    #[test]
    fn a_stage_stands_on_earlier_ones_alone() {
        let stage = |base| Stage {
            base,
            steps: Vec::new(),
        };
        let plan = |stages| Plan {
            stages,
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

    proptest! {
        #[test]
        fn nothing_that_is_expanded_or_walked_ends_badly(text in "\\PC{0,60}") {
            let _ = expand(&text, &|_| Some("v".to_owned()));
            let seen = BuildState::default().path(&text);
            prop_assert!(seen.starts_with('/') && !seen.split('/').any(|part| part == ".."));
        }
    }
}
