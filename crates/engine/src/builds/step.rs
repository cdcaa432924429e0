//! Runs one step in the sandbox of its build.

use std::path::PathBuf;

use shoal_core::build::{Action, BuildFailure, BuildState, FilesHash, Source};
use tempfile::TempPath;

use super::run::{Run, command_of};
use super::sandbox::{BuildLocation, BuildSandbox};
use super::scripts;

/// The path of an archive in the sandbox while it is unpacked.
const ARCHIVE: &str = "/tmp/.shoal-copy.tar";

impl Run<'_> {
    /// Runs an action. `archive` has the files of a copy from another stage.
    pub(super) async fn perform(
        &self,
        sandbox: &BuildSandbox,
        next: &BuildState,
        state: &BuildState,
        action: &Action,
        archive: Option<TempPath>,
        at: BuildLocation,
    ) -> Result<(), BuildFailure> {
        let script = |script, args| async move {
            let args: Vec<String> = args;
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            sandbox.script(self.build, at, script, &args).await
        };
        match action {
            Action::Env(_) => Ok(()),
            Action::Run { command, user } => {
                let user = user.as_ref().unwrap_or(&state.user);
                let command = command_of(command, state);
                let failed = |why: &dyn std::fmt::Display| {
                    at.failure(format_args!(
                        "failed to run command '{}': {why}",
                        shown(action)
                    ))
                };
                match sandbox.run(self.build, at, user, command).await {
                    Ok(0) => Ok(()),
                    Ok(code) => Err(failed(&format_args!("exit status {code}"))),
                    Err(failure) => Err(failed(&failure.message)),
                }
            }
            Action::Workdir(_) => {
                script(
                    scripts::WORKDIR,
                    vec![next.workdir.clone(), state.user.clone()],
                )
                .await
            }
            Action::User { name, sudo } => {
                let sudo = if *sudo { "sudo" } else { "" };
                script(scripts::USER, vec![name.clone(), sudo.to_owned()]).await
            }
            Action::Copy {
                source,
                path,
                target,
                owner,
                mode,
            } => {
                let file = match (source, &archive) {
                    (Source::Upload(hash), _) => self.upload(hash, at).await?,
                    (Source::Stage(_), Some(archive)) => archive.to_path_buf(),
                    (Source::Stage(stage), None) => {
                        return Err(at.failure(format_args!("there is no stage {stage}")));
                    }
                };
                sandbox.put(at, &file, ARCHIVE).await?;
                let args = vec![
                    ARCHIVE.to_owned(),
                    scripts::without_pattern(path),
                    state.path(target),
                    owner.clone().unwrap_or_else(|| state.user.clone()),
                    mode.clone().unwrap_or_default(),
                ];
                script(scripts::COPY, args).await
            }
        }
    }

    async fn upload(&self, hash: &FilesHash, at: BuildLocation) -> Result<PathBuf, BuildFailure> {
        let uploads = &self.builds.parts.uploads;
        let found = uploads.find(self.principal.team, hash).await;
        let found = found.map_err(|e| at.failure(e))?;
        found.ok_or_else(|| at.failure(format_args!("the files {hash} were not uploaded")))
    }
}

/// The action in one line, truncated.
fn shown(action: &Action) -> String {
    let line = match action {
        Action::Run { command, .. } => command.clone(),
        other => other.to_string(),
    };
    line.chars().take(200).collect()
}
