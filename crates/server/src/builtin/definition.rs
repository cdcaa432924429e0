//! The definition of a built-in template (`template.toml`): packages and files.

use std::collections::BTreeMap;
use std::io;

use anyhow::{Context, ensure};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use shoal_core::build::{Action, Base, FilesHash, Plan, Source, Stage, Step};
use shoal_core::resources::{Mib, MilliCpu, Resources};
use shoal_core::template::TemplateRef;
use shoal_engine::{BuiltinDefinition, PreparedBuiltin};
use tar::{Builder, Header};

use super::mirrors::Mirrors;
use super::optional::{self, Optional};
use super::release::Release;

/// The directory of pip's settings during the build. The last step that needs them removes them.
const MIRRORS: &str = "/root/.mirrors";

/// Removes them.
const REMOVE: &str = " && rm -r /root/.mirrors";

/// The file's content.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// One line for people.
    description: String,
    /// The template that it is based on.
    from: String,
    /// The release that its system has in place of that template's, where this machine's mirrors have it.
    #[serde(default)]
    release: Option<String>,
    /// Processors of its sandboxes.
    processors: u32,
    /// Memory of its sandboxes, in MiB.
    memory_mb: u32,
    /// Debian packages.
    #[serde(default)]
    apt: Vec<String>,
    /// Python packages, as arguments for pip.
    #[serde(default)]
    pip: Vec<String>,
    /// Components that are omitted when the mirrors lack their packages.
    #[serde(default)]
    optional: Vec<Optional>,
    /// npm packages for all users, left out where no registry of npm is reachable.
    #[serde(default)]
    npm: Vec<String>,
    /// Shell lines that run as root after the installation.
    #[serde(default)]
    run: Vec<String>,
    /// The user of its sandboxes, in place of the base's. It is created, with `sudo`, before the shell lines run.
    #[serde(default)]
    user: Option<String>,
    /// The directory in which commands start.
    #[serde(default)]
    workdir: Option<String>,
    /// The start command.
    #[serde(default)]
    start: Option<String>,
    /// The ready command.
    #[serde(default)]
    ready: Option<String>,
    /// Target paths and the names of the files beside the definition.
    #[serde(default)]
    files: BTreeMap<String, String>,
}

/// A definition with its files.
#[derive(Debug)]
pub(super) struct Definition {
    written: Written,
    from: TemplateRef,
    release: Option<Release>,
    /// A tar of the files.
    archive: Vec<u8>,
}

impl Definition {
    /// Parses a definition; `files` are those beside it, by name.
    ///
    /// # Errors
    /// When it has unknown fields or names a missing file.
    pub(super) fn read(text: &str, files: &[(&str, &str)]) -> anyhow::Result<Self> {
        let written: Written = toml::from_str(text)?;
        let optional = written.optional.iter().flat_map(Optional::packages);
        let named = written.apt.iter().chain(&written.pip).chain(&written.npm);
        for package in named.chain(optional) {
            ensure!(is_package(package), "{package:?} is not a package name");
        }
        for Optional { name, .. } in &written.optional {
            ensure!(is_package(name), "{name:?} is not a valid name");
        }
        let mut placed = Vec::new();
        for (path, name) in &written.files {
            let found = files.iter().find(|(known, _)| known == name);
            let (_, text) = found.with_context(|| format!("the file {name} is missing"))?;
            let path = path.strip_prefix('/');
            let path =
                path.with_context(|| format!("{name}: the target path must begin with /"))?;
            placed.push((path.to_owned(), (*text).to_owned()));
        }
        Ok(Self {
            from: written.from.parse()?,
            release: written.release.as_deref().map(Release::of).transpose()?,
            archive: archive(&placed)?,
            written,
        })
    }

    pub(super) fn description(&self) -> &str {
        &self.written.description
    }

    pub(super) fn resources(&self) -> Resources {
        Resources {
            cpu: MilliCpu(self.written.processors * 1000),
            memory: Mib(self.written.memory_mb),
            ..Resources::default()
        }
    }

    /// The system below it, if it is not that of `from`.
    pub(super) fn release(&self) -> Option<&Release> {
        self.release.as_ref()
    }

    fn base(&self) -> Base {
        let otherwise = self.from.clone().into();
        match &self.release {
            Some(release) => Base::Release {
                image: release.image.clone(),
                otherwise,
            },
            None => Base::Template(otherwise),
        }
    }

    /// The steps that need the machine's mirrors. The last one removes their settings.
    fn installing(&self, mirrors: FilesHash) -> Vec<Action> {
        let written = &self.written;
        let mut lines = Vec::new();
        if !written.pip.is_empty() {
            lines.push(pip_install(&written.pip));
        }
        if !written.npm.is_empty() {
            lines.push(npm_install(&written.npm));
        }
        if !written.optional.is_empty() {
            lines.push(optional::script(&written.optional));
        }
        let Some(last) = lines.last_mut() else {
            return Vec::new();
        };
        last.push_str(REMOVE);
        let copied = copy(mirrors, MIRRORS);
        std::iter::once(copied)
            .chain(lines.into_iter().map(as_root))
            .collect()
    }

    fn plan(&self, mirrors: FilesHash, files: FilesHash) -> Plan {
        let written = &self.written;
        let mut actions = Vec::new();
        if !written.apt.is_empty() {
            let packages = written.apt.join(" ");
            actions.push(as_root(format!(
                "export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && \
                 apt-get install -qq --no-install-recommends {packages} && \
                 apt-get clean && rm -rf /var/lib/apt/lists/*"
            )));
        }
        actions.extend(self.installing(mirrors));
        if !written.files.is_empty() {
            actions.push(copy(files, "/"));
        }
        if let Some(user) = &written.user {
            let (name, sudo) = (user.clone(), true);
            actions.push(Action::User { name, sudo });
        }
        actions.extend(written.workdir.clone().map(Action::Workdir));
        actions.extend(written.run.iter().cloned().map(as_root));
        let steps = actions.into_iter().map(|action| Step {
            action,
            line: None,
            force: false,
        });
        Plan {
            stages: vec![Stage {
                base: self.base(),
                steps: steps.collect(),
            }],
            keep_env: Vec::new(),
            start: written.start.clone(),
            ready: written.ready.clone(),
            force: false,
        }
    }
}

impl BuiltinDefinition for Definition {
    fn prepare(&self) -> io::Result<PreparedBuiltin> {
        let mirrors = archive(&Mirrors::of_this_machine()?.files(MIRRORS))?;
        let files = self.archive.clone();
        let (of_mirrors, of_files) = (hash(&mirrors)?, hash(&files)?);
        Ok(PreparedBuiltin {
            plan: self.plan(of_mirrors.clone(), of_files.clone()),
            files: vec![(of_mirrors, mirrors), (of_files, files)],
        })
    }
}

/// The command that installs Python packages from the machine's configured index.
pub(super) fn pip_install(packages: &[String]) -> String {
    let packages: Vec<String> = packages.iter().map(|p| format!("'{p}'")).collect();
    format!(
        "PIP_CONFIG_FILE={MIRRORS}/pip.conf pip install --no-cache-dir \
         --disable-pip-version-check --root-user-action=ignore --progress-bar=off {}",
        packages.join(" ")
    )
}

/// The command that installs npm packages for all users from the machine's configured registry, or says that it cannot.
fn npm_install(packages: &[String]) -> String {
    let names = packages.join(" ");
    let words: Vec<String> = packages.iter().map(|p| format!("'{p}'")).collect();
    format!(
        "{{ NPM_CONFIG_USERCONFIG={MIRRORS}/npmrc npm install --global --prefix=/usr/local --fetch-retries=1 --no-fund --no-audit {} || \
         echo 'left out: {names}: the registry of npm does not answer' >&2; }}",
        words.join(" ")
    )
}

/// Whether a text is a package name with versions, and safe in a quoted shell word.
fn is_package(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.+:~<>=!,[]@".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(good)
}

fn as_root(command: String) -> Action {
    Action::Run {
        command,
        user: Some("root".to_owned()),
    }
}

fn copy(files: FilesHash, target: &str) -> Action {
    Action::Copy {
        source: Source::Upload(files),
        path: ".".to_owned(),
        target: target.to_owned(),
        owner: Some("root".to_owned()),
        mode: None,
    }
}

/// A reproducible tar. Files that begin with `#!` are executable.
fn archive(files: &[(String, String)]) -> io::Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for (path, text) in files {
        let mut header = Header::new_gnu();
        header.set_mode(if text.starts_with("#!") { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(text.len() as u64);
        tar.append_data(&mut header, path, text.as_bytes())?;
    }
    tar.into_inner()
}

fn hash(archive: &[u8]) -> io::Result<FilesHash> {
    let digest = hex::encode(Sha256::digest(archive));
    digest.parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        description = "x"
        from = "base"
        processors = 2
        memory_mb = 512
        apt = ["r-base"]
        pip = ["numpy>=2,<3"]
        ready = "true"
        [files]
        "/etc/x" = "x"
    "#;

    #[test]
    fn packages_come_before_files_and_mirrors_do_not_stay() {
        let definition = Definition::read(TEXT, &[("x", "y")]).unwrap();
        let prepared = definition.prepare().unwrap();
        let steps = prepared.plan.stages[0].steps.iter();
        let steps: Vec<String> = steps.map(|step| step.action.to_string()).collect();
        assert!(steps[0].contains("install") && steps[0].contains("r-base"));
        assert_eq!(steps[1], format!("COPY . {MIRRORS}"));
        assert!(steps[2].contains("'numpy>=2,<3'"));
        assert!(steps[2].ends_with(&format!("rm -r {MIRRORS}")));
        assert_eq!(steps[3], "COPY . /");
        assert_eq!(steps.len(), 4);
    }

    #[test]
    fn what_is_optional_comes_after_what_is_not_and_takes_the_mirrors_away() {
        let text = format!("{TEXT}\n[[optional]]\nname = \"R\"\napt = [\"r-cran-irkernel\"]");
        let definition = Definition::read(&text, &[("x", "y")]).unwrap();
        let prepared = definition.prepare().unwrap();
        let steps = prepared.plan.stages[0].steps.iter();
        let steps: Vec<String> = steps.map(|step| step.action.to_string()).collect();
        assert!(steps[2].contains("'numpy>=2,<3'") && !steps[2].contains("rm -r"));
        assert!(steps[3].contains("r-cran-irkernel") && steps[3].ends_with(REMOVE));
        let bad = text.replace("r-cran-irkernel", "x; reboot");
        assert!(Definition::read(&bad, &[("x", "y")]).is_err());
    }

    #[test]
    fn another_release_and_another_user_come_before_its_shell_lines() {
        let own = "release = \"noble\"\nuser = \"worker\"\nworkdir = \"/home/worker\"\n\
            npm = [\"pnpm@10\"]\nrun = [\"true\"]\n[files]";
        let text = TEXT.replace("[files]", own);
        let definition = Definition::read(&text, &[("x", "y")]).unwrap();
        let prepared = definition.prepare().unwrap();
        let stage = &prepared.plan.stages[0];
        let release = definition.release().unwrap();
        let (image, otherwise) = (release.image.clone(), "base".parse().unwrap());
        assert!(image.as_str().starts_with("shoal/base-noble:"));
        assert_eq!(release.recipe.suite.as_str(), "noble");
        assert_eq!(stage.base, Base::Release { image, otherwise });
        let steps: Vec<String> = stage.steps.iter().map(|s| s.action.to_string()).collect();
        assert!(steps[2].contains("numpy") && !steps[2].contains("rm -r"));
        assert!(steps[3].contains("'pnpm@10'") && steps[3].contains("left out: pnpm@10"));
        assert!(steps[3].ends_with(REMOVE));
        assert_eq!(
            steps[4..],
            [
                "COPY . /",
                "USER worker",
                "WORKDIR /home/worker",
                "RUN true"
            ]
        );
    }

    #[test]
    fn what_is_no_package_and_what_is_not_there_is_refused() {
        let bad = TEXT.replace("r-base", "x; reboot");
        assert!(Definition::read(&bad, &[("x", "y")]).is_err());
        let bad = TEXT.replace("numpy>=2,<3", "--index-url=x");
        assert!(Definition::read(&bad, &[("x", "y")]).is_err());
        assert!(Definition::read(TEXT, &[]).is_err());
        assert!(Definition::read(&TEXT.replace("ready", "redy"), &[("x", "y")]).is_err());
    }
}
