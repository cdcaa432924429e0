//! One stage: turning its instructions into steps.

use shoal_protocol::build::Step;

use super::plan::{Stage, StagedStep, TemplateBase};
use super::run::StartWords;
use super::scope::Scope;
use super::{Instruction, Problem, words};

/// The user of a stage's steps before any `USER`: Docker's default.
const USER: &str = "root";

/// Their working directory before any `WORKDIR`.
const WORKDIR: &str = "/";

/// The user of commands in sandboxes without a `USER`: E2B's default.
const SANDBOX_USER: &str = "user";

/// Their working directory without a `WORKDIR`.
const SANDBOX_WORKDIR: &str = "/home/user";

/// Makes login shells keep the `PATH` of their parent process. `RUN` steps and E2B's clients use
/// login shells, and `/etc/profile` of most distributions resets `PATH`.
const KEEP_PATH: &str = r#"path=$(tr '\0' '\n' < /proc/$$/environ | sed -n 's/^PATH=//p')
mkdir -p /etc/profile.d
printf 'PATH=%q\nexport PATH\n' "$path" > /etc/profile.d/zz-dockerfile-path.sh
chmod 644 /etc/profile.d/zz-dockerfile-path.sh"#;

/// The context of an instruction outside of its stage.
pub(super) struct Around<'a> {
    pub(super) escape: char,
    pub(super) build_args: &'a [(String, String)],
    /// The arguments before the first `FROM`.
    pub(super) global: &'a Scope,
    /// The earlier stages.
    pub(super) earlier: &'a [Builder],
    pub(super) warnings: &'a mut Vec<Problem>,
}

impl Around<'_> {
    pub(super) fn warn(&mut self, instruction: &Instruction, message: &str) {
        self.warnings.push(instruction.problem(message));
    }
}

/// The base of a stage, other than an earlier stage.
pub(super) enum Base {
    Image(String),
    Template(TemplateBase),
}

/// A stage under construction.
#[derive(Debug, Clone)]
pub(super) struct Builder {
    stage: Stage,
    pub(super) scope: Scope,
    /// The shell of `RUN`, `CMD` and `ENTRYPOINT` in shell form; `None` for the server's default.
    pub(super) shell: Option<Vec<String>>,
    pub(super) cmd: Option<StartWords>,
    pub(super) entrypoint: Option<StartWords>,
    /// Whether `cmd` belongs to this stage, not to its base.
    pub(super) own_cmd: bool,
    user_said: bool,
    workdir_said: bool,
    /// The user of commands in sandboxes without a `USER`.
    usual_user: String,
    /// Their working directory without a `WORKDIR`.
    usual_workdir: String,
}

impl Builder {
    /// A stage that is based on an image or a template.
    pub(super) fn over<'a>(
        line: u32,
        name: Option<String>,
        base: Base,
        proxies: impl Iterator<Item = &'a (String, String)>,
    ) -> Self {
        let (mut user, mut workdir) = (SANDBOX_USER.to_owned(), SANDBOX_WORKDIR.to_owned());
        let (mut from_image, mut from_template) = (None, None);
        match base {
            Base::Image(image) => from_image = Some(image),
            Base::Template(template) => {
                workdir = template
                    .workdir
                    .unwrap_or_else(|| usual_home(&template.user));
                user = template.user;
                from_template = Some(template.name);
            }
        }
        let mut builder = Self {
            stage: Stage {
                name,
                line,
                from_image,
                from_template,
                from_stage: None,
                steps: Vec::new(),
            },
            scope: Scope::default(),
            shell: None,
            cmd: None,
            entrypoint: None,
            own_cmd: false,
            user_said: false,
            workdir_said: false,
            usual_user: user,
            usual_workdir: workdir,
        };
        builder.push(line, "USER", vec![USER.to_owned()]);
        builder.push(line, "WORKDIR", vec![WORKDIR.to_owned()]);
        for (name, value) in proxies {
            let wire = value.replace('\\', "\\\\").replace('$', "\\$");
            builder.push(line, "ARG", vec![name.clone(), wire]);
            builder
                .scope
                .set_arg(name.clone(), Some(Some(value.clone())));
        }
        builder
    }

    /// A stage based on an earlier one, which continues with its state.
    pub(super) fn over_stage(line: u32, name: Option<String>, place: usize, other: &Self) -> Self {
        Self {
            stage: Stage {
                name,
                line,
                from_image: None,
                from_template: None,
                from_stage: Some(place),
                steps: Vec::new(),
            },
            scope: other.scope.inherited(),
            own_cmd: false,
            ..other.clone()
        }
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.stage.name.as_deref()
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name()
            .is_some_and(|own| own.eq_ignore_ascii_case(name))
    }

    /// The stages that this one needs.
    pub(super) fn needs(&self) -> impl Iterator<Item = usize> {
        let steps = self.stage.steps.iter();
        steps
            .filter_map(|staged| staged.step.from_stage)
            .chain(self.stage.from_stage)
    }

    /// Finishes the stage to build. Without a `USER` or `WORKDIR`, a sandbox has those of the base
    /// template, or E2B's.
    pub(super) fn end(&mut self) {
        let line = self.stage.line;
        if !self.user_said {
            self.push(line, "USER", vec![self.usual_user.clone()]);
        }
        if !self.workdir_said {
            self.push(line, "WORKDIR", vec![self.usual_workdir.clone()]);
        }
    }

    pub(super) fn into_stage(self) -> Stage {
        self.stage
    }

    fn push(&mut self, line: u32, kind: &str, args: Vec<String>) {
        self.push_staged(StagedStep {
            line,
            step: Step {
                kind: kind.to_owned(),
                args,
                line: Some(line),
                ..Step::default()
            },
            files: None,
        });
    }

    pub(super) fn push_staged(&mut self, staged: StagedStep) {
        self.stage.steps.push(staged);
    }

    /// Handles the next instruction of the stage.
    pub(super) fn take(
        &mut self,
        instruction: &Instruction,
        mut around: Around<'_>,
    ) -> Result<(), Problem> {
        let line = instruction.line;
        match instruction.keyword.as_str() {
            "RUN" => {
                let command = super::run::command(instruction, self.shell.as_deref(), &mut around)?;
                self.push(line, "RUN", vec![command]);
            }
            "COPY" | "ADD" => self.copy(instruction, &around)?,
            "ENV" => self.env(instruction, &around)?,
            "ARG" => self.arg(instruction, &around)?,
            "USER" => {
                let said = self.single(instruction, &around)?;
                let (user, group) = said.split_once(':').unwrap_or((&said, ""));
                account(instruction, user)?;
                if !group.is_empty() {
                    let message = format!("the group {group} is passed over: {user} has its own");
                    around.warn(instruction, &message);
                }
                self.push(line, "USER", vec![user.to_owned()]);
                self.user_said = true;
            }
            "WORKDIR" => {
                let directory = self.single(instruction, &around)?;
                self.push(line, "WORKDIR", vec![directory]);
                self.workdir_said = true;
            }
            "CMD" | "ENTRYPOINT" | "SHELL" => self.start_words(instruction)?,
            "ONBUILD" => {
                let problem = instruction.problem("a template has no later builds to act in");
                return Err(problem.with_hint("Write its instruction where it belongs."));
            }
            "HEALTHCHECK" => around.warn(
                instruction,
                "passed over: --ready-cmd says when the start command is ready",
            ),
            "VOLUME" => around.warn(
                instruction,
                "passed over: a sandbox keeps what is written there like all else",
            ),
            "EXPOSE" => around.warn(instruction, "passed over: every port can be reached"),
            _ => around.warn(
                instruction,
                "passed over: it says nothing that a template keeps",
            ),
        }
        Ok(())
    }

    /// Expands a word whose variables must all be known here.
    pub(super) fn word(
        &self,
        instruction: &Instruction,
        word: &str,
        around: &Around<'_>,
    ) -> Result<String, Problem> {
        let text = words::expand(word, around.escape, &self.scope);
        let text = text.map_err(|why| instruction.problem(why))?;
        text.known().map_err(|name| unknown(instruction, &name))
    }

    /// The single argument of `USER` and `WORKDIR`.
    fn single(&self, instruction: &Instruction, around: &Around<'_>) -> Result<String, Problem> {
        instruction.flags(&[])?;
        let all = words::split(&instruction.rest, around.escape);
        let [one] = all.as_slice() else {
            let problem = instruction.problem(format!("it takes one word, not {}", all.len()));
            return Err(problem.with_hint("What holds blanks stands between quotes."));
        };
        let word = self.word(instruction, one, around)?;
        if word.is_empty() {
            return Err(instruction.problem("it comes out empty"));
        }
        Ok(word)
    }

    fn env(&mut self, instruction: &Instruction, around: &Around<'_>) -> Result<(), Problem> {
        instruction.flags(&[])?;
        let mut args = Vec::new();
        let mut set = Vec::new();
        for (name, value) in instruction.pairs(around.escape)? {
            let name = self.word(instruction, &name, around)?;
            variable_name(instruction, &name)?;
            let text = words::expand(&value, around.escape, &self.scope);
            let text = text.map_err(|why| instruction.problem(why))?;
            args.extend([name.clone(), text.wire()]);
            set.push((name, text.known().ok()));
        }
        let sets_path = set.iter().any(|(name, _)| name == "PATH");
        // Each value sees the variables before the instruction.
        for (name, value) in set {
            self.scope.set_env(name, value);
        }
        self.push(instruction.line, "ENV", args);
        if sets_path {
            let args = vec![KEEP_PATH.to_owned(), USER.to_owned()];
            self.push(instruction.line, "RUN", args);
        }
        Ok(())
    }

    fn arg(&mut self, instruction: &Instruction, around: &Around<'_>) -> Result<(), Problem> {
        instruction.flags(&[])?;
        for pair in words::split(&instruction.rest, around.escape) {
            let (name, default) = match pair.split_once('=') {
                Some((name, default)) => (name, Some(default)),
                None => (pair.as_str(), None),
            };
            let name = self.word(instruction, name, around)?;
            variable_name(instruction, &name)?;
            let said = around
                .build_args
                .iter()
                .rev()
                .find(|(other, _)| *other == name);
            let mut text = words::Text::default();
            let value = match (said, default, around.global.arg(&name)) {
                (Some((_, said)), _, _) => {
                    text.push_str(said);
                    Some(Some(said.clone()))
                }
                (None, Some(default), _) => {
                    let expanded = words::expand(default, around.escape, &self.scope);
                    text = expanded.map_err(|why| instruction.problem(why))?;
                    Some(text.known().ok())
                }
                (None, None, Some(global)) => {
                    text.push_str(global.as_deref().unwrap_or_default());
                    Some(global.clone())
                }
                (None, None, None) => None,
            };
            // ENV hides it, also in RUN.
            if value.is_some() && !self.scope.has_env(&name) {
                self.push(instruction.line, "ARG", vec![name.clone(), text.wire()]);
            }
            self.scope.set_arg(name, value);
        }
        Ok(())
    }
}

/// The default home directory of an account.
fn usual_home(user: &str) -> String {
    match user {
        "root" => "/root".to_owned(),
        user => format!("/home/{user}"),
    }
}

/// Refuses an invalid variable name, as the server would.
fn variable_name(instruction: &Instruction, name: &str) -> Result<(), Problem> {
    if shoal_core::build::is_name(name) {
        return Ok(());
    }
    let problem = instruction.problem(format!("{name:?} is no name of a variable"));
    Err(problem.with_hint("It has letters, digits and _, and begins with no digit."))
}

/// Refuses an invalid user or group, as the server would.
pub(super) fn account(instruction: &Instruction, name: &str) -> Result<(), Problem> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if (1..=64).contains(&name.len()) && name.bytes().all(good) && !name.starts_with('-') {
        return Ok(());
    }
    Err(instruction.problem(format!("{name:?} is no name of a user or group")))
}

/// The problem of a variable that only the image can set, where its value must be known here.
pub(super) fn unknown(instruction: &Instruction, name: &str) -> Problem {
    instruction
        .problem(format!("nothing here says what ${name} is"))
        .with_hint(format!(
            "A variable of the image is not known at this end: write its value, or set it above by \
             `ARG {name}=…` or `ENV {name}=…`."
        ))
}
